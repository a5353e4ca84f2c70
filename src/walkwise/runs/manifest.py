"""The identity of a run: its model, data, questions and settings; a folder holds a single run."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import nn

from walkwise.errors import InputError
from walkwise.rules import RuleLike
from walkwise.runs.answers import SCHEMA
from walkwise.runs.fingerprints import hashed
from walkwise.runs.work import Work

#: What must be the same when a run goes on, and what it is called in a message.
_IDENTITY = {
    "schema": "schema",
    "model_hash": "model (a hash)",
    "data_hash": "data set (a hash)",
    "graphs": "number of graphs",
    "questions": "questions",
    "groups": "groups",
    "target": "target",
    "rule": "rule",
    "index": "number of explained nodes",
    "batch": "batch",
    "seed": "seed",
}


def manifest_of(work: Work, *, model_name: str, data_name: str, command: str | None) -> dict[str, Any]:
    """What is written down of a run before it begins.

    Args:
        work: what workers do.
        model_name: what people call the model.
        data_name: what they call the data set.
        command: the command that does it again, if there is one.
    """
    source = work.source
    return {
        "format": "walkwise run",
        "schema": SCHEMA,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": command,
        "model": model_name,
        "model_class": f"{type(work.model).__module__}.{type(work.model).__qualname__}",
        "model_hash": model_hash(work.model),
        "data": data_name,
        "data_hash": source.fingerprint(),
        "graphs": len(source),
        "class_names": list(source.class_names),
        "node_names": list(source.node_names),
        "questions": [question.name for question in work.questions],
        "groups": {question.name: dict(question.groups) for question in work.questions if question.groups},
        "target": work.target,
        "rule": rule_name(work.rule),
        "index": len(source) if work.indexed else None,
        "batch": work.batch,
        "seed": work.seed,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            **{name: _version(name) for name in ("walkwise", "torch_geometric", "numpy", "pyarrow")},
        },
        "platform": sys.platform,
    }


def check_same(before: Mapping[str, Any], now: Mapping[str, Any], folder: str) -> None:
    """Refuse to go on with a run that is another one: say what differs.

    Args:
        before: the manifest that is there.
        now: that of the run that is to go on.
        folder: the run's folder.
    """
    differs = [key for key in _IDENTITY if before.get(key) != now.get(key)]
    if differs:
        pairs = [(_IDENTITY[key], _short(before.get(key)), _short(now.get(key))) for key in differs]
        words = "; ".join(f"{what}: {was} before, {has} now" for what, was, has in pairs)
        raise InputError(
            f"{folder} holds another run: {words}.",
            argument="out",
            expected="the folder of the same run",
            got=folder,
            remedy="Resume it as it was, or name another folder.",
        )


def check_origin(manifest: Mapping[str, Any], model: nn.Module, data_hash: str | None) -> None:
    """Refuse a model or graphs that are not those of a run.

    Args:
        manifest: of the run.
        model: the model.
        data_hash: of the graphs; None where nobody can say.
    """
    differs = [] if manifest["model_hash"] == model_hash(model) else ["this model"]
    differs += [] if data_hash in (None, manifest["data_hash"]) else ["these graphs"]
    if differs:
        raise InputError(
            f"The run does not belong to {' and '.join(differs)}: it was made with {manifest['model']} and "
            f"{manifest['data']}.",
            argument=differs[0].split()[1],
            expected="the model and the graphs of the run",
            remedy="Name the ones that it was made with.",
        )


def model_hash(model: nn.Module) -> str:
    """A hash of what a model is made of: its modules as they print, and its parameters and buffers."""
    return hashed([{"class": type(model).__qualname__, "modules": repr(model)}, model.state_dict()])


def rule_name(rule: RuleLike) -> str:
    """A rule as it is written down."""
    return rule if isinstance(rule, str) else repr(rule)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _short(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 60 else text[:57] + "…"

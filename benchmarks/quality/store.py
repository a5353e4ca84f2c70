"""What has been done, in files: a run that is cut short goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class Run:
    """One trained model: a task, a design and a seed."""

    task: str
    design: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.task}/{self.design}-{self.seed}"


@dataclass
class Record:
    """What one method said of one model's graphs, by the number of the graph."""

    meaning: str  # of the method's name, and of the weights
    graphs: dict[str, dict[str, float | None]]
    left: dict[str, str]  # graphs without an answer, and why

    def done(self, number: int) -> bool:
        return str(number) in self.graphs or str(number) in self.left


class Store:
    """A folder of weights and results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def models(self, run: Run) -> Path:
        return self.folder / "models" / f"{run.name}.pt"

    def results(self, run: Run, method: str) -> Path:
        return self.folder / "results" / run.name / f"{file_name(method)}.json"

    def fit(self, run: Run) -> dict[str, Any] | None:
        """How the training of a run went, or None if it has not been trained."""
        path = self.models(run).with_suffix(".json")
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def save_fit(self, run: Run, network: nn.Module, told: dict[str, Any]) -> None:
        path = self.models(run)
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(network.state_dict(), path)
        write(path.with_suffix(".json"), told)

    def record(self, run: Run, method: str, meaning: str) -> Record:
        """What is known of a method on a run; nothing, where it was found with another meaning."""
        path = self.results(run, method)
        if path.exists():
            stored = json.loads(path.read_text(encoding="utf-8"))
            if stored["meaning"] == meaning:
                return Record(meaning, stored["graphs"], stored["left"])
        return Record(meaning, {}, {})

    def save_record(self, run: Run, method: str, record: Record) -> None:
        told = {"method": method, "meaning": record.meaning, "graphs": record.graphs, "left": record.left}
        write(self.results(run, method), told)


def write(path: Path, told: Any) -> None:
    """A JSON file that is either all there or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(json.dumps(told, ensure_ascii=False, indent=1), encoding="utf-8")
    part.replace(path)


def file_name(method: str) -> str:
    """A name for files: what is not plain becomes a dash, and a short digest keeps names apart.

    >>> file_name("gradient-x-input")
    'gradient-x-input'
    """
    plain = re.sub(r"[^A-Za-z0-9.=-]+", "-", method).strip("-")
    return plain if plain == method else f"{plain}-{hashlib.sha256(method.encode()).hexdigest()[:6]}"


def digest(network: nn.Module) -> str:
    """A few letters that change with the weights."""
    total = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        total.update(name.encode() + value.detach().cpu().numpy().tobytes())
    return total.hexdigest()[:12]

"""An explanation as plain values, as tables, and as a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from walkwise.core.node_types import NodeTypes
from walkwise.errors import InputError, MissingExtraError
from walkwise.explanation.check import Check, Outcome
from walkwise.files import as_path, read_tensors, write_tensors
from walkwise.search.best_subgraph import FoundSubgraph
from walkwise.search.best_walks import TopWalks

if TYPE_CHECKING:
    from walkwise.explanation.answer import Explanation

#: The ending of a saved explanation, and how to write other kinds of files.
ENDING = ".safetensors"
_INSTEAD = {
    **dict.fromkeys((".csv", ".tsv", ".xlsx", ".parquet"), "make a table of it, explanation.to_pandas()"),
    **dict.fromkeys((".png", ".pdf", ".svg", ".jpg"), "draw it, explanation.plot().figure.savefig(path)"),
    ".json": "write plain values, json.dumps(explanation.to_dict())",
}

Part = Literal["nodes", "edges", "features", "walks"]

#: The fields by how they are stored: as tensors, as they are, and as lists.
_TENSORS = ("node_relevance", "edge_index", "edge_relevance", "feature_relevance")
_PLAIN = ("target", "index", "relevance", "smiles")
_LISTS = ("outputs", "notes", "node_labels")


def table(explanation: Explanation, of: Part) -> Any:
    """A table of the nodes, edges, features or walks, as a pandas DataFrame."""
    try:
        import pandas as pd
    except ImportError:
        raise MissingExtraError(
            "Tables need the package pandas.", remedy="Install it with: pip install 'walkwise[pandas]'"
        ) from None
    if of == "nodes":
        M, labels = explanation.num_nodes, explanation.node_labels
        columns: dict[str, Any] = {
            "label": list(labels) or [""] * M,
            "relevance": explanation.node_relevance.tolist(),
            "subgraph": [i in explanation.subgraph.numbers for i in range(M)],
        }
        return pd.DataFrame(columns).rename_axis("node")
    if of == "edges":
        source, target = explanation.edge_index.tolist()
        if explanation.types is not None:
            source, target = explanation.types.written(source), explanation.types.written(target)
        return pd.DataFrame({"source": source, "target": target, "relevance": explanation.edge_relevance.tolist()})
    if of == "features":
        given = explanation.feature_relevance
        parts = [given] if isinstance(given, Tensor) else list(given.values())
        return pd.concat([pd.DataFrame(part.numpy()) for part in parts], ignore_index=True).rename_axis("node")
    if of == "walks":
        walks, types = explanation.walks, explanation.types
        named = walks.walks.tolist() if types is None else [types.written(walk) for walk in walks.walks.tolist()]
        return pd.DataFrame(named).add_prefix("position ").assign(relevance=walks.relevance.tolist())
    raise InputError(argument="of", expected='"nodes", "edges", "features" or "walks"', got=of)


def plain(explanation: Explanation) -> dict[str, Any]:
    """Everything but the chain as plain values, ready for JSON."""
    found, walks = _described(explanation), explanation.walks
    tensors = {name: getattr(explanation, name) for name in _TENSORS}
    found |= {
        name: held.tolist() if isinstance(held, Tensor) else {kind: part.tolist() for kind, part in held.items()}
        for name, held in tensors.items()
    }
    if explanation.types is not None:
        found["subgraph"]["nodes"] = explanation.subgraph.nodes
    found["walks"] |= {"walks": walks.walks.tolist(), "relevance": walks.relevance.tolist()}
    return found


def _described(explanation: Explanation) -> dict[str, Any]:
    """Everything that is not a tensor, as plain values."""
    walks, subgraph, types = explanation.walks, explanation.subgraph, explanation.types
    return {
        **{name: getattr(explanation, name) for name in _PLAIN},
        **{name: list(getattr(explanation, name)) for name in _LISTS},
        "normaliser": explanation.normaliser,
        "prediction": asdict(explanation.prediction),
        "subgraph": {
            "nodes": list(subgraph.numbers),
            **{name: getattr(subgraph, name) for name in ("score", "evaluated", "total", "route")},
        },
        "check": None if explanation.check is None else asdict(explanation.check),
        "walks": {name: getattr(walks, name) for name in ("expansions", "num_walks", "route")},
        "types": None if types is None else dict(types.counts),
    }


def write(explanation: Explanation, path: str | Path) -> None:
    """Write an explanation, without its chain, to a safetensors file."""
    _check_ending(as_path(path, "path"))
    tensors = {"walks": explanation.walks.walks, "walk_relevance": explanation.walks.relevance}
    for name in _TENSORS:
        held = getattr(explanation, name)
        tensors |= {name: held} if isinstance(held, Tensor) else {f"{name}/{kind}": v for kind, v in held.items()}
    write_tensors(path, tensors, {"explanation": json.dumps(_described(explanation))})


def _check_ending(path: Path) -> None:
    """Refuse a file name of another kind."""
    ending = path.suffix.lower()
    if ending in ("", ENDING):
        return
    instead = _INSTEAD.get(ending)
    raise InputError(
        f"save writes a {ENDING[1:]} file, and the name {path.name!r} suggests another kind.",
        argument="path",
        expected=f"NAME{ENDING}",
        got=path.name,
        remedy=f"Write explanation.save({path.stem + ENDING!r})" + (f", or {instead}." if instead else "."),
    )


def read(path: str | Path) -> dict[str, Any]:
    """Read the fields of an explanation from a file; the chain is not in it."""
    tensors, metadata = read_tensors(as_path(path, "path"), "a file that Explanation.save wrote")
    try:
        found = json.loads(metadata["explanation"])
        counts = found.pop("types", None)
        types = None if counts is None else NodeTypes(counts)
        subgraph, walks = found.pop("subgraph"), found.pop("walks")
        subgraph["numbers"] = tuple(subgraph.pop("nodes"))
        return {
            **{name: found[name] for name in _PLAIN},
            **{name: tuple(found[name]) for name in _LISTS},
            **{name: _tensors(tensors, name, types) for name in _TENSORS},
            "normaliser": found.get("normaliser", 0.0),  # which older files lack
            "prediction": Outcome(**found["prediction"]),
            "subgraph": FoundSubgraph(**subgraph, types=types),
            "check": None if found["check"] is None else _check(found["check"]),
            "walks": TopWalks(tensors["walks"], tensors["walk_relevance"], **walks, types=types),
            "types": types,
        }
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{path} does not hold an explanation.",
            argument="path",
            expected="a file that Explanation.save wrote",
            got=str(path),
            remedy="Save the explanation again.",
        ) from error


def _check(kept: Mapping[str, Mapping[str, Any]]) -> Check:
    """The check of the explanation, from plain values."""
    return Check(**{name: Outcome(**outcome) for name, outcome in kept.items()})


def _tensors(tensors: Mapping[str, Tensor], name: str, types: NodeTypes | None) -> Tensor | dict[str, Tensor]:
    """A tensor of a file, or tensors by type."""
    if name in tensors or types is None:
        return tensors[name]
    return {kind: tensors[f"{name}/{kind}"] for kind in types.counts if f"{name}/{kind}" in tensors}

"""The options that several commands share, and the reading of node lists."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from walkwise.cli.names import BUNDLED, GRAPHS, RULES, SourceError

DATA_HELP = "The folder of data sets; default: that of the variable WALKWISE_ROOT, or ~/.cache/walkwise."


def _starting(names: Sequence[str]) -> Any:
    """Completes a word by the names that start with it."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def set_debug(context: typer.Context, value: bool) -> bool:
    """Remembers, for the handling of errors, that tracebacks are wanted."""
    context.meta["walkwise.debug"] = value or context.meta.get("walkwise.debug", False)
    return value


def as_target(given: Any) -> int | str:
    """A column of the output, or the name of a class.

    >>> as_target("2"), as_target("mutagenic")
    (2, 'mutagenic')
    """
    return int(given) if str(given).isdecimal() else str(given)


ModelName = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A bundled model (ba2motif, mutag), a .safetensors file, or an import path such as mypkg.models:build, a "
        "model or what makes one. An import path runs that module: name only code that you trust.",
        autocompletion=_starting(tuple(BUNDLED)),
    ),
]
DataName = Annotated[
    str | None,
    typer.Argument(
        metavar="GRAPHS",
        help=f"A data set ({', '.join(GRAPHS)}), a file of PyG graphs saved by torch (.pt), or an import path such as "
        "mypkg.data:load (which runs). A bundled model has graphs of its own.",
        autocompletion=_starting(GRAPHS),
        show_default=False,
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option(help="The model's weights: .safetensors, or a state_dict saved by torch; only tensors are read."),
]
DataRoot = Annotated[Path | None, typer.Option("--data", help=DATA_HELP)]
Smiles = Annotated[list[str] | None, typer.Option(help="A molecule, in place of GRAPHS; may be repeated.")]
GraphNumber = Annotated[
    int | None,
    typer.Option(
        "--graph",
        min=0,
        help="Which graph, from 0; default: the first, or each molecule of --smiles in turn.",
        show_default=False,
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        parser=as_target,
        metavar="CLASS",
        help="The class or output column to explain; default: the largest output. Of one logit: positive or negative.",
    ),
]
Against = Annotated[
    str | None,
    typer.Option(parser=as_target, metavar="CLASS", help="Explain what speaks for --target and not for this class."),
]
Index = Annotated[int | None, typer.Option(min=0, help="The node to explain, for models with an output per node.")]
RuleName = Annotated[
    str, typer.Option("--rule", help=f"The LRP rule: {', '.join(RULES)}.", autocompletion=_starting(RULES))
]
Alphas = Annotated[
    list[float] | None,
    typer.Option("--alpha", min=0, max=1, help="What a step outside a set counts, 0 to 1; may be repeated."),
]
NodeLists = Annotated[
    list[str] | None,
    typer.Option("--nodes", help="A set of nodes: 0,1,2 or 20-24 or ring=0-5; may be repeated."),
]
Size = Annotated[int | None, typer.Option(min=1, help="How many nodes the most relevant set has.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output and nothing else.")]
Debug = Annotated[bool, typer.Option("--debug", callback=set_debug, help="Show the traceback of an error.")]


def graph_numbers(graph: int | None, smiles: Sequence[str] | None) -> list[int]:
    """The graphs to ask about: the one that is named, each of the molecules, or else the first.

    >>> graph_numbers(None, None), graph_numbers(None, ["CC", "CN"]), graph_numbers(1, ["CC", "CN"])
    ([0], [0, 1], [1])
    """
    return list(range(len(smiles or [None]))) if graph is None else [graph]


def node_lists(given: Sequence[str]) -> dict[str, list[int]]:
    """Names and nodes of sets as they are typed.

    >>> node_lists(["0,1,2", "tail=20-22,24"])
    {'0,1,2': [0, 1, 2], 'tail': [20, 21, 22, 24]}
    """
    sets: dict[str, list[int]] = {}
    for text in given:
        name, equals, listed = text.rpartition("=")
        name = name.strip() if equals else text.strip()
        if name in sets:
            raise SourceError(f"Two sets of nodes are called {name!r}: give each a name of its own.")
        sets[name] = _nodes(listed, text)
    return sets


def _nodes(listed: str, text: str) -> list[int]:
    nodes: list[int] = []
    for part in listed.split(","):
        ends = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if not ends:
            raise SourceError(f"Expected nodes such as 0,1,2 or 20-24 or ring=0-5, got {text!r}.")
        first, last = int(ends[1]), int(ends[2] or ends[1])
        if last < first:
            raise SourceError(f"Expected a range from the lower node to the higher, got {part.strip()!r} in {text!r}.")
        nodes += range(first, last + 1)
    return list(dict.fromkeys(nodes))

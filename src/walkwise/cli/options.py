"""The options that several commands share, and the parsing of node lists."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from walkwise.cli.names import (
    BUNDLED,
    GRAPHS,
    RULES,
    SourceError,
    check_folder,
    check_graphs,
    check_model,
    check_smiles,
    choice,
    existing,
)
from walkwise.notation import query_of

DATA_HELP = "The folder of data sets; default: $WALKWISE_ROOT, or ~/.cache/walkwise."


def _starting(names: Sequence[str]) -> Any:
    """Complete a word with the names that start with it."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def set_debug(context: typer.Context, value: bool) -> bool:
    """Remember, for error handling, that tracebacks are wanted."""
    context.meta["walkwise.debug"] = value or context.meta.get("walkwise.debug", False)
    return value


def as_target(given: Any) -> int | str:
    """A column of the output, or the name of a class.

    >>> as_target("2"), as_target("mutagenic")
    (2, 'mutagenic')
    """
    return int(given) if str(given).isdecimal() else str(given)


#: A node as typed: its number, or (type, i) in a heterogeneous graph.
Node = int | tuple[str, int]


def as_node(given: str) -> Node:
    """A node as it is typed, and as tables print it.

    >>> as_node("3"), as_node("paper 2")
    (3, ('paper', 2))
    """
    found = re.fullmatch(r"(?:(.*\S)\s+)?(\d+)", given.strip())
    if found is None:
        expected = "a number, or for a heterogeneous graph a type and a number, such as 'paper 2'"
        raise SourceError(f"--index must be {expected}, got {given}.", argument="index", expected=expected, got=given)
    return (found[1], int(found[2])) if found[1] else int(found[2])


def _checked(check: Callable[[Any], Any]) -> Any:
    """A callback that checks an argument before anything is loaded."""
    return lambda given: given if given is None else check(given)


ModelName = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help=f"The model to explain: a bundled one ({', '.join(BUNDLED)}), a .safetensors file, or an import path such "
        "as mypkg.models:build. An import path runs that module: name only code that you trust.",
        autocompletion=_starting(tuple(BUNDLED)),
        callback=_checked(check_model),
    ),
]
DataName = Annotated[
    str | None,
    typer.Argument(
        metavar="GRAPHS",
        help=f"The graphs to ask about: a data set ({', '.join(GRAPHS)}), a file of PyG graphs saved by torch (.pt), "
        "or an import path such as mypkg.data:load, which is run. Bundled models come with graphs of their own.",
        autocompletion=_starting(GRAPHS),
        show_default=False,
        callback=_checked(check_graphs),
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Weights for the model: a .safetensors file or a state_dict saved by torch. Only tensors are read.",
        callback=_checked(existing),
    ),
]
DataRoot = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help=DATA_HELP, callback=_checked(check_folder))
]
Smiles = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SMILES",
        help="A molecule to ask about instead of GRAPHS; can be given several times.",
        callback=_checked(check_smiles),
    ),
]
GraphNumber = Annotated[
    int | None,
    typer.Option(
        "--graph",
        metavar="N",
        min=0,
        help="Which graph, counting from 0; default: the first one, or every molecule of --smiles in turn.",
        show_default=False,
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        parser=as_target,
        metavar="CLASS",
        help="The class or output column to explain; default: the largest. For a single logit: positive or negative.",
    ),
]
Against = Annotated[
    str | None,
    typer.Option(parser=as_target, metavar="CLASS", help="Explain what speaks for --target rather than this class."),
]
Index = Annotated[
    Any,  # a Node, or None
    typer.Option(
        parser=str,
        metavar="NODE",
        help="The node to explain, for models with an output for each node: its number, or for a heterogeneous graph "
        "a name such as 'paper 2'.",
        callback=_checked(as_node),
    ),
]
RuleName = Annotated[
    str,
    typer.Option(
        "--rule",
        metavar="NAME",
        help=f"The LRP rule: {', '.join(RULES)}.",
        autocompletion=_starting(RULES),
        callback=_checked(lambda name: choice(name, RULES, "rule")),
    ),
]
Alphas = Annotated[
    list[float] | None,
    typer.Option(
        "--alpha",
        metavar="A",
        min=0,
        max=1,
        help="The weight of steps outside a set, from 0 to 1; can be given several times.",
    ),
]
NodeLists = Annotated[
    list[str] | None,
    typer.Option(
        "--nodes",
        metavar="NODES",
        help="A set of nodes, such as 0,1,2 or 20-24 or ring=0-5, or for a heterogeneous graph team='author 0-2, "
        "venue 1'; can be given several times.",
    ),
]
Smarts = Annotated[
    list[str] | None,
    typer.Option(
        "--smarts",
        metavar="NAME=SMARTS",
        help="A group of atoms given by a pattern, such as NO2='[N+](=O)[O-]'; can be given several times.",
    ),
]
Functional = Annotated[
    bool, typer.Option("--functional-groups", help="Use the functional groups and rings of molecules as groups.")
]
Size = Annotated[
    int | None,
    typer.Option(metavar="K", min=1, help="The number of nodes in the most relevant set.", show_default=False),
]
Featurise = Annotated[
    str | None,
    typer.Option(
        metavar="IMPORT",
        help="The function that turns a SMILES string into a graph, as an import path; default: the bundled models' "
        "features.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print a single JSON object and nothing else.")]
Debug = Annotated[bool, typer.Option("--debug", callback=set_debug, help="Show the traceback if something fails.")]


def graph_numbers(graph: int | None, smiles: Sequence[str] | None) -> list[int]:
    """The graphs to ask about: the given one, each of the molecules, or else the first.

    >>> graph_numbers(None, None), graph_numbers(None, ["CC", "CN"]), graph_numbers(1, ["CC", "CN"])
    ([0], [0, 1], [1])
    """
    return list(range(len(smiles or [None]))) if graph is None else [graph]


#: Sets of nodes as typed: by number, or as (type, i) in a heterogeneous graph.
NodeSets = Mapping[str, Sequence[Node]]


def node_lists(given: Sequence[str]) -> NodeSets:
    """Names and nodes of sets as they are typed.

    >>> node_lists(["0,1,2", "tail=20-22,24"])
    {'0,1,2': [0, 1, 2], 'tail': [20, 21, 22, 24]}
    >>> node_lists(["team=author 0-1, venue 1"])
    {'team': [('author', 0), ('author', 1), ('venue', 1)]}
    """
    sets: dict[str, list[Node]] = {}
    for text in given:
        name, equals, listed = text.rpartition("=")
        name = name.strip() if equals else text.strip()
        if name in sets:
            raise SourceError(
                f"Two sets of nodes are called {name!r}.",
                argument="nodes",
                expected="sets of different names",
                got=name,
                remedy="Give each a name of its own.",
            )
        sets[name] = _nodes(listed, text)
    return sets


def _nodes(listed: str, text: str) -> list[Node]:
    nodes: list[Node] = []
    for part in listed.split(","):
        ends = re.fullmatch(r"\s*(?:([^\W\d].*?)\s+)?(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if not ends:
            expected = "nodes such as 0,1,2 or 20-24 or ring=0-5"
            raise SourceError(f"Expected {expected}, got {text!r}.", argument="nodes", expected=expected, got=text)
        first, last = int(ends[2]), int(ends[3] or ends[2])
        if last < first:
            raise SourceError(
                f"Expected a range from the lower node to the higher, got {part.strip()!r} in {text!r}.",
                argument="nodes",
                expected="ranges from the lower node to the higher",
                got=text,
            )
        nodes += [(ends[1], i) if ends[1] else i for i in range(first, last + 1)]
    return list(dict.fromkeys(nodes))


def patterns(given: Sequence[str]) -> dict[str, str]:
    """Names and SMARTS patterns as they are typed.

    >>> patterns(["NO2=[N+](=O)[O-]"])
    {'NO2': '[N+](=O)[O-]'}
    """
    found = {}
    for text in given:
        name, equals, pattern = text.partition("=")
        if not equals or not name.strip().isidentifier() or not pattern.strip():
            raise SourceError(
                f"Expected a name and a pattern, such as NO2='[N+](=O)[O-]', got {text!r}.",
                argument="smarts",
                expected="a name and a pattern",
                got=text,
            )
        found[name.strip()] = pattern.strip()
    for name, pattern in found.items() if find_spec("rdkit") else ():
        query_of(name, pattern)
    return found

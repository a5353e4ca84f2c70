"""How far a model looks from a node: found on a small part of the graph, and checked against the whole graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from walkwise.errors import InputError, TargetError, as_whole, described
from walkwise.tracing.given.arguments import Given
from walkwise.tracing.given.inputs import check_edges
from walkwise.tracing.given.target import Index, Target
from walkwise.tracing.neighbourhoods import (
    BeyondError,
    GraphIndex,
    Neighbourhoods,
    Reach,
    graph_index,
    hops_of,
    kept_index,
    reads_degrees,
    sends_backward,
    what_ran,
)
from walkwise.tracing.recording.tape import Tape
from walkwise.tracing.running.watch import Watch
from walkwise.tracing.runs import ModelRuns
from walkwise.tracing.whole_outputs import WholeOutputs

#: From this many nodes on, the neighbourhood of a node is traced instead of the whole graph.
_MANY_NODES = 4096
#: Unless it has more than this part of the nodes; and how many rows several neighbourhoods may have together.
_MOST_PART, _MOST_ROWS = 4, 5_000_000
_NEARBY = "traced on the {:,} of {:,} nodes within {} steps of the explained one; its output depends on no other"
_GLOBAL = (
    "the whole graph was traced: on the node's neighbourhood alone, the model gives a different output for it, so "
    "something reads nodes further away (a normalisation over all nodes, a virtual node, pooling)"
)


def neighbourhoods_for(given: Given, target: Target, index: Index) -> tuple[Neighbourhoods | None, tuple[str, ...]]:
    """The neighbourhoods to trace instead of the graph, or None if the whole graph must be traced, and a note."""
    if index is None or callable(target) or given.types is not None or given.node_dim:
        return None, ()
    with torch.no_grad():
        return (_of_several(given, index), ()) if is_several(index) else _of_one(given, index)


def _of_one(given: Given, index: Any) -> tuple[Neighbourhoods | None, tuple[str, ...]]:
    """The neighbourhood of a node, or None if the whole graph must be traced, and a note."""
    M = given.num_nodes
    try:
        node = as_whole(index)
    except TypeError:
        return None, ()
    if M < _MANY_NODES or not 0 <= node < M:
        return None, ()
    try:
        hoods, hops = _found(given, [node], M // _MOST_PART)
    except BeyondError as beyond:
        return None, (str(beyond),) if str(beyond) else ()
    return hoods, () if hoods is None else (_NEARBY.format(len(hoods.origin.nodes), M, hops),)


def _of_several(given: Given, index: Any) -> Neighbourhoods:
    """The neighbourhoods of some nodes; without them the nodes could not be kept apart, so there must be some."""
    centres = _centres(index, given.num_nodes)
    try:
        hoods, _ = _found(given, centres, _MOST_ROWS)
    except BeyondError as beyond:
        raise InputError(
            "The outputs of these nodes cannot be computed from their neighbourhoods alone.",
            argument="index",
            expected="one node, for a model or an input like this",
            got=index,
            remedy="Trace one node at a time, with index=<the node>.",
        ) from beyond
    if hoods is None:
        raise InputError(
            f"The neighbourhoods of these {len(centres)} nodes have more than {_MOST_ROWS:,} nodes together.",
            argument="index",
            expected="a list of fewer nodes",
            remedy="Give fewer nodes at a time.",
        )
    return hoods


def _found(given: Given, centres: list[int], most: int) -> tuple[Neighbourhoods | None, int]:
    """The neighbourhoods as far as the model looks, and how far that is; None if they have more nodes than that."""
    edge_index = given.edge_index
    plain = type(edge_index) is Tensor and edge_index.layout == torch.strided and edge_index.dtype == torch.long
    if not isinstance(given.x, Tensor) or not plain or edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise BeyondError("")
    if kept_index(edge_index, given.num_nodes) is None:
        check_edges(edge_index, given.num_nodes)
    graph = graph_index(edge_index, given.num_nodes)
    known = graph.reaches.get(given.model)
    if known is None or (isinstance(known, Reach) and not known.outputs.still_hold(given)):
        try:
            known = _reach(given, graph, centres, most)
        except BeyondError as beyond:
            known = str(beyond)
        if known is None:
            return None, 0
        graph.reaches[given.model] = known
    if isinstance(known, str):
        raise BeyondError(known)
    return graph.cut(centres, known, most), known.hops


def _reach(given: Given, graph: GraphIndex, centres: list[int], most: int) -> Reach | None:
    """How far the model looks, checked against its outputs on the whole graph; None if that is too far."""
    one_step = graph.cut(centres[:1], Reach(1))
    assert one_step is not None
    tape, watch, scalar = _tried(lambda: ModelRuns(one_step.of(given), index=one_step.centres).run())
    hops, whole = hops_of(tape, tape.slot_of(scalar.tensor)), None
    for reach in _reaches(hops, watch):
        hoods = graph.cut([*centres[:1], *graph.examples()], reach, most) or graph.cut(centres[:1], reach, most)
        if hoods is None:
            return None
        whole = whole or WholeOutputs.of(given, _tried(ModelRuns(given).output))
        if whole.agree(_tried(ModelRuns(hoods.of(given)).output), hoods):
            return replace(reach, seen=what_ran(tape), outputs=whole)
    raise BeyondError(_GLOBAL)


def _tried(run: Callable[[], Any]) -> Any:
    """The result of a run; if it fails, the run on the whole graph will show why."""
    try:
        return run()
    except Exception as error:
        raise BeyondError("") from error


def _reaches(hops: int, watch: Watch) -> list[Reach]:
    """How far a model of this many steps may look, the nearest first."""
    further = [Reach(hops + 1, rim=True), Reach(hops + 1)]
    one_way = further if reads_degrees(watch.modules) else [Reach(hops), *further]
    return [*([] if sends_backward(watch.modules) else one_way), Reach(hops + 1, both_ways=True)]


def is_several(index: Any) -> bool:
    """Whether an index is a list of nodes."""
    return isinstance(index, (list, tuple, range)) or getattr(index, "ndim", 0) > 0


def ran_as_before(given: Given, hoods: Neighbourhoods, tape: Tape, output: Tensor) -> bool:
    """Whether a model did the same as when its reach was checked, and gave these nodes what it gives them there.

    Otherwise the reach is forgotten, or the model known to look further.
    """
    reaches = graph_index(given.edge_index, given.num_nodes).reaches
    known = reaches.get(given.model)
    if not isinstance(known, Reach):
        return True
    if not known.outputs.agree(output, hoods):
        reaches[given.model] = _GLOBAL
    elif known.seen != what_ran(tape):
        del reaches[given.model]
    else:
        return True
    return False


def _centres(index: Any, num_nodes: int) -> list[int]:
    """Several nodes to explain."""
    given = index.tolist() if hasattr(index, "tolist") else index
    try:
        nodes = [as_whole(node) for node in given]
    except TypeError:
        nodes = []
    if not nodes or min(nodes) < 0 or max(nodes) >= num_nodes:
        expected = f"a node, or a list of nodes, from 0 to {num_nodes - 1}"
        masked = any(isinstance(node, bool) for node in given)
        remedy = "For a mask, give the numbers of its nodes: mask.nonzero().view(-1)." if masked else None
        got = described(index) if masked else index
        raise TargetError(argument="index", expected=expected, got=got, remedy=remedy)
    return nodes

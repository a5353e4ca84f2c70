"""The positions of a tape: the tensors at which walks stand at nodes, and which node every row of them is."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch_geometric.nn import HypergraphConv

from walkwise.core.differential import MOVING, Differential
from walkwise.core.operators import Operator, Scale, Visit
from walkwise.core.row_maps import Gather, Scatter
from walkwise.errors import TraceError
from walkwise.tracing.dependence import gradients, rerun, uneven
from walkwise.tracing.nodes.identity import Identities, UnfollowedError
from walkwise.tracing.nodes.numbering import apart_from, by_longest_way, first_of, rising
from walkwise.tracing.recording.recorded import Call, Op, live, makers, not_runnable
from walkwise.tracing.steps.layouts import each_once
from walkwise.tracing.stretches.stretch import Builder, Flow

#: Refusals: what is wrong, and what to do.
_UNFOLLOWED = (
    "Layer '{}' ({}) receives rows that cannot be followed back to nodes of the graph: {} has combined the rows of "
    "several nodes, or put them into an order of their own.",
    "Select rows by their numbers instead (x[perm]), or put the operation into a torch_geometric.nn.MessagePassing "
    "layer.",
)
_NO_NODES = (
    "No message-passing layer runs on the {} nodes of the graph: the first one receives {} rows, which are not nodes "
    "(but edges, clusters, or nodes several times over).",
    "Walks stand at nodes: trace the graph that the layers see.",
)
_FLAT = (
    "Layer '{}' ({}) receives a tensor of shape {}; node features have a row for every node and a column for every "
    "feature, (M, F).",
    "Add the column with unsqueeze(1).",
)
_OTHER_TYPE = (
    "Layer '{}' ({}) takes nodes of several types ({}), some of them as a tensor of the model's own with as many rows "
    "as the graph has nodes; the types would be confused.",
    "Give the graph by type: ww.trace(model, x_dict, edge_index_dict), or a HeteroData.",
)
_STATIC = (
    "Layer '{}' ({}) receives a tensor of shape {}, several matrices on one static graph, and Walkwise cannot tell "
    "which row is which node.",
    "Pass the features as they are, (T, M, F), or trace each matrix by itself, (M, F).",
)
_ELSEWHERE = (
    "Layer '{}' ({}) sends messages along dimension {} of a tensor of shape {}, which does not run over the nodes.",
    "Merge the dimensions before the nodes into one, (T, M, F), or trace each matrix by itself, (M, F).",
)
_CARRIED = "layer '{}' ({}) runs on rows that are not nodes of the graph (clusters, say); walks do not stand there"
_ENDS_BEFORE = "layer '{}' ({}) returns rows that are not nodes of the graph (edges, say); walks end before it"
_BESIDE = (
    "layer '{}' ({}) also runs on rows that are not nodes of the graph (a super node, a token, clusters); walks do "
    "not stand at these"
)


class NoNodesError(TraceError):
    """As far as is known of the features' rows, no layer runs on the nodes of the graph."""


def _refusal(words: tuple[str, str], *parts: object) -> TraceError:
    problem, remedy = words
    return TraceError(problem.format(*parts), remedy=remedy)


class Positions:
    """The input of each layer, and the result of the last: positions by slot, and the nodes of their rows.

    Tensors of different nodes that are equally far from the input (those of the node types of a heterogeneous graph)
    share a position.
    """

    def __init__(self, ops: Sequence[Op], calls: Sequence[tuple[int, Call]], identities: Identities) -> None:
        """Number the positions of these calls."""
        self.ops = ops
        self.identities = identities
        self.number: dict[int, int] = {}  # by slot
        self.remarks: list[str] = []
        self.standing: set[int] = set()  # slots that hold what walks have stood at, laid out in rows again
        self._said = False  # that layers run on rows of no node beside nodes
        self._nodes: dict[int, Tensor] = {}  # of rows that are nodes once each, or nobody's
        self._across: dict[int, int] = {}  # of static graphs, (T, M, F), the dimension that runs over all nodes
        self._depth: dict[int, int] = {}
        self._maker = makers(ops)
        self.beside: dict[int, list[int]] = {}  # by call, what it reads besides the tensors that it is handed first
        for index, call in calls:
            self._number_inputs(index, call)
        if not self.number:
            rows = identities.tape.values[calls[0][1].handed[0]].shape[0]
            raise NoNodesError(_NO_NODES[0].format(identities.num_nodes, rows), remedy=_NO_NODES[1])
        if not rising(ops, self.number):  # a later layer reads what an earlier one's input was made of
            self.number = by_longest_way(ops, self.number)
        self._number_results(calls)
        self.last = max(self.number.values())  # L

    # -- their numbers ------------------------------------------------------------------------

    def _number_inputs(self, index: int, call: Call) -> None:
        """Number the tensors of nodes that a layer is handed, and those that it reads besides."""
        for slot in self._standing(call):
            if slot not in self.number and not self._begins_before(slot):
                self.number[slot] = self._next(slot)
        if call.handed[0] in self.number:
            self._check_sent(call)
            self.beside[index] = self._read_beside(index)
            self.number.update(dict.fromkeys(self.beside[index], self.number[call.handed[0]]))

    def _number_results(self, calls: Sequence[tuple[int, Call]]) -> None:
        """Number the results of the last layers, which no position is computed from."""
        feeding, last = self._feeding(), max(self.number.values()) + 1
        without: list[tuple[int, Call]] = []  # calls at whose ends no walk stands
        for index, call in calls:
            if index in feeding:
                continue
            ends = [s for s in call.ends if s in self.number or self._are_nodes(s, call)]
            if not ends and call.handed[0] in self.number:
                without.append((index, call))
            ends = first_of(self.ops, [s for s in ends if s not in self.number])
            more = [s for s in call.rows_of if s not in (*self.number, *call.ends)]  # and not rows of edges
            ends += apart_from(self.ops, [s for s in more if s in call.outputs and self._has_nodes(s)], ends)
            self.number.update(dict.fromkeys(ends, last))
        feeding = self._feeding() if without else feeding
        self.remarks += [_ENDS_BEFORE.format(c.name, type(c.module).__name__) for i, c in without if i not in feeding]

    def _feeding(self) -> set[int | None]:
        """The layers that positions are computed by."""
        return {op.call for op in live(self.ops, set(self.number))}

    # -- which tensors they are ---------------------------------------------------------------

    def _standing(self, call: Call) -> list[int]:
        """The tensors among a layer's inputs at which walks stand: each has other nodes than those before it."""
        found: list[int] = []
        kinds = list(dict.fromkeys(call.type_of.values()))
        if len(kinds) > 1 and any(map(self.identities.assumed, call.handed)):
            raise _refusal(_OTHER_TYPE, call.name, type(call.module).__name__, ", ".join(kinds))
        for slot in call.handed:
            if self._are_nodes(slot, call) and not any(self._meet(slot, other) for other in found):
                found.append(slot)
        if not found:
            if call.handed[0] not in self.identities.tape.beside:
                self.remarks.append(_CARRIED.format(call.name, type(call.module).__name__))
        elif not self._said and any(map(self._has_others, call.handed)):
            self._said = True
            self.remarks.append(_BESIDE.format(call.name, type(call.module).__name__))
        return found

    def _has_others(self, slot: int) -> bool:
        """Whether a layer's input has rows that are not nodes, nor another graph's."""
        if slot in self.identities.tape.beside:
            return False
        ids = self._nodes.get(slot)
        return ids is None or not (ids is self.identities.every or bool((ids >= 0).all()))

    def _check_sent(self, call: Call) -> None:
        """Refuse a layer whose messages run along a dimension other than the nodes'."""
        for slot, dim in call.sent:
            shape = tuple(self.identities.tape.values[slot].shape)
            if shape[dim] > 1 and self.identities.along_another(slot, dim):  # one row is one node's
                raise _refusal(_ELSEWHERE, call.name, type(call.module).__name__, dim, shape)

    def _read_beside(self, index: int) -> list[int]:
        """Other tensors of nodes that a layer reads: results of layers at which no walk has stood (positions, say).

        Rows of its own that it has looked up, too.
        """
        inside = [op for op in self.ops if op.call == index]
        made = {slot for op in inside for slot in op.outputs}
        read = dict.fromkeys(slot for op in inside for slot in op.inputs)
        sent = self.identities.tape.sent  # its own rows for nodes
        unseen = (slot for slot in read if slot not in made and (slot in sent or self._unseen(slot)))
        return [slot for slot in unseen if self._has_nodes(slot)]

    def _unseen(self, slot: int) -> bool:
        """Whether a tensor depends on a layer's result other than through positions."""
        todo, seen = [slot], set(self.number)
        while todo:
            at = todo.pop()
            op = self._maker.get(at)
            if at in seen or op is None:
                continue
            if op.call is not None:
                return True
            seen.add(at)
            todo += op.inputs
        return False

    def edges(self, calls: Sequence[Call]) -> Tensor:
        """The edges between nodes that the first layer was given.  # (2, E)"""
        call = next((call for call in calls if call.edge_index is not None), None)
        if call is None or call.edge_index is None:
            return torch.empty(2, 0, dtype=torch.long)
        if isinstance(call.module, HypergraphConv) or (not call.found and self._names_others(call)):
            return _sharing(call.edge_index)
        rows = [self._rows(end[0]) if len(end) == 1 else torch.cat([*map(self._rows, end)]) for end in call.both_ends]
        if all(self.identities.natural(ids) for ids in rows):
            return call.edge_index.clone()
        ends = [ids.to(end.device)[end] for ids, end in zip(rows, call.edge_index, strict=True)]
        kept = (ends[0] >= 0) & (ends[1] >= 0)
        return torch.stack([end[kept] for end in ends])

    def _rows(self, slot: int) -> Tensor:
        """The nodes of the rows of a tensor, or of another dimension of it that runs over nodes."""
        if slot in self._across:
            return self._nodes[slot]
        if slot not in self.number and self.identities.across(slot):  # of a layer that no walk passes through
            return self.identities.every
        return self.identities.nodes(slot)

    def _names_others(self, call: Call) -> bool:
        """Whether edges lead from nodes to something else, namely hyperedges."""
        assert call.edge_index is not None
        if len(call.handed) > 1 or not self.identities.natural(self.identities.nodes(call.handed[0])):
            return False
        made = [self.identities.tape.values[slot].shape[0] for slot in call.outputs[:1]]
        M = self.identities.num_nodes
        return made not in ([], [M]) or bool((call.edge_index[1] >= M).any())

    def _are_nodes(self, slot: int, call: Call) -> bool:
        """Whether rows are nodes, each at most once; some rows may belong to nobody."""
        if slot in self._nodes:
            return True
        shape = tuple(self.identities.tape.values[slot].shape)
        if len(shape) < 2:
            raise _refusal(_FLAT, call.name, type(call.module).__name__, shape)
        if call.takes_matrices(shape):
            return self._are_nodes_across(slot, call, shape)
        if across := self.identities.across(slot):  # which the layer turns itself, or unfolds if it is one
            if not call.sent and math.prod(shape[:across]) > 1:
                raise _refusal(_STATIC, call.name, type(call.module).__name__, shape)
            self._across[slot], self._nodes[slot] = across, self.identities.every
            return True
        try:
            ids = self.identities.nodes(slot)
        except UnfollowedError as operation:
            if shape[0] > self.identities.num_nodes:  # more than there are nodes: of edges, say
                return False
            raise _refusal(_UNFOLLOWED, call.name, type(call.module).__name__, operation) from None
        if self.identities.natural(ids) or not len(ids):  # or of a type that has no nodes
            self._nodes[slot] = ids
            return True
        if not self._each_once(slot, ids):
            return False
        self.identities.reordered |= int((ids >= 0).sum()) == self.identities.num_nodes
        return True

    def _are_nodes_across(self, slot: int, call: Call, shape: Sequence[int]) -> bool:
        """The same of several matrices on one static graph, (T, M, F), or of a matrix for every node."""
        if across := self.identities.across(slot):
            self._across[slot], self._nodes[slot] = across, self.identities.every
            return True
        M, dim = self.identities.num_nodes, call.dim_of_rows(shape)
        if not (call.found and shape[0] == 1 < M) and self._has_nodes(slot):  # which the layer unfolds
            return True
        try:
            ids = self.identities.rows_across(slot, dim)
        except UnfollowedError:
            raise _refusal(_STATIC, call.name, type(call.module).__name__, shape) from None
        if shape[0] == 1 and shape[dim] != M and not bool((ids >= 0).any()):  # clusters
            return False
        if not bool((ids >= 0).all()) or not each_once(ids):
            raise _refusal(_STATIC, call.name, type(call.module).__name__, shape)
        self._across[slot], self._nodes[slot] = dim, ids
        self.identities.reordered |= len(ids) == M
        return True

    def _meet(self, slot: int, other: int) -> bool:
        """Whether two tensors have a node in common."""
        first, second = self._nodes[slot], self._nodes[other]
        if slot == other or (self.identities.natural(first) and self.identities.natural(second)):
            return True
        return bool(torch.isin(first[first >= 0], second).any())

    def _next(self, slot: int) -> int:
        """The position of a tensor: a new one, or the position of other nodes at the same distance from the input."""
        following = max((n for s, n in self.number.items() if len(self._nodes[s])), default=-1) + 1
        if self.identities.natural(self._nodes[slot]):
            return following
        before = {s for op in live(self.ops, {slot}) for s in op.inputs if s in self.number}
        self._depth[slot] = 1 + max((self._depth.get(s, self.number[s]) for s in before), default=-1)
        lowest = max((self.number[s] for s in before), default=-1) + 1
        if not len(self._nodes[slot]):
            return lowest
        for position in range(lowest, following):
            there = [s for s, number in self.number.items() if number == position]
            level = all(self._depth.get(s) == self._depth[slot] for s in there)
            if level and not any(self._meet(slot, s) for s in there):
                return position
        return following

    def _begins_before(self, slot: int) -> bool:
        """Let walks begin at the features if rows of no node are computed from them before the first layer.

        Otherwise they would end at such a row (a virtual node that begins as the mean of all), and not at a node.
        """
        ids = self._nodes[slot]
        if self.identities.natural(ids) or not bool((ids < 0).any()):
            return False
        made_by, tape = live(self.ops, {slot}), self.identities.tape
        if any(op.call is not None for op in made_by):
            return False
        given = [s for s in (*tape.features, *tape.beginnings) if any(s in op.inputs for op in made_by)]
        if not _hang_on(tape.values, made_by, slot, ids < 0, given):
            return False
        return all(s in self.number or self.begins_at(s) for s in given)

    def begins_at(self, slot: int) -> bool | None:
        """Let walks also begin at a tensor that bypasses the first layer; return whether its rows are nodes.

        None if walks stand there anyway.
        """
        if slot in self.number:
            return None
        if across := self.identities.across(slot):
            self._across[slot], self._nodes[slot], self.number[slot] = across, self.identities.every, 0
            return True
        if self._has_nodes(slot):
            self.number[slot] = 0
            return True
        return False

    def _has_nodes(self, slot: int) -> bool:
        """Whether the rows of a tensor are nodes, each at most once."""
        rows = self.identities.tape.values[slot]
        if rows.dim() < 2 or not rows.numel():
            return False
        try:
            ids = self.identities.nodes(slot)
        except UnfollowedError:
            return False
        return len(ids) == len(rows) and self._each_once(slot, ids)

    def _each_once(self, slot: int, ids: Tensor) -> bool:
        """Whether some rows are nodes, each once; remember these of the tensor."""
        standing = ids[ids >= 0]
        if not len(standing) or not each_once(standing):
            return False
        self._nodes[slot] = ids
        return True

    # -- walks stand there --------------------------------------------------------------------

    def natural(self, slot: int) -> bool:
        """Whether the rows of a tensor at which walks stand are all nodes in their own order."""
        return slot not in self.number or (self.identities.natural(self._nodes[slot]) and slot not in self._across)

    def by_node(self, builder: Builder, slot: int, flow: Flow) -> Flow:
        """A settled flow laid out by node, with zeros where a node has no row."""
        if self.natural(slot):
            return flow
        ids = self._nodes[slot]
        rows, M = (ids >= 0).nonzero()[:, 0], self.identities.num_nodes
        maps: list[Operator] = [self._turned(slot)] if slot in self._across else []
        maps += [Gather(rows, len(ids))] if len(rows) < len(ids) else []
        return _through(builder, flow, maps if self.identities.natural(ids) else [*maps, Scatter(ids[rows], M)])

    def visited(self, builder: Builder, slot: int, flow: Flow, there: Flow | None = None) -> Flow:
        """A settled flow after walks have stood at its nodes; rows of no node bypass it. ``there`` is it by node."""
        there = there or self.by_node(builder, slot, flow)
        first = builder.count
        after = builder.emit([Visit(self.number[slot], there.slot)], [there.slot])
        if not self.natural(slot):
            after = self._by_row(builder, slot, flow, after)
        self.standing.update(range(first, builder.count))
        return Flow(flow.value, after, call=flow.call, gate=flow.gate)

    def _by_row(self, builder: Builder, slot: int, flow: Flow, visited: int) -> int:
        """A flow by node, back in its own rows, with rows of no node as they were."""
        ids, M = self._nodes[slot], self.identities.num_nodes
        rows = (ids >= 0).nonzero()[:, 0]
        natural = self.identities.natural(ids)
        picked = visited if natural else builder.emit([Gather(ids[rows], M)], [visited])
        if slot in self._across:
            return builder.emit([self._turned(slot, back=True)], [picked])
        if len(rows) == len(ids):
            return picked
        nobody = (ids < 0).to(flow.value.dtype).view(-1, 1)
        return builder.emit([Scatter(rows, len(ids)), Scale(nobody)], [picked, flow.slot])

    def _turned(self, slot: int, *, back: bool = False) -> Differential:
        """(T, M, …) -> (M, T, …), or back."""
        rows, dim = self.identities.tape.values[slot].detach(), self._across[slot]
        first = rows.movedim(dim, 0)
        at, shape, ends = (first, rows.shape, (0, dim)) if back else (rows, first.shape, (dim, 0))
        return Differential(torch.movedim, (MOVING, *ends), {}, at, 0, shape)


@torch.enable_grad()
def _hang_on(values: Sequence[Tensor], ops: Sequence[Op], slot: int, rows: Tensor, given: Sequence[int]) -> bool:
    """Whether some rows of a tensor change with any of the rows it was computed from."""
    if any(op.func is not_runnable for op in ops):
        return True
    begun = {s: values[s].detach().clone().requires_grad_() for s in given}
    part = rerun(ops, values, begun)[slot][rows]
    return any(bool(gradient.any()) for gradient in gradients(uneven(part), list(begun.values())))


def _sharing(incidence: Tensor) -> Tensor:
    """The pairs of nodes that share a hyperedge, both ways round.  # (2, I) -> (2, E)"""
    nodes, hyperedges = incidence[:, incidence[1].argsort(stable=True)]
    _, numbered, counts = hyperedges.unique_consecutive(return_inverse=True, return_counts=True)
    starts, each = counts.cumsum(0) - counts, counts[numbered]
    within = torch.arange(int(each.sum()), device=nodes.device) - (each.cumsum(0) - each).repeat_interleave(each)
    pairs = torch.stack([nodes.repeat_interleave(each), nodes[starts[numbered].repeat_interleave(each) + within]])
    found: Tensor = torch.unique(pairs[:, pairs[0] != pairs[1]], dim=1)
    return found


def _through(builder: Builder, flow: Flow, maps: Sequence[Operator]) -> Flow:
    """A settled flow after some maps."""
    slot, value = flow.slot, flow.value
    for operator in maps:
        slot, value = builder.emit([operator], [slot]), operator.push(value)
    return Flow(value, slot, call=flow.call, gate=flow.gate)

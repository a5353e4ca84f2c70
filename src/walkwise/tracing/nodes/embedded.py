"""The node of every row of the model's own tensors: embeddings, tables of weights.

What a model computes from whole numbers (atomic numbers, word numbers, ids) is followed only from the first layer on.
Any reordering before that, ``emb(x[perm])``, is out of sight. So the part of the model before its layers is run a few
times with the numbers of some nodes changed, and the rows that change belong to these nodes. For rows that depend on no
number, or on those of several nodes, the layer's edges decide: the rows are in the nodes' order if the edges are the
graph's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import is_sparse

from walkwise.errors import TraceError
from walkwise.tracing.given.arguments import Given
from walkwise.tracing.nodes.identity import Identities, UnfollowedError
from walkwise.tracing.nodes.looked_up import of_nodes_in_order
from walkwise.tracing.nodes.moved import NOBODY, SEVERAL
from walkwise.tracing.recording.recorded import Call
from walkwise.tracing.recording.tape import Tape
from walkwise.tracing.running.found import ends_of, is_edges

_UNFOLLOWED = (
    "Layer '{}' ({}) receives an embedding whose rows cannot be followed back to nodes of the graph: changing a "
    "node's numbers changes other rows than its own (nodes sorted by those numbers, say)."
)
_REMEDY = "Put the graph into that order before tracing it."
_OUT_OF_SIGHT = (
    "Layer '{}' ({}) received node features that depend on the input features but cannot be traced back to them."
)
_IN_SIGHT = (
    "Some code computes in torch.func, TorchScript, NumPy or another thread. Without it, relevance would be wrong: "
    "write it with ordinary torch functions, or detach() what should be constant."
)
_UNSURE = (
    "layer '{}' ({}) receives a tensor of the model's own, and edges other than the graph's; row i is taken to be "
    "node i, which is wrong if the model has reordered its nodes, or if they are those of a second graph: give that by "
    "its name, as a Data, or as x_t and edge_index_t"
)

#: Features by node type; of a homogeneous graph, under no name.
Parts = dict[str, Tensor]
#: Runs the model with other features, or other arguments, and gives the node tensors of every layer up to a call.
Handed = Callable[[Any, int, Parts], Sequence[Sequence[Tensor]]]

#: How much to move features to see what follows from them, and the largest change that does not count as a leap.
_NUDGE, _LEAP = 1e-4, 0.02


def rows_of_beginnings(tape: Tape) -> dict[int, Tensor]:
    """The nodes of the rows of tensors that were followed early and have one for every node, by slot.  # (M,)"""
    return {slot: torch.arange(len(value := tape.values[slot]), device=value.device) for slot in tape.beginnings}


def rows_of_own(tape: Tape, given: Given, handed: Handed) -> tuple[dict[int, Tensor], list[str]]:
    """By slot, the node of every row of the tensors that a model computes from its numbers, (K,); and notes.

    For tensors that are left out, the number of rows decides: all nodes in their order, or nobody. Calls that were
    handed (x, None) learn whether their edges are the graph's.
    """
    if given.own_code:
        return rows_of_beginnings(tape), []
    for call in tape.calls:
        call.edges_are_not_the_graphs = call.receivers_unknown and given.types is None and _leads_elsewhere(call, given)
    own = _own_tensors(tape)
    others = {slot: torch.full((len(tape.values[slot]),), NOBODY) for slot in own if slot in tape.beside}
    own = {slot: place for slot, place in own.items() if slot not in others}
    if not own:
        return {slot: ids.to(tape.values[0].device) for slot, ids in others.items()}, []
    given_parts = given.x if isinstance(given.x, dict) else _numbers(given) if given.x is None else {"": given.x}
    parts = {name: part for name, part in given_parts.items() if isinstance(part, Tensor)}
    across = {s: tape.calls[i].dim_of_nodes(tape.values[s].shape, given.num_nodes) for s, (i, _) in own.items()}
    probe = _Probe(own, parts, given, handed, across)
    of_edges = probe.of_edges()
    others |= {slot: torch.full((len(tape.values[slot]),), NOBODY) for slot in of_edges}
    own = {slot: place for slot, place in own.items() if slot not in of_edges}
    if given.features and not tape.cut:
        _check_in_sight(tape, own, probe)
    in_order = _in_order(tape, own, given)
    own = {slot: place for slot, place in own.items() if slot not in in_order}
    codes, changed = probe.changes() if own else (torch.empty(0), {})
    found = in_order | {slot: _decoded(bits, codes) for slot, bits in changed.items() if slot in own}
    unsure = []
    for slot, (number, _) in own.items():
        call, ids = tape.calls[number], found.get(slot)
        shape = tape.values[slot].shape
        rows = shape[across[slot]]
        if (ids is not None and len(ids)) or rows not in (given.num_nodes, *map(len, parts.values())):
            continue
        if _has_edges_of(call, given):
            continue
        if slot in changed and ids is None and not _own_change(changed[slot], codes):
            raise TraceError(_UNFOLLOWED.format(call.name, type(call.module).__name__), remedy=_REMEDY)
        unsure.append(_UNSURE.format(call.name, type(call.module).__name__))
    device = tape.values[0].device
    found |= others
    return {slot: ids.to(device) for slot, ids in found.items() if ids is not None and len(ids)}, unsure


def _in_order(tape: Tape, own: Collection[int], given: Given) -> dict[int, Tensor]:
    """The nodes of the tensors that are seen to have a row for every node, in order, by slot.  # (M,)"""
    if given.types is not None:
        return {}
    seen = zip(tape.own, of_nodes_in_order(tape, tape.own, given.num_nodes), strict=True)
    slots = {tape.slots.last(tensor) for tensor, in_order in seen if in_order}
    handed_on = (t for t in tape.own if id(t) in tape.given and t.shape[:1] == (given.num_nodes,))  # positions, say
    slots |= {tape.slots.last(tensor) for tensor in handed_on}
    return {slot: torch.arange(given.num_nodes) for slot in own if slot in slots}


def check_rows(identities: Identities, call: Call, slot: int, ids: Tensor) -> None:
    """Refuse rows that a layer is handed which, followed from embeddings, are other nodes than changes say."""
    try:
        followed = identities.nodes(slot)
    except UnfollowedError:
        followed = torch.full_like(ids, SEVERAL)
    if followed.shape != ids.shape or not bool(((followed == ids) | (ids < 0)).all()):
        raise TraceError(_UNFOLLOWED.format(call.name, type(call.module).__name__), remedy=_REMEDY)


def _numbers(given: Given) -> Parts:
    """The whole numbers, one for every node, that a model without features gets by name, such as atomic numbers z."""
    named = {n: v for n, v in given.arguments.items() if n not in ("batch", "ptr") and given.rows_of(n, v) == "nodes"}
    return {name: value for name, value in named.items() if value.dtype in (torch.long, torch.int)}


def _own_tensors(tape: Tape) -> dict[int, tuple[int, int]]:
    """The slots of layers' tensors about which nothing is known: the call, and which of its tensors."""
    made = {slot for op in tape.ops for slot in op.outputs} | {slot for call in tape.calls for slot in call.rows_of}
    known = made.union(tape.features)
    found: dict[int, tuple[int, int]] = {}
    for number, call in enumerate(tape.calls):
        for place, slot in enumerate(call.handed_at_start or call.handed):
            if slot not in known and slot in call.handed:
                found.setdefault(slot, (number, place))
    return found


class _Probe:
    """Runs of a model up to its last layer that takes a tensor of the model's own."""

    def __init__(
        self, own: dict[int, tuple[int, int]], parts: Parts, given: Given, handed: Handed, across: Mapping[int, int]
    ) -> None:
        self.own, self.parts, self.given = own, parts, given
        self._across = across  # by slot, the dimension that runs over nodes
        self._handed, self._last = handed, max(number for number, _ in own.values())
        self._plain: dict[int, Tensor] | None = None

    def plain(self) -> dict[int, Tensor]:
        """The model's own tensors, by slot, their rows nodes."""
        if self._plain is None:
            self._plain = self.run(self.parts)
        return self._plain

    def run(self, parts: Parts, named: Parts | None = None) -> dict[int, Tensor]:
        """The tensors that the model computes from other features, and other arguments."""
        if self.given.x is None:
            tensors = self._handed(None, self._last, parts | (named or {}))
        else:
            x = self.given.x | parts if isinstance(self.given.x, dict) else parts.get("")
            tensors = self._handed(x, self._last, named or {})
        found = {slot: tensors[call][place] for slot, (call, place) in self.own.items()}
        return {slot: rows.movedim(self._across[slot], 0) for slot, rows in found.items()}

    def changes(self) -> tuple[Tensor, dict[int, Tensor]]:
        """A code for every node, and which rows change as the features of nodes do, by the bits of those.  # (2b, K)

        Nothing changes if nodes have no features, or all have the same, or the model does not run on others.
        """
        M, types = self.given.num_nodes, self.given.types
        codes = torch.arange(1, M + 1)  # every node has a bit that is set
        others = {name: _others(part) for name, part in self.parts.items()}
        if not any(bool((others[name] != part).any()) for name, part in self.parts.items()):
            return codes, {}
        first = {name: types.offsets[name] if types is not None else 0 for name in self.parts}
        of = {name: codes[first[name] : first[name] + len(part)] for name, part in self.parts.items()}
        try:
            runs = [self.run(disturbed) for disturbed in _disturbed(self.parts, others, of, M.bit_length())]
            plain = self.plain()
            changed = {slot: torch.stack([_differ(plain[slot], run[slot]) for run in runs]) for slot in self.own}
        except Exception:  # the model does not run on other numbers: edges have to tell
            return codes, {}
        return codes, changed

    def of_edges(self) -> set[int]:
        """The slots whose rows are those of edges, though there are as many nodes: they change as features of edges do.

        An edge is looked at that does not end at the node of its number, nor begin there, if there is one.
        """
        given, edges = self.given, _ends(self.given.edge_index)
        M = given.num_nodes
        if given.types is not None or edges is None or edges.shape[1] != M:
            return set()
        named = {n: v for n, v in given.arguments.items() if n.startswith("edge") and given.rows_of(n, v) is not None}
        every = torch.arange(M, device=edges.device)
        ends_elsewhere = edges[1] != every
        apart = (ends_elsewhere & (edges[0] != every)).nonzero().flatten().tolist()
        chosen = (apart or ends_elsewhere.nonzero().flatten().tolist())[:3]
        if not named or not chosen:
            return set()
        found = set(self.own)
        try:
            plain = self.plain()
            for edge in chosen:
                other = {
                    n: v.index_copy(0, every[edge : edge + 1], _others(v)[edge : edge + 1]) for n, v in named.items()
                }
                run = self.run(self.parts, other)
                found = {
                    slot for slot in found if _differ(plain[slot], run[slot]).nonzero().flatten().tolist() == [edge]
                }
        except Exception:  # the model does not run on other numbers
            return set()
        return found


def _check_in_sight(tape: Tape, own: dict[int, tuple[int, int]], probe: _Probe) -> None:
    """Refuse features that reach a layer out of the tape's sight. Whole numbers made of features cause leaps."""
    nudged = {
        name: part + _NUDGE * (part.abs() + 1) if part.is_floating_point() else part
        for name, part in probe.parts.items()
    }
    try:
        before, after = probe.plain(), probe.run(nudged)
    except Exception:  # the model does not run on other features
        return
    for slot, (number, _) in own.items():
        if before[slot].shape != after[slot].shape:
            continue
        moved = (after[slot] - before[slot]).abs()
        if bool(((moved > 0) & (moved < _LEAP * before[slot].abs().max())).any()):
            call = tape.calls[number]
            told = _OUT_OF_SIGHT.format(call.name, type(call.module).__name__)
            raise TraceError(told, remedy=tape.lost or _IN_SIGHT)


def _has_edges_of(call: Call, given: Given) -> bool:
    """Whether a layer takes the graph's own edges: the same, with others after them, or some of them in order."""
    whole = given.edge_index
    edges = [whole, *whole.values()] if isinstance(whole, dict) else [whole]
    handed = [i for item in call.beside for i in ((item, *item.values()) if isinstance(item, dict) else (item,))]
    if any(item is known for item in handed for known in edges if known is not None):
        return True
    ours, theirs = ([found for item in items if (found := _ends(item)) is not None] for items in (handed, edges))
    if any(torch.equal(a[:, : b.shape[1]], b) for a in ours for b in theirs if b.numel()):
        return True
    return any(_are_some_of(a, b, given.num_nodes) for a in ours for b in theirs)


def _leads_elsewhere(call: Call, given: Given) -> bool:
    """Whether the edges of a layer, loops aside, are not the graph's, all one way or all the other."""
    known, M = _ends(given.edge_index), given.num_nodes
    if known is None or any(item is given.edge_index for item in call.beside):
        return False
    numbered = [known[0] * M + known[1], known[1] * M + known[0]]
    for edges in filter(is_edges, call.beside):
        source, target = edges[:, edges[0] != edges[1]].to(known.device)
        if not any(bool(torch.isin(source * M + target, pairs).all()) for pairs in numbered):
            return True
    return False


def _are_some_of(edges: Tensor, known: Tensor, num_nodes: int) -> bool:
    """Whether edges are in order, and each of them is a known one, the reverse of one, or a loop."""
    if not any(bool((row[1:] >= row[:-1]).all()) for row in edges):
        return any(_in_order_of(edges, ends, num_nodes) for ends in (known, known.flip(0)))
    (source, target), (first, second) = edges, known.to(edges.device)
    pairs = torch.cat([first * num_nodes + second, second * num_nodes + first])
    return bool(((source == target) | torch.isin(source * num_nodes + target, pairs)).all())


def _in_order_of(edges: Tensor, known: Tensor, num_nodes: int) -> bool:
    """Whether edges, loops aside, follow one another as they do among the known ones."""
    source, target = edges[:, edges[0] != edges[1]]
    left = iter((known[0] * num_nodes + known[1]).tolist())
    return all(pair in left for pair in (source * num_nodes + target).tolist())


def _ends(item: Any) -> Tensor | None:
    """Source and target of every edge, of an edge index or a sparse adjacency.  # (2, E)"""
    return ends_of(item) if is_edges(item) or is_sparse(item) else None


def _others(x: Tensor) -> Tensor:
    """Numbers that all differ from those in x, each taken from its column if that has several."""
    first = x[:1].expand_as(x)
    differs = x != first
    place = differs.to(torch.uint8).argmax(0, keepdim=True)
    return torch.where(differs, first, x.gather(0, place).expand_as(x)) if len(x) else x


def _disturbed(parts: Parts, others: Parts, codes: dict[str, Tensor], bits: int) -> Iterator[Parts]:
    """The numbers with those of some nodes changed, bit by bit of their codes: where it is set, and where it is not."""
    for bit in range(bits):
        for turned in (False, True):
            chosen = {name: (code >> bit & 1).bool() ^ turned for name, code in codes.items()}
            yield {
                name: torch.where(chosen[name].to(x.device).view(-1, *[1] * (x.dim() - 1)), others[name], x)
                for name, x in parts.items()
            }


def _differ(before: Tensor, after: Tensor) -> Tensor:
    """Which rows have changed; all, if their number has.  # (K,)"""
    if before.shape != after.shape:
        return torch.ones(len(before), dtype=torch.bool)
    return (before != after).flatten(1).any(1).cpu()


def _where(changed: Tensor) -> tuple[Tensor, Tensor, int]:
    """For every row two numbers, of the bits whose nodes change it, and of the bits whose other nodes do; and all bits.

    A row that is made of node 4 alone, whose code 5 is 101 in binary, changes with the nodes that have the first bit,
    with those that have the third, and with those that do not have the second: 101 and 010. A row that is made of
    nodes with different codes has some bit in both numbers, and a row of nobody has none in either.
    """
    power = 1 << torch.arange(len(changed) // 2).view(-1, 1)
    where, where_not = ((runs.long() * power).sum(0) for runs in (changed[::2], changed[1::2]))  # (K,)
    return where, where_not, int(power.sum())


def _decoded(changed: Tensor, codes: Tensor) -> Tensor | None:
    """The node of every row, from which changes change it: nobody if none does, None if not a single node.

    Where the two numbers of a row have each bit once, the first is the code of its node (101 and 010: node 4). Besides
    a row for every node there may be others: of nobody, which never change, and of several nodes.
    """
    where, where_not, every = _where(changed)
    if not bool((where | where_not).any()):
        return where[:0]
    one = (where ^ where_not == every) & (where <= len(codes))  # of two opposite changes one alone changes a row
    if bool(one.all()):
        return where - 1
    each_once = bool((torch.bincount(where[one], minlength=len(codes) + 1)[1:] == 1).all())
    others = torch.where(where | where_not == 0, NOBODY, SEVERAL)
    return torch.where(one, where - 1, others) if each_once else None


def _own_change(changed: Tensor, codes: Tensor) -> bool:
    """Whether each node's change changes the row of its number, with something of the others mixed in perhaps.

    The numbers of row 4 then have at least the bits of 101 and 010, or no bits at all.
    """
    where, where_not, every = _where(changed)
    if len(where) != len(codes):
        return False
    own = (where & codes == codes) & (where_not & ~codes == every & ~codes)
    return bool((own | (where | where_not == 0)).all())

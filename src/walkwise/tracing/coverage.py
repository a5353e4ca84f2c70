"""What a chain says about its limits: functions without a rule, sums outside layers, questions that cost much."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from walkwise.core.chain import Hops
from walkwise.core.differential import leaves
from walkwise.core.operators import Step, Visit
from walkwise.errors import CoverageWarning
from walkwise.tracing.nodes.identity import UnfollowedError
from walkwise.tracing.nodes.sums import reads_rows
from walkwise.tracing.recording.kinds import ADDING, ATTENDING, CONVOLVING, PRODUCTS
from walkwise.tracing.recording.recorded import Op

if TYPE_CHECKING:
    from walkwise.tracing.lowering import Lowering

_OUTSIDE = (
    "{} adds up rows of nodes outside any message-passing layer, in {}; walks do not stand at nodes there, and their "
    "steps need not follow edges. If it should be a layer, put it into a torch_geometric.nn.MessagePassing module"
)
_BEFORE = (
    "{} adds up rows of nodes before the first layer; walks begin after it, at the nodes that the sums belong to, and "
    "feature_relevance() goes on to the rows that they are made of"
)
_ENDING = (
    "the explained row is that of a node, but the read-out also reads rows of other nodes (a mean of all, say); walks "
    "end at these, too"
)
_PAST = (
    "the result of layer '{}' ({}) also bypasses all later positions on its way to the output (in a residual stream "
    "that is normalised before each layer, say): such walks name the node that they come from, not the one that they "
    "arrive at"
)
_WITHOUT = "{} in {} has no rule; its plain gradient was used"
_FAR = "questions about subgraphs cost a pass over the whole graph, because {}"
#: Graphs in which that is worth a note.
_MANY_NODES = 1000
#: Functions that may add up rows of nodes at nodes, also in a read-out.
_MIXING = PRODUCTS | ADDING | ATTENDING | CONVOLVING | {"cumsum", "fft"}


def notes_of_coverage(lowering: Lowering) -> tuple[str, ...]:
    """Warn about operations that no rule covers, or that carry messages outside of layers; the notes for the report."""
    reached = lowering.reached  # not what only makes a gate or divisor, which is constant anyway
    without = _by_name(lowering, (op for op, emitted in lowering.run.uncovered if emitted in reached))
    found = any(call.found for call in lowering.tape.calls)  # perhaps not all that passes messages is layers
    before = set(map(id, (*(lowering.parts.encoder if found else ()), *lowering.parts.chain)))
    mixing = lowering.positions.identities.mixing.among(lambda op: id(op) in before and _carries(lowering, op))
    mixing += [op for op in lowering.parts.readout if _mixes_nodes(lowering, op)]
    notes = [_WITHOUT.format(name, where) for name, where in without]
    notes += [_OUTSIDE.format(name, where) for name, where in _by_name(lowering, mixing)]
    for note in notes:
        warnings.warn(note + ".", CoverageWarning, stacklevel=5)
    first = set() if found else set(map(id, lowering.parts.encoder))
    earlier = lowering.positions.identities.mixing.among(lambda op: id(op) in first and _carries(lowering, op))
    notes += [_BEFORE.format(name) for name, _ in _by_name(lowering, earlier)]
    return tuple(notes)


def notes_of_ends(lowering: Lowering, steps: Sequence[Step], seeds: Iterable[tuple[int, Tensor]]) -> list[str]:
    """Notes on layers whose messages reach the read-out although no walk stands where they arrive."""
    ending, found = {slot for slot, _ in seeds}, dict[str, None]()
    for step in reversed(steps):
        if step.target not in ending or step.target in lowering.positions.standing:
            continue
        ending.update(step.sources)
        index = lowering.call_of(step.target)
        if index is not None and any(operator.reach != 0 for operator in step.operators):
            call = lowering.tape.calls[index]
            if call.handed[0] in lowering.positions.number:
                found[_PAST.format(call.name, type(call.module).__name__)] = None
    return list(found)[::-1]


def notes_of_rows(
    lowering: Lowering, steps: Sequence[Step], seeds: Iterable[tuple[int, Tensor]], direction: Tensor
) -> list[str]:
    """A note where the explained rows are nodes, and walks end at others, too."""
    identities, rows = lowering.positions.identities, direction.reshape(direction.shape[:1].numel(), -1)
    others = ~rows.any(1)
    if len(rows) != lowering.num_nodes or not bool(others.any()):
        return []
    try:
        if not identities.natural(identities.nodes(lowering.output)):
            return []
    except UnfollowedError:
        return []
    visited = {step.target for step in steps if type(step.operators[0]) is Visit}
    ends = [seed for slot, seed in seeds if slot in visited]
    if not any(bool(seed[others].any()) for seed in ends):
        return []
    return [] if any(_mixes_nodes(lowering, op) for op in lowering.parts.readout) else [_ENDING]  # it is named then


def note_of_distance(lowering: Lowering, hops: Hops | None, steps: Sequence[Step]) -> str | None:
    """A note for large graphs on why questions cost a full pass: the first step that may lead anywhere."""
    if lowering.num_nodes < _MANY_NODES or hops is not None:
        return None
    far = [step for step in steps if any(operator.reach is None for operator in step.operators)]
    index = lowering.call_of(far[0].target)
    if index is None:
        return _FAR.format("rows of nodes are combined between the layers")
    call = lowering.tape.calls[index]
    return _FAR.format(f"what layer '{call.name}' ({type(call.module).__name__}) does cannot be written edge by edge")


def _by_name(lowering: Lowering, ops: Iterable[Op]) -> list[tuple[str, str]]:
    """The names of operations, and the places of each in words."""
    places: dict[str, dict[str, None]] = {}
    for op in ops:
        places.setdefault(op.word.name, {})[lowering.parts.where(op, lowering.tape.calls)] = None
    return [(name, " and in ".join(where)) for name, where in places.items()]


def _carries(lowering: Lowering, op: Op) -> bool:
    """Whether relevance passes an operation; one that only computes a gate is held constant."""
    flows = [flow for slot in op.outputs for flow in lowering.flows_of(slot)]
    return any(flow.term is not None or flow.slot in lowering.reached for flow in flows)


def _mixes_nodes(lowering: Lowering, op: Op) -> bool:
    """Whether an operation of the read-out carries messages from nodes to nodes."""
    if op.call is not None or op.word.name not in _MIXING or not _carries(lowering, op):
        return False
    identities, values = lowering.positions.identities, lowering.tape.values
    if identities.sends(op):  # to rows of whatever
        return True
    counts = {lowering.num_nodes, *(identities.types.counts.values() if identities.types else ())}
    if len(op.inputs) == 1 and op.word.name in PRODUCTS:  # h @ weights mixes nothing
        shapes = [item.shape for item in leaves((op.args, op.kwargs)) if isinstance(item, Tensor)]
        counts.update(values[op.inputs[0]].shape[:1])
    else:  # in a pooled graph, messages are read from as many rows
        shapes = [values[slot].shape for slot in op.outputs if slot is not None]
        counts |= {size for op in lowering.ops if reads_rows(op) for size in values[op.inputs[0]].shape[:1]}
    if not any(counts.intersection(shape) for shape in shapes):
        return False
    return identities.mixes(op)

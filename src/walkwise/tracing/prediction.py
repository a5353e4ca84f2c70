"""One prediction, recorded: a run of the model, the node of every row in it, and its operations under their rules."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from walkwise.core.chain import RelevanceChain
from walkwise.errors import CoverageWarning, TargetError, TraceError, WalkwiseError
from walkwise.rules import Schedule
from walkwise.tracing.given.arguments import Given
from walkwise.tracing.given.hetero import HeteroGiven
from walkwise.tracing.given.target import ExplainedScalar, Index, OtherNodeError, Target
from walkwise.tracing.lowering import Lowering
from walkwise.tracing.neighbourhoods import Neighbourhoods
from walkwise.tracing.nodes.embedded import check_rows, rows_of_own
from walkwise.tracing.nodes.identity import Identities, UnfollowedError
from walkwise.tracing.nodes.moved import NOBODY
from walkwise.tracing.nodes.positions import NoNodesError
from walkwise.tracing.nodes.sources import Place, read_around
from walkwise.tracing.precision import check_chain, check_finite, in_one_type
from walkwise.tracing.reach import is_several, neighbourhoods_for, ran_as_before
from walkwise.tracing.recording.tape import Tape
from walkwise.tracing.running.calls import check_fresh
from walkwise.tracing.running.found import words_of
from walkwise.tracing.running.modules import NoLayersError, modes_of_their_own
from walkwise.tracing.runs import ModelRun, ModelRuns

_OWN_CODE = "{} has no message-passing module; sums at nodes in its own code count as layers: {}"
_IDLE = "layer '{}' ({}) ran, but the explained output does not depend on it; no walk passes through it"
_CROSSING = "edges join nodes that batch puts into different graphs, so walks cross from graph to graph"
_HIDDEN = "node features went {}; the result counts as constant"
_CUT = "the model detaches node features (by detach(), .data or a copy); what it computes from those counts as constant"


@dataclass(frozen=True, eq=False)
class Recording:
    """A prediction that was recorded, its operations sorted and under their rules."""

    given: Given
    hoods: Neighbourhoods | None  # that the model ran on, if not on the graph
    lowering: Lowering
    scalar: ExplainedScalar
    notes: Sequence[str]

    def chain(self) -> RelevanceChain:
        """Its chain, in one type and with finite numbers."""
        with torch.no_grad(), _differentiable():
            chain = self.lowering.chain(self.scalar, self.notes)
            if isinstance(self.given, HeteroGiven):
                chain = replace(chain, types=self.given.types, edge_index=self.given.edges)
            return check_chain(in_one_type(chain, self.lowering.ops, self.lowering.tape.values))


@dataclass(frozen=True, eq=False)
class Followed:
    """A run in which it is known which node every row is."""

    run: ModelRun
    slot: int  # of the explained scalar
    identities: Identities
    unsure: Sequence[str]  # notes on rows that are taken to be nodes without proof


def lowered(
    whole: Given,
    target: tuple[Target, Target],
    index: Index,
    schedule: Schedule,
    hoods: Neighbourhoods | None = None,
    notes: Sequence[str] = (),
    *,
    closed: bool = True,
) -> Recording:
    """Record a run of the model, on a graph or on neighbourhoods in it, with closed forms of layers or without."""
    again = None  # with the features read as (T, M, F)
    if whole.may_be_matrices:
        again = partial(lowered, whole.turned(), target, index, schedule, None, notes, closed=closed)
    try:
        runs, run, hoods, notes = _run(whole, target, index, hoods, notes, closed)
    except NoLayersError as error:
        of_each = isinstance(whole.edge_index, Tensor) and whole.edge_index.dim() > 2  # (B, M, M): a dense batch
        return _otherwise(None if of_each else again, error, None)
    given, run = runs.given, _checked(runs, run)
    with torch.no_grad(), _differentiable():
        followed = _followed(runs, run)
        if again is not None and _are_matrices(followed, given.x):
            return again()
        run = followed.run
        if run.scalar.taken is not None:
            _check_taken(followed, *run.scalar.taken)
        try:
            lowering = Lowering(run.tape, followed.slot, schedule, followed.identities)
        except NoNodesError as error:
            return _otherwise(again, error, _uncounted(given, run.tape))
        found = _notes(given, lowering, followed.unsure, runs.sums)
        notes = [*found, *whole.notes, *whole.masked, *notes, *run.scalar.notes, *runs.notes]
        return Recording(given, hoods, lowering, run.scalar, notes)


def _run(
    whole: Given,
    target: tuple[Target, Target],
    index: Index,
    hoods: Neighbourhoods | None,
    notes: Sequence[str],
    closed: bool,
) -> tuple[ModelRuns, ModelRun, Neighbourhoods | None, Sequence[str]]:
    """A run on the graph, or on neighbourhoods, if these show the model's layers and give the same outputs."""
    for tries_left in (2, 1, 0):
        given = whole if hoods is None else hoods.of(whole)
        runs = ModelRuns(given, target, index if hoods is None else hoods.centres, closed)
        run = runs.run()
        if hoods is None or ran_as_before(whole, hoods, run.tape, run.scalar.tensor) or not tries_left:
            break
        again = tries_left > 1 or is_several(index)
        hoods, notes = neighbourhoods_for(whole, target[0], index) if again else (None, ())
    return runs, run, hoods, notes


def _checked(runs: ModelRuns, run: ModelRun) -> ModelRun:
    """The run if nothing is out of sight and all numbers are finite; another run if linear modules must be watched."""
    if unreached := run.watch.unreached():  # do they lose track of their input?
        run = runs.run(unreached)
    if run.watch.calls.fresh and not run.tape.cut:
        check_fresh(run.watch.calls, runs.handed)
    check_finite(run.tape, run.scalar.outputs, run.watch.modules, runs.given.features)
    return run


def _followed(runs: ModelRuns, run: ModelRun) -> Followed:
    """The run with the nodes of its rows; or another, if tensors of the model's own are to be followed from before."""
    tape, given, slot = run.tape, runs.given, run.slot()
    own, unsure = rows_of_own(tape, given, runs.handed_for)
    identities = Identities(tape, given.num_nodes, given.types, own, given.ends)
    partly = {s: ids for s, ids in own.items() if s not in tape.beside and bool((ids < 0).any())}
    early = read_around(tape, identities, partly)
    if not early:
        return Followed(run, slot, identities, unsure)
    again = _followed_early(runs, early, unsure)
    for handed, ids in ((s, ids) for s, ids in own.items() if s in partly or tape.values[s].dim() == 2):
        number, place = _place_of(tape, handed)
        call = again.run.tape.calls[number]
        check_rows(again.identities, call, call.handed[place], ids)
    return again


def _followed_early(runs: ModelRuns, early: Mapping[Place, Tensor], unsure: Sequence[str]) -> Followed:
    """Another run, in which tensors of the model's own are followed from where they are first read."""
    runs.early, given = tuple(early), runs.given
    run = runs.run()
    slot = run.slot()
    own = rows_of_own(run.tape, given, runs.handed_for)[0] | _rows_of_early(run.tape, early)
    return Followed(run, slot, Identities(run.tape, given.num_nodes, given.types, own, given.ends), unsure)


def _place_of(tape: Tape, slot: int) -> tuple[int, int]:
    """The first call that is handed a tensor, and which of its tensors that is."""
    return next((i, call.handed.index(slot)) for i, call in enumerate(tape.calls) if slot in call.handed)


def _rows_of_early(tape: Tape, early: Mapping[Place, Tensor]) -> dict[int, Tensor]:
    """The slots that were followed from where they are first read, and the nodes of their rows."""
    found = {begun: early[place] for place, begun in tape.early.items() if begun is not None}
    if len(found) != len(early) or any(
        tape.values[slot].shape[ids.dim() - 1] != ids.numel() for slot, ids in found.items()
    ):
        raise TraceError(
            "The model computed its embeddings differently when it was run again.",
            remedy="Make it do the same whenever it gets the same graph.",
        )
    return found


def _are_matrices(followed: Followed, x: Tensor) -> bool:
    """Whether the first layer takes features (T, M, F) as they are for several matrices on one static graph."""
    tape, identities = followed.run.tape, followed.identities
    call = tape.calls[0]
    shape = tape.values[call.handed[0]].shape
    if any(identities.along_nodes(slot, dim) for slot, dim in call.sent):  # of rows that are nodes already
        return False
    return call.takes_matrices(shape) and shape[:2] == x.shape[:2] and not identities.across(call.handed[0])


def _check_taken(followed: Followed, row: int, node: int) -> None:
    """Refuse a row of the output that is not the node that was asked for, as far as this can be told."""
    identities = followed.identities
    try:
        ids = identities.nodes(followed.slot).tolist()
    except UnfollowedError:
        ids = [NOBODY]
    if len(ids) > row and ids[row] == node:
        return
    assert identities.types is not None
    named, other = identities.types.named(node), ids[row] if len(ids) > row else NOBODY
    told = (
        "belongs to no node that can be identified"
        if other < 0
        else f"is node {identities.types.named(other)!r}, not {named!r}"
    )
    raise (TargetError if other < 0 else OtherNodeError)(
        f"Row {row} of the output {told}.",
        argument="index",
        expected="a row of the output",
        got=named,
        remedy=f"Give the number of the row: index={ids.index(node)}."
        if node in ids
        else "No row can be told to be that node: give the number of a row, index=..., or a node that has one.",
    )


def _otherwise(again: Callable[[], Recording] | None, error: TraceError, remedy: str | None) -> Recording:
    """A recording with the features read as (T, M, F), for when layers run on no nodes otherwise; or the error."""
    if again is not None:
        with suppress(WalkwiseError):
            return again()
    raise TraceError(error.problem, remedy=remedy or error.remedy) from None


def _uncounted(given: Given, tape: Tape) -> str | None:
    """What to do if layers run on more rows than edges name nodes, and the graph does not say how many it has."""
    data, rows = given.data, len(tape.values[tape.calls[0].handed[0]])
    if given.x is not None or data is None or "num_nodes" in data or rows <= given.num_nodes:
        return None
    return (
        f"The graph does not say how many nodes it has; its edges name {given.num_nodes}. If every row is a node's (a "
        f"table of users and items, say), set data.num_nodes = {rows}."
    )


def _notes(given: Given, lowering: Lowering, unsure: Sequence[str], sums: Sequence[str]) -> list[str]:
    """Notes on the run for the reader of a chain; warnings if something changes its meaning."""
    tape = lowering.tape
    counted = [words_of(type(given.model).__name__, given.layers)] if given.layers else []
    counted += [_OWN_CODE.format(type(given.model).__name__, ", ".join(sums))] if sums else []
    hidden = [_HIDDEN.format(where) for where in sorted(tape.hidden)]
    warned = [*counted, *modes_of_their_own(given.model), *hidden, *unsure]
    idle = [_IDLE.format(call.name, type(call.module).__name__) for call in lowering.idle]
    for note in (*warned, *(idle if tape.cut else ())):  # perhaps cut where the model detaches
        warnings.warn(f"{note}.", CoverageWarning, stacklevel=4)
    crossing = [_CROSSING] if _crosses(given, lowering) else []
    return [*warned, *idle, *crossing, *([_CUT] if tape.cut else ())]


def _crosses(given: Given, lowering: Lowering) -> bool:
    """Whether edges lead from one graph of a batch to another."""
    batch = given.tensors().get("batch")
    if batch is None or batch.shape != (given.num_nodes,) or given.num_graphs == 1:
        return False
    source, target = lowering.positions.edges(lowering.tape.calls)
    return bool((batch[source] != batch[target]).any())


@contextmanager
def _differentiable() -> Iterator[None]:
    """Explain that torch has no derivative for something the model computes."""
    try:
        yield
    except NotImplementedError as error:
        raise TraceError(
            f"torch cannot differentiate what the model does: {str(error).splitlines()[0]}",
            remedy="Write it with functions that have a derivative, or detach() what is meant to be constant.",
        ) from error

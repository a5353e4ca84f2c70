"""The tracer: runs a model once, records it, and turns the recording into a RelevanceChain."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from walkwise.core.chain import ExplainedNumber, RelevanceChain
from walkwise.errors import (
    CoverageWarning,
    InputError,
    TargetError,
    TraceError,
    UnsupportedLayerError,
    WalkwiseError,
    described,
)
from walkwise.rules import RuleLike, Schedule, as_schedule
from walkwise.tracing import linearize
from walkwise.tracing.given.arguments import Given
from walkwise.tracing.given.binding import given_as
from walkwise.tracing.given.hetero import HeteroGiven
from walkwise.tracing.given.inputs import check_call, check_edges, check_given, names_more
from walkwise.tracing.given.target import ExplainedScalar, Index, OtherNodeError, Target
from walkwise.tracing.lowering import Lowering
from walkwise.tracing.neighbourhoods import Neighbourhoods
from walkwise.tracing.nodes.embedded import check_rows, rows_of_own
from walkwise.tracing.nodes.identity import Identities, UnfollowedError
from walkwise.tracing.nodes.moved import NOBODY
from walkwise.tracing.nodes.positions import NoNodesError
from walkwise.tracing.nodes.sources import read_around
from walkwise.tracing.precision import (
    CAST,
    WIDENED,
    check_chain,
    check_finite,
    half_of,
    in_one_type,
)  # fmt: skip
from walkwise.tracing.private import modes_on, take_modes_off, watched, wrapped_in
from walkwise.tracing.reach import Surveyor, is_several, ran_as_before
from walkwise.tracing.recording.tape import Tape
from walkwise.tracing.running.calls import check_fresh
from walkwise.tracing.running.checkpoints import checkpoints_in_sight
from walkwise.tracing.running.found import ends_of, joins, words_of
from walkwise.tracing.running.modules import has_layers, modes_of_their_own
from walkwise.tracing.running.watch import Watch
from walkwise.tracing.runs import ModelRuns


def trace(
    model: nn.Module,
    x: Tensor | Data | HeteroData | dict[str, Tensor] = ...,  # type: ignore[assignment]
    edge_index: Any = ...,
    *rest: Any,
    target: Target = None,
    against: Target = None,
    index: Index = None,
    rule: RuleLike = "auto",
    fallback: str = "autograd",
    **model_kwargs: Any,
) -> RelevanceChain:
    """Trace one prediction into a relevance chain: ``trace(model, data)``, or ``trace(model, x, edge_index)``.

    From a PyG ``data`` (a Data, or a Batch from a DataLoader) the model gets every attribute that its ``forward`` has a
    parameter for: x, edge_index (or adj_t), batch, edge_attr and so on. A ``forward(data)`` gets a copy of the graph
    itself. Tensors are passed on as they are: ``model(x, edge_index, **model_kwargs)``. So are the dictionaries of a
    heterogeneous graph, which a HeteroData provides under their names: ``x_dict``, ``edge_index_dict``, ... A model
    that takes a tuple, a dictionary or an object of your own is traced with that, ``trace(model, (x, edges))``, and one
    of two graphs with the other by its name, which counts as constant: ``trace(model, mol, protein=other)``.

    The model runs in evaluation mode, as its author wrote it, and is left as it was. Attention coefficients, gates and
    the statistics of normalisations are held constant; every linear map follows its layer's LRP rule.

    Args:
        model: a model with torch_geometric message-passing layers.
        x: a Data, HeteroData or Batch; or the node features, (M, F) or {type: (M_t, F_t)}, or what the model takes
            instead (atomic numbers, say).
        edge_index: with features, the edges, (2, E), or a sparse adjacency, or edges by type; left out with a Data.
        *rest: nothing: all other arguments of the model are given by name.
        target: the output column to explain (default: the largest), one per graph of a batch, or a callable that turns
            the output into a scalar. For a binary model with one logit, "positive" (or 1) is the logit and "negative"
            the logit with its sign flipped; 0 is always the first column itself.
        against: another column (or one per graph): the explained number is then the target's output minus this one:
            what speaks for one class and not for the other. A single logit is such a difference already.
        index: the output row to explain: a node, or for a link predictor the score of a pair. In a sampled subgraph
            (NeighborLoader) it is a row of the subgraph, as all node ids are. One node of a large graph is traced on
            the nodes that its output depends on, and all answers use the graph's own ids. A list of nodes gives the
            chain of a batch with one graph for each node, its neighbourhood. Node ids are then rows of that batch;
            ``chain.origin`` says which node of the graph a row is (``nodes``), and which neighbourhood it is in
            (``graphs``), to pass as the argument ``graphs`` of the questions. For outputs by node type, (type, i).
        rule: "auto" (the generalised γ = 3 in every layer), "gamma" (the paper's), "zero", "epsilon", "alphabeta",
            "zplus", a rule, one rule per message-passing layer, or a Schedule.
        fallback: with "autograd", autograd carries the parts of a layer that have no closed form; "error" refuses them.
        **model_kwargs: passed to the model; they take precedence over the attributes of a Data. With ``batch`` the
            explained scalar is the sum of the graphs' outputs, and walks stay within their graph, as edges do.

    >>> import torch, walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(in_channels=2, hidden_channels=8, num_layers=2, out_channels=3)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> ww.trace(model, torch.ones(3, 2), edge_index, index=1, target=0)  # doctest: +ELLIPSIS
    RelevanceChain(2 layers, 3 nodes, output=...)
    >>> from torch_geometric.data import Data
    >>> ww.trace(model, Data(torch.ones(3, 2), edge_index), index=1, target=0)  # doctest: +ELLIPSIS
    RelevanceChain(2 layers, 3 nodes, output=...)
    """
    check_call(model, x, rest, model_kwargs)
    schedule = as_schedule(rule)
    if fallback not in ("autograd", "error"):
        raise InputError(argument="fallback", expected='"autograd" or "error"', got=fallback)
    with given_to(model, x, edge_index, model_kwargs) as given:
        hoods, notes = _neighbourhoods(given, target, index)
        recording = lowered(given, (target, against), index, schedule, hoods, notes)
        chain, hoods = replace(recording.chain(), explained=_named(recording.scalar.name, index)), recording.hoods
        if fallback == "error":
            _refuse_autograd(chain)
        return chain if hoods is None else _placed(chain, hoods, given, not is_several(index))


@contextmanager
def given_to(model: nn.Module, x: Any, edge_index: Any, model_kwargs: dict[str, Any]) -> Iterator[Given]:
    """Check a model's arguments; inside, it can be run and watched, whatever is switched off outside."""
    model, modes = _unwrapped(model), modes_on()
    ordinary = torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext()
    try:
        with (
            torch.set_grad_enabled(torch.is_grad_enabled()),
            watched(),
            checkpoints_in_sight(),
            ordinary,
        ):  # an interrupt must not leave gradients, or the recording, switched off
            given = given_as(model, x, edge_index, model_kwargs)
            if given.manner.instead is not None:  # failing runs must not leave records
                half = half_of(given.model, given.features) is not None
                given, _ = given.taken(lambda way: ModelRuns(way, (None, None), None, half).output())
            given.check() if isinstance(given, HeteroGiven) else check_given(given)
            given = given.turned() if _has_matrices(given.x) and names_more(given.edge_index, len(given.x)) else given
            yield given if has_layers(given.model) else _with_layers(given)
    finally:
        take_modes_off(modes)  # which an interrupt has left on


def _with_layers(given: Given) -> Given:
    """The input of a model that has no message-passing modules, with the modules that count as its layers."""
    dense = _has_matrices(given.x) and len(given.x) == 1 and not given.static  # (1, M, F): one graph, for dense layers
    given = given.turned() if dense else given
    return ModelRuns(given, (None, None), None, half_of(given.model, given.features) is not None).found()


_OWN_CODE = "{} has no message-passing module; sums at nodes in its own code count as layers: {}"
_IDLE = "layer '{}' ({}) ran, but the explained output does not depend on it; no walk passes through it"
_CROSSING = "edges join nodes that batch puts into different graphs, so walks cross from graph to graph"
_HIDDEN = "node features went {}; the result counts as constant"

trace.linearize = linearize  # type: ignore[attr-defined]  # so that walkwise.trace.linearize is found


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
            return check_chain(in_one_type(chain))


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
    runs, (tape, watch, scalar), hoods, notes = _run(whole, target, index, hoods, notes, closed)
    given = runs.given
    half = half_of(given.model, given.features)
    if unreached := watch.unreached():  # run again and check whether they lose track of their input
        tape, watch, scalar = runs.run(unreached)
    if watch.calls.fresh and not tape.cut:
        check_fresh(watch.calls, runs.handed)
    check_finite(tape, scalar.outputs, watch.modules, given.features)
    slot = _slot_of(scalar, tape)
    with torch.no_grad(), _differentiable():
        own, unsure = rows_of_own(tape, given, runs.handed_for)
        edges = ends_of(given.edge_index) if joins(given.edge_index, given.num_nodes) else None
        identities = Identities(tape, given.num_nodes, given.types, own, edges)
        partly = {slot: ids for slot, ids in own.items() if slot not in tape.beside and bool((ids < 0).any())}
        if early := read_around(tape, identities, partly):
            rows = {slot: ids for slot, ids in own.items() if slot in partly or tape.values[slot].dim() == 2}
            places = [(*_place_of(tape, slot), ids) for slot, ids in rows.items()]
            runs.early = tuple(early)
            tape, watch, scalar = runs.run()
            slot = _slot_of(scalar, tape)
            own = rows_of_own(tape, given, runs.handed_for)[0]
            own |= _followed_early(tape, early)
            identities = Identities(tape, given.num_nodes, given.types, own, edges)
            for call, place, ids in places:
                check_rows(identities, tape.calls[call], tape.calls[call].handed[place], ids)

        def again() -> Recording:
            return lowered(whole.turned(), target, index, schedule, None, notes, closed=closed)

        matrices = _has_matrices(given.x) and not given.static
        if matrices and _are_matrices(tape, given.x, identities):
            return again()
        if scalar.taken is not None:
            _check_taken(identities, slot, *scalar.taken)
        try:
            lowering = Lowering(tape, slot, schedule, identities)
        except NoNodesError as error:
            remedy = _uncounted(given, len(tape.values[tape.calls[0].handed[0]]))
            return _otherwise(again if matrices else None, error, remedy)
        types = [] if half is None else [(WIDENED if runs.wide else CAST).format(half)]
        notes = [
            *_notes(given, lowering, unsure, runs.sums),
            *whole.notes,
            *whole.masked,
            *notes,
            *scalar.notes,
            *types,
        ]
        return Recording(given, hoods, lowering, scalar, notes)


def _run(
    whole: Given,
    target: tuple[Target, Target],
    index: Index,
    hoods: Neighbourhoods | None,
    notes: Sequence[str],
    closed: bool,
) -> tuple[ModelRuns, tuple[Tape, Watch, ExplainedScalar], Neighbourhoods | None, Sequence[str]]:
    """A run on the graph, or on neighbourhoods, if these show the model's layers and give the same outputs."""
    for tries_left in (2, 1, 0):
        given = whole if hoods is None else hoods.of(whole)
        half = half_of(given.model, given.features) is not None
        runs = ModelRuns(given, target, index if hoods is None else hoods.centres, half, closed)
        ran = runs.run()
        if hoods is None or ran_as_before(whole, hoods, ran[0], ran[2].tensor) or not tries_left:
            break
        again = tries_left > 1 or is_several(index)
        hoods, notes = _neighbourhoods(whole, target[0], index) if again else (None, ())
    return runs, ran, hoods, notes


def _uncounted(given: Given, rows: int) -> str | None:
    """What to do if layers run on more rows than edges name nodes, and the graph does not say how many it has."""
    data = given.data
    if given.x is not None or data is None or "num_nodes" in data or rows <= given.num_nodes:
        return None
    return (
        f"The graph does not say how many nodes it has; its edges name {given.num_nodes}. If every row is a node's (a "
        f"table of users and items, say), set data.num_nodes = {rows}."
    )


def _otherwise(again: Callable[[], Recording] | None, error: TraceError, remedy: str | None) -> Recording:
    """A recording with the features read as (T, M, F), for when layers run on no nodes otherwise; or the error."""
    if again is not None:
        with suppress(WalkwiseError):
            return again()
    raise TraceError(error.problem, remedy=remedy or error.remedy) from None


def _slot_of(scalar: ExplainedScalar, tape: Tape) -> int:
    """The slot of the explained scalar; a scalar that is not followed is refused."""
    slot = tape.slot_of(scalar.tensor)
    if slot is None and tape.lost:
        raise TargetError("The explained scalar cannot be traced back to the node features.", remedy=tape.lost)
    if slot is None:
        raise TargetError(
            "The explained scalar does not depend differentiably on the node features: the target (or the "
            "model) detaches it, rounds it, or takes an index instead of a value.",
            argument="target",
            expected="a differentiable function of the node features",
        )
    return slot


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
    crossing = [_CROSSING] if _crosses(given, lambda: lowering.positions.edges(tape.calls)) else []
    return [*warned, *idle, *crossing]


def _check_taken(identities: Identities, slot: int, row: int, node: int) -> None:
    """Refuse a row of the output that is not the node that was asked for, as far as this can be told."""
    try:
        ids = identities.nodes(slot).tolist()
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


def _place_of(tape: Tape, slot: int) -> tuple[int, int]:
    """The first call that is handed a tensor, and which of its tensors that is."""
    return next((i, call.handed.index(slot)) for i, call in enumerate(tape.calls) if slot in call.handed)


def _followed_early(tape: Tape, early: Mapping[tuple[int, str, int], Tensor]) -> dict[int, Tensor]:
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


def _named(number: ExplainedNumber | None, index: Index) -> ExplainedNumber | None:
    """The explained number, in the caller's own rows."""
    if number is None or index is None:
        return number
    if isinstance(index, tuple) and len(index) == 2 and isinstance(index[0], str):
        return replace(number, index=(index[0], operator.index(index[1])))
    return None if is_several(index) else replace(number, index=operator.index(index))  # type: ignore[arg-type]


def _refuse_autograd(chain: RelevanceChain) -> None:
    """Refuse a layer that is carried by autograd."""
    for layer in chain.layers:
        if layer.route == "autograd":
            raise UnsupportedLayerError(
                f"layer '{layer.name}' ({layer.kind}) has no linearization.",
                argument="fallback",
                expected='"autograd" for a model with such a layer',
                got="error",
                remedy=f"Register one with walkwise.trace.linearize.register({layer.kind}), or trace with "
                'fallback="autograd".',
            )


def _placed(chain: RelevanceChain, hoods: Neighbourhoods, whole: Given, one: bool) -> RelevanceChain:
    """The chain of neighbourhoods, with their place in the graph; for one node, it uses the graph's ids."""
    origin, edge_index = hoods.origin, whole.edge_index
    if not torch.equal(chain.edge_index, hoods.edge_index):  # the model makes edges of its own
        origin, edge_index = replace(origin, edges=origin.edges[:0]), origin.nodes[chain.edge_index]
    chain = replace(chain, origin=origin)
    return replace(chain, num_nodes=whole.num_nodes, edge_index=edge_index, part=chain) if one else chain


def _neighbourhoods(given: Given, target: Target, index: Index) -> tuple[Neighbourhoods | None, tuple[str, ...]]:
    """The neighbourhoods to trace instead of the graph, if that is better, and a note."""
    if index is None or callable(target) or given.types is not None or given.static:
        return None, ()
    half = half_of(given.model, given.features) is not None
    surveyor = Surveyor(given, lambda part, rows: ModelRuns(part, (None, None), rows, half), check_edges)
    with torch.no_grad():
        return surveyor.several(index) if is_several(index) else surveyor.one(index)


def _unwrapped(model: nn.Module) -> nn.Module:
    """The model itself, if torch.compile or training on several devices has wrapped it."""
    if not isinstance(model, nn.Module):
        raise InputError(argument="model", expected="a torch.nn.Module", got=described(model))
    model = wrapped_in(model) or model
    looks = not isinstance(model, torch.jit.ScriptModule) and "forward" not in model.__dict__
    if looks and type(model).forward is nn.Module.forward:
        raise InputError(
            f"{type(model).__name__} has no forward, so it cannot be run.",
            argument="model",
            expected="a torch.nn.Module with a forward",
            got=described(model),
            remedy="Give it one that computes the number to explain: def forward(self, x, edge_index, "
            "edge_label_index): return self.decode(self.encode(x, edge_index), edge_label_index).",
        )
    return model


def _crosses(given: Given, edges: Callable[[], Tensor]) -> bool:
    """Whether edges lead from one graph of a batch to another."""
    batch = given.tensors().get("batch")
    if batch is None or batch.shape != (given.num_nodes,) or given.num_graphs == 1:
        return False
    edge_index = edges()
    return bool((batch[edge_index[0]] != batch[edge_index[1]]).any())


def _has_matrices(x: Any) -> bool:
    """Whether features have three dimensions."""
    return isinstance(x, Tensor) and x.is_floating_point() and x.dim() == 3


def _are_matrices(tape: Tape, x: Tensor, identities: Identities) -> bool:
    """Whether the first layer takes features (T, M, F) as they are for several matrices on one static graph."""
    call = tape.calls[0]
    shape = tape.values[call.handed[0]].shape
    if any(identities.along_nodes(slot, dim) for slot, dim in call.sent):  # of rows that are nodes already
        return False
    return call.takes_matrices(shape) and shape[:2] == x.shape[:2] and not identities.across(call.handed[0])

"""Runs of a model, each with a shadow of it and a copy of its input."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from walkwise.core.lazy import cached_property
from walkwise.errors import InputError, TargetError, TraceError
from walkwise.tracing.given.arguments import Given
from walkwise.tracing.given.enlarged import enlarged, with_one_edge_more
from walkwise.tracing.given.holders import all_tensors_in, in_main_memory
from walkwise.tracing.given.inputs import check_input
from walkwise.tracing.given.second import graphs_held
from walkwise.tracing.given.target import ExplainedScalar, Index, Target, explained
from walkwise.tracing.meaning.pairs import write_pairs
from walkwise.tracing.nodes.own_layers import find_own_layers
from walkwise.tracing.nodes.own_sums import (
    ColumnsError,
    NodeTensors,
    ReorderedError,
    is_of_more_nodes,
    node_tensors,
    same_slots,
)
from walkwise.tracing.nodes.returned import take_returned
from walkwise.tracing.nodes.sources import embedded_nodes
from walkwise.tracing.precision import CAST, WIDENED, half_of, widened
from walkwise.tracing.recording.numbers import Numbers
from walkwise.tracing.recording.tape import Tape
from walkwise.tracing.running.found import Search
from walkwise.tracing.running.handed import EnoughError, note_handed
from walkwise.tracing.running.modules import (
    Modules,
    check_layers,
    exchange,
    modules_of,
    searched,
    spare_lazy,
    where_parameters_lie,
)  # fmt: skip
from walkwise.tracing.running.shadow import same_random_numbers, shadow_of
from walkwise.tracing.running.stand_ins import dismiss
from walkwise.tracing.running.watch import Watch

_RANDOM = (
    "the model draws random numbers even in evaluation mode (a dropout that is always on, say): this chain is that of "
    "one run, and another run may give a different output"
)

_HELD = (
    "{} is a second graph, not the explained one: its features, and what the model computes from them, count as "
    "constant"
)
_SOMEWHERE = "a graph that the model has from elsewhere, with other nodes,"

_COLUMNS = (
    "{} keeps its nodes along columns, (F, M), and adds them up there several times in a row; walks stand at rows, and "
    "would pass all of these sums as one layer."
)

_REORDERED = (
    "{} puts its nodes into another order ({}) before it adds rows up at them, and Walkwise cannot tell which row is "
    "which node."
)


class ModelRun(NamedTuple):
    """One run of a model, recorded."""

    tape: Tape
    watch: Watch
    scalar: ExplainedScalar

    def slot(self) -> int:
        """The slot of the explained scalar; a scalar that is not followed is refused."""
        slot = self.tape.slot_of(self.scalar.tensor)
        if slot is None and self.tape.lost:
            raise TargetError("The explained scalar cannot be traced back to the node features.", remedy=self.tape.lost)
        if slot is None:
            raise TargetError(
                "The explained scalar does not depend differentiably on the node features: the target (or the "
                "model) detaches it, rounds it, or takes an index instead of a value.",
                argument="target",
                expected="a differentiable function of the node features",
            )
        return slot


@dataclass(eq=False)
class ModelRuns:
    """Runs of one model on one input, every time with a new shadow of it and a copy of the input."""

    given: Given
    target: tuple[Target, Target] = (None, None)  # the explained output, and the one it is set against
    index: Index = None
    closed: bool = True  # whether layers are recorded by their closed forms
    casts: bool = False  # whether a model in half precision casts to it itself, and cannot run in float32
    aside: tuple[int, ...] = ()  # which of all calls of layers were on other graphs than the explained one
    sums: Sequence[str] = ()  # the layers of a model's own code, in words
    early: tuple[tuple[int, str, int], ...] = ()  # where constants are first read, to be followed from there
    held: tuple[str, ...] = ()  # other graphs that the model holds, and runs layers on

    @cached_property
    def half(self) -> torch.dtype | None:
        """The half-precision type of the model, if it is in one."""
        return half_of(self.given.model, self.given.features)

    @property
    def wide(self) -> bool:
        """Whether a model in half precision runs in float32."""
        return self.half is not None and not self.casts

    @property
    def notes(self) -> list[str]:
        """Notes on the type that a model in half precision ran in, and on graphs that it holds."""
        half = [] if self.half is None else [(WIDENED if self.wide else CAST).format(self.half)]
        return [*half, *map(_HELD.format, self.held)]

    def run(self, suspects: Sequence[str] = ()) -> ModelRun:
        """A run, recorded as far as the explained scalar."""
        try:
            ran = self._run(suspects)
        except RuntimeError:
            if not self.wide:
                raise
            self.casts = True
            ran = self._run(suspects)
        if not self.given.own_code:
            return ran
        if ran.tape.making and self.early:  # embeddings, which are followed from now on
            ran = self._run(suspects)
        self._find_layers(ran)
        return ran

    @property
    def _last_dim(self) -> int:
        """The last dimension of two or three along which nodes may lie: any, where they lie so in the features.

        In (M, F) and (T, M, F), the last one has as many features as nodes by accident.
        """
        several = isinstance(self.given.x, Tensor) and (self.given.node_dim > 1 or self.given.x.dim() > 3)
        return self.given.x.dim() - 1 if several else 1

    def _find_layers(self, ran: ModelRun) -> None:
        """Put the layers of a model's own code onto the tape; a model without any is refused."""
        tape, M, ends = ran.tape, self.given.num_nodes, self.given.ends
        slot = tape.slot_of(ran.scalar.tensor)
        if slot is not None:
            with torch.no_grad():
                try:
                    found = self._seen_on_more_nodes(tape, slot) or self._seen_on_more_edges(tape, slot)
                    found = found or node_tensors(tape, slot, M, ends, last_dim=self._last_dim)
                except ReorderedError as function:
                    problem = _REORDERED.format(type(self.given.model).__name__, function)
                    raise TraceError(problem, remedy="Put the graph into that order before tracing it.") from None
                except ColumnsError:
                    problem = _COLUMNS.format(type(self.given.model).__name__)
                    raise TraceError(problem, remedy="Keep nodes first: (M, F).") from None
                self.sums = find_own_layers(tape, slot, found, M, self.given.model, ends)
        if not tape.calls:
            check_layers(ran.watch.modules)

    def _seen_on_more_nodes(self, tape: Tape, slot: int) -> NodeTensors | None:
        """The node tensors, seen in a run with more nodes, of which there are as many as of nothing else."""
        M = self.given.num_nodes
        unsure = None
        sizes = {size for value in tape.values for size in value.shape}
        readings = (False, True) if self.given.has_as_many_edges else (False,)
        for joined, square, of_edges, more in itertools.product((True, False), (False, True), readings, range(3, 7)):
            larger = None if M + more in sizes else enlarged(self.given, more, joined, square, of_edges)
            if larger is None:
                continue
            try:
                other, output, slots = self._run_likewise(larger, tape, slot)
                if not is_of_more_nodes((other, tape), slots, (M + more, M)):
                    continue
                found = node_tensors(other, output, M + more, certain=True, num_graphs=self.given.num_graphs)
            except (ReorderedError, ColumnsError):
                raise
            except Exception:  # the model does not run on more nodes, or does something else there
                continue
            if found.sums and not found.unsure:
                return found.elsewhere(slots)
            unsure = unsure or (found.elsewhere(slots) if found.sums else None)
        return unsure

    def _seen_on_more_edges(self, tape: Tape, slot: int) -> NodeTensors | None:
        """The same, seen in a run with one edge more, if there are as many edges as nodes, which would be confused."""
        for of_edges in (False, True) if self.given.has_as_many_edges else ():
            larger = with_one_edge_more(self.given, of_edges)
            if larger is None:
                continue
            try:
                other, output, slots = self._run_likewise(larger, tape, slot)
                found = node_tensors(other, output, larger.num_nodes, larger.ends, last_dim=self._last_dim)
            except (ReorderedError, ColumnsError):
                raise
            except Exception:  # the model does not run on more edges, or does something else there
                continue
            if found.sums:
                return found.elsewhere(slots)
        return None

    def _run_likewise(self, given: Given, tape: Tape, slot: int) -> tuple[Tape, int, dict[int, int]]:
        """A run on another input, the explained slot in it, and the slots of a tape by those of that run."""
        run = replace(self, given=given)._run(())
        output = run.slot()
        return run.tape, output, same_slots((run.tape, tape), (output, slot))

    def _run(self, suspects: Sequence[str]) -> ModelRun:
        model, modules, given = self._shadowed()
        tape = Tape()
        tape.parameters = where_parameters_lie(modules)
        tape.early, tape.making = dict.fromkeys(self.early), not self.early and not given.has_all_features
        watch = Watch(tape, modules, suspects, self.closed)
        tape.numbers = Numbers(given.numbers())
        tape.data = {id(t): t for t in all_tensors_in(given.arguments) if t.is_floating_point() and t is not given.x}
        tape.given = frozenset(tape.data)
        held = graphs_held(modules.all, given.x, given.edge_index)
        tape.keep_outside([*given.outside, *held.values()])
        for features in given.features.values():
            tape.follow_features(features)
        counts, types = (given.num_graphs, given.num_nodes), given.types  # nothing that the model does
        try:
            with same_random_numbers() as drawn, torch.enable_grad():
                with tape:
                    output = given.run(model)
                    target, against = self.target
                    scalar = explained(output, target, self.index, *counts, against, types)
                if drawn():
                    scalar = replace(scalar, notes=(*scalar.notes, _RANDOM))
        finally:
            watch.release()
        tape.aliases.check()
        take_returned(tape, watch.calls.returned)
        write_pairs(tape)
        if given.own_code and tape.making:
            self.early = tuple(embedded_nodes(tape, given.num_nodes))
        self.aside = tuple(watch.calls.aside)
        used = [name for name, tensors in held.items() if any(id(t) in watch.calls.others for t in tensors)]
        self.held = tuple(f"the model's {name}" for name in used or held) if self.aside and held else ()
        self.held += (_SOMEWHERE,) if watch.calls.held else ()
        return ModelRun(tape, watch, scalar)

    def output(self) -> Any:
        """What the model returns."""
        model, _, given = self._shadowed()
        with same_random_numbers(), torch.no_grad():
            return given.run(model)

    def found(self) -> Given:
        """The input, with the layers of a model that has no message-passing modules; one without layers is refused."""
        model, modules, given = self._shadowed()
        if modules.convs or modules.scripts or given.types is not None:
            check_layers(modules)
            return self.given
        candidates = searched(modules)
        exchange(modules, _learned)
        search = Search(candidates, given.num_nodes, given.x)
        try:
            with same_random_numbers(), torch.enable_grad():
                given.run(model)
        except InputError:
            if not candidates:  # whatever it takes, it is no graph
                check_layers(modules)
            raise
        finally:
            search.release()
        layers = search.layers()
        return replace(self.given, layers=layers, own_code=not layers)

    def handed(self, disturbing: bool, last: int | None = None) -> list[list[Tensor]]:
        """The layers' inputs, up to a call, with the first one's output disturbed or not."""
        model, modules, given = self._shadowed(checked=True)
        seen = note_handed(modules, disturbing, last, self.aside)
        with same_random_numbers(), torch.no_grad(), suppress(EnoughError):
            given.run(model)
        dismiss(modules.convs)
        return seen

    def handed_for(self, x: Any, last: int, named: Mapping[str, Tensor]) -> list[list[Tensor]]:
        """The layers' inputs, up to a call, with other features instead of x, and other arguments.

        This runs in main memory: an index that an embedding does not have is an error there, but would break a CUDA
        device.
        """
        given, x = self._here, in_main_memory(x)
        arguments = {n: x if value is given.x is not None else value for n, value in given.arguments.items()}
        arguments |= in_main_memory(dict(named))
        return replace(self, given=replace(given, x=x, arguments=arguments)).handed(False, last)

    @cached_property
    def _here(self) -> Given:
        """The input in main memory."""
        return self.given.in_main_memory()

    def _shadowed(self, *, checked: bool = False) -> tuple[nn.Module, Modules, Given]:
        """The model's shadow, its modules and a copy of the input, which is checked unless it has been before."""
        shadow = shadow_of(self.given.model)
        if self.given.cut:
            shadow.forget()
        modules = modules_of(shadow, self.given.layers)
        spare_lazy(modules)
        if self.given.here:
            exchange(modules, _copied_here)
        if not checked:
            check_input(modules, self.given)
        if self.wide:
            exchange(modules, widened)
        return shadow.model, modules, self.given.copied(torch.float32 if self.wide else None)


def _learned(tensor: Tensor) -> Tensor:
    """A weight that marks everything computed from it as learned, whether it is frozen or not."""
    frozen = isinstance(tensor, nn.Parameter) and tensor.is_floating_point() and not tensor.requires_grad
    return nn.Parameter(tensor.detach()) if frozen else tensor


def _copied_here(tensor: Tensor) -> Tensor:
    """A weight, or a copy of it in main memory."""
    copy = tensor.detach().cpu()
    return nn.Parameter(copy, requires_grad=False) if isinstance(tensor, nn.Parameter) else copy

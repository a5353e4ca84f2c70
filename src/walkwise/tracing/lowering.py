"""Turns a tape into a RelevanceChain."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence

from torch import Tensor

from walkwise.core.chain import Layer, RelevanceChain
from walkwise.core.contract import pull_back, unweighted
from walkwise.core.operators import Step, Visit
from walkwise.core.rows import AllNodes
from walkwise.errors import CoverageWarning, TraceError
from walkwise.rules import Rule, Schedule
from walkwise.tracing import moves, normalisations, weights  # noqa: F401  (they fill the table of functions)
from walkwise.tracing.folding import fold_batch_norms
from walkwise.tracing.fusing import fused
from walkwise.tracing.interpreter import Interpreter, flat
from walkwise.tracing.stretch import Flow
from walkwise.tracing.tape import Call, Op, Tape
from walkwise.tracing.target import Explained

#: Slots of a chain and the values there.
Places = tuple[tuple[int, Tensor], ...]

_AROUND = (
    "the model reads its input features around the first message-passing layer; that part of the output is on no walk"
)


_OUTSIDE = (
    "{} adds up rows of nodes outside of any message-passing layer, in {}; walks do not stand at nodes there. Put it "
    "into a torch_geometric.nn.MessagePassing layer to make it one of their steps"
)
_SUMS = frozenset({"scatter_add", "index_add", "scatter_reduce", "index_reduce", "matmul", "sparse_mm", "rmatmul"})


class Lowering:
    """The tape of one prediction on its way to a chain.

    Operations fall into three parts: the encoder before the first message-passing layer, the chain
    proper, and the read-out, which is everything no later position depends on.
    """

    def __init__(self, tape: Tape, output: int, schedule: Schedule) -> None:
        """Sort the tape's operations into the three parts."""
        self.tape = tape
        self.output = output
        self.ops = _live(tape.ops, {output})
        calls_run = {op.call for op in self.ops}
        self.calls = [(i, call) for i, call in enumerate(tape.calls) if i in calls_run]
        #: Layers that ran, but not for the explained output.
        self.idle = [call for i, call in enumerate(tape.calls) if i not in calls_run]
        if not self.calls:
            raise TraceError(
                "The explained output does not depend on any message-passing layer. walkwise explains models "
                "with torch_geometric.nn.MessagePassing layers; is the target the right part of the output?"
            )
        fold_batch_norms(self.ops, tape.calls)
        rules = schedule.rules(len(self.calls))
        self.rules = {index: rule for (index, _), rule in zip(self.calls, rules, strict=True)}
        self.readout_rule, self.rule_note = schedule.readout, schedule.note
        self.positions = self._positions()
        self.num_nodes = tape.values[self.calls[0][1].handed].shape[0]
        self._check_sizes()
        self._sort()

    # -- sorting ------------------------------------------------------------------------------

    def _positions(self) -> dict[int, int]:
        """The slots at which a walk stands at a node: what each layer is handed, and what the last return."""
        positions: dict[int, int] = {}
        for _, call in self.calls:
            positions.setdefault(call.handed, len(positions))
        feeding = {op.call for op in _live(self.ops, set(positions))}
        last = len(positions)
        for index, call in self.calls:
            if index not in feeding:
                positions.update({slot: last for slot in call.outputs[:1] if slot not in positions})
        self.num_layers = last
        return positions

    def _check_sizes(self) -> None:
        for slot in self.positions:
            shape = self.tape.values[slot].shape
            if len(shape) < 2 or shape[0] != self.num_nodes:
                raise TraceError(
                    f"Every message-passing layer must run on the same nodes: the first has {self.num_nodes}, "
                    f"another is handed a tensor of shape {tuple(shape)}. Pooling, sampling or bipartite steps "
                    "between layers are not supported."
                )

    def _sort(self) -> None:
        before = _live(self.ops, set(self.positions))  # encoder and chain
        after_first: set[int] = set(self.positions)
        inner: list[Op] = []
        for op in before:
            if not after_first.isdisjoint(op.inputs):
                after_first.update(slot for slot in op.outputs if slot is not None)
                inner.append(op)
        # A position that hangs on no other is where walks begin.
        reached = {slot for op in inner for slot in op.outputs}
        self.root_slots = [slot for slot in self.positions if slot not in reached]
        inner_set, before_set = set(map(id, inner)), set(map(id, before))
        self.encoder_ops = [op for op in before if id(op) not in inner_set]
        self.chain_ops = inner
        self.readout_ops = [op for op in self.ops if id(op) not in before_set]
        for op in before:
            op.rule = self._rule(op)
        for op in self.readout_ops:
            op.rule = self.readout_rule if op.call is None else self._rule(op)

    def _rule(self, op: Op) -> Rule:
        """The rule of an operation's layer, or of the layer before it."""
        if op.call is not None:
            return self.rules[op.call]
        begun = [index for index in self.rules if index < op.era]
        return self.rules[begun[-1] if begun else next(iter(self.rules))]

    # -- building -----------------------------------------------------------------------------

    def chain(
        self, scalar: Explained, edge_index: Tensor, features: int | None, notes: Sequence[str]
    ) -> RelevanceChain:
        """The relevance chain of an explained scalar in the output slot; ``notes`` go into the report."""
        self.run = run = Interpreter(self.tape.values)
        roots, encoder, source = self._encoder(features)
        run.missing = self._around
        layers = self._run_chain()
        steps = self._taken_steps()
        seeds, readout = self._seeds(scalar.direction)
        run.missing = None  # which holds on to all this
        steps = _reachable(steps, {slot for slot, _ in seeds})
        passed = [slot for layer in layers for slot, _ in (*layer.starts, *layer.ends)]
        named = {*passed, *(slot for slot, _ in (*seeds, *roots))}
        return RelevanceChain(
            steps=tuple(fused(steps, named, self.num_nodes)),
            seeds=tuple(seeds),
            readout=tuple(readout),
            readout_rule=self.readout_rule,
            roots=tuple(roots),
            layers=tuple(layers),
            num_nodes=self.num_nodes,
            num_layers=self.num_layers,
            outputs=scalar.outputs,
            edge_index=edge_index,
            encoder=tuple(encoder),
            features=source,
            rule_note=self.rule_note,
            normaliser=self._normaliser(scalar.direction),
            notes=(*run.remarks, *self._uncovered(), *notes),
        )

    def _taken_steps(self) -> list[Step]:
        """The steps made since they were last taken."""
        steps, self.run.builder.steps = self.run.builder.steps, []
        return steps

    def _encoder(self, features: int | None) -> tuple[list[tuple[int, Tensor]], list[Step], tuple[int, Tensor] | None]:
        """Where walks begin, what stands before, and the model's input features if anything does."""
        run, source = self.run, None
        if features is not None:
            source = run.builder.new_slot(), run.value(features)
            run.flows[features] = Flow(source[1], source[0])
            run.missing = self._around
            for op in self.encoder_ops:
                run.run(op)
        begun = {slot: run.builder.settle(run.flows[slot]) for slot in self.root_slots if slot in run.flows}
        encoder = self._taken_steps()
        run.flows = {}
        roots = []
        for slot in self.root_slots:
            flow = begun.get(slot) or Flow(run.value(slot), run.builder.new_slot())
            roots.append((flow.slot, flow.value))
            run.flows[slot] = self._visited(slot, flow)
        if not self.encoder_ops or features in self.root_slots:
            return roots, [], None
        return roots, _reachable(encoder, {slot for slot, _ in roots}), source

    def _around(self, slot: int) -> Flow:
        """A slot that no walk has passed is constant."""
        self.run.remarks[_AROUND] = None
        return Flow(self.run.value(slot), self.run.builder.new_slot())

    def _visited(self, slot: int, flow: Flow) -> Flow:
        flow = self.run.builder.settle(flow)
        visit = Visit(self.positions[slot], flow.slot)
        return Flow(flow.value, self.run.builder.emit([visit], [flow.slot]), call=flow.call, gate=flow.gate)

    def _stand(self, slots: Iterable[int | None]) -> None:
        for slot in slots:
            if slot in self.positions and slot in self.run.flows:
                assert slot is not None
                self.run.flows[slot] = self._visited(slot, self.run.flows[slot])

    def _run_chain(self) -> list[Layer]:
        layers: list[Layer] = []
        of_call: dict[int, list[Op]] = {}
        for op in self.chain_ops:
            if op.call is not None:
                of_call.setdefault(op.call, []).append(op)
        for op in self.chain_ops:
            if op.call is None:
                self.run.run(op)
                self._stand(op.outputs)
            elif op.call in of_call:
                layers.append(self._run_call(op.call, of_call.pop(op.call)))
        return layers

    def _run_call(self, index: int, ops: list[Op]) -> Layer:
        """A message-passing call."""
        run, call = self.run, self.tape.calls[index]
        inside = {slot for op in ops for slot in op.outputs}
        read = dict.fromkeys(slot for op in ops for slot in op.inputs if slot not in inside)
        for slot in read:
            run.flows[slot] = run.builder.settle(run.flow(slot))
        starts = tuple((run.flows[slot].slot, run.flows[slot].value) for slot in read)
        for op in ops:
            run.run(op)
        returned = [slot for slot in call.outputs if slot in run.flows]
        for slot in returned:
            run.flows[slot] = run.builder.settle(run.flows[slot])
        self._stand(returned)
        ends = tuple((run.flows[slot].slot, run.flows[slot].value) for slot in returned)
        route = "closed form" if call.closed and index not in run.by_gradient else "autograd"
        kind, position = type(call.module).__name__, self.positions[call.handed]
        return Layer(call.name, kind, route, self.rules[index], position, ends, starts)

    def _seeds(self, direction: Tensor) -> tuple[list[tuple[int, Tensor]], list[tuple[int, Tensor]]]:
        """∂y/∂(slot) through the read-out alone, for every slot it reads, and the values there.

        The read-out is made of steps as everything else; walks never stand in it, so its messages are
        pulled once and for all.
        """
        run = self.run
        run.lasting = False
        for op in self.readout_ops:
            run.run(op)
        end = run.builder.settle(run.flow(self.output))
        seed = flat(direction).view(end.value.shape).unsqueeze(1).unsqueeze(1)
        places = {flow.slot: flow.value for flow in run.flows.values() if flow.term is None}
        try:
            arrived = pull_back(self._taken_steps(), [(end.slot, seed)], AllNodes(self.num_nodes, 1), unweighted)
        except RuntimeError as error:
            raise TraceError(f"torch cannot differentiate the read-out: {error}") from error
        reached = [(slot, message[:, 0, 0]) for slot, message in arrived.items() if slot in places]
        if not reached:
            raise TraceError("The explained output does not depend differentiably on the node features.")
        return reached, [(slot, places[slot]) for slot, _ in reached]

    def _normaliser(self, direction: Tensor) -> float:
        """What log-softmax takes off the logit that is explained, if it is the last operation."""
        last = next((op for op in self.readout_ops if self.output in op.outputs), None)
        if last is None or last.word.name != "log_softmax":
            return 0.0
        taken = (self.tape.values[self.output] - self.tape.values[last.inputs[0]]) * direction
        return float(taken.sum())

    def _uncovered(self) -> tuple[str, ...]:
        """Warn about operations that no rule covers; returns the notes for the report."""
        found = self.run.uncovered.items()
        notes = [f"{name} in {self._where(op)} has no rule; its plain gradient was used" for name, op in found]
        outside = {op.word.name: op for op in (*self.chain_ops, *self.readout_ops) if self._mixes_nodes(op)}
        notes += [_OUTSIDE.format(name, self._where(op)) for name, op in outside.items()]
        for note in notes:
            warnings.warn(note + ".", CoverageWarning, stacklevel=5)
        return tuple(notes)

    def _mixes_nodes(self, op: Op) -> bool:
        """Whether an operation outside of the layers carries messages from nodes to nodes."""
        if op.call is not None or op.word.name not in _SUMS or op.outputs[0] is None:
            return False
        constants = [a for a in op.args if isinstance(a, Tensor)]
        if "matmul" in op.word.name or op.word.name == "sparse_mm":
            return any(tuple(c.shape) == (self.num_nodes, self.num_nodes) for c in constants) and not any(
                self.tape.values[slot].dim() > 1 and self.tape.values[slot].shape[-1] == self.num_nodes
                for slot in op.inputs
            )
        rows = {self.tape.values[slot].shape[:1] for slot in op.inputs}
        return self.tape.values[op.outputs[0]].shape[:1] == (self.num_nodes,) and rows != {(self.num_nodes,)}

    def _where(self, op: Op) -> str:
        if op.call is None:
            return "the read-out" if op in self.readout_ops else "the code between layers"
        call: Call = self.tape.calls[op.call]
        return f"layer '{call.name}' ({type(call.module).__name__})"


def _live(ops: list[Op], wanted: set[int]) -> list[Op]:
    """The operations that the wanted slots depend on."""
    wanted, live = set(wanted), []
    for op in reversed(ops):
        if not wanted.isdisjoint(op.outputs):
            wanted.update(op.inputs)
            live.append(op)
    return live[::-1]


def _reachable(steps: list[Step], seeded: set[int]) -> list[Step]:
    """The steps that a message passes which comes to these slots."""
    seeded, kept = set(seeded), []
    for step in reversed(steps):
        if step.target in seeded:
            seeded.update(step.sources)
            kept.append(step)
    return kept[::-1]

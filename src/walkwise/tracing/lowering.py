"""Turns a tape into a RelevanceChain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from walkwise.core.chain import Layer, RelevanceChain
from walkwise.core.operators import Jacobian, Step, Visit
from walkwise.errors import TraceError
from walkwise.rules import Rule, Schedule
from walkwise.tracing.block import expanded, lower
from walkwise.tracing.flow import Builder, Flow
from walkwise.tracing.folding import fold_batch_norms
from walkwise.tracing.meaning import Interpreter
from walkwise.tracing.piece import kept, piece_of
from walkwise.tracing.reading import NotClosedError, warn_uncovered
from walkwise.tracing.readout import pulled
from walkwise.tracing.tape import Call, Op, Tape
from walkwise.tracing.target import Explained

#: Slots of a chain and the values there.
Places = tuple[tuple[int, Tensor], ...]


class Lowering:
    """The tape of one prediction on its way to a chain.

    Operations fall into three parts: the encoder before the first message-passing layer, the chain
    proper, and the read-out, which is everything no later position depends on.
    """

    def __init__(self, tape: Tape, output: int, schedule: Schedule) -> None:
        """Sort the tape's operations into the three parts."""
        self.tape = tape
        self.output = output
        self.ops = self._live(tape.ops, {output})
        calls_run = {op.call for op in self.ops}
        self.calls = [(i, call) for i, call in enumerate(tape.calls) if i in calls_run]
        #: Layers that ran, but not for the explained output.
        self.idle = [call for i, call in enumerate(tape.calls) if i not in calls_run]
        if not self.calls:
            raise TraceError(
                "The explained output does not depend on any message-passing layer. walkwise explains models "
                "with torch_geometric.nn.MessagePassing layers; is the target the right part of the output?"
            )
        rules = schedule.rules(len(self.calls))
        self.rules = {index: rule for (index, _), rule in zip(self.calls, rules, strict=True)}
        self.readout_rule = schedule.readout
        if _in_detail(self.ops, rules):
            self.ops = self._live(expanded(tape), {output})
        fold_batch_norms(self.ops, tape.calls)
        self.positions = self._positions()
        self.num_nodes = tape.values[self.calls[0][1].handed].shape[0]
        self._check_sizes()
        self.builder = Builder(self.num_nodes)
        self._sort()

    # -- sorting ------------------------------------------------------------------------------

    def _live(self, ops: list[Op], wanted: set[int]) -> list[Op]:
        """The operations that the wanted slots depend on."""
        wanted, live = set(wanted), []
        for op in reversed(ops):
            if not wanted.isdisjoint(op.outputs):
                wanted.update(op.inputs)
                live.append(op)
        return live[::-1]

    def _positions(self) -> dict[int, int]:
        """The slots at which a walk stands at a node: what each layer is handed, and what the last return."""
        positions: dict[int, int] = {}
        for _, call in self.calls:
            positions.setdefault(call.handed, len(positions))
        feeding = {op.call for op in self._live(self.ops, set(positions))}
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
        before = self._live(self.ops, set(self.positions))  # encoder and chain
        after_first: set[int] = set(self.positions)
        inner: list[Op] = []
        for op in before:
            if not after_first.isdisjoint(op.inputs):
                after_first.update(slot for slot in op.outputs if slot is not None)
                inner.append(op)
        # A position that hangs on no other is where walks begin.
        reached = {slot for op in inner for slot in op.outputs}
        self.root_slots = [slot for slot in self.positions if slot not in reached]
        inner_set = set(map(id, inner))
        self.encoder_ops = [op for op in before if id(op) not in inner_set]
        self.chain_ops = inner
        before_set = set(map(id, before))
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
        self.uncovered: dict[str, Op] = {}
        self.notes: list[str] = []
        self.main = Interpreter(self.builder, self.tape.values)
        roots = [(self._begin(slot), self.main.value(slot)) for slot in self.root_slots]
        layers = self._run_chain()
        seeds, readout = self._seeds(scalar.direction)
        encoder = self._encoder(features, roots)
        said = (*dict.fromkeys(self.notes), *warn_uncovered(self.uncovered, self._where), *notes)
        return RelevanceChain(
            steps=tuple(_reachable(self.builder.steps, {slot for slot, _ in seeds})),
            seeds=tuple(seeds),
            readout=tuple(readout),
            readout_rule=self.readout_rule,
            roots=tuple(roots),
            layers=tuple(layers),
            num_nodes=self.num_nodes,
            num_layers=self.num_layers,
            outputs=scalar.outputs,
            edge_index=edge_index,
            encoder=encoder,
            notes=said,
        )

    def _begin(self, slot: int) -> int:
        """A root: a new chain slot, and the visit of its position."""
        chain_slot = self.builder.new_slot()
        value = self.main.value(slot)
        self.main.flows[slot] = self._visited(slot, Flow(value, (value,), (chain_slot,)))
        return chain_slot

    def _visited(self, slot: int, flow: Flow) -> Flow:
        flow = self.builder.settle(flow)
        visit = Visit(self.positions[slot], flow.slots[0])
        slots = self.builder.emit([visit], list(flow.slots))
        return Flow(flow.value, flow.parts, slots, call=flow.call, gate=flow.gate)

    def _run_chain(self) -> list[Layer]:
        layers: list[Layer] = []
        todo = list(self.chain_ops)
        done: set[int] = set()
        for op in todo:
            if op.call is None:
                self._run_group([op])
            elif op.block is not None:
                layers.append(self._run_block(op))
            elif op.call not in done:
                done.add(op.call)
                layers.append(self._run_call(op.call, [o for o in todo if o.call == op.call]))
        return layers

    def _run_block(self, op: Op) -> Layer:
        """A message-passing call that is one operation."""
        assert op.block is not None and op.call is not None and op.outputs[0] is not None
        start = self._reader(op.inputs[0])
        value = op.block.value
        flow = Flow(value, (value,), lower(op.block, start.slots[0], op.rule, self.builder), call=op.call)
        self.main.flows[op.outputs[0]] = flow
        self._stand(op.outputs)
        end = self.main.flows[op.outputs[0]]
        return self._layer(op.call, "closed form", ((end.slots[0], value),), (self._place(start),))

    def _run_call(self, index: int, ops: list[Op]) -> Layer:
        """A message-passing call, in closed form if every operation has one."""
        call = self.tape.calls[index]
        inside = {slot for op in ops for slot in op.outputs}
        read = list(dict.fromkeys(slot for op in ops for slot in op.inputs if slot not in inside))
        starts = tuple(self._place(self._reader(slot)) for slot in read)
        route = "closed form" if self._run_group(ops) else "autograd"
        ends = tuple(self._place(self.main.flows[slot]) for slot in call.outputs if slot in self.main.flows)
        return self._layer(index, route, ends, starts)

    def _layer(self, index: int, route: str, ends: Places, starts: Places) -> Layer:
        call = self.tape.calls[index]
        position = self.positions[call.handed]
        return Layer(call.name, type(call.module).__name__, route, self.rules[index], position, ends, starts)

    def _place(self, flow: Flow) -> tuple[int, Tensor]:
        """Where a flow is in the chain, and its value."""
        return flow.slots[0], _flat_rows(flow.value)

    def _reader(self, slot: int) -> Flow:
        """A settled flow for a slot read from outside; one that no walk has passed is constant."""
        if slot not in self.main.flows:
            value = self.tape.values[slot]
            self.main.flows[slot] = Flow(value, (value,), (self.builder.new_slot(),))
            self.notes.append(
                "the model reads its input features around the first message-passing layer; that part of the "
                "output is on no walk"
            )
        self.main.flows[slot] = self.builder.settle(self.main.flows[slot])
        return self.main.flows[slot]

    def _run_group(self, ops: list[Op]) -> bool:
        """Operations in closed form, or all of them as one Jacobian; says which."""
        flows = self.main.flows
        mark, known = len(self.builder.steps), flows.copy()
        closed = ops[0].call is None or self.tape.calls[ops[0].call].closed
        try:
            if not closed:
                raise NotClosedError
            for op in ops:
                for slot in op.inputs:
                    if slot not in flows:
                        self._reader(slot)
                self.main.run(op)
                if op.call is None:
                    self._stand(op.outputs)
        except NotClosedError:
            closed = False
            del self.builder.steps[mark:]
            self.main.flows = known
            self._run_jacobian(ops)
        if ops[0].call is not None:
            self._end_call(ops[0].call)
        return closed

    def _end_call(self, index: int) -> None:
        """What a call returns is settled, and stood on if it is a position."""
        for slot in self.tape.calls[index].outputs:
            if slot in self.main.flows:
                self.main.flows[slot] = self.builder.settle(self.main.flows[slot])
        self._stand(self.tape.calls[index].outputs)

    def _stand(self, slots: Iterable[int | None]) -> None:
        for slot in slots:
            if slot in self.positions and slot in self.main.flows:
                assert slot is not None
                self.main.flows[slot] = self._visited(slot, self.main.flows[slot])

    # -- autograd -----------------------------------------------------------------------------

    def _run_jacobian(self, ops: list[Op]) -> None:
        """A group that autograd carries, as one step of the chain."""
        written = [slot for op in ops for slot in op.outputs if slot is not None]
        later = {slot for op in self.ops if op not in ops for slot in op.inputs} | {self.output}
        wanted = [slot for slot in written if slot in later]
        inside = set(written)
        read = list(dict.fromkeys(slot for op in ops for slot in op.inputs if slot not in inside))
        flows = [self._reader(slot) for slot in read]
        jacobian = self._jacobian(ops, read, wanted)
        slots = tuple(self.builder.new_slot() for _ in wanted)
        self.builder.steps.append(Step(jacobian, tuple(f.slots[0] for f in flows), slots))
        for slot, chain_slot in zip(wanted, slots, strict=True):
            value = self.tape.values[slot]
            if value.dim() > 1 and value.shape[0] == self.num_nodes:
                value = value.reshape(self.num_nodes, -1)
            self.main.flows[slot] = Flow(value, (value,), (chain_slot,))
            if ops[0].call is None:
                self._stand([slot])

    def _jacobian(self, ops: list[Op], read: list[int], wanted: list[int], *, lasting: bool = True) -> Jacobian:
        """The piece of the model between some slots; one that lasts keeps nothing of the model itself."""
        piece = piece_of(ops, read, wanted, self.tape.values, self.num_nodes)
        piece = kept(piece) if lasting else piece
        leaves, ends, interpreter = piece.run()
        self.uncovered.update(interpreter.uncovered)
        self.notes.extend(interpreter.remarks)
        return Jacobian(leaves, ends, piece)

    def _seeds(self, direction: Tensor) -> tuple[list[tuple[int, Tensor]], list[tuple[int, Tensor]]]:
        """∂y/∂(slot) through the read-out alone, for every slot it reads, and the values there."""
        inside = {slot for op in self.readout_ops for slot in op.outputs}
        read = list(dict.fromkeys(s for op in self.readout_ops for s in op.inputs if s not in inside))
        if not self.readout_ops:
            read = [self.output]
        flows = [self._reader(slot) for slot in read]
        plain = all(op.rule.exact for op in self.readout_ops)
        written_out = plain and pulled(self.readout_ops, self.output, direction, self.tape.values)
        gradients = written_out or self._readout_gradients(read, direction)
        used = [(f, gradients[slot]) for f, slot in zip(flows, read, strict=True) if slot in gradients]
        seeds = [(flow.slots[0], _flat_rows(gradient)) for flow, gradient in used]
        return seeds, [(flow.slots[0], _flat_rows(flow.value)) for flow, _ in used]

    def _readout_gradients(self, read: list[int], direction: Tensor) -> dict[int, Tensor]:
        """The same by autograd, for any read-out and rule."""
        given = [a for op in self.readout_ops for a in (*op.args, *op.kwargs.values()) if isinstance(a, Tensor)]
        copied = any(a.is_inference() for a in given)  # autograd keeps none that was made in inference mode
        jacobian = self._jacobian(self.readout_ops, read, [self.output], lasting=copied)
        (end,) = jacobian.outputs
        if not end.requires_grad:
            raise TraceError("The explained output does not depend differentiably on the node features.")
        try:
            gradients = torch.autograd.grad(end, jacobian.inputs, direction, allow_unused=True)
        except RuntimeError as error:
            raise TraceError(f"torch cannot differentiate the read-out: {error}") from error
        return {slot: g.detach() for slot, g in zip(read, gradients, strict=True) if g is not None}

    def _encoder(self, features: int | None, roots: list[tuple[int, Tensor]]) -> Step | None:
        """From the model's input features to where walks begin, if something stands between."""
        if features is None or not self.encoder_ops or features in self.root_slots:
            return None
        reached = {slot for op in self.encoder_ops for slot in op.outputs}
        begun = [(slot, place) for slot, (place, _) in zip(self.root_slots, roots, strict=True) if slot in reached]
        jacobian = self._jacobian(self.encoder_ops, [features], [slot for slot, _ in begun])
        return Step(jacobian, (-1,), tuple(place for _, place in begun))

    def _where(self, op: Op) -> str:
        if op.call is None:
            return "the read-out" if op in self.readout_ops else "the code between layers"
        call: Call = self.tape.calls[op.call]
        return f"layer '{call.name}' ({type(call.module).__name__})"


def _in_detail(ops: list[Op], rules: Sequence[Rule]) -> bool:
    """Whether blocks must be lowered operation by operation: for rules that split, or to fold a normalisation."""
    detailed = any(rule.shares is not None for rule in rules) or any(op.name == "batch_norm" for op in ops)
    return detailed and any(op.block is not None for op in ops)


def _flat_rows(tensor: Tensor) -> Tensor:
    return tensor if tensor.dim() == 2 else tensor.reshape(tensor.shape[0] if tensor.dim() else 1, -1)


def _reachable(steps: list[Step], seeded: set[int]) -> list[Step]:
    """The steps that a message from the read-out passes."""
    kept = []
    for step in reversed(steps):
        if not seeded.isdisjoint(step.targets):
            seeded.update(step.sources)
            kept.append(step)
    return kept[::-1]

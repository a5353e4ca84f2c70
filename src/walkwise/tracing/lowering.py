"""Lowering: turn a tape into a RelevanceChain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from walkwise.core.chain import Layer, RelevanceChain
from walkwise.core.contract import pull_back, unweighted
from walkwise.core.operators import Step, Visit
from walkwise.core.rows import AllNodes
from walkwise.errors import TraceError
from walkwise.rules import Schedule
from walkwise.tracing.coverage import note_of_distance, notes_of_coverage, notes_of_ends, notes_of_rows
from walkwise.tracing.given.target import ExplainedScalar
from walkwise.tracing.meaning.activations import SIGNED
from walkwise.tracing.meaning.gating import gating, weighed
from walkwise.tracing.meaning.interpreter import Interpreter, flat
from walkwise.tracing.nodes.identity import Identities
from walkwise.tracing.nodes.positions import Positions
from walkwise.tracing.recording.recorded import Op, live, makers
from walkwise.tracing.recording.tape import Tape
from walkwise.tracing.sorting import fold_into_layers, sorted_ops
from walkwise.tracing.steps.locality import nearest
from walkwise.tracing.stretches.stretch import Builder, ChainBuilder, Flow

_AROUND = (
    "the model also reads its input features past the first message-passing layer; no walk carries that part of the "
    "output"
)

_LATE = (
    "walks also begin at later positions, where the model reads new input (another time step, say); node_relevance "
    'counts those that begin at position 0, and with layer="start" all of them'
)


_GATE = "layer '{}' ({}) computes only factors that are held constant (scores, a gate); no walk passes through it"


@dataclass(frozen=True, eq=False)
class Beginning:
    """Where walks begin: the tensors of the model by slot, the same laid out by node, and the input's features."""

    begun: dict[int, Flow]
    there: dict[int, Flow]
    features: list[tuple[int, Tensor]]  # if walks begin with them

    @property
    def roots(self) -> list[tuple[int, Tensor]]:
        """The slots of H⁰, and the values there."""
        return [(flow.slot, flow.value) for flow in self.there.values()]


class Lowering:
    """Turns the tape of one prediction into a chain.

    Operations fall into three parts: the encoder before the first message-passing layer, the chain
    proper, and the read-out, which is everything no later position depends on.
    """

    def __init__(
        self,
        tape: Tape,
        output: int,
        schedule: Schedule,
        identities: Identities,
        silent: frozenset[int] = frozenset(),
    ) -> None:
        """Sort the tape's operations into the three parts.

        Args:
            tape: what was recorded.
            output: the slot of the explained output.
            schedule: the rules.
            identities: which node every row is.
            silent: calls that no relevance passes, because only gates are computed from them: they are not layers.
        """
        self.slots_of: dict[int, range] = {}  # that a call has made
        self.part_of: dict[int, int] = {}  # slots within a stretch, and where that ends
        self.run: Interpreter  # what writes the chain, once ``encode`` has begun
        self.encoded: dict[int, Flow] = {}  # the flows before the first layer, by slot
        self.gates: dict[int, int] = {}  # how much these look like a gate
        self.reached: set[int] = set()  # the slots of the chain that relevance comes to
        self.tape = tape
        self.output = output
        self.silent = silent
        self.schedule = schedule
        self.num_nodes = identities.num_nodes
        ops = [replace(op, call=None) if op.call in silent else op for op in tape.ops]
        self.ops = live(ops, {output})
        self.made = makers(ops)
        calls_run = {op.call for op in self.ops}
        self.calls = [(i, call) for i, call in enumerate(tape.calls) if i in calls_run]
        #: Layers that ran, but not for the explained output.
        self.idle = [call for i, call in enumerate(tape.calls) if i not in calls_run]
        if not self.calls:
            raise TraceError(
                "The explained output does not depend on any message-passing layer. Walkwise explains models with "
                "torch_geometric.nn.MessagePassing layers.",
                remedy="Is the target the right part of the output?",
            )
        fold_into_layers(self.ops, tape.calls)
        rules = schedule.rules(len(self.calls))
        self.rules = {index: rule for (index, _), rule in zip(self.calls, rules, strict=True)}
        self.positions = Positions(self.ops, self.calls, identities)
        self.parts = sorted_ops(self.ops, self.calls, self.positions.number, [*tape.features, *tape.beginnings])
        self.parts.put_under(self.rules, schedule.readout)

    # -- building -----------------------------------------------------------------------------

    def chain(self, scalar: ExplainedScalar, notes: Sequence[str]) -> RelevanceChain:
        """The relevance chain of an explained scalar in the output slot; ``notes`` go into the report."""
        builder = ChainBuilder()
        beginning = self.encode(builder)
        run, roots = self.run, beginning.roots
        encoder = builder.leading(builder.taken(), {slot for slot, _ in roots})
        layers = self.walk(beginning)
        self.part_of, walked_through = builder.part_of, builder.taken()
        end = self.read_out()
        seeds, readout = self._seeds(end, builder.leading(builder.taken(), {end.slot}), scalar.direction)
        steps = builder.leading(walked_through, {slot for slot, _ in seeds})
        visits = [step.operators[0] for step in steps if type(step.operators[0]) is Visit]
        begun = {visit.slot for visit in visits}
        roots = [root for root in roots if root[0] in begun] or roots
        walked = {slot for slot, _ in roots}.union(step.target for step in steps)
        seeds, readout = ([pair for pair in pairs if pair[0] in walked] or pairs for pairs in (seeds, readout))
        late = {visit.slot for visit in visits if visit.position}
        silent = self.silent_of(layers, {slot for slot, _ in seeds}.union(*(step.sources for step in steps)))
        notes = [*notes, *dict.fromkeys(_GATE.format(layers[i].name, layers[i].kind) for i in sorted(silent))]
        if 0 < len(silent) < len(self.calls):
            return self.again(silent).chain(scalar, notes)
        self.reached |= {step.target for step in (*steps, *encoder)}
        squashes = dict.fromkeys(note for note, emitted in run.squashes if emitted in self.reached)
        passed = [slot for layer in layers.values() for slot, _ in (*layer.starts, *layer.ends)]
        named = {*passed, *(slot for slot, _ in (*seeds, *roots))}
        near = nearest(steps, named, tuple(seeds), self.num_nodes, run.builder.new_slot)
        if (far := note_of_distance(self, near.hops, near.steps)) is not None:
            run.remarks[far] = None
        if near.moves:
            layers = {
                i: replace(la, starts=near.places(la.starts), ends=near.places(la.ends)) for i, la in layers.items()
            }
        return RelevanceChain(
            steps=tuple(near.steps),
            seeds=near.places(tuple(seeds)),
            readout=near.places(tuple(readout)),
            readout_rule=self.schedule.readout,
            roots=tuple(roots),
            layers=self._routed(layers, steps),
            num_nodes=self.num_nodes,
            num_layers=self.positions.last,
            outputs=scalar.outputs,
            edge_index=self.positions.edges(self.tape.calls),
            encoder=tuple(encoder),
            features=tuple(beginning.features),
            rule_note=self.schedule.note,
            normaliser=self._normaliser(scalar.direction),
            notes=(
                *run.remarks,
                *squashes,
                *self.positions.remarks,
                *notes_of_coverage(self),
                *notes_of_ends(self, steps, seeds),
                *notes_of_rows(self, steps, seeds, scalar.direction),
                *([_LATE] if any(slot in late for slot, _ in roots) else ()),
                *notes,
            ),
        )

    def again(self, silent: frozenset[int] = frozenset()) -> Lowering:
        """The same prediction, not written yet, perhaps with more silent calls."""
        return Lowering(self.tape, self.output, self.schedule, self.positions.identities, silent | self.silent)

    def silent_of(self, layers: dict[int, Layer], reached: set[int]) -> frozenset[int]:
        """The calls that no relevance passes: only gates are computed from them.

        ``reached`` are the slots that relevance comes to.
        """
        return frozenset(i for i, layer in layers.items() if reached.isdisjoint(slot for slot, _ in layer.ends))

    def encode(self, builder: Builder) -> Beginning:
        """Write what comes before the first layer, and return where walks begin."""
        self.run = run = Interpreter(
            self.tape,
            builder,
            made=self.made,
            standing=self.positions.number,
            along_nodes=self.positions.identities.along_nodes,
            are_nodes=self.positions.identities.are_nodes,
            missing=self._around,
            gating=gating(self.ops, self.made),
            weighed=weighed(self.ops, self.made, self.positions.number, self.tape.data),
        )
        source = []
        for features in self.tape.features:
            source.append((builder.new_slot(), run.value(features)))
            run.flows[features] = Flow(source[-1][1], source[-1][0])
        for slot in self.tape.beginnings:
            run.flows[slot] = Flow(run.value(slot), builder.new_slot())
        for op in self.parts.encoder if run.flows else ():
            run.run(op)
        around, self.parts = self.parts.read_around(self._read_later(), self.positions.begins_at)
        begun = {slot: self._begun(slot) for slot in self.parts.roots} | {
            slot: builder.apart(self._begun(slot)) for slot in around
        }
        there = {slot: self.positions.by_node(builder, slot, flow) for slot, flow in begun.items()}
        read = self.parts.encoder or any(features in begun for features in self.tape.features)
        return Beginning(begun, there, source if read else [])

    def walk(self, beginning: Beginning) -> dict[int, Layer]:
        """Write the layers and what lies between them, from where walks begin."""
        begun, there, builder = beginning.begun, beginning.there, self.run.builder
        self.encoded = self.run.flows
        self.gates = {slot: flow.gate for slot, flow in self.encoded.items()}
        self.run.flows = {
            slot: self.positions.visited(builder, slot, flow, there[slot]) for slot, flow in begun.items()
        }
        return self._run_chain()

    def flows_of(self, slot: int | None) -> list[Flow]:
        """The flows of a slot, before the first layer and after."""
        return [flows[slot] for flows in (self.encoded, self.run.flows) if slot in flows]

    def read_out(self) -> Flow:
        """Write the read-out."""
        run = self.run
        run.lasting = False
        for op in self.parts.readout:
            run.run(op)
        end = run.builder.settle(run.flow(self.output))
        run.missing = None  # which holds on to all this
        return end

    def _begun(self, slot: int) -> Flow:
        """The settled flow of a slot at which walks begin."""
        run = self.run
        known = slot in run.flows
        return run.builder.settle(run.flows[slot]) if known else Flow(run.value(slot), run.builder.new_slot())

    def _read_later(self) -> list[int]:
        """The slots before the first layer that later operations read past where walks begin."""
        given = (*self.tape.features, *self.tape.beginnings, *self.parts.own)
        before = {*given, *(slot for op in self.parts.encoder for slot in op.outputs)}
        read = dict.fromkeys(slot for op in (*self.parts.chain, *self.parts.readout) for slot in op.inputs)
        return [slot for slot in read if slot in before and slot not in self.positions.number]

    def _around(self, slot: int) -> Flow:
        """A slot that no walk has passed is constant; a gate was constant anyway."""
        gate = self.gates.get(slot, 0)
        zeros = not bool(self.run.value(slot).any())  # a first state, say: they have no part in it
        if gate <= SIGNED and not zeros and slot not in self.tape.beside:
            self.run.remarks[_AROUND] = None
        return Flow(self.run.value(slot), self.run.builder.new_slot(), gate=gate)

    def _stand(self, slots: Iterable[int | None]) -> None:
        for slot in slots:
            if slot in self.positions.number and slot in self.run.flows:
                assert slot is not None
                settled = self.run.builder.settle(self.run.flows[slot])
                self.run.flows[slot] = self.positions.visited(self.run.builder, slot, settled)

    def _run_chain(self) -> dict[int, Layer]:
        layers: dict[int, Layer] = {}
        of_call: dict[int, list[Op]] = {}
        for op in self.parts.chain:
            if op.call is not None:
                of_call.setdefault(op.call, []).append(op)
        for op in self.parts.chain:
            if op.call is None:
                self.run.run(op)
                self._stand(op.outputs)
            elif op.call in of_call:
                layers[op.call] = self._run_call(op.call, of_call.pop(op.call))
        return layers

    def _run_call(self, index: int, ops: list[Op]) -> Layer:
        """A message-passing call."""
        run, call = self.run, self.tape.calls[index]
        first = run.builder.count
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
        before = {slot: run.flows[slot] for slot in returned}
        self._stand(returned)
        after = {slot: run.flows[slot] if self.positions.natural(slot) else before[slot] for slot in returned}
        ends = tuple((flow.slot, flow.value) for flow in after.values())
        self.slots_of[index] = range(first, run.builder.count)
        kind, position = type(call.module).__name__, self._position(index)
        return Layer(call.name, kind, "closed form", self.rules[index], position, ends, starts)

    def _routed(self, layers: dict[int, Layer], steps: Sequence[Step]) -> tuple[Layer, ...]:
        """The layers, with the route "autograd" where autograd carries their steps."""
        carried = {self.call_of(step.target) for step in steps if not all(o.closed for o in step.operators)}
        return tuple(replace(layer, route="autograd") if i in carried else layer for i, layer in layers.items())

    def call_of(self, slot: int) -> int | None:
        """The call that a slot was made in, if it was one."""
        slot = self.part_of.get(slot, slot)
        return next((index for index, slots in self.slots_of.items() if slot in slots), None)

    def _position(self, index: int) -> int:
        """The position of a layer's input; for a layer where walks do not stand, that of the last layer before it."""
        call, number = self.tape.calls[index], self.positions.number
        standing = [slot for slot in call.handed if slot in number]
        if standing:
            begun = standing if call.joined else standing[:1]
            return max(number[slot] for slot in (*begun, *self.positions.beside.get(index, ())))
        begun = [number[s] for _, other in self.calls for s in other.handed if s in number and s <= call.handed[0]]
        return max(begun, default=0)

    def _seeds(
        self, end: Flow, steps: list[Step], direction: Tensor
    ) -> tuple[list[tuple[int, Tensor]], list[tuple[int, Tensor]]]:
        """∂y/∂(slot) through the read-out alone, for every slot it reads, and the values there.

        The read-out consists of steps like everything else; walks never stand in it, so its messages are pulled once
        and for all.
        """
        seed = flat(direction).view(end.value.shape).unsqueeze(1).unsqueeze(1)
        places = {flow.slot: flow.value for flow in self.run.flows.values() if flow.term is None}
        self.reached = {step.target for step in steps} | {end.slot}
        try:
            arrived = pull_back(steps, [(end.slot, seed)], AllNodes(self.num_nodes, 1), unweighted)
        except RuntimeError as error:
            raise TraceError(f"torch cannot differentiate the read-out: {error}") from error
        reached = [(slot, message[:, 0, 0]) for slot, message in arrived.items() if slot in places]
        if not reached:
            raise TraceError(
                "The explained output does not depend differentiably on the node features.",
                argument="target",
                expected="a differentiable function of the node features",
            )
        return reached, [(slot, places[slot]) for slot, _ in reached]

    def _normaliser(self, direction: Tensor) -> float:
        """What log-softmax subtracts from the explained logit, if it is the last operation."""
        last = next((op for op in self.parts.readout if self.output in op.outputs), None)
        if last is None or last.word.name != "log_softmax":
            return 0.0
        taken = (self.tape.values[self.output] - self.tape.values[last.inputs[0]]) * direction
        return float(taken.sum())

"""The layers of a model that passes messages in its own code, and not in modules: one for every sum at the nodes.

A layer is all that lies between a sum and the node tensor that it is made of. Sums that share some of that, and of
which none is made of another, are one layer. Weights right before and after belong to a layer, as they do where layers
are modules.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from walkwise.core.differential import leaves
from walkwise.tracing.dependence import rerun
from walkwise.tracing.nodes.own_sums import NodeTensors
from walkwise.tracing.recording.kinds import BY_NUMBER, PUTTING, READING, RESHAPING, TRANSPOSING
from walkwise.tracing.recording.recorded import Call, Op, Ref, live, makers
from walkwise.tracing.recording.tape import Tape
from walkwise.tracing.running.found import turned

_WEIGHTING = frozenset({"linear", "matmul", "conv1d", "conv2d"})
#: Maps of single rows that belong to the layer before or after them, if their other arguments are constant.
_LINEAR = RESHAPING | TRANSPOSING | READING | _WEIGHTING | {"add", "sub", "mul", "div", "neg"}
#: Linear operations on several tensors.
_JOINING = frozenset({"add", "sub", "cat"})


@dataclass(eq=False)
class OwnLayer:
    """Operations, by their places on the tape, and the sums that they make, by slot."""

    ops: dict[int, Op]
    sums: list[int]


def find_own_layers(
    tape: Tape, output: int, found: NodeTensors, num_nodes: int, model: nn.Module, edges: Tensor | None
) -> list[str]:
    """Put the layers that an output depends on onto the tape, as calls of the model itself; and say what they add by.

    Args:
        tape: what was recorded.
        output: the slot of the explained output.
        found: the node tensors, and the sums among them.
        num_nodes: M.
        model: the model.
        edges: those that it was given, (2, E), in either direction.
    """
    search = _Layers(tape, output, found)
    layers = search.layers()
    order = _in_order(tape.ops, layers)
    if order is None:
        return []
    tape.ops[:] = order
    for number, layer in enumerate(layers):
        handed = tuple(sorted(search.read(layer), reverse=True))
        call = Call(f"sum_{number + 1}", model, handed, closed=False, outputs=layer.sums, found=True)
        call.rows_of = dict.fromkeys(layer.sums, handed[0])
        call.of_edges = search.carried(layer)
        call.lying = {slot: found.nodes[slot] for slot in (*handed, *layer.sums)}
        tape.calls.append(call)
        for op in layer.ops.values():
            op.call = number
    if edges is not None and layers:
        tape.calls[0].edge_index = _directed(edges, layers[0], tape)
    begun = 0
    for op in tape.ops:
        op.era = begun = begun if op.call is None else max(begun, op.call + 1)
    return [f"{call.name} ({search.functions(layer)})" for call, layer in zip(tape.calls, layers, strict=True)]


class _Layers:
    """Looks for the layers of one run."""

    def __init__(self, tape: Tape, output: int, found: NodeTensors) -> None:
        self.output, self.parameters = output, tape.parameters
        self.place = {id(op): place for place, op in enumerate(tape.ops)}
        self.ops = live(tape.ops, {output})
        self.nodes, self.sums = found.nodes, found.sums
        self.maker = makers(self.ops)
        self.readers = Counter(slot for op in self.ops for slot in op.inputs)

    def layers(self) -> list[OwnLayer]:
        """The layers, in order."""
        above = self._above()
        cones = [self._cone([self.maker[slot]]) for slot in self.sums]
        groups: list[list[int]] = []
        for number, cone in enumerate(cones):
            base = self._base(self.maker[self.sums[number]])
            read = self._read_by(cone.values())
            before = set().union(*(above.get(slot, set()) for slot in read if slot != base))
            joined = [
                group
                for group in groups
                if any(
                    n not in before and (self.sums[n] == base or not cone.keys().isdisjoint(cones[n])) for n in group
                )
            ]
            groups = [group for group in groups if group not in joined]
            groups.append([*(n for group in joined for n in group), number])
        layers, taken = [], set[int]()
        for group in sorted(groups):
            ops = {place: op for n in group for place, op in cones[n].items() if place not in taken}
            taken.update(ops)
            layers.append(OwnLayer(ops, self._leaving(ops, [self.sums[n] for n in sorted(group)])))
        weighted = [(self._weights_before(layer), self._weights_after(layer)) for layer in layers]
        later = sum(b and not a for a, b in weighted) > sum(a and not b for a, b in weighted)  # those of most layers
        for layer, sides in zip(layers, weighted, strict=True):
            if not (later and all(sides) and len(self.read(layer)) == 1):
                self._begin(layer, taken)
            self._go_on(layer, taken)
        return layers

    def _base(self, op: Op) -> int | None:
        """The slot of what an operation adds rows to: of an earlier sum, perhaps, over another kind of edges."""
        first = op.args[0] if op.args and (op.word.name in BY_NUMBER or op.word.name in PUTTING) else None
        return first.slot if isinstance(first, Ref) else None

    def functions(self, layer: OwnLayer) -> str:
        """What adds up at the nodes in a layer."""
        made = [self.maker[slot] for slot in self.sums]
        return ", ".join(dict.fromkeys(op.word.name for op in made if self.place[id(op)] in layer.ops))

    def carried(self, layer: OwnLayer) -> set[int | None]:
        """The slots of tensors of edges, say, that operations outside a layer read."""
        made = {slot for op in layer.ops.values() for slot in op.outputs} - self.nodes.keys()
        outside = (op for op in self.ops if self.place[id(op)] not in layer.ops)
        return {slot for op in outside for slot in op.inputs if slot in made}

    def read(self, layer: OwnLayer) -> set[int]:
        """The slots of the node tensors that a layer is made of."""
        return self._read_by(layer.ops.values())

    def _read_by(self, ops: Iterable[Op]) -> set[int]:
        ops = list(ops)
        made = {slot for op in ops for slot in op.outputs}
        return {slot for op in ops for slot in op.inputs if slot in self.nodes and slot not in made}

    def _above(self) -> dict[int, set[int]]:
        """The sums, by number, that every slot depends on, itself among them."""
        number = {slot: n for n, slot in enumerate(self.sums)}
        above: dict[int, set[int]] = {}
        for op in self.ops:
            found = set().union(*(above.get(slot, set()) for slot in op.inputs))
            for slot in op.outputs:
                if slot is not None:
                    above[slot] = found | {number[slot]} if slot in number else found
        return above

    def _cone(self, begun: Sequence[Op]) -> dict[int, Op]:
        """Operations, and all that their inputs are made of, up to node tensors."""
        found: dict[int, Op] = {}
        todo = [*begun]
        while todo:
            op = todo.pop()
            if self.place[id(op)] not in found:
                found[self.place[id(op)]] = op
                todo += [self.maker[slot] for slot in op.inputs if slot in self.maker and slot not in self.nodes]
        return found

    def _leaving(self, ops: dict[int, Op], sums: Sequence[int]) -> list[int]:
        """The sums that anything besides these operations reads."""
        inside = Counter(slot for op in ops.values() for slot in op.inputs)
        return [slot for slot in sums if slot == self.output or self.readers[slot] > inside[slot]]

    def _begin(self, layer: OwnLayer, taken: set[int]) -> None:
        """Let a layer begin before its weights, and at one node tensor, if all that it reads is made of one row by row.

        What anything else reads is in no layer.
        """
        ops = dict(layer.ops)
        while len(read := self._read_by(ops.values())) > 1 or self._is_linear(max(read)):
            last = max(read)
            inside = sum(op.inputs.count(last) for op in ops.values())
            op, fixed = self.maker.get(last), last in self.sums or self.readers[last] > inside
            if op is None or fixed or self.place[id(op)] in taken:
                break
            ops |= self._cone([op])
        if len(read) == 1:
            layer.ops = ops
            taken.update(ops)

    def _go_on(self, layer: OwnLayer, taken: set[int]) -> None:
        """Let a layer of one sum go on through weights, unless it has some, and joined: ``a(sum) + b(h)``."""
        (last, *more) = layer.sums
        weighted = any(map(self._is_weighted, layer.ops.values()))
        while not more and self.readers[last] == 1 and last != self.output:
            reader = next(op for op in self.ops if last in op.inputs)
            inside = {slot for op in layer.ops.values() for slot in op.outputs if slot is not None}
            made, ops = reader.outputs[0], self._joined(reader, last, self.read(layer) | inside)
            if made is None or made not in self.nodes or made in self.sums or ops is None or not taken.isdisjoint(ops):
                return
            if self._is_weighted(reader):
                if weighted:
                    return  # of the read-out, say
                weighted = True
            layer.ops |= ops
            taken.update(ops)
            layer.sums = [last := made]

    def _weights_before(self, layer: OwnLayer) -> bool:
        """Whether what a layer is made of was multiplied with weights right before."""
        return any(self._is_weighted(self.maker[slot]) for slot in self.read(layer) if self._is_linear(slot))

    def _weights_after(self, layer: OwnLayer) -> bool:
        """Whether nothing but weights reads what a layer makes."""
        slot = layer.sums[0] if len(layer.sums) == 1 else self.output
        readers = [op for op in self.ops if slot in op.inputs]
        return slot != self.output and len(readers) == 1 and self._is_weighted(readers[0])

    def _joined(self, reader: Op, last: int, known: set[int]) -> dict[int, Op] | None:
        """A linear operation on a sum, and those that make its other inputs of what its layer has; None if not."""
        found, todo = {self.place[id(reader)]: reader}, [slot for slot in reader.inputs if slot != last]
        if reader.word.name not in (_JOINING if todo else _LINEAR):
            return None
        while todo:
            slot = todo.pop()
            if slot not in known:
                if self.readers[slot] > 1 or not self._is_linear(slot):
                    return None
                op = self.maker[slot]
                found[self.place[id(op)]] = op
                todo += op.inputs
        return found

    def _is_weighted(self, op: Op) -> bool:
        """Whether an operation multiplies with weights."""
        tensors = (item for item in leaves((op.args, op.kwargs)) if isinstance(item, Tensor))
        learned = (t for t in tensors if t.layout == torch.strided and t.dim() > 1)
        return any(tensor.untyped_storage().data_ptr() in self.parameters for tensor in learned)

    def _is_linear(self, slot: int) -> bool:
        """Whether a node tensor is a linear map of another, row by row."""
        op = self.maker.get(slot)
        plain = op is not None and op.word.name in _LINEAR and slot not in self.sums
        return plain and len(op.inputs) == 1 and op.inputs[0] in self.nodes  # type: ignore[union-attr]


@torch.enable_grad()
def _directed(edges: Tensor, layer: OwnLayer, tape: Tape) -> Tensor | None:
    """The edges from senders to receivers; None if messages are not sent along them.  # (2, E)"""
    call, made = tape.calls[0], layer.sums[0]
    handed = call.handed[0]
    leaf = tape.values[handed].detach().transpose(0, call.lying[handed]).clone().requires_grad_()
    ops = (op for _, op in sorted(layer.ops.items()))
    results = rerun(ops, tape.values, {handed: leaf.transpose(0, call.lying[handed])})
    flipped = turned(results[made].transpose(0, call.lying[made]), leaf, edges)
    return None if flipped is None else edges.flip(0) if flipped else edges


def _in_order(ops: Sequence[Op], layers: Sequence[OwnLayer]) -> list[Op] | None:
    """Operations in an order in which those of a layer follow each other; None if there is none."""
    layer_of = {place: number for number, layer in enumerate(layers) for place in layer.ops}
    maker = {slot: place for place, op in enumerate(ops) for slot in op.outputs}
    members: dict[tuple[int, int], list[int]] = {}
    for place in range(len(ops)):
        key = (-1, place) if place not in layer_of else (layer_of[place], -1)
        members.setdefault(key, []).append(place)
    group_of = {place: key for key, places in members.items() for place in places}
    needed = {
        key: {group_of[maker[s]] for place in places for s in ops[place].inputs if s in maker} - {key}
        for key, places in members.items()
    }
    readers: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for key, before in needed.items():
        for other in before:
            readers.setdefault(other, []).append(key)
    ready = [(places[0], key) for key, places in members.items() if not needed[key]]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, key = heapq.heappop(ready)
        order += members[key]
        for reader in readers.get(key, ()):
            needed[reader].discard(key)
            if not needed[reader]:
                heapq.heappush(ready, (members[reader][0], reader))
    return [ops[place] for place in order] if len(order) == len(ops) else None

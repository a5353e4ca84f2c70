"""Blocks: GIN layers whose whole computation is known, recorded and lowered in one piece.

``GINConv`` with a perceptron of linear maps and ReLUs is the paper's layer, and on small graphs most
of the cost of tracing it would be the overhead of recording a dozen operations one by one. A block
runs them together and keeps what the rules need. Whatever is not exactly of this kind is recorded
operation by operation, and so is a block (:func:`expanded`) where a rule asks for more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.modules import module as torch_module
from torch_geometric.nn import GINConv
from torch_geometric.nn.dense.linear import Linear as PygLinear
from torch_geometric.nn.models import MLP

from walkwise.core.operators import Aggregate, Perceptron
from walkwise.rules import Rule

if TYPE_CHECKING:
    from walkwise.tracing.flow import Builder
    from walkwise.tracing.tape import Affine, Op, Tape


@dataclass(eq=False, slots=True)
class Map:
    """One linear map of a perceptron and what came out of it."""

    weight: Tensor
    bias: Tensor | None
    before: Tensor  # z, (M, N)
    after: Tensor  # relu(z), or z where no activation follows

    @property
    def activated(self) -> bool:
        """Whether a ReLU follows."""
        return self.after is not self.before


@dataclass(eq=False, slots=True)
class Block:
    """perceptron(Σ over neighbours + root · x), with all its values."""

    affine: Affine  # the sum over neighbours
    sum: Aggregate  # the same with 1 + ε of the node itself
    total: Tensor  # its value, (M, N)
    maps: tuple[Map, ...]

    @property
    def value(self) -> Tensor:
        """What comes out."""
        return self.maps[-1].after


#: A perceptron as (linear map, whether a ReLU follows).
Layers = Sequence[tuple[Any, bool]]


def layers_of(conv: nn.Module) -> Layers | None:
    """The perceptron of a layer that can be a block, or None: anything changed, hooked or unusual cannot."""
    if type(conv) is not GINConv or torch_module._has_any_global_hook():  # type: ignore[no-untyped-call]
        return None
    if conv.eps.numel() != 1:  # one ε per neuron, by a user's hand
        return None
    inner = conv._modules.get("nn")  # None for a function
    parts = _parts(inner)
    layers: list[tuple[Any, bool]] = []
    for m in (conv, inner, *parts):
        if not isinstance(m, nn.Module):  # a function, as perceptron or as activation
            return None
        if m._forward_hooks or m._forward_pre_hooks or "forward" in m.__dict__:
            return None
    for m in parts:
        if type(m) is nn.Linear or type(m) is PygLinear:
            layers.append((m, False))
        elif type(m) is nn.ReLU and layers and not layers[-1][1]:
            layers[-1] = layers[-1][0], True
        elif type(m) is not nn.Dropout and type(m) is not nn.Identity:  # these do nothing in evaluation
            return None
    return layers or None


def _parts(inner: Any) -> list[Any]:
    """The modules that run one after the other."""
    if type(inner) is nn.Sequential:
        return list(inner._modules.values())
    if type(inner) is not MLP:
        return [inner]
    parts = []
    for lin, norm in zip(inner.lins, inner.norms, strict=False):  # one norm less where the last map is plain
        parts += [lin, inner.act, norm] if inner.act_first else [lin, norm, inner.act]
    parts += [inner.lins[-1]] if inner.plain_last else []
    return [m for m in parts if m is not None]


def run(conv: Any, layers: Layers, affine: Affine, x: Tensor) -> Block:
    """The layer's values on node features x (M, F)."""
    ((_, neighbours),) = affine.terms
    assert isinstance(neighbours, Aggregate)
    spread = Aggregate(neighbours.edges, neighbours.weight, 1 + conv.eps.item())
    total = spread.push(x)
    maps, value = [], total
    for layer, activated in layers:
        weight, bias = layer.weight, layer.bias
        before = linear(value, weight, bias)
        value = before.relu() if activated else before
        maps.append(Map(weight, bias, before, value))
    return Block(affine, spread, total, tuple(maps))


def lower(block: Block, source: int, rule: Rule, builder: Builder) -> tuple[int, ...]:
    """The chain's slot of what comes out, for rules that do not split. The same maps as one by one."""
    (slot,) = builder.emit([block.sum], [source])
    value, maps = block.total, []
    for m in block.maps:
        if rule.exact:
            maps.append((rule.lift(m.weight), (m.before > 0).to(value.dtype) if m.activated else None))
        else:
            lifted, held = rule.alone(m.weight, m.bias)
            surrogate = linear(value, lifted, held)
            maps.append((lifted, rule.ratio(m.after, surrogate)))
        value = m.after
    return builder.emit([Perceptron(tuple(maps))], [slot])


def expanded(tape: Tape) -> list[Op]:
    """The tape's operations with every block's one by one in its place."""
    from walkwise.tracing.tape import Op, Ref, not_runnable

    ops: list[Op] = []
    for op in tape.ops:
        if op.block is None:
            ops.append(op)
            continue
        block, (source,), (output,) = op.block, op.inputs, op.outputs
        where = (op.call, op.era)
        root = block.total.new_full((1,), block.sum.root)
        values = block.affine.value(), root * tape.values[source], block.total
        spread, scaled, total = map(tape.hold, values)
        terms = tuple((source, operator) for _, operator in block.affine.terms)
        ops.append(Op("propagate", not_runnable, (), {}, (source,), (spread,), *where, terms))
        ops.append(Op("mul", torch.mul, (root, Ref(source)), {}, (source,), (scaled,), *where))
        ops.append(Op("add", torch.add, (Ref(spread), Ref(scaled)), {}, (spread, scaled), (total,), *where))
        slot = total
        for m in block.maps:
            last = m is block.maps[-1]
            before = output if last and not m.activated else tape.hold(m.before)
            args = (Ref(slot), m.weight, m.bias)
            ops.append(Op("linear", linear, args, {}, (slot,), (before,), *where))
            slot = before  # type: ignore[assignment]
            if m.activated:
                after = output if last else tape.hold(m.after)
                ops.append(Op("relu", torch.relu, (Ref(slot),), {}, (slot,), (after,), *where))
                slot = after  # type: ignore[assignment]
    return ops

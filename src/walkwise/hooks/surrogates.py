"""Linear maps and whole layers under a rule, as surrogates that autograd carries: p ⊙ [z / p], the bracket constant."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch_geometric.nn import conv as pyg
from torch_geometric.nn.aggr import MeanAggregation, SumAggregation

from walkwise.errors import UnsupportedLayerError
from walkwise.rules import Rule

#: Layers with one linear map in all, whatever order they compute it in: the rule is applied to the layer as a whole.
_WHOLE = (pyg.GCNConv, pyg.GraphConv, pyg.SAGEConv, pyg.SGConv, pyg.TAGConv, pyg.GATConv, pyg.GATv2Conv)
_ATTENTION = (pyg.GATConv, pyg.GATv2Conv)


def carried_whole(conv: nn.Module) -> bool:
    """Whether a layer is one linear map, attention held constant."""
    return type(conv) in _WHOLE and not (isinstance(conv, pyg.SAGEConv) and (conv.project or conv.normalize))


def gathers_first(conv: nn.Module) -> bool:
    """Whether a layer sums over neighbours and then applies a perceptron, whose linear maps are under the rule."""
    return type(conv) is pyg.GINConv


@dataclass(frozen=True, eq=False)
class Shares:
    """What a linear map sums up, under a rule: of each sign for a rule that splits, and otherwise lifted."""

    rule: Rule
    parts: tuple[Tensor, ...]
    held: tuple[Tensor, ...]  # what is added to each, of the biases
    #: What slopes above and below zero multiply (either sign; or of weights, and less that of weights turned over), and
    #: the sum of the biases. Asked for where a normalisation follows.
    scalable: Callable[[], tuple[Tensor, Tensor, Tensor]]

    def shared(self, z: Tensor) -> Tensor:
        """Σ part ⊙ [factor], with the value of z; the factor is z / (part + bias), or what a rule that splits says."""
        z = z.detach()
        sums = [part.detach() + held for part, held in zip(self.parts, self.held, strict=True)]
        factors = self.rule.factors(z, z, *sums) if self.rule.splits else (self.rule.ratio(z, sums[0]),)
        shared = [part * factor for part, factor in zip(self.parts, factors, strict=True) if factor is not None]
        total = sum(shared, start=torch.zeros_like(z))
        return total + (z - total).detach()

    def normalised(self, slope: Tensor, shift: Tensor) -> Shares:
        """With a batch normalisation after it, slope · z + shift: its weights are the map's, and so is its bias."""
        first, second, bias = self.scalable()
        up, down, bias = slope.clamp(min=0), slope.clamp(max=0), slope * bias + shift
        both = up * first + down * second, up * second + down * first
        parts = both if self.rule.splits else both[:1]
        return Shares(self.rule, parts, self.rule.hold(bias), lambda: (*both, bias))


def of_linear(rule: Rule, x: Tensor, weight: Tensor, bias: Tensor | None, sides_of_x: tuple[Tensor, Tensor]) -> Shares:
    """Of x W + b; of x also what is of either sign, for rules that split."""
    added = weight.new_zeros(len(weight)) if bias is None else bias
    if not rule.splits:
        lifted = linear(x, rule.lift(weight))
        return Shares(rule, (lifted,), rule.hold(added), lambda: (lifted, -linear(x, rule.lift(-weight)), added))
    both = weight.clamp(min=0), weight.clamp(max=0)
    plus, minus = _by_sign(lambda part, i: linear(part, both[i]), sides_of_x)
    return Shares(rule, (plus, minus), rule.hold(added), lambda: (plus, minus, added))


def of_conv(name: str, conv: Any, rule: Rule, args: tuple[Any, ...], kwargs: dict[str, Any], attention: Any) -> Shares:
    """Of a layer: changed weights, aggregation as it is, one denominator for all of it."""
    _check(name, conv, rule, args, kwargs)

    def output(weights: Callable[[Tensor], Tensor], biases: Callable[[Tensor], Tensor]) -> Tensor:
        return _output(_with_weights(conv, weights, biases, attention), args, kwargs)

    def one_bias(held: tuple[Tensor, ...]) -> Tensor:
        bias = output(none, torch.clone).detach()
        if not all(torch.allclose(*pair) for pair in zip(held, rule.hold(bias), strict=True)):
            problem = f"By hooks, no batch norm can follow layer '{name}' ({type(conv).__name__}) with several biases."
            raise UnsupportedLayerError(problem, remedy="Use walkwise.trace, which can, or rule='zero'.")
        return bias

    none, positive, negative = torch.zeros_like, (lambda w: w.clamp(min=0)), (lambda w: w.clamp(max=0))
    if not rule.splits:
        lifted = output(rule.lift, rule.lift)  # biases and all: they have no gradient
        return Shares(
            rule,
            (lifted,),
            (torch.zeros_like(lifted),),
            lambda: (
                output(rule.lift, none),
                -output(lambda w: rule.lift(-w), none),
                one_bias((output(none, rule.lift),)),
            ),
        )
    above, below = (rule.hold(output(none, part).detach()) for part in (positive, negative))
    held = tuple(one + other for one, other in zip(above, below, strict=True))  # each by itself, so that none cancels
    signs = [_with_weights(conv, part, none, attention) for part in (positive, negative)]
    run = lambda part, i: _output(signs[i], *_handed(part, args, kwargs))  # noqa: E731
    plus, minus = _by_sign(run, sides(args[0] if args else kwargs["x"]))
    return Shares(rule, (plus, minus), held, lambda: (plus, minus, one_bias(held)))


def aggregated(conv: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """What a GINConv sums up of positive entries, and of negative ones."""
    _check("", conv, None, args, kwargs)
    bare = _bare(conv)
    bare.nn = nn.Identity()
    positive, negative = sides(args[0] if args else kwargs["x"])
    return _output(bare, *_handed(positive, args, kwargs)), _output(bare, *_handed(negative, args, kwargs))


def sides(x: Tensor) -> tuple[Tensor, Tensor]:
    """The positive and the negative entries of a tensor, 0 elsewhere."""
    return x * (x > 0), x * (x < 0)


def _by_sign(run: Callable[[Tensor, int], Tensor], parts: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The positive and the negative contributions: signs of input and weight alike, or not."""
    return run(parts[0], 0) + run(parts[1], 1), run(parts[0], 1) + run(parts[1], 0)


def _with_weights(
    conv: Any, change: Callable[[Tensor], Tensor], change_bias: Callable[[Tensor], Tensor], attention: Any = None
) -> Any:
    """A copy of a layer with other weights; what makes attention stays, and attention is as it was."""
    changed = _bare(conv)
    with torch.no_grad():
        for name, parameter in changed.named_parameters():
            if not name.startswith(("att", "lin_edge")):
                parameter.copy_((change_bias if name.endswith("bias") else change)(parameter))
    if attention is not None:
        changed.register_edge_update_forward_hook(lambda *_: attention)
    return changed


def _bare(conv: Any) -> Any:
    """A copy of a layer without its hooks."""
    hooks = [held for module in conv.modules() for name, held in vars(module).items() if name.endswith("_hooks")]
    return copy.deepcopy(conv, {id(held): type(held)() for held in hooks})


def _handed(x: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with another x."""
    return ((x, *args[1:]), kwargs) if args else (args, {**kwargs, "x": x})


def _output(conv: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    returned = conv(*args, **kwargs)
    output: Tensor = returned[0] if isinstance(returned, tuple) else returned
    return output


def _check(name: str, conv: Any, rule: Rule | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse what the rule cannot be applied to here."""
    kind, use = type(conv).__name__, "Use walkwise.trace, which can, or rule='zero'."
    if not carried_whole(conv) and not gathers_first(conv):
        raise UnsupportedLayerError(f"By hooks, layer '{name}' ({kind}) cannot be put under {rule}.", remedy=use)
    if type(conv.aggr_module) not in (SumAggregation, MeanAggregation):
        aggregation = type(conv.aggr_module).__name__
        problem = f"By hooks, layer '{name}' ({kind} with {aggregation}) has no rule."
        raise UnsupportedLayerError(problem, remedy=use)
    if (rule is None or rule.splits) and not isinstance(conv, _ATTENTION):  # whose edges make attention
        given = [value for value in (*args[1:], *kwargs.values()) if isinstance(value, Tensor)]
        if any(bool((value < 0).any()) for value in given if value.is_floating_point()):
            problem = f"By hooks, {kind} with negative edge weights cannot be put under a rule that splits."
            raise UnsupportedLayerError(problem, remedy=use)

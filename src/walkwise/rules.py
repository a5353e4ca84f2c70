"""LRP rules as small frozen values, and schedules that give one rule to every layer.

A rule says how the relevance of an output neuron is shared among its inputs. In gradient form
it replaces a linear map ``z = x W + b`` by a surrogate ``p = x W↑``, which has the same value once it is multiplied by
a ratio that is held constant,

    z = p ⊙ [z / (p + b↑)]  +  (what the bias absorbs),

so a rule is defined by how it lifts weights and how it forms that ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from walkwise.errors import Described, InputError, described, unknown


def divide(numerator: Tensor, denominator: Tensor, *, spent: bool = False) -> Tensor:
    """Divide, with the result 0 where the denominator vanishes.

    Every division of the library goes through here: a neuron whose contributions cancel exactly
    passes nothing on, and nothing is added to any other denominator. A ``spent`` denominator, which nobody reads again,
    is overwritten with the quotient if it fits.

    >>> divide(torch.tensor([3.0, 3.0, 0.0, -3.0]), torch.tensor([2.0, 0.0, 0.0, 0.0]))
    tensor([1.5000, 0.0000, 0.0000, 0.0000])
    """
    followed = denominator.requires_grad or numerator.requires_grad
    alike = denominator.shape == numerator.shape and denominator.dtype == numerator.dtype
    room = denominator if spent and alike and not followed and denominator.is_contiguous() else None
    return torch.nan_to_num_(torch.div(numerator, denominator, out=room), nan=0.0, posinf=0.0, neginf=0.0)


@dataclass(frozen=True)
class Rule:
    """How one linear map shares out relevance: the base of all rules, which acts as LRP-0."""

    @property
    def exact(self) -> bool:
        """Whether the surrogate is the map itself, so that every ratio is 1."""
        return False

    @property
    def shares(self) -> tuple[float, float] | None:
        """The weights of the positive and the negative part, or None for a rule that does not split."""
        return None

    @property
    def splits(self) -> bool:
        """Whether the rule separates positive and negative contributions, path by path."""
        return self.shares is not None

    @property
    def one_sided(self) -> Rule | None:
        """For a rule that splits: the rule that it equals if inputs and outputs are ≥ 0."""
        return None

    def factors(self, value: Tensor, z: Tensor, plus: Tensor, minus: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """The factors of positive and negative contributions, given their sums P⁺ and P⁻ (including biases).

        ``z`` is the linear map's result and ``value`` what follows from it (after an activation, say).
        """
        assert self.shares is not None
        sides = zip(self.shares, (plus, minus), strict=True)
        first, second = (None if share == 0 else share * self.ratio(value, part) for share, part in sides)
        return first, second

    @property
    def by_size(self) -> bool:
        """Whether a rule that splits can also be written in contributions c and sizes |c|, see ``size_factors``."""
        return False

    @property
    def bounded(self) -> bool:
        """Whether no factor exceeds 1 if z stays as it is or is rectified."""
        return False

    def size_factors(self, value: Tensor, z: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
        """The factors of contributions and of their sizes, given the sum of sizes Σ|c| (including biases)."""
        raise NotImplementedError

    def lift(self, weight: Tensor) -> Tensor:
        """The surrogate W↑ of a weight matrix (or bias); never the weight itself, which training may change."""
        return weight.clone()

    def hold(self, bias: Tensor) -> tuple[Tensor, ...]:
        """The bias in the denominator: lifted, or the part of its own sign."""
        return (bias.clamp(min=0), bias.clamp(max=0)) if self.splits else (self.lift(bias),)

    def ratio(self, value: Tensor, surrogate: Tensor) -> Tensor:
        """The constant ``value / surrogate`` by which the surrogate's gradient is multiplied."""
        return divide(value, surrogate)

    def spent_ratio(self, value: Tensor, surrogate: Tensor) -> Tensor:
        """The same for a surrogate that nobody reads again and that the ratio may overwrite."""
        plain = type(self).ratio is Rule.ratio
        return divide(value, surrogate, spent=True) if plain else self.ratio(value, surrogate)


@dataclass(frozen=True)
class Zero(Rule):
    """LRP-0: relevance in proportion to ``x W``, which is gradient × input."""

    @property
    def exact(self) -> bool:
        """LRP-0 is the map itself."""
        return True


#: LRP-0, unless another rule is given.
LRP_0 = Zero()


@dataclass(frozen=True)
class Epsilon(Rule):
    """LRP-ε: ε is added to the magnitude of every denominator and absorbs weak relevance."""

    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        """Refuse a negative ε."""
        if not 0 <= self.epsilon < float("inf"):
            raise InputError(argument="epsilon", expected="a finite number of at least 0", got=self.epsilon)

    @property
    def exact(self) -> bool:
        """ε = 0 is LRP-0."""
        return self.epsilon == 0

    def ratio(self, value: Tensor, surrogate: Tensor) -> Tensor:
        """``value / (surrogate ± ε)`` with the surrogate's sign."""
        push = torch.full_like(surrogate, self.epsilon)  # in the surrogate's own type
        return divide(value, surrogate + torch.where(surrogate < 0, -push, push))


@dataclass(frozen=True)
class _OfGamma(Rule):
    """The common part of rules with a γ."""

    gamma: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a γ that is negative or not finite."""
        if not 0 <= self.gamma < float("inf"):
            raise InputError(argument="gamma", expected="a finite number of at least 0", got=self.gamma)

    @property
    def exact(self) -> bool:
        """γ = 0 is LRP-0."""
        return self.gamma == 0


@dataclass(frozen=True)
class Gamma(_OfGamma):
    """LRP-γ: W↑ = W + γ max(0, W), the rule of the paper."""

    def lift(self, weight: Tensor) -> Tensor:
        """W + γ max(0, W)."""
        return torch.add(weight, weight.relu(), alpha=self.gamma)


@dataclass(frozen=True)
class GeneralisedGamma(_OfGamma):
    """LRP-γ for activations of either sign: it favours contributions with the sign of z, and never explodes.

    With contributions c = x w, separated by sign path by path, and P⁺, P⁻ their positive and negative sums (including
    biases), relevance goes in proportion to

        c + γ c⁺  over  z + γ P⁺   where z > 0,
        c + γ c⁻  over  z + γ P⁻   where z < 0.

    A denominator is never smaller than |z|, so a linear map amplifies |relevance| by at most 1 + 2 / γ. If inputs and
    outputs are ≥ 0, it is the paper's γ.
    """

    gamma: float = 3.0

    @property
    def splits(self) -> bool:
        """Contributions are separated by their signs."""
        return not self.exact

    @property
    def one_sided(self) -> Rule | None:
        """The paper's γ."""
        return Gamma(self.gamma)

    @property
    def by_size(self) -> bool:
        """c + γ c⁺ and c + γ c⁻ are (1 + γ/2) c ± (γ/2) |c|."""
        return True

    @property
    def bounded(self) -> bool:
        """Denominators are no smaller than (1 + γ/2) |z|, or than z if nothing is negative."""
        return True

    def size_factors(self, value: Tensor, z: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
        """(1 + γ/2) and ± γ/2, both times value / ((1 + γ/2) z ± (γ/2) Σ|c|), with the sign of z: nothing cancels."""
        half = self.gamma / 2
        signed = (z >= 0).to(z.dtype).sub_(0.5).mul_(self.gamma)  # ± γ/2
        ratio = self.spent_ratio(value, (signed * sizes).add_(z, alpha=1 + half))
        return (1 + half) * ratio, signed.mul_(ratio)

    def factors(self, value: Tensor, z: Tensor, plus: Tensor, minus: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """value / (z + γ P), times 1 + γ for the contributions that have the sign of z."""
        either, size = self.size_factors(value, z, plus - minus)
        return either + size, either - size


@dataclass(frozen=True)
class AlphaBeta(Rule):
    """LRP-αβ: positive contributions get α parts, negative ones −β, with α − β = 1.

    Contributions are separated one by one (input neuron, edge and weight together), and a bias belongs to the part of
    its own sign.
    """

    alpha: float = 2.0
    beta: float = 1.0

    def __post_init__(self) -> None:
        """Refuse shares that do not conserve relevance."""
        if self.alpha < 0 or self.beta < 0 or abs(self.alpha - self.beta - 1) > 1e-9:
            raise InputError(
                f"alpha and beta must be at least 0, with alpha - beta = 1, got {self.alpha} and {self.beta}.",
                argument="alpha",
                expected="1 + beta, and beta at least 0",
                got=self.alpha,
            )

    @property
    def shares(self) -> tuple[float, float] | None:
        """α for the positive part, −β for the negative part."""
        return self.alpha, -self.beta


@dataclass(frozen=True)
class ZPlus(Rule):
    """The z⁺ rule: only positive contributions count (α = 1, β = 0)."""

    @property
    def shares(self) -> tuple[float, float] | None:
        """All for the positive part."""
        return 1.0, 0.0


@dataclass(frozen=True)
class PositivePart(Rule):
    """Only positive contributions count, and every bias absorbs its share by size: max(0, x W) / (Σ max(0, x W) + |b|).

    The positive-part rule of "Relevant Walk Search" (Xiong et al., ICML 2023). It differs from z⁺ for negative biases,
    which absorb nothing under z⁺.
    """

    @property
    def shares(self) -> tuple[float, float] | None:
        """All for the positive part."""
        return 1.0, 0.0

    def hold(self, bias: Tensor) -> tuple[Tensor, ...]:
        """|b|, with its sign flipped if a negative weight swaps the parts."""
        return bias.abs(), -bias.abs()


def _whole(rule: Rule) -> Rule:
    """The rule, if it splits where it says what the parts get, and says so where it splits."""
    own = any(getattr(type(rule), name) is not getattr(Rule, name) for name in ("factors", "size_factors"))
    if own != rule.splits and rule.shares is None and not rule.exact:
        expected = "with factors (or shares) and with splits" if own else "with shares or factors, since it splits"
        remedy = "Let splits return True; otherwise factors is never called." if own else "Write only one of the two."
        raise InputError(argument="rule", expected=expected, got=repr(rule), remedy=remedy)
    return rule


@dataclass(frozen=True)
class Schedule:
    """One rule for every layer, and one for the read-out.

    >>> Schedule.linear_gamma(3.0, 0.0).rules(3)
    (Gamma(gamma=3.0), Gamma(gamma=1.5), Gamma(gamma=0.0))
    """

    layers: Callable[[int], Sequence[Rule]]
    readout: Rule = Zero()
    note: str = ""  # a note for the report

    def __post_init__(self) -> None:
        """Refuse a rule that defines only half of what it needs."""
        _whole(self.readout)

    @classmethod
    def constant(cls, rule: Rule, readout: Rule | None = None) -> Schedule:
        """The same rule in every layer, and LRP-0 in the read-out unless another is given."""
        return cls(lambda num_layers: (rule,) * num_layers, readout or Zero())

    @classmethod
    def linear_gamma(cls, start: float = 3.0, stop: float = 0.0) -> Schedule:
        """The paper's schedule: γ falls linearly from ``start`` to ``stop``, LRP-0 in the read-out."""

        def rules(num_layers: int) -> tuple[Rule, ...]:
            steps = max(1, num_layers - 1)
            return tuple(Gamma(start + (stop - start) * layer / steps) for layer in range(num_layers))

        return cls(rules)

    @classmethod
    def auto(cls, gamma: float = 3.0) -> Schedule:
        """The default: the generalised γ in every layer, LRP-0 in the read-out.

        Chosen over the paper's schedule on seven validation tasks with known truth; γ = 10 was a little ahead there.

        >>> Schedule.auto().rules(2)
        (GeneralisedGamma(gamma=3.0), GeneralisedGamma(gamma=3.0))
        """
        why = "ahead of the paper's where the truth is known, and bounded where activations are negative"
        return replace(cls.constant(GeneralisedGamma(gamma)), note=f"the default, generalised γ = {gamma:g}: {why}")

    def rules(self, num_layers: int) -> tuple[Rule, ...]:
        """The rules of a model with that many layers, in order."""
        rules = tuple(map(_whole, self.layers(num_layers)))
        if len(rules) != num_layers:
            raise InputError(
                f"{len(rules)} rules were given, but the model has {num_layers} message-passing layers (one per call).",
                argument="rule",
                expected=f"{num_layers} rules, or one",
                got=len(rules),
                remedy="Give one rule per layer, or a single rule for all of them.",
            )
        return rules


RuleLike = str | Rule | Schedule | Sequence[Rule]

_NAMED: dict[str, Callable[[], Schedule]] = {
    "auto": Schedule.auto,
    "gamma": Schedule.linear_gamma,
    "zero": lambda: Schedule.constant(Zero()),
    "epsilon": lambda: Schedule.constant(Epsilon()),
    "alphabeta": lambda: Schedule.constant(AlphaBeta()),
    "zplus": lambda: Schedule.constant(ZPlus()),
    "positive": lambda: Schedule.constant(PositivePart()),
}

#: The names of rules.
NAMES = tuple(_NAMED)


def as_schedule(rule: RuleLike) -> Schedule:
    """Turn a name, a rule, a sequence of rules, or a schedule into a schedule.

    >>> as_schedule("zero").rules(2)
    (Zero(), Zero())
    """
    if isinstance(rule, Schedule):
        return rule
    if isinstance(rule, Rule):
        return Schedule.constant(rule)
    if isinstance(rule, str):
        if rule not in _NAMED:
            raise unknown("rule", rule, sorted(_NAMED), argument="rule")
        return _NAMED[rule]()
    if isinstance(rule, Sequence):
        rules = tuple(r for r in rule if isinstance(r, Rule))
        if len(rules) == len(rule):
            return Schedule(lambda num_layers: rules)
    expected = f"a name ({', '.join(sorted(_NAMED))}), a Rule, one Rule per layer or a Schedule"
    name = getattr(rule, "__name__", "") if isinstance(rule, type) and issubclass(rule, Rule) else ""
    remedy = f"Make a rule of it: {name}(...)." if name else None
    odd = [described(item) for item in rule if not isinstance(item, Rule)] if isinstance(rule, (list, tuple)) else []
    got = Described(f"a {type(rule).__name__} with {odd[0]} in it") if odd else described(rule)
    raise InputError(argument="rule", expected=expected, got=got, remedy=remedy)

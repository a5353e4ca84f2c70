"""An expression written twice, as contributions and as their sizes: the generalised γ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from walkwise.core.operators import Operator, Scale
from walkwise.core.postponed import NodeTensor, some
from walkwise.tracing.stretches.expressions import (
    Emit,
    Term,
    has_negative,
    postponed_total,
    push_constant,
    sum_of,
    total_of,
    with_held,
)


@dataclass(frozen=True, eq=False, slots=True)
class _Sized:
    """Contributions and their sizes, with the constants that stand beside them."""

    slot: int  # of the contributions
    sizes: int  # the slot of their sizes
    total: NodeTensor  # the sum of the sizes
    held: Tensor | None = None  # the sizes of the constants
    constant: Tensor | None = None  # as it is
    own: bool = False  # whether nothing else reads the total

    def some(self, nodes: Tensor | None) -> Tensor:
        """Some rows of the sizes, or all, those of the constants with them."""
        held = None if self.held is None else some(self.held, nodes)
        return with_held(some(self.total, nodes), held, own=self.own)


@dataclass(eq=False)
class Sizes:
    """An expression written twice: the contributions, and their sizes. What has no sign is written once."""

    emit: Emit
    later: bool = False  # whether sums may be postponed
    _made: dict[int, tuple[Term, _Sized]] = field(default_factory=dict)

    def part(self, term: Term) -> _Sized:
        """What an expression comes to."""
        if id(term) not in self._made:
            self._made[id(term)] = term, (self._leaf(term) if term.slot >= 0 else self._sum(term))
        return self._made[id(term)][1]

    def _leaf(self, term: Term) -> _Sized:
        if not has_negative(term.value):
            return _Sized(term.slot, term.slot, term.value)
        return _Sized(term.slot, self.emit([Scale(term.value.sign())], [term.slot]), term.value.abs())

    def _sum(self, term: Term) -> _Sized:
        parts = [self.part(inner) for inner, _ in term.maps]
        maps = [coefficients.sized() for _, coefficients in term.maps]
        unsigned = all(whole is size for whole, size in maps) and all(part.slot == part.sizes for part in parts)
        slot = self.emit([whole for whole, _ in maps], [part.slot for part in parts])
        sizes = slot if unsigned else self.emit([size for _, size in maps], [part.sizes for part in parts])
        values = [inner.value for inner, _ in term.maps]
        pushed = [(size, part.total, value) for (_, size), part, value in zip(maps, parts, values, strict=True)]
        known = unsigned and term.constant is None and all(total is value for _, total, value in pushed)
        total, own = (term.value, False) if known else self._total([(s, t) for s, t, _ in pushed], term.value)
        held, raw = [], []
        for (whole, size), part, value in zip(maps, parts, values, strict=True):
            if part.held is not None and part.constant is not None:
                held.append(push_constant(size, part.held, value))
                raw.append(push_constant(whole, part.constant, value))
        if term.constant is not None:
            held.append(term.constant.abs())
            raw.append(term.constant)
        if not raw:
            return _Sized(slot, sizes, total, own=own)
        constant = sum_of(raw)
        folds = any(coefficients.folds for _, coefficients in term.maps)  # one bias with those before it
        return _Sized(slot, sizes, total, constant.abs() if folds else sum_of(held), constant, own)

    def _total(self, pushing: Sequence[tuple[Operator, NodeTensor]], like: Tensor) -> tuple[NodeTensor, bool]:
        """The sum of sizes, and whether nothing else reads it."""
        later = postponed_total(pushing, like) if self.later else None
        return total_of(pushing) if later is None else (later, False)

"""Steps of a chain that can be taken as one.

Maps of single nodes in a row, maps of the same input side by side (contributions and their sizes, say), and maps whose
outputs are just added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import torch

from walkwise.core.operators import Columns, Identity, Operator, Perceptron, RowMap, Scale, Step, Weighing
from walkwise.core.postponed import NodeTensor, Postponed, whole

_Maps = tuple[Weighing, ...]


def fused(steps: Sequence[Step], named: Iterable[int], num_nodes: int) -> list[Step]:
    """The steps, those that can be taken as one put together; the ``named`` slots stay."""
    readers = Counter(source for step in steps for source in step.sources)
    readers.update(named)  # what has one more reader is no mere link
    kept: dict[int, Step] = {}  # by the slot that they make
    runs: dict[int, _Maps] = {}  # by the slot that a run has come to
    begun: dict[int, int] = {}  # and the slot that it came from
    for given in steps:
        step = _added(given, kept, readers) if len(given.operators) > 1 else given
        beside = _beside(step, runs, begun, readers, num_nodes) if len(step.operators) > 1 else None
        if beside is not None:
            for slot in step.sources:
                del kept[slot]
            source = begun[step.sources[0]]
            readers[source] -= len(step.sources) - 1
            step = Step((Perceptron((beside,)),), (source,), step.target)
        source = step.sources[0]
        before = runs.get(source) if readers[source] == 1 else None
        maps = _longer(before, step.operators, num_nodes)
        if maps is None:
            kept[step.target] = step
            continue
        if before is not None:
            del kept[source]
            source = begun[source]
            step = Step((Perceptron(maps),), (source,), step.target)
        runs[step.target], begun[step.target], kept[step.target] = maps, source, step
    return list(kept.values())


def _added(step: Step, kept: dict[int, Step], readers: Counter[int]) -> Step:
    """A sum that takes over the maps whose outputs it adds."""
    operators, sources = list(step.operators), list(step.sources)
    for place, (operator, source) in enumerate(zip(step.operators, step.sources, strict=True)):
        before = kept.get(source)
        alone = before is not None and len(before.operators) == 1 and before.visit is None and readers[source] == 1
        if alone and type(operator) is Identity:
            taken = kept.pop(source)
            operators[place], sources[place] = taken.operators[0], taken.sources[0]
    return Step(tuple(operators), tuple(sources), step.target)


def _beside(
    step: Step, runs: dict[int, _Maps], begun: dict[int, int], readers: Counter[int], num_nodes: int
) -> Weighing | None:
    """Matrices of one input on top of each other, where a step adds up what each makes of it, scaled; else None."""
    matrices, factors = [], []
    for operator, slot in zip(step.operators, step.sources, strict=True):
        run = runs.get(slot, ())
        alone = len(run) == 1 and run[0].factor is None and readers[slot] == 1 and begun[slot] == begun[step.sources[0]]
        if not alone or type(operator) is not Scale or operator.shape != (num_nodes, len(run[0].matrix)):
            return None
        matrices.append(run[0].matrix)
        factors.append(operator.given)
    return Weighing(torch.cat(matrices), _joined(factors), len(factors))


def _joined(factors: Sequence[NodeTensor]) -> NodeTensor:
    """Factors side by side; those that are columns of one tensor are that tensor."""
    first = factors[0].of if isinstance(factors[0], Postponed) else None
    if first is not None and len(factors) * factors[0].shape[1] == first.shape[1]:
        parts = [(f.of, f.start) for f in factors if isinstance(f, Postponed)]
        if parts == [(first, place * factors[0].shape[1]) for place in range(len(factors))]:
            return first
    return torch.cat([whole(factor) for factor in factors], dim=1)


def _longer(before: _Maps | None, operators: Sequence[Operator], num_nodes: int) -> _Maps | None:
    """A run with one more map, or a new one; None where the step is not part of any."""
    (first, *others), run = operators, before or ()
    if others:
        return None
    if type(first) is RowMap:
        return (*run, Weighing(first.matrix))
    if type(first) is Perceptron:
        return (*run, *first.maps)
    if type(first) is Columns and run and run[-1].factor is None and len(first.index) <= first.width:
        return (*run[:-1], Weighing(first.push(run[-1].matrix.t()).t()))  # a piece of what a matrix makes
    if type(first) is Scale and run and run[-1].factor is None and first.shape[0] == num_nodes:
        return (*run[:-1], Weighing(run[-1].matrix, first.given))
    return None

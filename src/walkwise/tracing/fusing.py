"""Steps of a chain that can be taken as one: maps of single nodes in a row, and maps whose outputs are just added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from torch import Tensor

from walkwise.core.operators import Identity, Operator, Perceptron, RowMap, Scale, Step

_Maps = tuple[tuple[Tensor, Tensor | None], ...]


def fused(steps: Sequence[Step], named: Iterable[int], num_nodes: int) -> list[Step]:
    """The steps, those that can be taken as one put together; the ``named`` slots stay."""
    readers = Counter(source for step in steps for source in step.sources)
    readers.update(named)  # what has one more reader is no mere link
    kept: dict[int, Step] = {}  # by the slot that they make
    runs: dict[int, _Maps] = {}  # by the slot that a run has come to
    begun: dict[int, int] = {}  # and the slot that it came from
    for given in steps:
        step = _added(given, kept, readers) if len(given.operators) > 1 else given
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


def _longer(before: _Maps | None, operators: Sequence[Operator], num_nodes: int) -> _Maps | None:
    """A run with one more map, or a new one; None where the step is not part of any."""
    (first, *others), run = operators, before or ()
    if others:
        return None
    if type(first) is RowMap:
        return (*run, (first.matrix, None))
    if type(first) is Scale and run and run[-1][1] is None and first.factor.shape[0] == num_nodes:
        return (*run[:-1], (run[-1][0], first.factor))
    return None

"""The input of a model's last softmax or sigmoid: the logits behind its probabilities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor
from torch.overrides import TorchFunctionMode

from walkwise.tracing.private import version_of
from walkwise.tracing.recording.kinds import RESHAPING
from walkwise.tracing.recording.spellings import plain_name

_SQUASHES = frozenset({"softmax", "log_softmax", "sigmoid"})
_RESHAPES = RESHAPING | {"clone"}
_PICKS = frozenset({"getitem", "select", "index_select", "narrow"})  # of log-odds too, but not of a softmax


class Squashed(NamedTuple):
    """A tensor of probabilities, and its source."""

    kind: str  # the function that made probabilities of logits
    result: Tensor
    source: Tensor  # logits, or other probabilities
    again: Callable[[Tensor], Tensor] | None  # from the source's logits to the result's; None where source is logits
    versions: tuple[int, int]  # of result and source, when they were seen

    @property
    def fresh(self) -> bool:
        """Whether neither has been written into since."""
        return self.versions == (version_of(self.result), version_of(self.source))


class Ending(TorchFunctionMode):
    """Remembers, while active, the input of every softmax, log-softmax and sigmoid.

    Afterwards, probabilities may be reshaped, entries of a sigmoid selected, and the logarithm of a softmax taken.

    >>> import torch
    >>> scores = torch.tensor([[2.0, -1.0]])
    >>> with Ending() as ending:
    ...     probabilities = scores.softmax(dim=-1).view(-1)
    ...     ending.logits(probabilities)
    tensor([ 2., -1.])
    """

    def __init__(self) -> None:
        """Nothing seen yet."""
        super().__init__()
        self._seen: dict[int, Squashed] = {}  # by identity of the result, which is kept alive here

    def logits(self, output: Tensor) -> Tensor | None:
        """The logits behind an output, in its shape, or None if it is not known to be probabilities."""
        seen = self._seen.get(id(output))
        if seen is None or not seen.fresh:
            return None
        if seen.again is None:
            return seen.source
        inner = self.logits(seen.source)
        return None if inner is None else seen.again(inner)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the function, and remember it if it makes or moves probabilities."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        source = args[0] if args else kwargs.get("input")
        if isinstance(result, Tensor) and isinstance(source, Tensor) and result is not source:
            self._remember(plain_name(func), result, source, lambda z: func(z, *args[1:], **kwargs))
        return result

    def _remember(self, name: str, result: Tensor, source: Tensor, again: Callable[[Tensor], Tensor]) -> None:
        if name in _SQUASHES:
            kind, step = name, None
        else:
            before = self._seen.get(id(source))
            if before is None:
                return
            kind, step = before.kind, again
            if name == "log" and kind == "softmax":
                kind, step = "log_softmax", _same
            elif name not in _RESHAPES and not (name in _PICKS and kind == "sigmoid"):
                return
        self._seen[id(result)] = Squashed(kind, result, source, step, (version_of(result), version_of(source)))


def _same(logits: Tensor) -> Tensor:
    return logits

"""Send numbers to an accelerator and back without waiting for its work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

#: Where a verdict is read later: kinds of devices that go on working while numbers are on their way back.
_LATER = {"cuda"}


def sent(numbers: Tensor | NDArray[Any], device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Numbers of main memory where a chain is, by way of memory that a CUDA device can read by itself."""
    tensor = numbers if isinstance(numbers, Tensor) else torch.from_numpy(numbers)
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.to(dtype).pin_memory().to(device, non_blocking=True)
    return tensor.to(device, dtype)


class Verdict:
    """Whether input is valid, checked on the device where it is.

    On a CUDA device the result travels back while the question is being built, and is read last: by then all work is
    queued, and the device is never idle. Elsewhere it is read at once.
    """

    def __init__(self, finding: Tensor, judge: Callable[[list[int]], None]) -> None:
        """Made from a few whole numbers, and a function that raises an error if they indicate one."""
        self._judge, self._arrival = judge, None
        later = finding.device.type in _LATER
        self._finding = finding.to("cpu", non_blocking=finding.is_cuda and later)
        if finding.is_cuda and later:
            self._arrival = torch.cuda.current_stream(finding.device).record_event()
        if not later:
            self.read()

    def read(self) -> None:
        """Raise an error if there is one, without waiting for work queued after the check."""
        if self._arrival is not None:
            self._arrival.synchronize()
        self._judge(self._finding.tolist())

"""Numbers on their way to an accelerator, without waiting for what it is doing."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


def sent(numbers: Tensor | NDArray[Any], device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Numbers of main memory where a chain is, by way of memory that a CUDA device can read by itself."""
    tensor = numbers if isinstance(numbers, Tensor) else torch.from_numpy(numbers)
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.to(dtype).pin_memory().to(device, non_blocking=True)
    return tensor.to(device, dtype)

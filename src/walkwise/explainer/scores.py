"""What PyG wants explained: the score of every row of the output, and the rows that an index selects."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.explain.config import ModelMode

from walkwise.errors import Described, TargetError, described


def per_row(scores: Any, mode: ModelMode, target: Any, column: int | None) -> Tensor:
    """The contribution of every output row to the explained scalar."""
    if not isinstance(scores, Tensor):
        raise TargetError(
            f"The model must return one tensor with a row per prediction; it returned a {type(scores).__name__}.",
            argument="output",
            expected="one tensor, a row per prediction",
            got=described(scores),
        )
    if mode == ModelMode.multiclass_classification:
        chosen = scores.gather(-1, _classes(target, scores[..., 0], scores.shape[-1]).unsqueeze(-1)).squeeze(-1)
    elif mode == ModelMode.binary_classification:
        chosen = scores * (2 * _classes(target, scores, 2) - 1)
    elif column is None:
        chosen = scores
    elif 0 <= column < (columns := scores.shape[-1] if scores.dim() else 0):
        chosen = scores[..., column]
    else:
        raise TargetError(
            f"column={column} is out of range: the output has {columns} column(s), counted from 0.",
            argument="column",
            expected=f"a column of the output, of which there are {columns}, from 0",
            got=column,
        )
    return chosen if chosen.dim() else chosen.reshape(1)


def _classes(target: Any, rows: Tensor, count: int) -> Tensor:
    """The target as classes, in the shape and on the device of the rows they are for."""
    if not isinstance(target, Tensor) or target.numel() != rows.numel():
        expected = f"one class per row of the output, of shape {tuple(rows.shape)}"
        raise TargetError(argument="target", expected=expected, got=described(target))
    classes = target.detach().long().reshape(rows.shape).to(rows.device)
    if classes.numel() and not 0 <= int(classes.min()) <= int(classes.max()) < count:
        raise TargetError(
            argument="target",
            expected=f"classes from 0 to {count - 1}",
            got=Described(f"{int(classes.min())} to {int(classes.max())}"),
        )
    return classes


def selected(rows: Tensor, index: Any) -> Tensor:
    """The rows that an index selects."""
    if index is None:
        return rows
    count, index = rows.shape[0], torch.as_tensor(index, device=rows.device)
    if index.dtype == torch.bool and index.shape == (count,):
        index = index.nonzero()[:, 0]
    whole = index.dtype != torch.bool and not index.is_floating_point()
    if not whole or not index.numel() or not -count <= int(index.min()) <= int(index.max()) < count:
        expected = f"one or more of the {count} rows of the output, 0 to {count - 1}"
        raise TargetError(argument="index", expected=expected, got=index.tolist())
    return rows[index]

"""A torch function that works on every row by itself, and so on some of the rows as on all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from walkwise.core.differential import Differential
from walkwise.core.operators import Cast, Operator
from walkwise.core.rows import Rows


@dataclass(frozen=True, eq=False)
class RowFunction(Operator):
    """The derivative of a function that mixes no rows: what is asked of some rows is worked out for those alone."""

    derivative: Differential
    by_row: bool  # whether constants with as many rows as the argument have one for each of its rows

    @property
    def widest(self) -> int:
        """The entries in a row, at the input or the output."""
        return self.derivative.widest

    def pull(self, message: Tensor, rows: Rows) -> Tensor:
        """The vector-Jacobian product of the function on the rows at hand."""
        if rows.whole:
            return self.derivative.pull(message, rows)
        args, kwargs = self._of_rows((self.derivative.args, self.derivative.kwargs), message, rows)
        shape = torch.Size((len(message), *self.derivative.shape[1:]))
        at = self._rows_of(self.derivative.at, message, rows)
        return replace(self.derivative, args=args, kwargs=kwargs, at=at, shape=shape).pull(message, rows)

    def push(self, values: Tensor) -> Tensor:
        """The function's own."""
        return self.derivative.push(values)

    def to(self, cast: Cast) -> RowFunction:
        """The same function, cast."""
        return RowFunction(self.derivative.to(cast), self.by_row)

    def _of_rows(self, nested: Any, message: Tensor, rows: Rows) -> Any:
        """Nested arguments with the rows at hand of those that have one for each."""
        if isinstance(nested, Tensor):
            each = self.by_row and nested.shape[:1] == self.derivative.at.shape[:1]
            return self._rows_of(nested, message, rows) if each else nested
        if type(nested) in (list, tuple):
            return type(nested)([self._of_rows(item, message, rows) for item in nested])
        if type(nested) is dict:
            return {key: self._of_rows(item, message, rows) for key, item in nested.items()}
        return nested

    @staticmethod
    def _rows_of(tensor: Tensor, message: Tensor, rows: Rows) -> Tensor:
        taken = rows.take(tensor.reshape(len(tensor), tensor.shape[1:].numel()), message)
        return taken.reshape(len(message), *tensor.shape[1:])

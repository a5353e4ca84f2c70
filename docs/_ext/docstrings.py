"""Docstrings are plain text that happens to be reStructuredText: |R| is a magnitude here, not a substitution.

Signatures name NumPy's ArrayLike, where Sphinx would write out all that it stands for. Errors that are made in the same
way as others have none.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

_LITERAL = re.compile(r"(``.*?``)")
_ARRAY_LIKE = re.compile(r"~?[\w.]*_Buffer \|.*?_NestedSequence\[complex \| bytes \| str\]")


def _escape(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    for number, line in enumerate(lines):
        if line.lstrip().startswith((">>>", "...")):
            continue
        parts = _LITERAL.split(line)
        lines[number] = "".join(part if part.startswith("``") else part.replace("|", r"\|") for part in parts)


def _shorten(app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: Any) -> Any:
    if signature is None:
        return None
    if what == "exception" and "__init__" not in vars(obj):
        return "", returns
    return _ARRAY_LIKE.sub("ArrayLike", signature), returns


def setup(app: Sphinx) -> dict[str, bool]:
    """Read docstrings before napoleon does."""
    app.connect("autodoc-process-docstring", _escape, priority=100)
    app.connect("autodoc-process-signature", _shorten)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

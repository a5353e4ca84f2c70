"""Docstrings are plain text that happens to be reStructuredText: |R| is a magnitude here, not a substitution."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

_LITERAL = re.compile(r"(``.*?``)")


def _escape(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    for number, line in enumerate(lines):
        if line.lstrip().startswith((">>>", "...")):
            continue
        parts = _LITERAL.split(line)
        lines[number] = "".join(part if part.startswith("``") else part.replace("|", r"\|") for part in parts)


def setup(app: Sphinx) -> dict[str, bool]:
    """Read docstrings before napoleon does."""
    app.connect("autodoc-process-docstring", _escape, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Formulas as MathML, made when the pages are built: browsers draw it themselves, and nothing is fetched."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

#: A sign that few fonts have, and the one that all have.
_SIGNS = {"&#x029F5;": "&#x2216;"}  # set minus


def _mathml(tex: str, display: str) -> str:
    written: str = convert(tex, display=display)
    for rare, common in _SIGNS.items():
        written = written.replace(rare, common)
    return written


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(_mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def _display(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="formula">{_mathml(node.astext(), "block")}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the renderer ``mathml``."""
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}

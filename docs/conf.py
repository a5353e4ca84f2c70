"""How Sphinx builds the documentation: `make docs`, or `python -m sphinx -W docs out/docs`."""

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent / "src")]

project = "Walkwise"
author = "The Walkwise developers"
copyright = author
version = release = re.findall(r'^version = "(.+)"', (HERE.parent / "pyproject.toml").read_text(), re.MULTILINE)[0]

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_parser", "docstrings", "mathml"]
exclude_patterns = ["README.md", "paper/units", "paper/models*"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"Walkwise {version}"
html_js_files = ["versions.js"]
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["walkwise.css"]
html_copy_source = False
html_show_sourcelink = False
pygments_style = "default"

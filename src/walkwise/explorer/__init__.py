"""A page to explore predictions with: select nodes, move α, play orders, name groups, ask.

Needs Dash and dash-cytoscape (``pip install 'walkwise[explore]'``); molecules need RDKit too (extra ``chem``).
"""

try:
    import dash as _dash  # noqa: F401
    import dash_cytoscape as _dash_cytoscape  # noqa: F401
except ImportError:
    from walkwise.errors import MissingExtraError

    raise MissingExtraError(
        "The explorer needs the packages dash and dash-cytoscape.",
        remedy="Install them with: pip install 'walkwise[explore]'",
    ) from None

from walkwise.explorer.serving import app, serve
from walkwise.explorer.session import Session

__all__ = ["Session", "app", "serve"]

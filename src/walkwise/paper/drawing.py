"""The common look of the figures."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from walkwise.errors import MissingExtraError
from walkwise.files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RED, BLUE, GREEN, ORANGE, GREY, INK = "#c8102e", "#2b6cb0", "#2f8f4e", "#d9822b", "#8a8f98", "#222222"

#: How the methods are drawn, the same in all figures.
LOOKS: dict[str, dict[str, Any]] = {
    "naive GNN-LRP": {"color": INK, "marker": "s", "ms": 4},
    "naive GNN-LRP, along edges": {"color": GREY, "marker": "s", "ms": 4, "ls": "--"},
    "sGNN-LRP, hooks": {"color": RED, "marker": "o", "ms": 4},
    "sGNN-LRP, chain": {"color": RED, "marker": "D", "ms": 3.5, "ls": "--"},
    "sGNN-LRP, chain, one of 1000": {"color": RED, "marker": "v", "ms": 4, "ls": ":"},
    "sGNN-LRP": {"color": RED, "lw": 2},
    "GNNExplainer": {"color": BLUE, "lw": 1.5},
    "GNNExplainer (PyG)": {"color": BLUE, "lw": 1.2, "ls": ":"},
    "Gradient": {"color": GREEN, "lw": 1.5, "ls": "--"},
    "CAM": {"color": ORANGE, "lw": 1.5, "ls": "-."},
}


def panels(rows: int, columns: int, *, width: float, height: float) -> tuple[Figure, Any]:
    """A figure and its axes: (columns,) or (rows, columns)."""
    require_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns)
    for ax in figure.axes:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def require_matplotlib() -> None:
    """Says which extra is missing, before anything is computed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        remedy = "Install it with: pip install 'walkwise[viz]'"
        raise MissingExtraError("The figures need matplotlib.", remedy=remedy) from None


def save(figure: Figure, folder: Path, name: str, formats: tuple[str, ...]) -> list[Path]:
    """Writes a figure in the formats asked for, without the time of day, so that the same rows give the same file."""
    paths = []
    for suffix in formats:
        path = folder / f"{name}.{suffix}"
        blank = {"CreationDate": None} if suffix == "pdf" else {"Software": None}
        drawn = BytesIO()
        figure.savefig(drawn, format=suffix, dpi=110, metadata=blank)
        write_whole(path, drawn.getvalue())
        paths.append(path)
    return paths

"""The report on a run: one self-contained page, and its figures."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from walkwise import plotting
from walkwise.display import count
from walkwise.errors import WalkwiseError
from walkwise.files import make_folder, write_whole
from walkwise.page import Grid, Image, Section, render
from walkwise.runs import findings
from walkwise.runs.folder import Run, open_run, read

#: How many rows and pictures the page shows of each kind.
_ROWS, _PICTURES = 12, 6

#: Patterns of fewer graphs are left out of tables where there are enough of others.
_LEAST = 3


def report(folder: str | Path | Run, *, out: str | Path | None = None) -> Path:
    """Makes the report on a run: one HTML page, with its figures beside it; the page's path comes back.

    What is on it depends on what was asked: ``nodes`` gives relevance by kind of node, ``groups`` by group or SMARTS
    pattern, ``subgraph`` what the model looks for, ``curves`` the areas under them.

    Args:
        folder: of the run, finished or not.
        out: where the report goes, by default a folder ``report`` in the run's.
    """
    run = folder if isinstance(folder, Run) else open_run(folder)
    to = Path(out) if out is not None else run.folder / "report"
    make_folder(to, "out")
    tables = read(run)
    pictures = _Pictures(to)
    sections = [section for make in _SECTIONS for section in make(run, tables, pictures)]
    page = render(
        f"What {run.manifest['model']} looks for in {run.manifest['data']}",
        _lead(run, tables),
        sections,
        commands=_commands(run),
        foot=_foot(run),
    )
    path = to / "report.html"
    write_whole(path, page)
    return path


class _Pictures:
    """Saves figures beside the page, and gives them to it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.made = folder, 0

    def save(self, figure: Figure, alt: str, caption: str, width: str = "half") -> Image:
        """The figure as a picture of the page."""
        buffer = BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
        self.made += 1
        write_whole(self.folder / f"figure{self.made:02d}.svg", buffer.getvalue())
        return Image(buffer.getvalue(), alt, caption, width)


def _classes(run: Run) -> Sequence[str]:
    names: Sequence[str] = run.manifest.get("class_names", ())
    return names


def _lead(run: Run, tables: findings.Tables) -> str:
    graphs = findings.explained_graphs(tables)
    what = "nodes" if run.manifest.get("index") else "graphs"
    words = f"{len(graphs):,} {what} of {run.manifest['data']}, explained by the relevance of walks"
    words += f" (rule: {run.manifest['rule']}; explained: {run.manifest['target']})."
    labelled = graphs[graphs.label.notna()]
    if len(labelled) and len(_classes(run)) > 1:
        words += (
            f" The model is right on {float((labelled.label == labelled.prediction).mean()):.1%} of those with a label."
        )
    if run.failed:
        words += f" {count(run.failed, 'graph')} failed."
    if not run.complete:
        words += f" The run is not finished: {run.total - run.done:,} are still to come."
    return words


def _commands(run: Run) -> list[str]:
    """What makes the run again, and what opens it, graph by graph."""
    folder, command = shlex.quote(str(run.folder)), run.manifest.get("command")
    if command:
        return [str(command), f"walkwise report {folder}", f"walkwise explore {folder}"]
    return [f"walkwise report {folder}", f"walkwise explore MODEL GRAPHS --run {folder}"]


def _foot(run: Run) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in run.manifest["versions"].items())
    return f"{versions}. Model {run.manifest['model_hash'][:12]}, data {run.manifest['data_hash'][:12]}."


def _overview(run: Run, tables: findings.Tables, pictures: _Pictures) -> Iterator[Section]:
    graphs = findings.explained_graphs(tables)
    curves = findings.of_kind(tables, "curves")
    rows = []
    for target, some in graphs.groupby("target"):
        mean, half = findings.mean_with_interval(some.output)
        walks, walks_half = findings.mean_with_interval(some.relevance)
        row = [findings.class_title(float(target), _classes(run)), len(some), _pm(mean, half), _pm(walks, walks_half)]
        if curves is not None:
            keys = findings.keys_of(curves)
            ours = curves.merge(some[keys], on=keys)
            row += [_pm(*findings.mean_with_interval(ours[area])) for area in ("auac", "aupc")]
        rows.append(row)
    columns = ["explained", ">graphs", ">output", ">relevance of all walks"]
    columns += [">AUAC", ">AUPC"] if curves is not None else []
    note = "Mean and 95 % confidence interval. Biases absorb the rest."
    yield Section("Classes", "What was explained, class by class.", [Grid("Classes", columns, rows, note, wide=True)])


def _kinds(run: Run, tables: findings.Tables, pictures: _Pictures) -> Iterator[Section]:
    found = findings.by_kind(tables)
    if not len(found):
        return
    yield _by_name(
        run,
        found.rename(columns={"kind": "pattern"}),
        pictures,
        "Kinds of nodes",
        "The relevance of a node by its kind, per class: the mean over graphs of the mean in each, with 95 % "
        "confidence intervals. Above zero it speaks for the class, below zero against it.",
        ["kind", ">graphs", ">nodes", ">relevance of a node"],
        lambda row: (row.pattern, row.graphs, row.nodes, _pm(row["mean"], row.half)),
    )


def _groups(run: Run, tables: findings.Tables, pictures: _Pictures) -> Iterator[Section]:
    found = findings.by_pattern(tables, "groups")
    if not len(found):
        return
    yield _by_name(
        run,
        found.sort_values(["target", "mean"], ascending=[True, False]),
        pictures,
        "Groups and patterns",
        "The relevance of walks inside a group, in the graphs that have it, per class; and how far the model's output "
        "falls when it is removed. If a group is relevant and its removal matters, the model uses it.",
        ["group", ">graphs", ">of the class", ">relevance", ">falls when removed"],
        _group_row,
    )


def _group_row(row: Any) -> tuple[Any, ...]:
    effects = _pm(row["mean"], row.half), _pm(row.effect, row.effect_half)
    return row.pattern, row.graphs, f"{row.frequency:.0%}", *effects


def _by_name(
    run: Run, found: pd.DataFrame, pictures: _Pictures, title: str, words: str, columns: list[str], cells: Any
) -> Section:
    """A table and a figure of means for every class."""
    grids, images = [], []
    for target, every in found.groupby("target", sort=True):
        name = findings.class_title(float(target), _classes(run))
        enough = every[every.graphs >= _LEAST] if (every.graphs >= _LEAST).sum() >= 3 else every
        strongest = enough.reindex(enough["mean"].abs().sort_values(ascending=False).index)[:_ROWS]
        some = strongest.sort_values("mean", ascending=False)
        rows = [cells(row) for _, row in some.iterrows()]
        grids.append(Grid(f"Explained: {name}", columns, rows, wide=len(columns) > 4))
        figure = Figure(figsize=(4.4, 0.9 + 0.26 * len(some)), layout="constrained")
        means = dict(zip(some.pattern, some["mean"], strict=True))
        plotting.mean_bars(means, dict(zip(some.pattern, some.half, strict=True)), ax=figure.add_subplot())
        caption = f"{title}, explained: {name}. Means with 95 % confidence intervals."
        images.append(pictures.save(figure, caption, caption))
    return Section(title, words, grids, images)


def _looked_for(run: Run, tables: findings.Tables, pictures: _Pictures) -> Iterator[Section]:
    found = findings.by_pattern(tables, "subgraph")
    if not len(found):
        return
    grids, images = [], []
    names = tables["graphs"].set_index(findings.keys_of(tables["graphs"])).name
    for target, every in found.groupby("target", sort=True):
        title = findings.class_title(float(target), _classes(run))
        best = every.sort_values("weight", ascending=False)[:_ROWS]
        rows = []
        for rank, (_, row) in enumerate(best.iterrows(), start=1):
            if rank <= _PICTURES:
                images += _pattern_pictures(tables, row, f"{title}, {rank}", pictures)
            key = row.example if len(row.example) > 1 else row.example[0]
            example = str(names[key]).removeprefix(f"{run.manifest['data']} ")
            alone = "" if np.isnan(row.alone) else f"{row.alone:.0%}"
            rows.append((rank, row.pattern, *_group_row(row)[1:], alone, example))
        columns = [">", "subgraph", ">graphs", ">of the class", ">relevance", ">falls when removed"]
        columns += [">predicted alone", "as in"]
        grids.append(Grid(f"Explained: {title}", columns, rows, wide=True))
    words = (
        "The most relevant connected subgraph of every graph, gathered where they look alike, and ranked by relevance "
        "× frequency: what the model finds, where it finds it, how far its output falls when the subgraph is removed "
        "(what the class needs), and how often the model predicts the class for the subgraph alone (what suffices for "
        "it)."
    )
    yield Section("What the model looks for", words, grids, images)


def _pattern_pictures(tables: findings.Tables, row: Any, title: str, pictures: _Pictures) -> list[Image]:
    """A drawing of a pattern, as it is where it is most relevant."""
    found = findings.of_kind(tables, "subgraph")
    assert found is not None
    here = np.logical_and.reduce(
        [found[key] == value for key, value in zip(findings.keys_of(found), row.example, strict=True)]
    )
    part = found[here].iloc[0]
    figure = Figure(figsize=(2.4, 1.9), layout="constrained")
    axes = figure.add_subplot()
    links = np.asarray(part.links, dtype=np.int64).reshape(-1, 2).T
    kinds = [kind for kind in part.kinds if kind]
    named = bool(kinds) and len(kinds) == len(part.kinds)
    if not _draw_molecule(row.pattern, axes, len(part.nodes)):
        labels = list(part.kinds) if named else None
        plotting.graph_heatmap(np.zeros(len(part.nodes)), links, labels=labels, bar=False, ax=axes)
    words = f"{title}: in {count(int(row.graphs), 'graph')} ({row.frequency:.0%}), relevance {row['mean']:.3g}"
    return [pictures.save(figure, f"The subgraph {row.pattern}", f"{words}.", "third")]


def _draw_molecule(pattern: str, axes: Any, atoms: int) -> bool:
    """Draws the part of a molecule that a SMILES string names; whether it is one."""
    try:
        from rdkit import Chem, rdBase
    except ImportError:
        return False
    with rdBase.BlockLogs():
        part = Chem.MolFromSmiles(pattern, sanitize=False)
    if part is None or part.GetNumAtoms() != atoms:
        return False
    for atom in part.GetAtoms():
        atom.SetNoImplicit(True)  # what it is bound to in the molecule is not known here
    try:
        plotting.molecule_heatmap(part, [0.0] * atoms, bar=False, ax=axes)
    except (WalkwiseError, RuntimeError, ValueError):
        return False
    return True


def _doubted(run: Run, tables: findings.Tables, pictures: _Pictures) -> Iterator[Section]:
    rows = []
    for kind in ("groups", "subgraph"):
        for _, row in findings.cues_in_doubt(findings.by_pattern(tables, kind))[:_ROWS].iterrows():
            title = findings.class_title(float(row.target), _classes(run))
            shares = f"{row.right:.0%}", f"{row.base:.0%}"
            rows.append((row.pattern, title, row.graphs, _pm(row["mean"], row.half), *shares, row.doubt))
    graphs = findings.explained_graphs(tables)
    if graphs.label.isna().all():
        return
    columns = [
        "pattern",
        "speaks for",
        ">graphs",
        ">relevance",
        ">have the label",
        ">all of the class",
        ">standard errors",
    ]
    words = (
        "Patterns that speak for a class, although the graphs that have them carry its label less often than other "
        "graphs explained for that class: likely spurious cues. Many patterns are compared, so a few appear here by "
        "chance."
    )
    none = "" if rows else "None was found."
    yield Section("Where relevance and label disagree", words, [Grid("Cues in doubt", columns, rows, none, wide=True)])


def _odd(run: Run, tables: findings.Tables, pictures: _Pictures) -> Iterator[Section]:
    found = findings.first_to_look_at(tables)
    if len(found):
        keys = findings.keys_of(found)
        rows = [(*(row[key] for key in keys), row["name"], row.why, row.value) for _, row in found.iterrows()]
        columns = [*(f">{key}" for key in keys), "name", "why", ">value"]
        words = "Predictions to check by hand, and explanations not to trust unchecked."
        yield Section("Graphs to look at first", words, [Grid("Outliers", columns, rows, wide=True)])
    if failed := findings.failures(tables):
        grid = Grid("Errors", ["error", ">graphs", "for example"], failed[:_ROWS], wide=True)
        yield Section("Graphs that failed", "They have a row with an error, and no other rows.", [grid])


_SECTIONS = (_looked_for, _groups, _kinds, _doubted, _odd, _overview)


def _pm(mean: float, half: float) -> str:
    """A mean with half of its interval.

    >>> _pm(-1.234, 0.0567), _pm(2.0, float("nan"))
    ('−1.234 ± 0.057', '2')
    """
    text = f"{mean:.4g}" if np.isnan(half) else f"{mean:.4g} ± {half:.2g}"
    return text.replace("-", "\N{MINUS SIGN}")

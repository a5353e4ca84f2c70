"""Making tables and figures: units of work one after the other, then CSV, pictures and the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tqdm.auto import tqdm

from walkwise.errors import InputError, MissingDataError, MissingExtraError, unknown
from walkwise.paper import figure1, figure4, figure5, figure6, table3
from walkwise.paper.bench import Bench
from walkwise.paper.drawing import require_matplotlib, save
from walkwise.paper.exhibits import Exhibit, Finding, Workload
from walkwise.paper.omissions import Omission, gathered
from walkwise.paper.tables import write_csv
from walkwise.paper.units import Done, Row, Store

EXHIBITS: Mapping[str, Exhibit] = {
    module.EXHIBIT.name: module.EXHIBIT for module in (table3, figure1, figure4, figure5, figure6)
}


@dataclass(frozen=True)
class Result:
    """What became of one table or figure."""

    exhibit: Exhibit
    finding: Finding | None  # None where nothing could be computed
    drawn: bool  # whether there is a picture
    skipped: tuple[Omission, ...]  # which parts of it are missing, and why
    seconds: float  # of processor time that its units took, in whatever run
    resumed: int  # units that an earlier run had finished
    units: int


def chosen(name: str) -> tuple[Exhibit, ...]:
    """The tables and figures that a name stands for.

    >>> [exhibit.name for exhibit in chosen("all")]
    ['table3', 'figure1', 'figure4', 'figure5', 'figure6']
    """
    if name == "all":
        return tuple(EXHIBITS.values())
    if name not in EXHIBITS:
        raise unknown("table or figure", name, [*EXHIBITS, "all"])
    return (EXHIBITS[name],)


def reproduce(exhibits: Sequence[Exhibit], bench: Bench, *, skip_missing: bool, progress: bool = True) -> list[Result]:
    """Tables and figures in the folder ``bench.out``: NAME.csv, NAME.png (and .pdf), and what was found.

    Finished units are kept in the folder ``units`` there, so a run that was interrupted goes on where it stopped.

    Args:
        exhibits: what to make.
        bench: data sets, models and how much to compute.
        skip_missing: go on without data sets and packages that are not there, and say so; or raise the error.
        progress: show a bar.
    """
    require_matplotlib()
    prepare(bench.out)
    results = []
    for exhibit in exhibits:
        rows, result = _make(exhibit, bench, skip_missing, progress)
        if rows:
            write_csv(rows, bench.out / f"{exhibit.name}.csv")
            result = _drawn(result, rows, bench, skip_missing)
        results.append(result)
    return results


def prepare(out: Path) -> None:
    """Makes the folder for results, and sees to it before anything is computed that it can be written to."""
    probe = out / ".writable"
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InputError(
            f"Results cannot be written to {out} ({error}).",
            argument="out",
            expected="a folder that can be written to",
            got=str(out),
            remedy="Choose another folder with --out.",
        ) from None


def _make(exhibit: Exhibit, bench: Bench, skip_missing: bool, progress: bool) -> tuple[list[Row], Result]:
    done: list[Done] = []
    skipped: list[Omission] = []
    bar = tqdm(exhibit.work, desc=exhibit.name, disable=not progress, unit="model")
    for work in bar:
        bar.set_postfix_str(work.needs)
        try:
            done += _do(work, bench, progress)
        except (MissingDataError, MissingExtraError) as error:
            if not skip_missing:
                raise
            skipped.append(Omission((work.needs,), str(error)))
    rows = [row for unit in done for row in unit.rows]
    finding = exhibit.judge(rows) if rows else None
    seconds, resumed = sum(unit.seconds for unit in done), sum(unit.resumed for unit in done)
    return rows, Result(exhibit, finding, False, gathered(skipped), seconds, resumed, len(done))


def _drawn(result: Result, rows: Sequence[Row], bench: Bench, skip_missing: bool) -> Result:
    """The result with its picture, or with the reason why there is none."""
    try:
        figure = result.exhibit.draw(rows)
    except MissingExtraError as error:
        if not skip_missing:
            raise
        return replace(result, skipped=(*result.skipped, Omission(("the picture",), str(error))))
    save(figure, bench.out, result.exhibit.name, bench.effort.formats)
    return replace(result, drawn=True)


def _do(work: Workload, bench: Bench, progress: bool) -> list[Done]:
    """The units of one model."""
    store = Store(bench.out / "units")
    units = work.units(bench.case(work.needs), bench.effort)
    bar = tqdm(units, desc=work.needs, disable=not progress or len(units) == 1, leave=False, unit="unit")
    return [store.run(unit) for unit in bar]

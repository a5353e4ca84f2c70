"""``walkwise demo``: the main task on built-in data, as tables, figures and one page."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from walkwise.cli import options
from walkwise.cli.names import SourceError
from walkwise.cli.output import loading, print_json, say, show_table
from walkwise.errors import InputError, MissingExtraError
from walkwise.page import Image, Section, render

if TYPE_CHECKING:
    from walkwise.cli.showcase import Molecule, Motif

_TITLE = "Which part of this graph made the model say that?"
_LEAD = (
    "Two small trained models come with Walkwise. Each makes a prediction about a graph; the question is which part "
    "of the graph it rests on, and whether the answer holds when that part is removed. Every relevance below is a sum "
    "over walks, computed exactly by message passing."
)
_NEXT = (
    "{} explain mutagenicity --smiles 'O=[N+]([O-])c1ccc2ccccc2c1' --target mutagenic --against non-mutagenic",
    "{} interactions mutagenicity --graph 1 --query 'NO2 & ring'",
    "{} explain ba2motif --graph 950 --nodes motif=20-24",
    "{} compare ba2motif --metric auroc --metric auac",
    "{} explore mutagenicity",
    "{} explain mypkg.models:build graphs.pt --weights model.safetensors    # a model of your own",
)


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder for figures and the report.")] = Path("out/demo"),
    graphs: Annotated[int, typer.Option(metavar="N", min=2, help="The number of graphs to generate.")] = 20,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="The seed of the generated graphs.")] = 1,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Explain two bundled models, on generated graphs and on molecules; write tables, figures and a web page.

    Nothing is downloaded. Molecules need RDKit and figures need matplotlib; without them, you get the rest.
    """
    if out.exists() and not out.is_dir():
        raise SourceError(
            f"{out} is a file.",
            argument="out",
            expected="a folder",
            got=str(out),
            remedy="With --out, give a folder for figures and the report.",
        )
    with loading(f"{_TITLE}\n\n{_LEAD}", quiet=as_json):
        from walkwise.cli import chapters, showcase
        from walkwise.files import make_folder, write_whole
    make_folder(out, "out")
    start = time.perf_counter()
    skipped: list[str] = []
    with _one_thread():
        found, tallies = showcase.motifs(graphs, seed)
        molecules = _molecules(skipped)
    if not found:
        raise InputError(
            f"The model gets none of {graphs} graphs right.",
            argument="graphs",
            expected="a larger number",
            got=graphs,
            remedy="Generate more of them: --graphs 20.",
        )
    shown = next((motif for motif in found if motif.traced.target == 1), found[0])
    sections = [*([chapters.of_molecules(molecules)] if molecules else []), chapters.of_motifs(shown, tallies)]
    if not as_json:
        for section in sections:
            _show(section)
    drawn, files = _drawn(sections, found, shown, molecules, out, skipped)
    page = out / "report.html"
    foot = " ".join([f"Made by walkwise demo, seed {seed}. The page is one file and fetches nothing.", *skipped])
    commands = [line.format("walkwise") for line in _NEXT]
    write_whole(page, render(_TITLE, _LEAD, drawn, commands=commands, foot=foot))
    seconds = time.perf_counter() - start
    if as_json:
        print_json(
            {
                "command": "demo",
                "seed": seed,
                "report": str(page),
                "figures": [str(path) for path in files],
                "motifs": [asdict(tally) for tally in tallies],
                "shown": _motif_summary(shown),
                "molecules": [_molecule_summary(one) for one in molecules],
                "skipped": skipped,
                "seconds": seconds,
            }
        )
        return
    say("\n".join(["", *skipped, f"Figures and report, made in {seconds:.1f} s: {page}", "", "Try next:"]))
    say("\n".join(f"  {line.format(_program())}" for line in _NEXT))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Tensors this small gain nothing from more threads, and lose much where cores are few."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _molecules(skipped: list[str]) -> list[Molecule]:
    from walkwise.cli import showcase

    try:
        return showcase.molecules()
    except MissingExtraError as error:
        skipped.append(f"Molecules are left out. {error}")
        return []


def _drawn(
    sections: Sequence[Section],
    found: Sequence[Motif],
    shown: Motif,
    molecules: Sequence[Molecule],
    out: Path,
    skipped: list[str],
) -> tuple[list[Section], list[Path]]:
    """The sections with their pictures, and the files that were written."""
    try:
        import_module("walkwise.plotting")  # says which extra is missing
    except MissingExtraError as error:
        skipped.append(f"Figures are left out. {error}")
        return list(sections), []
    from walkwise.cli import figures

    pictures = [*([figures.of_molecules(molecules)] if molecules else []), figures.of_motifs(found, shown)]
    drawn, files = [], figures.overview(molecules[2]).save(out)[1] if molecules else []
    for section, some in zip(sections, pictures, strict=True):
        saved = [(picture, *picture.save(out)) for picture in some]
        files += [path for _, _, paths in saved for path in paths]
        images = [Image(svg, picture.alt, picture.caption, picture.width) for picture, svg, _ in saved]
        drawn.append(replace(section, images=images))
    return drawn, files


def _show(section: Section) -> None:
    say(f"\n{section.title.upper()}\n{section.words}", wrap=True)
    for grid in section.grids:
        show_table(grid.title, grid.columns, grid.rows, note=grid.note)


def _motif_summary(motif: Motif) -> dict[str, Any]:
    return motif.traced.head("demo") | {
        "truth": motif.truth,
        "found": list(motif.found.numbers),
        "found_relevance": motif.found.score,
        "walks": motif.walks.walks.tolist(),
        "walk_relevance": motif.walks.relevance.tolist(),
    }


def _molecule_summary(molecule: Molecule) -> dict[str, Any]:
    return molecule.traced.head("demo") | {
        "groups": molecule.groups,
        "terms": [{"groups": list(names), "relevance": value} for names, value in molecule.terms.terms.items()],
        "removed": molecule.group,
        "check": asdict(molecule.check),
    }


def _program() -> str:
    """The command as it can be typed here: its name, or its full path if that is not on the search path."""
    started = Path(sys.argv[0])
    if shutil.which("walkwise") or started.name != "walkwise":
        return "walkwise"
    here = Path.cwd()
    return str(started.relative_to(here) if started.is_relative_to(here) else started)

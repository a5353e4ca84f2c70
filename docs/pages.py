"""The examples in the documentation: runs the Python blocks of a page, in order, and renews what they made.

python docs/pages.py                     # every page: outputs in the text, and pictures in docs/figures
python docs/pages.py docs/tutorial.md    # one page
python docs/pages.py --check             # write nothing; fail where a page does not say what happens

A block ```text right after a block ```python is what that block prints; pictures that blocks save as PNG files are the
page's figures. The tests run the same blocks and compare: words must agree, numbers may differ from machine to machine.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shutil
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parent
FIGURES = DOCS / "figures"

_BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?", re.DOTALL | re.MULTILINE)
_FIGURE = re.compile(r"!\[[^\]]*\]\(([^)]*figures/[^)]*)\)")
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?")


@dataclass(frozen=True)
class Block:
    """One example of a page: what it says, what the page says it prints, and where it stands."""

    code: str
    output: str | None
    line: int


@dataclass(frozen=True)
class Run:
    """What a page's blocks printed, one entry each, and the names of the pictures they saved."""

    printed: tuple[str, ...]
    pictures: tuple[str, ...]


def with_examples() -> list[Path]:
    """Every page that has Python examples, the README first."""
    pages = [DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))]
    return [page for page in pages if blocks(page)]


def blocks(page: Path) -> list[Block]:
    """The Python examples of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [Block(m["code"], m["output"], text.count("\n", 0, m.start()) + 2) for m in _BLOCK.finditer(text)]


def run(page: Path, folder: Path) -> Run:
    """What happens when the blocks of a page run in a folder; an error says the page and line it is from."""
    names: dict[str, object] = {"__name__": "__main__"}
    printed = []
    with _standing_in(folder):
        for block in blocks(page):
            source = "\n" * (block.line - 1) + block.code  # so that tracebacks name the page's own lines
            with contextlib.redirect_stdout(io.StringIO()) as out:
                try:
                    exec(compile(source, str(page), "exec"), names)
                except Exception as error:
                    last = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(page)][-1:]
                    raise RuntimeError(f"{page}, line {last[0].lineno if last else block.line}: {error!r}") from error
            printed.append(out.getvalue())
    return Run(tuple(printed), tuple(sorted(path.name for path in folder.glob("*.png"))))


@contextlib.contextmanager
def _standing_in(folder: Path) -> Iterator[None]:
    """In that folder, with no window for pictures; afterwards where we were, with all pictures closed."""
    import matplotlib

    before, backend = Path.cwd(), matplotlib.get_backend()
    matplotlib.use("agg")
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        matplotlib.pyplot.close("all")
        matplotlib.use(backend)


def words(output: str) -> list[str]:
    """An output's words, with # for every number: what must be the same on every machine."""
    return _NUMBER.sub("#", output).split()


def renew(page: Path) -> None:
    """Write what the blocks print, and the pictures they save, to where the page shows them."""
    with tempfile.TemporaryDirectory() as name:
        result = run(page, Path(name))
        FIGURES.mkdir(exist_ok=True)
        for picture in result.pictures:
            shutil.copyfile(Path(name) / picture, FIGURES / picture)
    printed = iter(result.printed)

    def renewed(match: re.Match[str]) -> str:
        output = next(printed)
        shown = f"\n```text\n{output.rstrip()}\n```\n" if match["output"] is not None else ""
        return f"```python\n{match['code']}```\n{shown}"

    page.write_text(_BLOCK.sub(renewed, page.read_text(encoding="utf-8")), encoding="utf-8")


def faults(page: Path) -> list[str]:
    """Where a page says other than what happens, or shows pictures that its blocks do not make; empty if nowhere."""
    with tempfile.TemporaryDirectory() as name:
        try:
            result = run(page, Path(name))
        except RuntimeError as error:
            return [str(error)]
    wrong = [
        f"{page}, line {block.line}: expected\n{block.output}\ngot\n{printed}"
        for block, printed in zip(blocks(page), result.printed, strict=True)
        if block.output is not None and words(block.output) != words(printed)
    ]
    shown = {Path(target).name for target in _FIGURE.findall(page.read_text(encoding="utf-8"))}
    strays = shown ^ set(result.pictures) | {picture for picture in shown if not (FIGURES / picture).exists()}
    return wrong + [f"{page}: the picture {picture} is not both made and shown" for picture in sorted(strays)]


def main() -> int:
    """Renew or check the pages named on the command line, or all of them."""
    parser = argparse.ArgumentParser(description="Run the examples of the documentation and renew what they made.")
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing, and fail where a page is wrong")
    options = parser.parse_args()
    wrong: list[str] = []
    for page in [page.resolve() for page in options.pages] or with_examples():
        if options.check:
            wrong += faults(page)
        else:
            renew(page)
    for fault in wrong:
        print(fault)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""The list of files in the documentation: ``python docs/files.py`` writes docs/files.md from the modules' first lines.

``--check`` writes nothing, and fails if the page is out of date.
"""

from __future__ import annotations

import argparse
import ast
from pathlib import Path

DOCS = Path(__file__).parent
SOURCE = DOCS.parent / "src" / "walkwise"
PAGE = DOCS / "files.md"
_HEAD = """# Every file

Each with the first line of its own docstring; `python docs/files.py` writes this page. [The map](architecture.md) says
what belongs where.
"""


def page() -> str:
    """The whole page: a table for every folder."""
    folders = sorted({file.parent for file in SOURCE.rglob("*.py")})
    return _HEAD + "".join(map(_table, folders))


def _table(folder: Path) -> str:
    """A heading, what the folder is for, and its files."""
    room = folder.relative_to(SOURCE).as_posix()
    name = "walkwise" if folder == SOURCE else f"{room}/"
    files = sorted(file for file in folder.glob("*.py") if file.name != "__init__.py")
    rows = "".join(f"| `{file.stem}` | {_first_line(file)} |\n" for file in files)
    return f"\n## `{name}`\n\n{_first_line(folder / '__init__.py')}\n\n| file | what it is for |\n|---|---|\n{rows}"


def _first_line(file: Path) -> str:
    """The first paragraph of a module's docstring."""
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    if not docstring:
        raise SystemExit(f"{file} has no docstring")
    return " ".join(docstring.split("\n\n")[0].split()).replace("``", "`").replace("|", "\\|")


def main() -> None:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is out of date")
    if not parser.parse_args().check:
        PAGE.write_text(page(), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != page():
        raise SystemExit("docs/files.md is out of date: run python docs/files.py")


if __name__ == "__main__":
    main()

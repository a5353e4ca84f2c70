"""The notebooks under examples/notebooks: runs their cells, in order, and renews what they show.

python docs/notebooks.py             # every notebook: outputs are written into the files
python docs/notebooks.py --check     # write nothing; fail where a cell does not run, or shows another kind of thing

No Jupyter is needed for that: a cell's last expression is shown as its HTML, its picture or its text, as Jupyter does.
"""

from __future__ import annotations

import argparse
import ast
import base64
import contextlib
import io
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).parent.parent / "examples" / "notebooks"

_NUMBER = re.compile(r"[-+\N{MINUS SIGN}]?\d+(\.\d+)?(e[-+\N{MINUS SIGN}]?\d+)?|base64,[^\"]*")


def outputs_of(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """What a cell shows: what it prints, then its last expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, f"cell {number}", "exec"), names)
        value = None if last is None else eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
    found: list[dict[str, Any]] = []
    if printed.getvalue():
        found.append({"name": "stdout", "output_type": "stream", "text": lines(printed.getvalue())})
    if value is not None:
        data = shown(value)
        found.append({"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
    return found


def shown(value: Any) -> dict[str, Any]:
    """A value as a notebook holds it: a picture, HTML, or text."""
    figure = getattr(value, "figure", None)
    if figure is not None and hasattr(figure, "savefig"):
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=90)
        return {"image/png": base64.b64encode(file.getvalue()).decode("ascii"), "text/plain": ["<Axes: >"]}
    html = value._repr_html_() if hasattr(value, "_repr_html_") else None
    return {**({"text/html": lines(html)} if html else {}), "text/plain": lines(repr(value))}


def lines(text: str) -> list[str]:
    """Text as notebooks hold it."""
    return text.splitlines(keepends=True)


def words_of(outputs: list[dict[str, Any]]) -> list[Any]:
    """What outputs say, without numbers and pictures, which differ from machine to machine."""
    found: list[Any] = []
    for output in outputs:
        if output["output_type"] == "stream":
            found.append(_NUMBER.sub("#", "".join(output["text"])))
        else:
            data = output["data"]
            html = "".join(data.get("text/html", []))
            found.append((sorted(data), _NUMBER.sub("#", re.sub(r"<[^>]*>", " ", html))))
    return found


def run(path: Path, *, check: bool) -> list[str]:
    """What is wrong with a notebook; without a check, its outputs are renewed."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    notebook = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    wrong, number, before = [], 0, Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for cell in notebook["cells"]:
                if cell["cell_type"] != "code":
                    continue
                number += 1
                outputs = outputs_of("".join(cell["source"]), names, number)
                if check and words_of(outputs) != words_of(cell["outputs"]):
                    now, held = words_of(outputs), words_of(cell["outputs"])
                    wrong.append(f"{path.name}, cell {number}: it shows\n{now}\nnot\n{held}")
                cell["outputs"], cell["execution_count"] = outputs, number
        finally:
            os.chdir(before)
            plt.close("all")
    if not check:
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("notebooks", nargs="*", type=Path)
    given = parser.parse_args()
    wrong = [w for path in given.notebooks or sorted(NOTEBOOKS.glob("*.ipynb")) for w in run(path, check=given.check)]
    sys.stdout.write("\n".join(wrong))
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())

"""The matrix in the documentation: ``python tests/matrix/table.py`` checks all cells and writes docs/matrix.md.

Two numbers may be given: how many processes share the work, and how many cells, the first ones, are checked.
"""

import re
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from matrix.cells import COUNT, FACTORS, MEANING, SAMPLED, Cell, cells

PAGE = Path(__file__).parents[2] / "docs" / "matrix.md"

_HEAD = """# The matrix of models

{count:,} generated models, every one with weights and a graph of its own: {exact:,} exact, {refused:,} refused by name.
Every pair of values in the tables below occurs in some cell. `make test-full` checks all of them, `make test` the
first {sampled}. `python tests/matrix/table.py` checks all of them too and writes this page;
`pytest tests/matrix --full -k c0123` runs one cell alone.

*Exact* means equal to a brute force in NumPy that shares no code with Walkwise: `brute.py`, `dense.py` and `network.py`
in `tests/matrix`. It computes every layer from its definition, writes each rule's transition matrices out densely,
multiplies them along every walk and lists all walks. A cell is exact if all of this agrees:

- the output; the relevance of every walk, of four node sets at α = 0, 0.3 and 1, of every node at every position, of
  every input feature;
- **conservation**: under rules that conserve, the part that walks do not sum to is what the brute force assigns to
  biases and other constants (under the others, what it says they absorb);
- **renumbering**: with nodes renumbered and edges in another order, walks, node sets (α = 0.3) and features are
  the same under the new numbers;
- **batches**: between two other graphs in a batch, these are the same as alone.

A difference is measured relative to Σ |relevance| where that is largest in the model. It may be up to 1e-9 in float64,
and 1e-4 in the other types, which are computed in float32; or, if that is more, a hundred times the change of the brute
force's own answer when the parameters change by their rounding.

*Refused* cells raise the error that the matrix predicts: features and model of different types, a layer without
a closed form under `fallback="error"`, and negative edge weights in layers that divide by the root of a degree.

Largest differences in the first {run} cells when this page was written: {doubles} in float64, {singles} in the others.
"""

_RUN = re.compile(r"in the first (\d+) cells when this page was written: (\S+) in float64, (\S+) in the others")


def page(run, doubles, singles) -> str:
    """The page, with the largest differences in the first cells, so many of which were run."""
    refused = sum(cell.refusal is not None for cell in cells())
    head = _HEAD.format(
        count=COUNT,
        sampled=SAMPLED,
        exact=COUNT - refused,
        refused=refused,
        run=run,
        doubles=doubles,
        singles=singles,
    )
    parts = [head]
    for name, values in FACTORS.items():
        parts.append(f"## {name[0].upper()}{name[1:]}\n\n{MEANING[name][0].upper()}{MEANING[name][1:]}.\n")
        parts.append("| value | cells | exact | refused |\n|---|---:|---:|---:|")
        for value in values:
            chosen = [cell.refusal is not None for cell in cells() if getattr(cell, name) == value]
            parts.append(f"| {value} | {len(chosen)} | {chosen.count(False)} | {chosen.count(True)} |")
        parts.append("")
    return "\n".join(parts)


def written_results(text):
    """What a page says of the last run: how many cells, and the largest differences."""
    found = _RUN.search(" ".join(text.split()))
    assert found is not None
    return found.groups()


def _largest(outcomes, double):
    """The largest difference among the cells of one kind, in words."""
    kinds = zip(cells(), outcomes, strict=False)
    return f"{max((o.error for cell, o in kinds if (cell.dtype == 'float64') == double), default=0.0):.0e}"


def _outcome(cell: Cell):
    """How a cell came out, or in words what is wrong with it."""
    import torch

    from matrix.checks import checked

    torch.set_num_threads(1)
    try:
        return checked(cell)
    except Exception as error:  # of any kind: all cells are run before they are reported
        wrong = f"{type(error).__name__} in {cell}: {error}"
        print(wrong, file=sys.stderr, flush=True)
        return wrong


if __name__ == "__main__":
    given = [int(number) for number in sys.argv[1:]]
    jobs, run = given + [2, COUNT][len(given) :]
    with ProcessPoolExecutor(jobs) as pool:
        outcomes = list(pool.map(_outcome, cells()[:run], chunksize=25))
    if wrong := sum(isinstance(outcome, str) for outcome in outcomes):
        sys.exit(f"{wrong} cells are wrong; {PAGE.name} is left as it was.")
    PAGE.write_text(page(run, _largest(outcomes, True), _largest(outcomes, False)), encoding="utf-8")

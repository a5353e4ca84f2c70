"""The page docs/performance.md and its figure, from one run: every question over its floor, its growth, its peers.

python benchmarks/performance.py [--seconds 0.5] [--out docs]

One thread, processor time. Every number is the fastest of a few calls. A question's floor is what its matrix products
take on this machine and nothing else: their arithmetic at the rate of a large product, or their operands and results at
the rate of a copy, whichever is longer. Both rates are measured in the same run.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import run
import slow
import torch
from cases import TARGET, Case, ba2motif, batched, connected_subgraphs, mutag, random_graph, three_regular
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import walkwise as ww
from walkwise.baselines import baseline
from walkwise.evaluation.predictions import predict
from walkwise.questions.steps import walk_steps

#: Walks beyond which listing them is not measured: it grows with their number, which is no power of anything.
MOST_WALKS = 400_000


@dataclass(frozen=True)
class Question:
    """Something asked of a chain, which has not been asked anything before, or (``again``) has been asked the same."""

    name: str
    ask: Callable[[ww.RelevanceChain, Case], object]
    lists_walks: bool = False
    again: bool = False


def subgraphs(count: int, size: int = 5, alpha: float | None = 0.0) -> Question:
    """This many connected subgraphs, with a discount or all at once; they are drawn outside of what is timed."""
    drawn: dict[int, Any] = {}

    def ask(chain: ww.RelevanceChain, case: Case) -> object:
        if id(case) not in drawn:
            drawn[id(case)] = connected_subgraphs(case, count, size), case
        sets = drawn[id(case)][0]
        return ww.subgraph_polynomial(chain, sets) if alpha is None else ww.subgraph_relevance(chain, sets, alpha=alpha)

    name = f"{count:,} subgraph{'s' if count > 1 else ''}"
    return Question(f"{name}, {'every α' if alpha is None else f'α = {alpha:g}'}", ask, again=True)


#: Of nodes that every graph has.
GROUPS = {"a": [0, 1, 2], "b": [3, 4], "c": [5, 6, 7]}

QUESTIONS = [
    Question("node relevance", lambda chain, _: ww.node_relevance(chain)),
    Question("feature relevance", lambda chain, _: ww.feature_relevance(chain)),
    Question("edge relevance", lambda chain, _: ww.edge_relevance(chain)),
    subgraphs(1),
    subgraphs(1000),
    subgraphs(1000, alpha=0.3),
    subgraphs(1000, alpha=None),
    Question("ten best walks", lambda chain, case: ww.top_walks(chain, 10, **_graphs(case)), lists_walks=True),
    Question("order of the nodes", lambda chain, case: ww.order_nodes(chain, **_graphs(case)), lists_walks=True),
    Question("Shapley values", lambda chain, case: ww.shapley_values(chain, **_graphs(case)), lists_walks=True),
    Question("Shapley interactions of pairs", lambda chain, _: ww.shapley_interactions(chain), lists_walks=True),
    Question("1,000 walks", lambda chain, case: ww.walk_relevance(chain, _walks(case, chain.num_layers + 1))),
    Question("interactions of three groups", lambda chain, _: ww.interactions(chain, GROUPS)),
    Question("best subgraph of five nodes", lambda chain, case: ww.find_subgraph(chain, 5, **_graphs(case))),
]
#: Those whose growth is drawn.
DRAWN = [QUESTIONS[i] for i in (0, 3, 4, 5, 7, 8)]


def _graphs(case: Case) -> dict[str, Tensor]:
    return {} if case.batch is None else {"graphs": case.batch}


def _walks(case: Case, positions: int) -> Tensor:
    """A thousand walks; what they cost does not depend on where they lead."""
    return torch.randint(len(case.x), (1000, positions), generator=torch.Generator().manual_seed(0))


def trace(case: Case) -> ww.RelevanceChain:
    """The chain of a case."""
    return ww.trace(case.model, case.x, case.edge_index, target=TARGET, **case.given)


# -- clocks -------------------------------------------------------------------------------------------------------


def seconds(call: Callable[[], object], budget: float) -> float:
    """Processor seconds of the fastest call, of as many as the budget allows and at least two."""
    times: list[float] = []
    begun = time.perf_counter()
    while len(times) < 2 or (time.perf_counter() - begun < budget and len(times) < 200):
        start = time.thread_time()
        call()
        times.append(time.thread_time() - start)
    return min(times)


def of_chains(question: Question, case: Case, budget: float) -> float:
    """The same of a question, every time to a chain that remembers nothing unless it is asked again."""
    chain = trace(case)
    question.ask(chain, case)
    if question.again:
        return seconds(lambda: question.ask(chain, case), budget)
    spent: list[float] = []
    begun = time.perf_counter()
    while len(spent) < 2 or (time.perf_counter() - begun < budget and len(spent) < 200):
        fresh = chain.to(chain.dtype)
        start = time.thread_time()
        question.ask(fresh, case)
        spent.append(time.thread_time() - start)
    return min(spent)


class Products(TorchDispatchMode):
    """Counts the arithmetic of matrix products, and the bytes that go in and out of them."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the function, and count it if it multiplies matrices."""
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in ("mm", "addmm", "bmm", "addmv", "mv", "dot"):
            a, b = (args[1], args[2]) if func.overloadpacket.__name__.startswith("add") else (args[0], args[1])
            sparse = a.layout != torch.strided
            entries = a.values().numel() if sparse else a.numel()
            self.flops += 2 * entries * (b.shape[-1] if b.dim() > 1 else 1)
            held = entries * (8 + a.element_size()) if sparse else a.numel() * a.element_size()
            self.bytes += held + sum(t.numel() * t.element_size() for t in (b, result))
        return result


@dataclass(frozen=True)
class Machine:
    """How fast large products and copies are."""

    flops: float
    bytes: float

    @staticmethod
    def measured(budget: float) -> Machine:
        """The rates of this machine, on one thread."""
        a, b = torch.rand(1024, 512), torch.rand(512, 512)
        block = torch.rand(1 << 24)
        product = 2 * a.numel() * b.shape[1] / seconds(lambda: a @ b, budget)
        return Machine(product, 2 * 4 * block.numel() / seconds(block.clone, budget))

    def floor(self, call: Callable[[], object]) -> float:
        """The least time that the matrix products of a call take."""
        with Products() as counted:
            call()
        return max(counted.flops / self.flops, counted.bytes / self.bytes)


# -- what is measured ---------------------------------------------------------------------------------------------


def floors(machine: Machine, budget: float) -> list[tuple[str, ...]]:
    """For every question and case: its time, over forward and backward, and over its floor."""
    cases = {"molecule": mutag(), "1000 nodes": three_regular(1000), "1000 molecules": batched(mutag(), 1000)}
    passes = {name: seconds(case.forward_backward, budget) for name, case in cases.items()}
    rows = [["forward and backward", *(f"{_time(passes[name])}" for name in cases)]]
    traced = ["trace"]
    for name, case in cases.items():
        took = seconds(lambda case=case: trace(case), budget)
        traced.append(_cell(took, passes[name], machine.floor(lambda case=case: trace(case))))
    rows.append(traced)
    for question in QUESTIONS:
        row = [question.name]
        for name, case in cases.items():
            chain = trace(case)
            question.ask(chain, case)
            took = of_chains(question, case, budget)
            chain = chain if question.again else chain.to(chain.dtype)
            floor = machine.floor(lambda q=question, c=chain, case=case: q.ask(c, case))
            row.append(_cell(took, passes[name], floor))
        rows.append(row)
        print(*row, sep=" | ", flush=True)
    return [tuple(row) for row in rows]


def _cell(took: float, beside: float, floor: float) -> str:
    over = f"{took / floor:.3g} ×" if floor > 1e-9 else "–"
    ratio = took / beside
    return f"{_time(took)}; {f'{ratio:.0f}' if ratio > 99 else f'{ratio:.2g}'}; {over}"


def _time(took: float) -> str:
    return f"{took * 1e3:.3g} ms" if took < 1 else f"{took:.3g} s"


Sweep = dict[str, list[tuple[float, float]]]


def sweeps(budget: float) -> dict[str, Sweep]:
    """How every question grows: {what grows: {question: [(how much, seconds)]}}."""
    drawn = {question.name: question for question in DRAWN}
    found: dict[str, Sweep] = {
        "nodes": _sweep(((M, three_regular(M)) for M in (250, 1000, 4000, 16000)), drawn, budget),
        "edges": _sweep(((E, random_graph(1000, E)) for E in (2000, 4000, 8000, 16000)), drawn, budget),
        "depth": _sweep(((L, ba2motif(L)) for L in (2, 4, 8, 16)), drawn, budget),
        "width": _sweep(((N, mutag(3, N)) for N in (32, 64, 128, 256, 512)), drawn, budget),
    }
    regular, sizes = three_regular(1000), (1, 4, 16, 64)
    found["nodes of a subgraph"] = _counted(lambda n, a: subgraphs(200, n, a), sizes, regular, budget)
    found["subgraphs asked at once"] = _counted(lambda n, a: subgraphs(n, 5, a), (1, 10, 100, 1000), regular, budget)
    return found


def _sweep(cases: Iterator[tuple[int, Case]], drawn: dict[str, Question], budget: float) -> Sweep:
    grown: Sweep = {name: [] for name in ("trace", *drawn)}
    for amount, case in cases:
        grown["trace"].append((amount, seconds(lambda case=case: trace(case), budget)))
        few = walk_steps(trace(case)).num_walks <= MOST_WALKS
        for name, question in drawn.items():
            if few or not question.lists_walks:
                grown[name].append((amount, of_chains(question, case, budget)))
    return grown


def _counted(question: Callable[[int, float], Question], amounts: tuple[int, ...], case: Case, budget: float) -> Sweep:
    return {
        f"subgraphs, α = {alpha:g}": [(n, of_chains(question(n, alpha), case, budget)) for n in amounts]
        for alpha in (0.0, 0.3)
    }


def exponent(points: list[tuple[float, float]]) -> float | None:
    """The slope of the last three points, both axes logarithmic."""
    if len(points) < 2:
        return None
    amount, took = np.log(np.array(points[-3:])).T
    return float(np.polyfit(amount, took, 1)[0])


def peers(budget: float) -> list[tuple[str, str, str]]:
    """Other ways to explain a molecule: what they take, and over what ours takes for the same."""
    case = mutag()
    ours = seconds(lambda: ww.node_relevance(trace(case)), budget)
    order = seconds(lambda: ww.order_nodes(trace(case)), budget)
    thousand = of_chains(subgraphs(1000), case, budget)
    walks = ww.enumerate_walks(trace(case))
    listed = seconds(lambda: ww.walk_relevance(trace(case), walks), budget)
    hooked = seconds(lambda: slow.hooked_relevance(case, [0, 1, 2, 3, 4]), budget)
    prediction = predict(case.model, case.x, case.edge_index, target=TARGET)
    rows = [
        ("forward and backward", seconds(case.forward_backward, budget), ours, "trace and node relevance"),
        ("1000 subgraphs, a pass with forward hooks for each", 1000 * hooked, thousand, "1000 subgraphs"),
        (f"GNN-LRP, a pass for each of {len(walks):,} walks", len(walks) * hooked, listed, "trace and all walks"),
    ]
    for name, words in (("integrated-gradients", "Integrated gradients (captum)"), ("gnnexplainer", "GNNExplainer")):
        explain = baseline(name)
        rows.append((words, seconds(lambda e=explain: e(prediction), budget), ours, "trace and node relevance"))
    explain = baseline("subgraphx")
    rows.append(("SubgraphX", seconds(lambda: explain(prediction), 0.0), order, "trace and order of the nodes"))
    return [(name, _time(took), f"{took / mine:.3g} × {what}") for name, took, mine, what in rows]


# -- the page -----------------------------------------------------------------------------------------------------

_FIGURE = "Time of every question against what grows: nodes, edges, depth, width, subgraphs; both axes logarithmic"


def draw(found: dict[str, Sweep], path: Path) -> None:
    """A panel for everything that grows."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    names = list(dict.fromkeys(name for sweep in found.values() for name in sweep))
    style = {name: (plt.get_cmap("tab10")(i % 10), "os^Dv<>ph*"[i % 10]) for i, name in enumerate(names)}
    figure, panels = plt.subplots(2, 3, figsize=(12, 7.2), layout="constrained")
    for panel, (what, sweep) in zip(panels.flat, found.items(), strict=True):
        for name, points in sweep.items():
            if points:
                colour, mark = style[name]
                panel.loglog(*zip(*points, strict=True), marker=mark, color=colour, label=name, markersize=5)
        panel.set_xlabel(what)
        panel.grid(alpha=0.3, which="major")
        ticks = sorted({amount for points in sweep.values() for amount, _ in points})
        panel.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
        panel.minorticks_off()
    for panel in panels[:, 0]:
        panel.set_ylabel("processor seconds")
    lines = {name: line for panel in panels.flat for line, name in zip(*panel.get_legend_handles_labels(), strict=True)}
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=5, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (heads, ("---",) * len(heads), *rows))


def goals(budget: float) -> list[tuple[str, ...]]:
    """What was aimed at, in ratios measured side by side."""
    found, grown = [], (row for row in run.growth(budget) if row.case.startswith("100000") and "0.3" in row.compared)
    for row in (*run.goals(4 * budget), *grown):
        met = {None: "", True: "met", False: "missed"}[row.met]
        found.append((row.case, row.compared, f"≤ {row.goal:g}", f"{row.ratio:.2f}", met))
    return found


def page(
    machine: Machine,
    questions: list[tuple[str, ...]],
    found: dict[str, Sweep],
    others: list[tuple[str, str, str]],
    aims: list[tuple[str, ...]],
) -> str:
    """The page."""
    asked = ("question", "a molecule (18 atoms, GIN-3/128)", "1000 nodes (degree 3, GIN-3/64)", "1000 molecules")
    names = list(dict.fromkeys(name for sweep in found.values() for name in sweep))
    grown = []
    for name in names:
        slopes = (exponent(found[what].get(name, [])) for what in found)
        grown.append((name, *("" if slope is None else f"{slope:.2f}" for slope in slopes)))
    about = ", ".join(f"{key} {value}" for key, value in run.header().items() if key != "cpus")
    rates = f"{machine.flops / 1e9:.0f} GFlop/s and copies at {machine.bytes / 1e9:.1f} GB/s"
    return f"""# Performance

Written by `python benchmarks/performance.py` (a part of `make bench`), in one run:
{about} (other work on the machine, seen in its load, distorts times).
Large products ran at {rates}. All times are processor time of one thread, the
fastest of a few calls; on a busy machine look at ratios rather than at times.

## What a question costs

In every cell: the time; the time over one forward and backward pass of the model; the time over the question's floor.
The floor is the time of its matrix products at the rates above, counted as they are issued, and nothing else:
no Python, no bookkeeping, no element-wise work. On small graphs nearly all time goes to Python, so their distance to
the floor is large; if operands stay in the cache, it may be below 1.
Questions go to a chain that has not been asked anything, so those that need all walks list them; questions about
subgraphs go to a chain that has answered a similar one.

{table(asked, questions)}

## How it grows

The exponent with which the time grows in each size, from the last three points of each line: 0 means no growth, 1 that
the time doubles with the size.
Walks are listed up to {MOST_WALKS:,}; their number grows with a power of the degree that depends on the depth,
so no exponent is given beyond that.

{table(("question", *found), grown)}

![{_FIGURE}](figures/performance.png)

## Goals

{table(("case", "ratio", "goal", "measured", ""), aims)}

## Beside other ways

One molecule of 18 atoms, the same model, the same run. The last column is its time over the time of ours.

{table(("way", "time", "over ours"), others)}

The pass with hooks gives the same numbers as ours, and so would a pass for each walk, which is timed as one pass times
their number. The other explainers answer other questions: this compares only the cost of an explanation. How good they
are is on another page, [known ground truth](ground-truth.md).
"""


def main() -> None:
    """Measure, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each measurement")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "docs")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    machine = Machine.measured(asked.seconds)
    questions = floors(machine, asked.seconds)
    found = sweeps(asked.seconds / 2)
    draw(found, asked.out / "figures" / "performance.png")
    text = page(machine, questions, found, peers(asked.seconds), goals(asked.seconds))
    (asked.out / "performance.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()

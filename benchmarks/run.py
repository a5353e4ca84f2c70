"""How fast walkwise is, in ratios measured side by side: `make bench`.

python benchmarks/run.py [--only NAME] [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import cycle, product
from pathlib import Path

import memory
import slow
import torch
import torch_geometric
from cases import (
    TARGET,
    Case,
    ba2motif,
    batched,
    connected_subgraphs,
    mutag,
    other_layers,
    random_graph,
    reddit,
    three_regular,
)
from timing import Ratio
from timing import compare as compare_by
from torch_geometric.nn import GIN

import walkwise as ww

GIB = 1024**3


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    group: str
    case: str
    compared: str
    ratio: float
    low: float
    high: float
    best: float
    rounds: int
    goal: float | None = None
    note: str = ""

    @classmethod
    def timed(cls, group: str, case: str, compared: str, ratio: Ratio, goal: float | None = None) -> Row:
        """The line of a timing; the note says what a call took, only for scale."""
        note = f"{_seconds(ratio.top)} / {_seconds(ratio.bottom)}"
        spread = ratio.low, ratio.high, ratio.best, ratio.rounds
        return cls(group, case, compared, ratio.median, *spread, goal, note)

    @property
    def met(self) -> bool | None:
        """Whether the goal is met, if there is one."""
        return None if self.goal is None else self.ratio <= self.goal


def compare(top: Callable[[], object], bottom: Callable[[], object], *, seconds: float) -> Ratio:
    """By the wall clock; by the processor time of the one thread where there is just one."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    return compare_by(top, bottom, seconds=seconds, clock=clock)


# -- what is measured ---------------------------------------------------------------------------------------------


def _trace(case: Case) -> ww.RelevanceChain:
    target = TARGET if case.batch is None else [TARGET] * (int(case.batch.max()) + 1)
    return ww.trace(case.model, case.x, case.edge_index, target=target, **case.given)


def _trace_and_one(case: Case) -> Callable[[], object]:
    (subgraph,) = case.subgraphs(1)
    return lambda: ww.subgraph_relevance(_trace(case), [subgraph])


def _paper_cases() -> list[Case]:
    return [mutag(), ba2motif(3), ba2motif(5), ba2motif(7), reddit()]


def trace(seconds: float) -> Iterator[Row]:
    """Trace and one subgraph against one forward and backward pass: of every layer, of many graphs, of large ones."""
    molecule, many, large = mutag(), batched(mutag(), 200), three_regular(1_000, width=128)
    cases = [(case, 1.6) for case in (molecule, *other_layers(molecule))]
    cases += [(case, 1.5) for case in _paper_cases()[1:]]
    cases += [(case, 1.0) for one in (many, large) for case in (one, *other_layers(one))]
    for case, goal in cases:
        ratio = compare(_trace_and_one(case), case.forward_backward, seconds=seconds)
        yield Row.timed("trace", case.name, "trace + 1 subgraph / forward+backward", ratio, goal)
        ratio = compare(lambda case=case: _trace(case), case.forward_backward, seconds=seconds / 2)
        yield Row.timed("trace", case.name, "  trace alone / forward+backward", ratio)
        if case.batch is None and hasattr(case.model, "convs"):  # one of the paper's
            (subgraph,) = case.subgraphs(1)
            by_hand = compare(
                lambda case=case, s=subgraph: slow.hooked_relevance(case, s), case.forward_backward, seconds=seconds / 2
            )
            yield Row.timed("trace", case.name, "  hooks written for this model / forward+backward", by_hand)


def batch(seconds: float) -> Iterator[Row]:
    """1000 subgraphs of a traced chain, each against one forward and backward pass."""
    for case in _paper_cases():
        chain = _trace(case)
        goal = 0.005 if case.name.startswith("REDDIT") else 0.015
        lists = [case.subgraphs(1000, seed=seed) for seed in range(4)]
        for kind, given in (("lists", lists), ("mask", [case.mask(ids) for ids in lists])):
            turn = cycle(given)
            ratio = compare(
                lambda chain=chain, turn=turn: ww.subgraph_relevance(chain, next(turn)),
                case.forward_backward,
                seconds=seconds,
            ).per(1000)
            yield Row.timed("batch", case.name, f"1 of 1000 subgraphs ({kind}) / forward+backward", ratio, goal)


def polynomial(seconds: float) -> Iterator[Row]:
    """All discounts at once against a single one."""
    for case in [ba2motif(3), ba2motif(5), ba2motif(7), reddit()]:
        chain, subgraphs = _trace(case), case.subgraphs(200)
        ratio = compare(
            lambda chain=chain, s=subgraphs: ww.subgraph_polynomial(chain, s),
            lambda chain=chain, s=subgraphs: ww.subgraph_relevance(chain, s, alpha=0.3),
            seconds=seconds,
        )
        yield Row.timed("polynomial", case.name, "polynomial / alpha = 0.3, 200 subgraphs", ratio, 3.0)


def depth(seconds: float) -> Iterator[Row]:
    """Twice the layers."""
    deep, shallow = ba2motif(14), ba2motif(7)
    ratio = compare(_trace_and_one(deep), _trace_and_one(shallow), seconds=seconds)
    yield Row.timed("depth", "BA-2motif width 20", "trace + 1 subgraph, depth 14 / depth 7", ratio, 2.2)
    chains, subgraphs = (_trace(deep), _trace(shallow)), deep.subgraphs(1000)
    ratio = compare(
        lambda: ww.subgraph_relevance(chains[0], subgraphs),
        lambda: ww.subgraph_relevance(chains[1], subgraphs),
        seconds=seconds,
    )
    yield Row.timed("depth", "BA-2motif width 20", "1000 subgraphs, depth 14 / depth 7", ratio, 2.2)


def floor(seconds: float) -> Iterator[Row]:
    """1000 subgraphs against nothing but their matrix products, in batches of the size that suits those best."""
    for case in _paper_cases():
        chain, mask = _trace(case), case.mask(case.subgraphs(1000))
        ratios = []
        for rows in (500, 1250, 5000):
            operands = slow.products(case, rows)
            ratios.append(
                compare(
                    lambda chain=chain, mask=mask: ww.subgraph_relevance(chain, mask),
                    lambda operands=operands, rows=rows: slow.multiply(operands, 5000 // rows),
                    seconds=seconds / 3,
                )
            )
        best = min(ratios, key=lambda ratio: ratio.bottom)
        yield Row.timed("floor", case.name, "1000 subgraphs (mask) / its matrix products", best)


def slow_ways(seconds: float) -> Iterator[Row]:
    """Without batching, and without walkwise, against one of 1000 subgraphs."""
    for case in _paper_cases():
        chain, subgraphs = _trace(case), case.subgraphs(1000)
        turn = cycle(subgraphs)
        _check_same(chain, case, subgraphs[:5])
        for name, call in (
            ("single queries in a loop", lambda turn=turn, chain=chain: ww.subgraph_relevance(chain, [next(turn)])),
            ("one autograd pass each", lambda turn=turn, case=case: slow.hooked_relevance(case, next(turn))),
        ):
            batched = compare(
                lambda chain=chain, s=subgraphs: ww.subgraph_relevance(chain, s), call, seconds=seconds / 2
            ).per(1000)
            yield Row.timed("slow", case.name, f"{name} / 1 of 1000 batched", batched.inverted())


def _check_same(chain: ww.RelevanceChain, case: Case, subgraphs: list[list[int]]) -> None:
    """The slow way must give the same numbers, or the comparison means nothing."""
    fast = ww.subgraph_relevance(chain, subgraphs)
    other = torch.tensor([slow.hooked_relevance(case, subgraph) for subgraph in subgraphs])
    if not torch.allclose(fast, other, rtol=1e-3, atol=1e-6):
        raise AssertionError(f"{case.name}: {fast.tolist()} against {other.tolist()}")


def large(seconds: float) -> Iterator[Row]:
    """Peak memory on 100 000 nodes and 1 000 000 edges, each job in a process of its own."""
    full, half = (100_000, 1_000_000), (50_000, 500_000)
    ours, ours_half = memory.measure("walkwise", *full), memory.measure("walkwise", *half)
    plain = memory.measure("plain", *full)

    def growth(record: dict[str, float]) -> float:
        return record["peak"] - record["baseline"]

    def row(compared: str, top: float, bottom: float, goal: float | None, note: str) -> Row:
        ratio = top / bottom
        return Row("memory", "100k nodes, 1M edges", compared, ratio, ratio, ratio, ratio, 1, goal, note)

    stages = f"imports {ours['baseline'] / GIB:.2f}, traced {ours['traced'] / GIB:.2f}, peak {ours['peak'] / GIB:.2f}"
    yield row("peak growth, trace + 1000 × 20 nodes / 4 GiB", growth(ours), 4 * GIB, 1.0, stages + " GiB")
    note = f"growth {growth(ours) / GIB:.2f} / {growth(ours_half) / GIB:.2f} GiB"
    yield row("peak growth / half the graph", growth(ours), growth(ours_half), 2.2, note)
    note = f"growth {growth(ours) / GIB:.2f} / {growth(plain) / GIB:.2f} GiB"
    yield row("peak growth / forward+backward", growth(ours), growth(plain), None, note)


def growth(seconds: float) -> Iterator[Row]:
    """The same questions of larger graphs of the same degree, against 1000 nodes; messages are kept beforehand."""
    cases = {M: three_regular(M) for M in (1_000, 10_000, 100_000)}
    chains = {M: _trace(case) for M, case in cases.items()}
    questions: dict[str, Callable[[ww.RelevanceChain, list[list[int]]], object]] = {
        "alpha = 0": ww.subgraph_relevance,
        "alpha = 0.3": lambda chain, subgraphs: ww.subgraph_relevance(chain, subgraphs, alpha=0.3),
        "polynomial": ww.subgraph_polynomial,
    }
    for count in (1, 1000):
        asked = {M: connected_subgraphs(case, count, 5) for M, case in cases.items()}
        for (name, ask), M in product(questions.items(), (10_000, 100_000)):
            ratio = compare(
                lambda ask=ask, M=M, asked=asked: ask(chains[M], asked[M]),
                lambda ask=ask, asked=asked: ask(chains[1_000], asked[1_000]),
                seconds=seconds,
            )
            yield Row.timed("growth", f"{M} / 1000 nodes", f"{name}, {count} of 5 nodes", ratio, 2.0)


def goals(seconds: float) -> Iterator[Row]:
    """Walks and orders of a molecule and of a thousand, against forward and backward; one node of a large graph."""
    one, many = mutag(), batched(mutag(), 1000)
    each: dict[str, Callable[[Case], object]] = {
        "trace + node relevance": lambda case: ww.node_relevance(_trace(case)),
        "trace + top 10 walks": lambda case: ww.top_walks(_trace(case), 10, graphs=case.batch),
        "trace + order": lambda case: ww.order_nodes(_trace(case), graphs=case.batch),
    }
    chain = _trace(one)
    ratio = compare(lambda: ww.top_walks(chain.to(chain.dtype), 10), one.forward_backward, seconds=seconds)
    yield Row.timed("goals", one.name, "top 10 walks / forward+backward", ratio, 2.0)
    for (name, ask), goal in zip(each.items(), (1.0, 5.0, 5.0), strict=True):
        ratio = compare(lambda ask=ask: ask(many), many.forward_backward, seconds=seconds)
        yield Row.timed("goals", many.name, f"{name} / forward+backward", ratio, goal)
    graphs, model = [random_graph(M, 5 * M) for M in (1_000_000, 10_000)], GIN(16, 64, 3, 2).eval()

    def explain(case: Case, turn: Iterator[int]) -> object:
        return ww.trace(model, case.x, case.edge_index, index=next(turn), target=0)

    turns = [cycle(range(100, 200)) for _ in graphs]
    ratio = compare(lambda: explain(graphs[0], turns[0]), lambda: explain(graphs[1], turns[1]), seconds=seconds)
    yield Row.timed("goals", "1M / 10 000 nodes", "trace one node, GIN-3/64, graph known", ratio, 2.0)


GROUPS: dict[str, Callable[[float], Iterator[Row]]] = {
    "goals": goals,
    "trace": trace,
    "batch": batch,
    "polynomial": polynomial,
    "depth": depth,
    "growth": growth,
    "memory": large,
    "floor": floor,
    "slow": slow_ways,
}


# -- the table ----------------------------------------------------------------------------------------------------


def header() -> dict[str, object]:
    """What the numbers depend on."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": [round(load, 2) for load in os.getloadavg()],
    }


def _show(row: Row) -> str:
    met = {None: "", True: "met", False: "MISSED"}[row.met]
    goal = "" if row.goal is None else f"<= {row.goal:g}"
    spread = "" if row.rounds == 1 else f"{_number(row.low)}-{_number(row.high)}"
    best = "" if row.rounds == 1 else _number(row.best)
    return (
        f"{row.case:29} {row.compared:49} {_number(row.ratio):>7} {spread:>15} {best:>7} {goal:>8} {met:6}  {row.note}"
    )


def _number(value: float) -> str:
    return f"{value:.5f}" if value < 0.1 else f"{value:.3f}" if value < 10 else f"{value:.1f}"


def _seconds(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time walkwise against the models it explains, in ratios.")
    parser.add_argument("--only", choices=sorted(GROUPS), help="just one group of measurements")
    parser.add_argument("--quick", action="store_true", help="a rough look: few rounds, and no memory unless asked for")
    parser.add_argument(
        "--threads",
        type=int,
        help="torch's threads (default: torch's own); 1 counts processor time, for a busy machine",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows here")
    return parser.parse_args()


def main() -> None:
    arguments = _arguments()
    names = [arguments.only] if arguments.only else [n for n in GROUPS if not (arguments.quick and n == "memory")]
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    about = header()
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    print("Medians of paired ratios, their quartiles, and the ratio of the fastest turns (as on a quiet machine).")
    print("The times at the right are only for scale.\n")
    print(f"{'case':29} {'compared':49} {'ratio':>7} {'quartiles':>15} {'best':>7} {'goal':>8}")
    begun, rows = time.perf_counter(), []
    for name in names:
        for row in GROUPS[name](0.3 if arguments.quick else 3.0):
            rows.append(row)
            print(_show(row), flush=True)
    judged = [row.met for row in rows if row.met is not None]
    print(f"\n{sum(judged)} of {len(judged)} goals met, in {time.perf_counter() - begun:.0f} s.")
    if arguments.json:
        table = [asdict(row) | {"met": row.met} for row in rows]
        arguments.json.write_text(json.dumps({"header": about, "rows": table}, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""What an accelerator answers in a second, and how often a question waits for it.

python benchmarks/gpu.py [--device cuda] [--only GROUP] [--small]

Random sets of five nodes, given as a table (B, 5) on the device; a batch of molecules; one node of a large graph. The
graphs and models are those of cases.py. A synchronising call is one during which the processor waits for the device;
they are counted by torch itself. Not counted is that a question about ids on the device reads, when all its work is
queued, whether they were sound.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import replace

import torch
from cases import TARGET, Case, ba2motif, batched, mutag, random_graph, reddit
from torch_geometric.nn import GIN

import walkwise as ww

#: Group names, what is printed before them, and what they measure.
GROUPS: dict[str, Callable[[str, int], None]] = {}


def group(measure: Callable[[str, int], None]) -> Callable[[str, int], None]:
    """A group of measurements, by its name."""
    GROUPS[measure.__name__] = measure
    return measure


def sets(case: Case, count: int, size: int = 5) -> torch.Tensor:
    """Sets of different nodes drawn at random.  # (B, S)"""
    keys = torch.rand(count, len(case.x), device=case.x.device)
    return keys.topk(size, dim=1).indices


def on(device: str, case: Case) -> Case:
    """The case on a device."""
    batch = None if case.batch is None else case.batch.to(device)
    return replace(
        case, model=case.model.to(device), x=case.x.to(device), edge_index=case.edge_index.to(device), batch=batch
    )


def seconds(call: Callable[[], object], repeats: int = 5) -> float:
    """The fastest of a few calls after the first, waiting for the device."""
    times = []
    for _ in range(repeats + 1):
        _wait()
        begun = time.perf_counter()
        call()
        _wait()
        times.append(time.perf_counter() - begun)
    return min(times[1:])


def waits(call: Callable[[], object]) -> int | None:
    """How often a call makes the processor wait for the device; None where there is none."""
    if not torch.cuda.is_available():
        return None
    call()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            call()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing" in str(warning.message) for warning in seen)


def show(what: str, call: Callable[[], object], *, beside: float | None = None, goal: str = "") -> float:
    """Print how long a call takes, how often it waits, and its ratio to something else; returns the seconds."""
    took, count = seconds(call), waits(call)
    ratio = "" if beside is None else f"{took / beside:8.2f} x"
    waited = "" if count is None else f"{count:4} waits"
    print(f"  {what:58} {took * 1e3:10.2f} ms {ratio:11} {waited:11} {goal}", flush=True)
    return took


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@group
def subgraphs(device: str, part: int) -> None:
    """Subgraphs a second."""
    rows = [
        (mutag(), 100_000, 0.0), (mutag(), 1_000_000, 0.0), (ba2motif(3), 200_000, 0.0), (ba2motif(3), 1_000_000, 0.0),
        (mutag(), 100_000, 0.3), (ba2motif(3), 200_000, 0.3), (reddit(3), 100_000, 0.0), (reddit(3), 20_000, 0.3),
    ]  # fmt: skip
    for case, count, alpha in rows:
        moved, count = on(device, case), count // part
        chain = ww.trace(moved.model, moved.x, moved.edge_index, target=TARGET)
        table = sets(moved, count)
        _rate(f"{case.name:24} α = {alpha:<4}", chain, table, alpha)
        if count == rows[0][1] // part and not alpha:
            offsets = torch.arange(count + 1, device=table.device) * table.shape[1]
            _rate("  and as (ids, offsets)", chain, (table.flatten(), offsets), alpha)
            _rate("  and as lists", chain, table.tolist(), alpha)
    chain = ww.trace(moved.model, moved.x, moved.edge_index, target=TARGET)
    for alpha in (0.0, 0.3):
        _rate(f"{case.name:24} α = {alpha:<4}", chain, [[0, 1, 2, 3, 4]], alpha)


def _rate(what: str, chain: ww.RelevanceChain, given: object, alpha: float) -> None:
    """Print how many subgraphs are answered in a second."""

    def ask() -> torch.Tensor:
        return ww.subgraph_relevance(chain, given, alpha=alpha)

    took, count, waited = seconds(ask), len(ask()), waits(ask)
    rate, told = count / took / 1e6, "" if waited is None else f"{waited:4} waits"
    print(f"  {what:35} {count:>9,} {took * 1e3:9.2f} ms {rate:8.2f} M/s {told}", flush=True)


@group
def molecules(device: str, part: int) -> None:
    """Batches of molecules: a trace and what is asked of it, against a forward and backward pass."""
    for count in (10_000 // part, 1_000 // part):
        case = on(device, batched(mutag(), count))
        print(f"  {count:,} molecules")
        beside = show("forward and backward", case.forward_backward)

        def trace(case: Case = case) -> ww.RelevanceChain:
            return ww.trace(case.model, case.x, case.edge_index, batch=case.batch, target=TARGET)

        chain = trace()
        show("trace", trace, beside=beside)
        show("node relevance", lambda chain=chain: ww.node_relevance(chain), beside=beside)
        goal = "goal: 30 ms" if count == 10_000 else "goal: 1 x" if count == 1_000 else ""
        show("trace and node relevance", lambda trace=trace: ww.node_relevance(trace()), beside=beside, goal=goal)
        if count <= 1_000:
            graphs = case.batch
            show("trace and ten walks each", lambda t=trace, g=graphs: ww.top_walks(t(), 10, graphs=g), beside=beside)
            show("trace and an order each", lambda t=trace, g=graphs: ww.order_nodes(t(), graphs=g), beside=beside)


@group
def one_graph(device: str, part: int) -> None:
    """Ten walks and an order of one graph; 430 nodes have too many walks for a table."""
    for case in (mutag(), reddit(3)):
        moved = on(device, case)
        print(f"  {case.name}")
        beside = show("forward and backward", moved.forward_backward)

        def trace(case: Case = moved) -> ww.RelevanceChain:
            return ww.trace(case.model, case.x, case.edge_index, target=TARGET)

        show("trace and one subgraph", lambda t=trace: ww.subgraph_relevance(t(), [[0, 1, 2, 3, 4]]), beside=beside)
        show("ten walks of a new chain", lambda t=trace: ww.top_walks(t(), 10), beside=beside)
        show("an order of a new chain", lambda t=trace: ww.order_nodes(t()), beside=beside)


@group
def one_node(device: str, part: int) -> None:
    """One node of a large graph, and a thousand."""
    for M in (10_000, 1_000_000 // part):
        case = on(device, random_graph(M, 5 * M))
        model = GIN(16, 64, 3, 2).eval().to(device)  # without a sum over nodes

        def trace(index: object = 7, case: Case = case, model: object = model) -> ww.RelevanceChain:
            return ww.trace(model, case.x, case.edge_index, index=index, target=0)

        print(f"  {M:,} nodes")
        trace()
        show("trace and node relevance, one node", lambda t=trace: ww.node_relevance(t()))
        show("trace, 1000 nodes", lambda t=trace: t(range(1000)))


def main() -> None:
    """A line per question."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true", help="a hundredth of everything")
    parser.add_argument("--only", choices=sorted(GROUPS), help="just one group")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    name = torch.cuda.get_device_name() if asked.device.startswith("cuda") else "processor"
    print(f"{name}, torch {torch.__version__}")
    for measure in [GROUPS[asked.only]] if asked.only else GROUPS.values():
        print(measure.__doc__)
        measure(asked.device, 100 if asked.small else 1)


if __name__ == "__main__":
    main()

"""Whole data sets: the rate of a run beside that of the bare loop over batches, its memory, and runs that are killed.

python benchmarks/runs.py rate --graphs 100000 --workers 2    # a run, the same graphs in a bare loop, memory over time
python benchmarks/runs.py kills --count 50                    # kills at random moments, then row by row
python benchmarks/runs.py cards --graphs 20000                # workers of a graphics card beside those of the processor
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch_geometric.data import Batch

import walkwise as ww
from walkwise import models, runs
from walkwise.datasets.graphset import Graphs, offsets
from walkwise.runs.folder import finished

ASKED = ["nodes", "order:0.1", "walks:10"]


def molecules(count: int, *, seed: int = 0) -> Graphs:
    """Random trees with some rings, of the size of molecules, in a few tensors: 10 to 25 atoms."""
    chance = np.random.default_rng(seed)
    sizes = chance.integers(10, 26, count)
    before = offsets(torch.from_numpy(sizes))
    edges, edge_counts = [], []
    for n, start in zip(sizes.tolist(), before.tolist(), strict=False):
        child = np.arange(1, n)
        parent = child - chance.integers(1, np.minimum(child, 4) + 1)
        ring = chance.integers(0, n - 5, n // 8)
        pairs = np.unique(np.concatenate([np.stack([parent, child]), np.stack([ring, ring + 5])], axis=1), axis=1)
        edges.append(np.concatenate([pairs, pairs[::-1]], axis=1) + start)
        edge_counts.append(edges[-1].shape[1])
    kinds = chance.choice(7, int(sizes.sum()), p=[0.7, 0.1, 0.1, 0.02, 0.02, 0.04, 0.02])
    return Graphs(
        torch.eye(7)[torch.from_numpy(kinds)],
        torch.from_numpy(np.concatenate(edges, axis=1)),
        torch.from_numpy(chance.integers(0, 2, count)),
        before,
        offsets(torch.tensor(edge_counts)),
    )


def bare_loop(model: torch.nn.Module, graphs: Graphs, batch: int = 128) -> float:
    """Graphs a second, in one process, without tables, files or anything else."""
    begun = time.perf_counter()
    for first in range(0, len(graphs), batch):
        data = Batch.from_data_list(graphs[first : first + batch])
        chain = ww.trace(model, data)
        ww.node_relevance(chain, layer="start")
        ww.order_nodes(chain, alpha=0.1, graphs=data.batch)
        ww.top_walks(chain, 10, graphs=data.batch)
    return len(graphs) / (time.perf_counter() - begun)


def bare_loops(model: torch.nn.Module, graphs: Graphs, workers: int) -> float:
    """Graphs a second of this many bare loops side by side, which share the cores as the workers of a run do."""
    begun, children = time.perf_counter(), []
    for _ in range(workers):
        child = os.fork()
        if child == 0:
            bare_loop(model, graphs)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    return workers * len(graphs) / (time.perf_counter() - begun)


def resident(pid: int) -> dict[int, float]:
    """Memory of a process and of each of its children, in MB; what several share is divided among them."""
    used = {}
    for one in [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]:
        for line in Path(f"/proc/{one}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                used[one] = int(line.split()[1]) / 1024
    return used


def print_memory(seen: list[tuple[float, dict[int, float]]]) -> None:
    """The most that all processes together, and each of them, had in every tenth of the time."""
    names = {
        pid: f"worker {i}" if i else "writer" for i, pid in enumerate(sorted({p for _, used in seen for p in used}))
    }
    print("memory (MB) | all | " + " | ".join(names.values()))
    for tenth in np.array_split(np.arange(len(seen)), 10):
        some = [seen[i] for i in tenth]
        if some:
            each = [f"{max(used.get(pid, 0.0) for _, used in some):.0f}" for pid in names]
            whole = max(sum(used.values()) for _, used in some)
            print(f"to {some[-1][0]:.0f} s | {whole:.0f} | {' | '.join(each)}", flush=True)


def rate(count: int, workers: int, sample: int, out: Path | None) -> None:
    """A run, beside bare loops over the first of its graphs."""
    torch.set_num_threads(1)
    model, graphs = models.bundled("mutag").requires_grad_(False), molecules(count)
    some = molecules(sample)
    bare_loop(model, molecules(500))  # warm
    for number in sorted({1, workers}):
        print(f"bare loop, {number} at a time: {bare_loops(model, some, number):.0f} graphs a second", flush=True)
    memory: list[tuple[float, dict[int, float]]] = []
    done = threading.Event()

    def look() -> None:
        begun = time.perf_counter()
        while not done.wait(2):
            try:
                memory.append((time.perf_counter() - begun, resident(os.getpid())))
            except OSError:
                continue

    with tempfile.TemporaryDirectory() as folder:
        threading.Thread(target=look, daemon=True).start()
        begun = time.perf_counter()
        made = runs.run(model, graphs, ASKED, out or Path(folder) / "run", workers=workers, progress=True)
        seconds = time.perf_counter() - begun
        done.set()
        size = sum(path.stat().st_size for path in made.folder.rglob("*.parquet"))
        print(f"{made.total:,} graphs in {seconds:.0f} s: {made.total / seconds:.0f} a second with {workers} workers")
        print(f"{size / made.total:.0f} bytes a graph on disk, {len(finished(made.folder))} shards")
    print_memory(memory)
    print(f"bare loop again, {workers} at a time: {bare_loops(model, some, workers):.0f} graphs a second")


def kills(count: int, graphs: int, workers: int) -> None:
    """Kills runs, and workers of runs, at random moments; then compares with an undisturbed run row by row."""
    torch.set_num_threads(1)
    model, data, chance = models.bundled("mutag").requires_grad_(False), molecules(graphs), random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        out, whole = Path(folder) / "out", Path(folder) / "whole"
        begun = time.perf_counter()
        undisturbed = runs.read(runs.run(model, data, ASKED, whole, workers=workers, batch=16))
        took = time.perf_counter() - begun
        killed = again = 0
        while killed < count:
            child = os.fork()
            if child == 0:
                try:
                    os.setsid()
                    runs.run(model, data, ASKED, out, workers=workers, batch=16)
                    os._exit(0)
                finally:
                    os._exit(1)
            time.sleep(chance.uniform(0, 0.35 * took))
            victims = [child, *map(int, Path(f"/proc/{child}/task/{child}/children").read_text().split())]
            os.kill(chance.choice(victims), signal.SIGKILL)
            killed += 1
            if os.getpgid(child) and chance.random() < 0.5:
                time.sleep(chance.uniform(0, 0.2 * took))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            if sum(last - first for first, last in finished(out)) == graphs:
                check(runs.read(out), undisturbed)
                shutil.rmtree(out)
                again += 1
        check(runs.read(runs.run(model, data, ASKED, out, workers=workers, batch=16)), undisturbed)
    rows = sum(map(len, undisturbed.values()))
    print(f"{killed} kills, {again + 1} runs finished in spite of them, {rows:,} rows each: all equal")


def cards(count: int, workers: list[int], batches: list[int], engine: str, types: list[str]) -> None:
    """Runs on the processor and on a graphics card: graphs a second, and rows that are the same but for rounding."""
    torch.set_num_threads(1)
    for dtype in (getattr(torch, name) for name in types):
        model, graphs = models.bundled("mutag").requires_grad_(False).to(dtype), molecules(count)
        graphs = replace(graphs, x=graphs.x.to(dtype))
        with tempfile.TemporaryDirectory() as folder:
            tables = timed(model, graphs, Path(folder) / "processor", os.cpu_count() or 1, 128, "cpu", "local")
            for number in workers:
                for batch in batches:
                    out = Path(folder) / f"card-{number}-{batch}"
                    differences(timed(model, graphs, out, number, batch, "cuda", engine), tables)


def timed(model: nn.Module, graphs: Graphs, out: Path, workers: int, batch: int, device: str, engine: str) -> dict:
    """The tables of a run, after a line about how long it took, and how long once its workers were there."""
    begun, where = time.perf_counter(), {} if engine == "ray" else {"device": device}
    made = runs.run(model, graphs, ASKED, out, engine=engine, workers=workers, batch=batch, progress=False, **where)
    seconds = time.perf_counter() - begun
    ends = sorted(path.stat().st_mtime for path in (out / "graphs").glob("*.parquet"))
    steady = (len(ends) - 1) / len(ends) * len(graphs) / max(1e-9, ends[-1] - ends[0])
    dtype = str(graphs.x.dtype).removeprefix("torch.")
    told = f"{seconds:6.1f} s, {len(graphs) / seconds:7.0f} graphs a second, {steady:7.0f} from the first shard on"
    print(f"{dtype} {device:5} {engine} {workers:2} workers, batches of {batch:4}: {told}", flush=True)
    return runs.read(made)


def differences(one: dict, other: dict) -> None:
    """How far two runs are apart, in a line."""
    graph, node, walk = (one[name].merge(other[name], on=keys) for name, keys in (
        ("graphs", "graph"), ("nodes", ["graph", "node"]), ("walks:10", ["graph", "rank"])
    ))  # fmt: skip
    apart = [
        float((table.relevance_x - table.relevance_y).abs().max() / table.relevance_y.abs().max())
        for table in (graph, node, walk)
    ]
    orders = one["order:0.1"].merge(other["order:0.1"], on="graph")
    same = [list(a) == list(b) for a, b in zip(orders.nodes_x, orders.nodes_y, strict=True)]
    failed = int(one["graphs"].error.notna().sum())
    print(
        f"    {len(graph):,} graphs, {failed} failed; relevance apart by {max(apart):.1e} of the largest; "
        f"{sum(same):,} of {len(same):,} orders equal; {len(walk):,} walks",
        flush=True,
    )


def check(one: dict, other: dict) -> None:
    """Stops where two runs differ in any row."""
    for name, table in one.items():
        if not table.equals(other[name]):
            sys.exit(f"the table {name} differs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["rate", "kills", "cards"])
    parser.add_argument("--graphs", type=int, default=None)
    parser.add_argument("--sample", type=int, default=4000)
    parser.add_argument("--workers", type=int, nargs="+", default=[2])
    parser.add_argument("--batch", type=int, nargs="+", default=[128])
    parser.add_argument("--engine", default="local")
    parser.add_argument("--types", nargs="+", default=["float64", "float32"])
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--out", type=Path, default=None, help="keep the run in this folder")
    given = parser.parse_args()
    if given.what == "rate":
        rate(given.graphs or 100_000, given.workers[0], given.sample, given.out)
    elif given.what == "kills":
        kills(given.count, given.graphs or 1200, given.workers[0])
    else:
        cards(given.graphs or 20_000, given.workers, given.batch, given.engine, given.types)


if __name__ == "__main__":
    main()

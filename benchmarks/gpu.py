"""How many subgraphs a second an accelerator answers: python benchmarks/gpu.py [--device cuda].

Random sets of five nodes, given as (ids, offsets). The graphs and models are those of cases.py.
"""

from __future__ import annotations

import argparse
import time
import warnings

import torch
from cases import TARGET, Case, ba2motif, mutag, reddit

import walkwise as ww


def sets(case: Case, count: int, size: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    """Sets of different nodes drawn at random: their ids one after the other, and where each begins."""
    keys = torch.rand(count, len(case.x), device=case.x.device)
    ids = keys.topk(size, dim=1).indices.sort(dim=1).values
    return ids.reshape(-1), torch.arange(count + 1, device=ids.device) * size


def seconds(call: object, repeats: int = 3) -> float:
    """The fastest of a few calls, waiting for the device."""
    times = []
    for _ in range(repeats):
        _wait()
        begun = time.perf_counter()
        call()  # type: ignore[operator]
        _wait()
        times.append(time.perf_counter() - begun)
    return min(times)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def main() -> None:
    """A line per question."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true", help="a hundredth of the subgraphs")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    part = 100 if asked.small else 1
    rows = [
        (mutag(), 100_000, 0.0), (mutag(), 1_000_000, 0.0), (ba2motif(3), 200_000, 0.0), (ba2motif(3), 1_000_000, 0.0),
        (mutag(), 100_000, 0.3), (ba2motif(3), 200_000, 0.3), (reddit(3), 100_000, 0.0), (reddit(3), 20_000, 0.3),
    ]  # fmt: skip
    for case, count, alpha in rows:
        model = case.model.to(asked.device)
        moved = Case(case.name, model, case.x.to(asked.device), case.edge_index.to(asked.device))
        chain = ww.trace(model, moved.x, moved.edge_index, target=TARGET)
        given = sets(moved, count // part)
        ww.subgraph_relevance(chain, given, alpha=alpha)
        took = seconds(lambda chain=chain, given=given, alpha=alpha: ww.subgraph_relevance(chain, given, alpha=alpha))
        rate = count // part / took / 1e6
        print(f"{case.name:24} α = {alpha:<4} {count // part:>9,} subgraphs  {took * 1e3:9.1f} ms  {rate:8.2f} M/s")


if __name__ == "__main__":
    main()

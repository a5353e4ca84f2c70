"""How fast greedy node orders are, side by side with a loop over single queries; top walks and Shapley values from a
table of all walks, side by side with a search and with walks asked for one by one.

python benchmarks/orders.py [--rounds N]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from cases import mutag, reddit
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GINConv, global_add_pool

import walkwise as ww
from walkwise.questions.steps import walk_steps
from walkwise.search.best_first import best_first_search
from walkwise.search.orders import order_nodes


class Classifier(nn.Module):
    """The paper's GIN-3: two blocks of two linear layers, one linear layer, a sum over nodes."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        widths = [features, width, width]
        blocks = [
            nn.Sequential(nn.Linear(before, after), nn.ReLU(), nn.Linear(after, after), nn.ReLU())
            for before, after in pairwise(widths)
        ]
        self.convs = nn.ModuleList(GINConv(block) for block in [*blocks, nn.Linear(width, 2)])
        for module in self.modules():
            if isinstance(module, nn.Linear):  # PyTorch's own start leaves most walks without relevance
                nn.init.kaiming_normal_(module.weight)
                nn.init.constant_(module.bias, -0.05)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index)
        return global_add_pool(x, batch)


@dataclass(frozen=True)
class Row:
    """One line of the table: the slow way over the fast one, median of paired rounds."""

    what: str
    ratio: float | None
    fast: float
    slow: float | None
    goal: str

    def show(self) -> str:
        ratio = "" if self.ratio is None else f"{self.ratio:.1f}x"
        slow = "" if self.slow is None else f"{self.slow * 1e3:.1f}"
        return f"{self.what:58} {ratio:>8} {self.fast * 1e3:>10.1f} {slow:>10}  {self.goal}"


def molecule(nodes: int, seed: int) -> Data:
    """A random tree with a few rings closed: as sparse as a molecule."""
    generator = torch.Generator().manual_seed(seed)
    child = torch.arange(1, nodes)
    parent = (torch.rand(nodes - 1, generator=generator) * 3).long().clamp(max=2)
    parent = (child - 1 - parent).clamp(min=0)
    rings = torch.randint(nodes, (2, 2), generator=generator)
    once = torch.cat([torch.stack([child, parent]), rings[:, rings[0] != rings[1]]], dim=1)
    x = nn.functional.one_hot(torch.randint(7, (nodes,), generator=generator), 7).float()
    return Data(x=x, edge_index=torch.cat([once, once.flip(0)], dim=1))


def large(nodes: int, edges: int) -> Data:
    """A random graph with this many undirected edges."""
    generator = torch.Generator().manual_seed(0)
    once = torch.randint(nodes, (2, edges), generator=generator)
    once = once[:, once[0] != once[1]]
    return Data(
        x=torch.randn(nodes, 7, generator=generator), edge_index=torch.cat([once, once.flip(0)], dim=1).unique(dim=1)
    )


def loop_order(chain: ww.RelevanceChain, mode: str, alpha: float) -> list[int]:
    """The definition, one query at a time."""
    rest, order, whole = set(range(chain.num_nodes)), [], chain.input_relevance
    while rest:
        score = {}
        for m in sorted(rest):
            asked = [*order, m] if mode == "activation" else sorted(rest - {m})
            relevance = float(ww.subgraph_relevance(chain, [asked], alpha=alpha))
            score[m] = relevance if mode == "activation" else -abs(relevance - whole)
        order.append(max(score, key=score.__getitem__))
        rest.remove(order[-1])
    return order


def first_order(chain: ww.RelevanceChain, mode: str, alpha: float) -> Tensor:
    """An order of a chain that nothing has been asked of before."""
    chain.memo.clear()
    return order_nodes(chain, mode=mode, alpha=alpha)


def first_answer(chain: ww.RelevanceChain, question: Callable[[ww.RelevanceChain], object]) -> object:
    """An answer of a chain that nothing has been asked of before."""
    chain.memo.clear()
    return question(chain)


def searched_walks(chain: ww.RelevanceChain) -> Tensor:
    """The ten best walks by best-first search, however few there are."""
    walks, _ = best_first_search(walk_steps(chain), 10, "relevance", 10**6)
    return ww.walk_relevance(chain, walks)


def shared_relevance(chain: ww.RelevanceChain) -> Tensor:
    """Shapley values from the relevance of single walks, each asked for by itself."""
    walks = ww.enumerate_walks(chain)
    relevance = ww.walk_relevance(chain, walks).double()
    values = torch.zeros(chain.num_nodes, dtype=torch.float64)
    for walk, share in zip(map(set, walks.tolist()), relevance.tolist(), strict=True):
        values[list(walk)] += share / len(walk)
    return values


def from_table(rounds: int) -> list[Row]:
    """Top walks and Shapley values where walks are few."""
    torch.manual_seed(0)
    molecules = [mutag(3), mutag(4)]
    chains = [(case.name, ww.trace(case.model, case.x, case.edge_index, target=1)) for case in molecules]
    big = large(1000, 2500)
    chains.append(("1000 nodes, GIN-3/64", ww.trace(Classifier(7, 64), big.x, big.edge_index, target=0)))
    table = []
    for name, chain in chains:
        best, values = ww.top_walks(chain, 10).relevance, ww.shapley_values(chain).values
        assert torch.allclose(best, searched_walks(chain).sort(descending=True).values, rtol=1e-5)
        assert np.allclose(values, shared_relevance(chain), rtol=0, atol=1e-5 * float(values.abs().max()))
        for what, fast, slow in (
            ("top 10 walks, search", lambda c: ww.top_walks(c, 10), searched_walks),
            ("Shapley values, walk by walk", ww.shapley_values, shared_relevance),
        ):
            ask = lambda question, chain=chain: lambda: first_answer(chain, question)  # noqa: E731
            table.append(compared(f"{name}: {what} / table", ask(fast), ask(slow), max(1, rounds // 5), "> 1x"))
    return table


def timed(call: Callable[[], object]) -> float:
    """Seconds of processor time: what other programs on the machine disturb least."""
    begun = time.process_time()
    call()
    return time.process_time() - begun


def compared(what: str, fast: Callable[[], object], slow: Callable[[], object], rounds: int, goal: str) -> Row:
    """Both in turn, so that each ratio is of neighbours in time."""
    fast(), slow()
    pairs = [(timed(lambda: [fast() for _ in range(5)]) / 5, timed(slow)) for _ in range(rounds)]
    ratio = statistics.median(s / f for f, s in pairs)
    medians = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Row(what, ratio, *medians, goal)


def rows(rounds: int) -> list[Row]:
    """Everything that is measured."""
    torch.manual_seed(0)
    model, data = Classifier(7, 128), molecule(18, seed=1)
    chain = ww.trace(model, data.x, data.edge_index, target=0)
    table = []
    for mode in ("activation", "pruning"):
        for alpha in (0.0, 0.5):
            what = f"18 nodes, GIN-3 width 128, {mode}, alpha = {alpha}"
            fast = lambda mode=mode, alpha=alpha: first_order(chain, mode, alpha)  # noqa: E731
            again = lambda mode=mode, alpha=alpha: order_nodes(chain, mode=mode, alpha=alpha)  # noqa: E731
            slow = lambda mode=mode, alpha=alpha: loop_order(chain, mode, alpha)  # noqa: E731
            table.append(compared(what, fast, slow, rounds, ">= 30x"))
            table.append(compared("  a further order of the same chain", again, slow, rounds, ">= 30x"))
    alphas = [i / 20 for i in range(21)]
    slow = lambda: [loop_order(chain, "pruning", alpha) for alpha in alphas]  # noqa: E731
    fast = lambda: order_nodes(chain, mode="pruning", alpha=alphas)  # noqa: E731
    table.append(compared("the same, pruning, 21 alphas", fast, slow, max(1, rounds // 10), ">= 30x"))
    batch = Batch.from_data_list([molecule(10 + i % 19, seed=i) for i in range(188)])
    many = ww.trace(model, batch.x, batch.edge_index, batch=batch.batch, target=[0] * 188)
    for mode in ("activation", "pruning"):
        seconds = timed(lambda mode=mode: order_nodes(many, mode=mode, alpha=alphas, graphs=batch.batch))
        table.append(Row(f"188 graphs of 10-28 nodes, {mode}, 21 alphas", None, seconds, None, "< 60 s"))
    for edges, width in ((2500, 64), (10_000, 128)):
        big = large(1000, edges)
        chain = ww.trace(Classifier(7, width), big.x, big.edge_index, target=0)
        for mode in ("activation", "pruning"):
            seconds = timed(lambda mode=mode, chain=chain: first_order(chain, mode, 0.0))
            table.append(Row(f"1000 nodes, {edges} edges, GIN-3 width {width}, {mode}", None, seconds, None, "seconds"))
    hub = reddit()
    chain = ww.trace(hub.model, hub.x, hub.edge_index, target=1)
    seconds = timed(lambda chain=chain: first_order(chain, "activation", 0.0))
    table.append(Row("430 nodes around hubs, GIN-5 width 64, activation", None, seconds, None, ""))
    return [*table, *from_table(rounds)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Time greedy node orders.")
    parser.add_argument("--rounds", type=int, default=10)
    torch.set_num_threads(1)  # queries this small gain nothing from more, and processor time stays comparable
    print(f"{'what':58} {'ratio':>8} {'fast, ms':>10} {'slow, ms':>10}  goal")
    for row in rows(parser.parse_args().rounds):
        print(row.show())


if __name__ == "__main__":
    main()

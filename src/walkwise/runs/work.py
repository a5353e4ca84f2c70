"""The work of every worker in a run: batches of graphs in, the rows of every table out, as Parquet."""

from __future__ import annotations

import contextlib
import io
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import torch
from pyarrow import parquet
from torch import Tensor, nn

from walkwise.errors import InputError, WalkwiseError
from walkwise.evaluation.predictions import predict
from walkwise.evaluation.renumbering import ByNumbers
from walkwise.rules import RuleLike
from walkwise.runs.answers import Layout, answer, failed_row, graph_rows, schema_of
from walkwise.runs.batches import side_by_side
from walkwise.runs.cards import CardLostError, check_card, seat
from walkwise.runs.explained import ExplainedBatch, explain, model_outputs
from walkwise.runs.node_sources import NodesOf, wider
from walkwise.runs.questions import ON_PARTS, Question
from walkwise.runs.sources import Items, Source
from walkwise.tracing import trace
from walkwise.tracing.given.target import OtherNodeError

#: Of so many nodes it is looked at whether they have the rows of the output that they are taken for.
_ROOTS = 4
_BY_TYPE = "one that returns rows by type, {type: rows}, those of one type, or those of all types in the graph's order"
#: The most nodes that are traced together, of however many graphs.
_MOST_NODES = 20_000

#: A shard is handed back after this many seconds, so that no more is lost when a worker dies.
_SECONDS = 30.0


@dataclass(frozen=True)
class Shard:
    """The rows of some consecutive graphs: every table as a Parquet file."""

    first: int
    last: int
    tables: dict[str, bytes]
    failed: int
    seconds: float = 0.0


@dataclass(eq=False)
class Work:
    """A model, graphs, and what is asked about them: all that a worker needs.

    Args:
        model: the model, which runs in evaluation mode; in main memory until a worker settles.
        source: the graphs.
        questions: what is asked.
        target: what is explained of the output.
        rule: the LRP rule.
        batch: how many graphs are traced together.
        seed: of models that draw random numbers.
        device: where to compute.
    """

    model: nn.Module
    source: Source
    questions: tuple[Question, ...]
    target: int | str
    rule: RuleLike
    batch: int
    seed: int = 0
    device: str = "cpu"
    hopeful: bool = field(default=False, init=False)  # whether any graph has been explained
    alone: bool | None = field(default=None, init=False)  # whether graphs must be traced one by one; None: not known
    by_numbers: ByNumbers | None = field(default=None, init=False)  # why parts of graphs cannot be asked about
    numbers_known: bool = field(default=False, init=False)  # whether that has been looked at
    other_rows: InputError | None = field(default=None, init=False)  # why rows of the output are not those of nodes
    rows_known: bool = field(default=False, init=False)  # whether that has been looked at

    @property
    def indexed(self) -> bool:
        """Whether single nodes are explained."""
        return isinstance(self.source, NodesOf)

    @property
    def layout(self) -> Layout:
        """What all tables have besides their own columns."""
        return Layout(self.indexed, self.source.typed)

    def settle(self, number: int = 0, crew: int = 1) -> None:
        """Takes the model to where one of several workers computes, in its own process.

        Args:
            number: which worker it is, from 0.
            crew: how many there are.
        """
        device = seat(self.device, number, crew)
        self.model, self.device = self.model.to(device), str(device)

    def shard(self, first: int, last: int, *, stop: Callable[[], bool] = lambda: False) -> Shard:
        """The rows of graphs ``first`` to before ``last``, or of fewer where it is time to stop.

        Batches begin at multiples of ``batch``, so that the same graphs are traced together whoever begins where.

        Args:
            first: the first graph.
            last: the one after the last.
            stop: whether to stop after the batch under way.
        """
        begun, parts = time.monotonic(), list[dict[str, pa.Table]]()
        at = first
        while at < last and not (parts and (stop() or time.monotonic() - begun > _SECONDS)):
            end = min(last, (at // self.batch + 1) * self.batch)
            made = self._answered(at, end)
            at, parts = end, parts + made
            self.hopeful |= any(part["graphs"]["error"].null_count for part in made)
            if not self.hopeful:
                break  # all of the first batch failed: is it worth going on?
        tables = {name: pa.concat_tables([part[name] for part in parts if name in part]) for name in self._empty}
        failed = len(tables["graphs"]) - tables["graphs"]["error"].null_count
        encoded = {name: encode(table) for name, table in tables.items()}
        return Shard(first, at, encoded, failed, time.monotonic() - begun)

    def lost(self, item: int, why: str) -> Shard:
        """The shard of one graph whose worker died every time."""
        part = self._empty | {
            "graphs": failed_row(self.source.keys(item, item + 1), self.source.name(item), why, self.layout)
        }
        return Shard(item, item + 1, {name: encode(table) for name, table in part.items()}, 1)

    @property
    def folders(self) -> list[str]:
        """The folders that tables go to."""
        return ["graphs", *(question.folder for question in self.questions)]

    @property
    def _empty(self) -> dict[str, pa.Table]:
        """Every table without rows, by the folder it goes to."""
        kinds = {"graphs": "graphs"} | {question.folder: question.kind for question in self.questions}
        return {name: schema_of(kind, self.layout).empty_table() for name, kind in kinds.items()}

    def _answered(self, first: int, last: int) -> list[dict[str, pa.Table]]:
        """The tables of a batch; where it fails, of its halves, down to the graph that is to blame."""
        if last - first > 1 and self.alone:
            return [part for item in range(first, last) for part in self._answered(item, item + 1)]
        try:
            return list(self._tables(first, last))
        except CardLostError:
            raise
        except Exception as error:  # of the user's model, or of data that do not fit it
            check_card(self.device)
            if last - first == 1:
                keys, name = self.source.keys(first, last), self.source.name(first)
                return [self._empty | {"graphs": failed_row(keys, name, _said(error), self.layout)}]
            middle = (first + last) // 2
            return self._answered(first, middle) + self._answered(middle, last)

    def _tables(self, first: int, last: int) -> Iterator[dict[str, pa.Table]]:
        items, keys = self.source.items(first, last), self.source.keys(first, last)
        for cut in _cuts(items):
            some = _some(items, cut)
            self._check_numbers(some)
            self._check_rows(some)
            batch = self._explained(some, first + cut.start)
            here = {name: key[cut] for name, key in keys.items()}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = {q.folder: answer(q, batch, here, self.layout) for q in self.questions}
            yield {"graphs": graph_rows(batch, here, some.names, self.layout)} | made

    def _explained(self, items: Items, first: int) -> ExplainedBatch:
        torch.manual_seed(self.seed)
        names = self.source.node_names
        options: dict[str, Any] = {
            "target": self.target,
            "rule": self.rule,
            "device": self.device,
            "types": items.types,
        }
        made = explain(self.model, items.graphs, roots=items.roots, ids=items.ids, node_names=names, **options)
        if self.indexed:
            return self._wide_enough(made, first, len(items.graphs))
        if self.alone is None and len(items.graphs) > 1:
            self.alone = self._mixes(made, items)
            if self.alone:
                raise WalkwiseError(
                    "The model's output for a graph depends on the others in its batch.",
                    argument="model",
                    expected="a model that keeps the graphs of a batch separate",
                )
        return made

    def _check_numbers(self, items: Items) -> None:
        """Refuse to ask about parts of graphs what goes by the numbers of nodes: seen once, on one of the first."""
        if not self.numbers_known and any(question.kind in ON_PARTS for question in self.questions):
            largest = max(range(len(items.graphs)), key=lambda i: int(items.graphs[i].num_nodes or 0))
            root = None if items.roots is None else items.roots[largest]
            with contextlib.suppress(WalkwiseError):  # of what cannot be predicted alone, the answers tell
                graph = side_by_side([items.graphs[largest]]).to(self.device)
                self.by_numbers = predict(self.model, graph, index=root).by_numbers
            self.numbers_known = True
        if self.by_numbers is not None:
            raise self.by_numbers.error

    def _check_rows(self, items: Items) -> None:
        """Refuse a model whose output has its rows in another order than the nodes: seen once, on some of the first."""
        roots, self.rows_known = None if self.rows_known else items.roots, True
        for graph, root in zip(items.graphs[:_ROOTS], roots or (), strict=False):
            if not isinstance(root, tuple):
                continue
            with contextlib.suppress(WalkwiseError), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    trace(self.model, side_by_side([graph]).to(self.device), index=root)
                except OtherNodeError as error:
                    self.other_rows = InputError(error.problem, argument="model", expected=_BY_TYPE, got=root)
        if self.other_rows is not None:
            raise self.other_rows

    def _mixes(self, made: ExplainedBatch, items: Items) -> bool:
        """Whether a graph comes out otherwise alone than in its batch."""
        single = explain(self.model, items.graphs[:1], target=self.target, rule=self.rule, device=self.device)
        return not _close(single.outputs, made.outputs[:1])

    def _wide_enough(self, made: ExplainedBatch, first: int, count: int) -> ExplainedBatch:
        """The nodes explained in as much of the graph around them as their outputs depend on."""
        source = self.source
        assert isinstance(source, NodesOf)
        if "whole" not in self.__dict__:
            whole = source.data.clone().to(self.device)
            types, nodes = source.types, source.nodes
            rows: Any = torch.from_numpy(nodes) if types is None else [types.named(int(node)) for node in nodes]
            self.__dict__["whole"] = model_outputs(self.model, whole, rows).cpu()
        truth = self.__dict__["whole"][first : first + count]
        if _close(made.outputs.cpu(), truth):
            return made
        more = wider(source)
        if more is None:
            raise InputError(
                "The model's output for this node depends on more than its neighbourhood.",
                argument="model",
                expected="a model whose outputs depend only on neighbourhoods",
            )
        self.source = more
        return self._explained(more.items(first, first + count), first)


def encode(table: pa.Table) -> bytes:
    """A table as the bytes of a Parquet file."""
    sink = io.BytesIO()
    parquet.write_table(table, sink, compression="zstd", write_page_checksum=True)
    return sink.getvalue()


def joined(shards: list[Shard], first: int) -> Shard:
    """Shards that follow each other from a graph on, as one.

    Args:
        shards: in any order; those after a gap are left out.
        first: the first graph.
    """
    last, some = first, list[Shard]()
    for shard in sorted(shards, key=lambda shard: shard.first):
        if shard.first == last:
            last, some = shard.last, [*some, shard]
    names = some[0].tables if some else []
    tables = {name: [parquet.read_table(io.BytesIO(shard.tables[name])) for shard in some] for name in names}
    encoded = {name: encode(pa.concat_tables(parts)) for name, parts in tables.items()}
    return Shard(first, last, encoded, sum(shard.failed for shard in some), sum(shard.seconds for shard in some))


def _close(one: Tensor, other: Tensor) -> bool:
    """Whether outputs are equal but for rounding."""
    apart = {torch.float64: 1e-9, torch.float32: 3e-5}.get(other.dtype, 2e-2)
    return one.shape == other.shape and bool(((one - other).abs() <= apart * other.abs().max()).all())


def _cuts(items: Items) -> Iterator[slice]:
    """Consecutive items that are not too large together."""
    sizes = [int(graph.num_nodes or 0) for graph in items.graphs]
    first, nodes = 0, 0
    for i, size in enumerate(sizes):
        if i > first and nodes + size > _MOST_NODES:
            yield slice(first, i)
            first, nodes = i, 0
        nodes += size
    yield slice(first, len(sizes))


def _some(items: Items, cut: slice) -> Items:
    return replace(
        items,
        graphs=items.graphs[cut],
        names=items.names[cut],
        roots=None if items.roots is None else items.roots[cut],
        ids=None if items.ids is None else items.ids[cut],
    )


def _said(error: BaseException) -> str:
    """An error in one line."""
    words = " ".join(str(error).split())[:500]
    return words if isinstance(error, WalkwiseError) and words else f"{type(error).__name__}: {words}".rstrip(": ")


def batch_ranges(done: list[tuple[int, int]], total: int, size: int, batch: int) -> Iterator[tuple[int, int]]:
    """What is left to do, in pieces of about a size that end where batches do.

    Args:
        done: the ranges that are done, ascending.
        total: how many there are.
        size: how many a piece has at most.
        batch: where pieces end.

    >>> list(batch_ranges([(0, 4), (9, 10)], 12, size=4, batch=2))
    [(4, 8), (8, 9), (10, 12)]
    """
    step = max(batch, size // batch * batch)
    gaps = zip([0, *(last for _, last in done)], [*(first for first, _ in done), total], strict=True)
    for first, last in gaps:
        while first < last:
            end = min(last, (first // batch) * batch + step)
            yield first, end
            first = end

"""The run itself: the work that is left, the engine that does it, and writing shards as they arrive."""

from __future__ import annotations

import io
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import parquet
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from walkwise.errors import InputError, as_count
from walkwise.files import as_path
from walkwise.rules import RuleLike, as_schedule
from walkwise.runs.cards import as_place, on_processor, workers_by_default
from walkwise.runs.folder import Run, finished, locked, manifest_in, open_run, prepare, write
from walkwise.runs.local import Died, Job, Outcome, after_death, local
from walkwise.runs.manifest import check_same, manifest_of
from walkwise.runs.node_sources import nodes_of
from walkwise.runs.questions import as_questions
from walkwise.runs.sources import as_source
from walkwise.runs.work import Shard, Work, batch_ranges

#: Graphs that are traced together, on the processor and on a graphics card, unless the caller says otherwise.
BATCH, BATCH_ON_CARD = 128, 1024

#: Graphs that make a shard.
SHARD = 2048

ENGINES = ("local", "ray")


def run(
    model: nn.Module,
    graphs: Any,
    questions: Iterable[str] | str,
    out: str | Path,
    *,
    engine: str = "local",
    workers: int | None = None,
    batch: int | None = None,
    target: int | str = "predicted",
    rule: RuleLike = "auto",
    index: Any = None,
    seed: int = 0,
    device: str | None = None,
    address: str | None = None,
    featurise: Callable[[str], Any] | None = None,
    progress: bool | None = None,
    model_name: str | None = None,
    data_name: str | None = None,
    command: str | None = None,
) -> Run:
    """Explains every graph of a data set and writes the answers to a folder, as Parquet; the same call goes on.

    Shards appear whole or not at all. What is there already is not done again, so that after any interruption the same
    call ends with the rows of an undisturbed run. A graph that fails gets a row with its error. After Ctrl-C the
    batches under way are finished, and the run comes back as far as it is; a second Ctrl-C stops at once.

    Args:
        model: a model that `walkwise.trace` can trace.
        graphs: a list of PyG graphs, a data set, a file of SMILES (.csv, .tsv, .parquet), or a folder of files of
            graphs, which are read as they are needed.
        questions: what is asked of every graph: "nodes", "edges", "walks:10" (the ten best), "order:0.1" (α = 0.1),
            "subgraph:5" (of five nodes), "groups:FILE", "curves".
        out: the folder.
        engine: "local" for processes of this machine, "ray" for a Ray cluster.
        workers: how many processes; by default one per core and at most eight per graphics card, or what the cluster
            has.
        batch: how many graphs are traced together; by default as many as so far in a run that goes on, and otherwise
            128, or 1024 on graphics cards of this machine.
        target: what is explained: "predicted", "label" (the graph's y), a column, or "positive" or "negative" of a
            model with one logit.
        rule: the LRP rule, as for `walkwise.trace`.
        index: for a model with an output per node, the nodes to explain of one graph: "all", ids, or a file of ids; of
            a heterogeneous graph a type, too, and ids as (type, i) or "paper 2".
        seed: for models that draw random numbers.
        device: where workers compute: "cuda" for all graphics cards of the machine, "cuda:1" for one; by default where
            the model is. On a Ray cluster, actors take the cards that there are.
        address: of the Ray cluster; by default one is started on this machine.
        featurise: makes a graph of a SMILES string; by default with MUTAG's features.
        progress: show progress on standard error; by default where that is a terminal.
        model_name: what the model is called in the manifest.
        data_name: what the data set is called there.
        command: the command that does this again, for the manifest.

    >>> import tempfile, torch
    >>> from torch_geometric.data import Data
    >>> from torch_geometric.nn import GCN
    >>> from walkwise import runs
    >>> model = GCN(2, 8, num_layers=2, out_channels=3).eval()
    >>> graph = Data(torch.ones(3, 2), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = runs.run(model, graph, ["nodes", "walks:2"], folder, index="all", workers=1)
    ...     tables = runs.read(made)
    >>> len(tables["nodes"]), list(tables["walks:2"].columns)
    (9, ['graph', 'index', 'rank', 'nodes', 'relevance'])
    """
    if engine not in ENGINES:
        raise InputError(argument="engine", expected=f"one of {', '.join(ENGINES)}", got=engine)
    if not isinstance(model, nn.Module):
        raise InputError(argument="model", expected="a torch.nn.Module", got=model)
    as_schedule(rule)
    asked = as_questions(questions)
    target = target.item() if isinstance(target, (np.generic, Tensor)) else target
    source = as_source(graphs, featurise=featurise)
    if index is not None:
        source = nodes_of(source, index, 1 + sum(isinstance(module, MessagePassing) for module in model.modules()))
    folder = as_path(out, "out")
    place = as_place(device, model) if engine == "local" else "cpu"
    size = batch if batch is not None else _usual_batch(folder, place)
    size = as_count(size, "batch", "the graphs traced together")
    work = Work(on_processor(model), source, asked, target, rule, size, seed, place)
    named = data_name or getattr(source, "called", None)
    manifest = manifest_of(
        work,
        model_name=model_name or type(model).__name__,
        data_name=named if isinstance(named, str) else str(graphs) if isinstance(graphs, str | Path) else "graphs",
        command=command,
    )
    with locked(folder) as lock:
        check_same(prepare(folder, manifest), manifest, str(folder))
        crew = workers if workers is not None else workers_by_default(place)
        effort = _Effort(engine, as_count(crew, "workers", "the number of processes"), workers is None, address, lock)
        _work_through(work, folder, effort, progress)
    return open_run(folder)


def _usual_batch(folder: Path, place: str) -> int:
    """How many graphs are traced together if nobody says."""
    before = manifest_in(folder) or {}
    return int(before.get("batch") or (BATCH if place == "cpu" else BATCH_ON_CARD))


@dataclass(frozen=True)
class _Effort:
    """Who does the work."""

    engine: str
    workers: int
    unsaid: bool  # whether the number of workers is ours to choose
    address: str | None
    lock: int

    def outcomes(self, work: Work, jobs: deque[Job], stopped: Callable[[], bool]) -> Iterator[Outcome]:
        """The shards as they come."""
        if self.engine == "local":
            return local(work, jobs, workers=self.workers, stopped=stopped, close=self.lock)
        from walkwise.runs.cluster import on_ray

        workers = None if self.unsaid else self.workers
        return on_ray(work, jobs, workers=workers, stopped=stopped, address=self.address)


def _work_through(work: Work, folder: Path, effort: _Effort, progress: bool | None) -> None:
    """Does what is left to do."""
    done, total = finished(folder), len(work.source)
    left = total - sum(last - first for first, last in done)
    share = -(-left // (4 * effort.workers))  # so that all are busy to the end
    size = min(SHARD, max(work.batch, share))
    jobs = deque(Job(first, last) for first, last in batch_ranges(done, total, size, work.batch))
    with _interruptible() as stopped, _bar(total, total - left, progress) as shown:
        outcomes = effort.outcomes(work, jobs, stopped) if jobs else iter(())
        for outcome in outcomes:
            shard = after_death(work, jobs, outcome) if isinstance(outcome, Died) else outcome
            if shard is not None:
                _check_hope(shard, folder)
                write(folder, shard)
                shown(shard.last - shard.first, shard.failed)


def _check_hope(shard: Shard, folder: Path) -> None:
    """Refuse to go on where every graph of a run's first shard fails for the same reason: it is not the graphs."""
    if shard.failed < max(2, shard.last - shard.first) or finished(folder):
        return
    errors = set(parquet.read_table(io.BytesIO(shard.tables["graphs"]), columns=["error"])["error"].to_pylist())
    if len(errors) == 1:
        raise InputError(
            f"All of the first {shard.failed:,} graphs fail in the same way: {errors.pop().rstrip('.')}.",
            argument="model",
            expected="a model that can answer this about these graphs",
            remedy="Try one of them by itself: ww.trace(model, graph).",
        )


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM ask to stop, which a function tells; a second Ctrl-C is an interrupt as ever."""
    signals: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return

    def ask(number: int, frame: Any) -> None:
        if signals:
            raise KeyboardInterrupt
        signals.append(number)
        sys.stderr.write("\nFinishing the batches under way; Ctrl-C again stops at once.\n")

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(signals)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _bar(total: int, done: int, progress: bool | None) -> Iterator[Callable[[int, int], None]]:
    """A bar with rate, time left and failures, and a function that moves it on."""
    from tqdm.auto import tqdm

    wanted = sys.stderr.isatty() if progress is None else progress
    failures = 0
    with tqdm(total=total, initial=done, unit=" graphs", disable=not wanted, smoothing=0.1) as bar:

        def move(graphs: int, failed: int) -> None:
            nonlocal failures
            failures += failed
            if failed:
                bar.set_postfix_str(f"{failures} failed")
            bar.update(graphs)

        yield move

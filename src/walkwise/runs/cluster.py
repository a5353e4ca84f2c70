"""The engine for a Ray cluster: Ray Data streams ranges of graphs over actors, and repeats lost work."""

from __future__ import annotations

import copy
import logging
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
import torch

from walkwise.errors import MissingExtraError
from walkwise.runs.cards import PER_CARD, CardLostError
from walkwise.runs.local import Died, Job, Outcome, after_death, local
from walkwise.runs.work import Shard, Work, joined

#: How often to begin a job whose workers or nodes are lost, and how many jobs to stream at a time.
_TRIES = 4
_AT_A_TIME = 4096

#: How often to check whether to end, in seconds.
_LOOK = 0.3

#: What the columns of files are called that come back, and what stands for the failures of a job that is lost.
_TABLE, _LOST = "table ", -1


class Overseer:
    """An actor that counts how often each job was begun (a graph may kill its process) and knows whether to end."""

    def __init__(self) -> None:
        self.begun: dict[int, int] = {}
        self.over = False

    def begin(self, first: int) -> int:
        """How often a job has been begun, including this time; 0 if it must not be begun any more."""
        if self.over:
            return 0
        self.begun[first] = self.begun.get(first, 0) + 1
        return self.begun[first]

    def forget(self, first: int) -> None:
        """Start counting a job afresh."""
        self.begun.pop(first, None)

    def ending(self) -> bool:
        """Whether work must end with the batch under way."""
        return self.over

    def end(self) -> None:
        """Begin no more jobs, and end those under way with their batch."""
        self.over = True


class Explainer:
    """An actor that gets the model once and then makes shards."""

    def __init__(self, work: Any, overseer: Any, card: bool) -> None:
        self.work: Work = _fetched(work)
        self.overseer = overseer
        torch.set_num_threads(1)
        self.processor = copy.copy(self.work)  # for graphs that may have killed a process
        self.processor.model = copy.deepcopy(self.work.model) if card else self.work.model
        if card:
            self.work.device = "cuda"
        self.work.settle(crew=PER_CARD)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The shards of some jobs, usually of one."""
        ranges = zip(batch["first"].tolist(), batch["last"].tolist(), strict=True)
        shards = [self._shard(first, last) for first, last in ranges]
        made = {name: np.array([getattr(shard, name) for shard in shards]) for name in ("first", "last", "failed")}
        tables = {name: [shard.tables.get(name, b"") for shard in shards] for name in self.work.folders}
        return made | {f"{_TABLE}{name}": np.array(files, dtype=object) for name, files in tables.items()}

    def _shard(self, first: int, last: int) -> Shard:
        """The shard, without rows if the job must not be begun or has been lost too often."""
        begun = _ray().get(self.overseer.begin.remote(first))
        if begun == 1:
            try:
                return self.work.shard(first, last, stop=self._ending)
            except CardLostError:
                os._exit(1)  # Ray makes a new actor, and the job comes back
        if 0 < begun <= _TRIES:
            return self._carefully(first, last)
        return Shard(first, first, {}, _LOST if begun else 0)

    def _carefully(self, first: int, last: int) -> Shard:
        """The shard of a job whose process or node was lost, made in a separate process, which a graph may kill.

        It computes on the CPU: a card cannot be shared with a child, and its errors are less clear.
        """
        jobs, shards = deque([Job(first, last)]), list[Shard]()
        for outcome in local(self.processor, jobs, workers=1, stopped=self._ending, close=-1):
            shard = after_death(self.processor, jobs, outcome) if isinstance(outcome, Died) else outcome
            shards += [] if shard is None else [shard]
        return joined(shards, first)

    def _ending(self) -> bool:
        over: bool = _ray().get(self.overseer.ending.remote())
        return over


def on_ray(
    work: Work, jobs: deque[Job], *, workers: int | None, stopped: Callable[[], bool], address: str | None
) -> Iterator[Outcome]:
    """Yield shards as actors of a Ray cluster finish them, in any order.

    Args:
        work: what workers do.
        jobs: what is to be done; it is emptied.
        workers: how many actors at most; by default eight for each graphics card of the cluster, or else one for
            each processor.
        stopped: whether no more jobs are to be begun, and those under way end with their batch.
        address: of the cluster; by default that which is connected, or a new one on this machine.
    """
    ray = _ray()
    ours = not ray.is_initialized()
    if ours:
        with _handler_kept():
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    try:
        with _modules_carried(work):
            reference = ray.put(work)
        overseer = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(Overseer).remote()
        with _watch_for_the_end(overseer, stopped):
            while jobs and not stopped():
                some = {job.first: job for job in (jobs.popleft() for _ in range(min(_AT_A_TIME, len(jobs))))}
                for shard in _streamed(ray, reference, overseer, some, workers):
                    job = some.pop(shard.first, None)
                    if job is None:  # done twice, because a node was lost after it was done
                        continue
                    if shard.failed == _LOST:
                        ray.get(overseer.forget.remote(job.first))
                        yield Died(job, f"its process or its node was lost {_TRIES} times")
                        continue
                    if shard.last < job.last:
                        jobs.append(Job(shard.last, job.last, job.deaths))
                    if shard.last > shard.first:
                        yield shard
    finally:
        if ours:
            ray.shutdown()


@contextmanager
def _watch_for_the_end(overseer: Any, stopped: Callable[[], bool]) -> Iterator[None]:
    """Tell the actors when to end, even while the main thread waits for their answers."""
    done = threading.Event()

    def look() -> None:
        while not done.wait(_LOOK):
            if stopped():
                overseer.end.remote()
                return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def _handler_kept() -> Iterator[None]:
    """Keep the handler of SIGTERM, which Ray would replace."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _streamed(ray: Any, work: Any, overseer: Any, jobs: dict[int, Job], workers: int | None) -> Iterator[Shard]:
    """The shards of the jobs; Ray repeats jobs that are lost with a worker or a node."""
    resources = ray.cluster_resources()
    cards = int(resources.get("GPU", 0))
    most = workers or cards * PER_CARD or max(1, int(resources.get("CPU", 1)))
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    for name in ("ray.data", "ray"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    rows = [{"first": job.first, "last": job.last} for job in jobs.values()]
    answers = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
        Explainer,
        fn_constructor_args=([work], overseer, bool(cards)),  # in a list, a reference is handed on as it is
        batch_size=1,  # a job; where there are cards, Ray asks how many
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=min(most, len(rows))),
        num_cpus=1,
        num_gpus=1 / PER_CARD if cards else 0,
    )
    for row in answers.iter_rows():
        tables = {name.removeprefix(_TABLE): file for name, file in row.items() if name.startswith(_TABLE)}
        yield Shard(int(row["first"]), int(row["last"]), tables, int(row["failed"]))


@contextmanager
def _modules_carried(work: Work) -> Iterator[None]:
    """Let classes of the user's own modules travel with the model, so that nodes need not have their files."""
    cloudpickle: Any = import_module("ray.cloudpickle")

    used: list[Any] = [type(module) for module in work.model.modules()]
    used.append(getattr(work.source, "featurise", None))
    names = {getattr(one, "__module__", None) for one in used} - {None, "__main__"}
    own = [sys.modules[name] for name in names if name in sys.modules and not _installed(sys.modules[name])]
    for module in own:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in own:
            cloudpickle.unregister_pickle_by_value(module)


def _installed(module: Any) -> bool:
    """Whether a module belongs to a package that nodes have."""
    place = str(getattr(module, "__file__", None) or "")
    return "site-packages" in place or module.__name__.partition(".")[0] == "walkwise" or not place


def _fetched(held: list[Any]) -> Work:
    work: Work = _ray().get(held[0])
    return work


def _ray() -> Any:
    try:
        import ray
        import ray.data
    except ImportError:
        remedy = "Install it with: pip install 'walkwise[ray]'"
        raise MissingExtraError("The engine ray needs Ray.", remedy=remedy) from None
    return ray

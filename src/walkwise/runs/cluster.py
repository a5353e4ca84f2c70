"""The engine of a Ray cluster: Ray Data streams ranges of graphs over actors, and does again what is lost."""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
import torch

from walkwise.errors import MissingExtraError
from walkwise.runs.local import Died, Job, Outcome
from walkwise.runs.work import Shard, Work

#: How often a job is begun whose workers or nodes are lost, and how many jobs are streamed at a time.
_TRIES = 4
_AT_A_TIME = 4096

#: What the columns of files are called that come back.
_TABLE = "table "


class Attempts:
    """An actor that counts how often each job has been begun: a graph may kill every process that works on it."""

    def __init__(self) -> None:
        self.begun: dict[int, int] = {}

    def add(self, first: int) -> int:
        """How often a job has been begun, this time included."""
        self.begun[first] = self.begun.get(first, 0) + 1
        return self.begun[first]


class Explainer:
    """An actor: the model is brought to it once, and then it makes shards."""

    def __init__(self, work: Any, attempts: Any, card: bool) -> None:
        self.work: Work = _fetched(work)
        self.attempts = attempts
        torch.set_num_threads(1)
        if card:
            self.work.device = "cuda"
            self.work.model = self.work.model.to("cuda")

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The shards of some jobs, one of them as a rule."""
        ranges = zip(batch["first"].tolist(), batch["last"].tolist(), strict=True)
        shards = [self._shard(first, last) for first, last in ranges]
        made = {name: np.array([getattr(shard, name) for shard in shards]) for name in ("first", "last", "failed")}
        tables = {name: [shard.tables[name] for shard in shards] for name in shards[0].tables}
        return made | {f"{_TABLE}{name}": np.array(files, dtype=object) for name, files in tables.items()}

    def _shard(self, first: int, last: int) -> Shard:
        """The shard, or one without rows where others have died of it."""
        if _ray().get(self.attempts.add.remote(first)) > _TRIES:
            return Shard(first, first, dict.fromkeys(self.work.folders, b""), 0)
        return self.work.shard(first, last)


def on_ray(
    work: Work, jobs: deque[Job], *, workers: int | None, stopped: Callable[[], bool], address: str | None
) -> Iterator[Outcome]:
    """Shards as actors of a Ray cluster finish them, in any order.

    Args:
        work: what workers do.
        jobs: what is to be done; it is emptied.
        workers: how many actors at most; by default as many as the cluster has graphics cards, or else processors.
        stopped: whether to stop; what is under way is dropped.
        address: of the cluster; by default that which is connected, or a new one on this machine.
    """
    ray = _ray()
    ours = not ray.is_initialized()
    if ours:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    try:
        with _modules_carried(work):
            reference = ray.put(work)
        while jobs and not stopped():
            some = {job.first: job for job in (jobs.popleft() for _ in range(min(_AT_A_TIME, len(jobs))))}
            for shard in _streamed(ray, reference, some, workers):
                job = some.pop(shard.first, None)
                if job is None:  # done twice, because a node was lost after it was done
                    continue
                if shard.last == shard.first:
                    yield Died(job, f"its process or its node was lost {_TRIES} times")
                    continue
                if shard.last < job.last:
                    jobs.append(Job(shard.last, job.last, job.deaths))
                yield shard
                if stopped():
                    return
    finally:
        if ours:
            ray.shutdown()


def _streamed(ray: Any, work: Any, jobs: dict[int, Job], workers: int | None) -> Iterator[Shard]:
    """The shards of the jobs; Ray does again what is lost with a worker or a node."""
    resources = ray.cluster_resources()
    cards = int(resources.get("GPU", 0))
    most = workers or cards or max(1, int(resources.get("CPU", 1)))
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    for name in ("ray.data", "ray"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    attempts = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(Attempts).remote()
    rows = [{"first": job.first, "last": job.last} for job in jobs.values()]
    answers = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
        Explainer,
        fn_constructor_args=([work], attempts, bool(cards)),  # in a list, a reference is handed on as it is
        batch_size=None,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=min(most, len(rows))),
        num_cpus=1,
        num_gpus=1 if cards else 0,
    )
    for row in answers.iter_rows():
        tables = {name.removeprefix(_TABLE): file for name, file in row.items() if name.startswith(_TABLE)}
        yield Shard(int(row["first"]), int(row["last"]), tables, int(row["failed"]))


@contextmanager
def _modules_carried(work: Work) -> Iterator[None]:
    """Lets classes of the user's own modules travel with the model: nodes need not have the files they are in."""
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
        raise MissingExtraError("The engine ray needs Ray. Install it with: pip install 'walkwise[ray]'") from None
    return ray

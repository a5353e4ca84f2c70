"""The engine of a Ray cluster: Ray Data streams ranges of graphs over actors, and does again what is lost."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from walkwise.errors import MissingExtraError
from walkwise.runs.local import Died, Job, Outcome
from walkwise.runs.work import Shard, Work

#: How often a job is tried again whose worker or node was lost, and how many jobs are streamed at a time.
_RETRIES = 3
_AT_A_TIME = 4096

#: What the columns of files are called that come back.
_TABLE = "table "


class Explainer:
    """An actor: the model is brought to it once, and then it makes shards."""

    def __init__(self, work: Any, card: bool) -> None:
        self.work: Work = _fetched(work)
        torch.set_num_threads(1)
        if card:
            self.work.device = "cuda"
            self.work.model = self.work.model.to("cuda")

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The shards of some jobs, one of them as a rule."""
        ranges = zip(batch["first"].tolist(), batch["last"].tolist(), strict=True)
        shards = [self.work.shard(first, last) for first, last in ranges]
        made = {name: np.array([getattr(shard, name) for shard in shards]) for name in ("first", "last", "failed")}
        tables = {name: [shard.tables[name] for shard in shards] for name in shards[0].tables}
        return made | {f"{_TABLE}{name}": np.array(files, dtype=object) for name, files in tables.items()}


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
        reference = ray.put(work)
        while jobs and not stopped():
            some = {job.first: job for job in (jobs.popleft() for _ in range(min(_AT_A_TIME, len(jobs))))}
            for shard in _streamed(ray, reference, some, workers):
                job = some.pop(shard.first, None)
                if job is None:  # done twice, because a node was lost after it was done
                    continue
                if shard.last < job.last:
                    jobs.append(Job(shard.last, job.last, job.deaths))
                yield shard
                if stopped():
                    return
            for job in some.values():
                yield Died(job, f"its process or its node was lost {_RETRIES + 1} times")
    finally:
        if ours:
            ray.shutdown()


def _streamed(ray: Any, work: Any, jobs: dict[int, Job], workers: int | None) -> Iterator[Shard]:
    """The shards of the jobs that could be done."""
    resources = ray.cluster_resources()
    cards = int(resources.get("GPU", 0))
    most = workers or cards or max(1, int(resources.get("CPU", 1)))
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.max_errored_blocks = -1  # jobs whose workers die every time are missing from the answers, and that is all
    for name in ("ray.data", "ray"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    rows = [{"first": job.first, "last": job.last} for job in jobs.values()]
    answers = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
        Explainer,
        fn_constructor_args=([work], bool(cards)),  # in a list, a reference is not looked up before it gets there
        batch_size=None,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=min(most, len(rows))),
        num_cpus=1,
        num_gpus=1 if cards else 0,
        max_restarts=-1,
        max_task_retries=_RETRIES,
    )
    for row in answers.iter_rows():
        tables = {name.removeprefix(_TABLE): file for name, file in row.items() if name.startswith(_TABLE)}
        yield Shard(int(row["first"]), int(row["last"]), tables, int(row["failed"]))


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

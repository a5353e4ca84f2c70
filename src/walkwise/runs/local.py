"""The engine for one machine: processes that take ranges of graphs and return shards."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
import pickle
import signal
import tempfile
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from walkwise.errors import InputError, WalkwiseError
from walkwise.runs.cards import CardLostError, can_fork
from walkwise.runs.work import Shard, Work

#: How often workers look whether they are still wanted, in seconds.
_LOOK = 0.5

#: A job of which so many workers have died is cut in two.
_DEATHS = 2

#: How a worker ends whose graphics card has failed.
_CARD_LOST = 71


class WorkerError(WalkwiseError):
    """A worker failed in the library itself, not because of a graph."""


@dataclass(frozen=True)
class Job:
    """Graphs that are still to be explained, and how often a worker has died of them."""

    first: int
    last: int
    deaths: int = 0


@dataclass(frozen=True)
class Died:
    """A worker died while it worked on a job."""

    job: Job
    why: str


Outcome = Shard | Died


@dataclass(eq=False)
class _Worker:
    process: Any
    pipe: Connection
    number: int
    job: Job | None = None
    ending: bool = False
    begun: bool = False  # whether it has said that it is ready


def local(work: Work, jobs: deque[Job], *, workers: int, stopped: Callable[[], bool], close: int) -> Iterator[Outcome]:
    """Shards as processes finish them, in any order; more jobs may be added meanwhile.

    A worker that dies is replaced, and its job comes back as :class:`Died`. What is left of a job that took too long
    for one shard is added to the jobs.

    Args:
        work: what workers do.
        jobs: what is to be done; it is emptied.
        workers: how many processes.
        stopped: whether no more jobs are to be begun, and those under way end with their batch.
        close: a file that workers do not hold open, -1 for none.
    """
    office = _Office(work, close, min(workers, len(jobs)))
    crew = [office.hire(number) for number in range(office.crew)]
    try:
        while busy := _put_to_work(crew, jobs, stopped):
            ready = wait([end for worker in busy for end in (worker.pipe, worker.process.sentinel)], timeout=_LOOK)
            for place, worker in enumerate(crew):
                if worker.job is None or not (worker.pipe in ready or worker.process.sentinel in ready):
                    continue
                outcome = _received(worker)
                if outcome is None:
                    continue
                if isinstance(outcome, Died):
                    crew[place] = office.hire(worker.number)
                elif outcome.last < worker.job.last:
                    jobs.appendleft(replace(worker.job, first=outcome.last))
                worker.job = None
                yield outcome
    finally:
        for worker in crew:
            worker.pipe.close()
            worker.process.terminate()
        for worker in crew:
            worker.process.join()
        office.close()


def after_death(work: Work, jobs: deque[Job], died: Died) -> Shard | None:
    """What to do about a job whose worker died: again, in halves, or, for a single graph, a row that says so.

    Args:
        work: what workers do.
        jobs: where the job, or its halves, are added.
        died: the job, and how its worker died.
    """
    job = died.job
    deaths, count = job.deaths + 1, job.last - job.first
    if deaths < _DEATHS:
        jobs.append(Job(job.first, job.last, deaths))
        return None
    if count == 1:
        return work.lost(job.first, f"The graph could not be explained: {died.why}.")
    middle = job.first + count // 2
    aligned = middle // work.batch * work.batch
    middle = aligned if job.first < aligned else middle
    jobs.extend(Job(first, last, deaths - 1) for first, last in ((job.first, middle), (middle, job.last)))
    return None


def _put_to_work(crew: list[_Worker], jobs: deque[Job], stopped: Callable[[], bool]) -> list[_Worker]:
    """Hands jobs to those who have none; those who have one come back."""
    ending = stopped()
    for worker in crew:
        if worker.job is None and jobs and not ending:
            worker.job = jobs.popleft()
            _send(worker, (worker.job.first, worker.job.last))
        elif worker.job is not None and ending and not worker.ending:
            worker.ending = True
            _send(worker, None)
    return [worker for worker in crew if worker.job is not None]


class _Office:
    """Makes workers: children that share what is in memory, or new processes that read it from a file.

    The latter where a graphics card is asked for that this process has used itself: children cannot use it then.
    """

    def __init__(self, work: Work, lock: int, crew: int) -> None:
        fork = "fork" in multiprocessing.get_all_start_methods() and can_fork(work.device)
        self.context: Any = multiprocessing.get_context("fork" if fork else "spawn")
        self.work, self.lock, self.crew = work if fork else _packed(work), lock if fork else -1, crew

    def close(self) -> None:
        """There will be no more workers."""
        if isinstance(self.work, Path):
            self.work.unlink(missing_ok=True)

    def hire(self, number: int) -> _Worker:
        """A new process that waits for a job."""
        ours, theirs = self.context.Pipe()
        given = self.work, theirs, os.getpid(), self.lock, number, self.crew
        process = self.context.Process(target=_work, args=given, daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks in a process with threads; a child has one
            process.start()
        theirs.close()
        return _Worker(process, ours, number)


def _packed(work: Work) -> Path:
    """The work in a file that nobody else may write, from which all workers read it at once."""
    try:
        content = pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"The model or the graphs cannot be sent to another process: {error}.",
            argument="model",
            expected="classes and functions that are defined by name in a module",
            remedy="Define them in a module, or call runs.run before anything else uses the graphics card.",
        ) from error
    handle, name = tempfile.mkstemp(prefix="walkwise-", suffix=".work")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return Path(name)


def _send(worker: _Worker, what: tuple[int, int] | None) -> None:
    """Gives a worker a range of graphs, or tells it to end with its batch."""
    with contextlib.suppress(OSError):  # it has died already, which its sentinel says
        worker.pipe.send(what)


def _received(worker: _Worker) -> Outcome | None:
    """What a worker gives back, or how it died; None where it says that it is ready."""
    assert worker.job is not None
    try:
        if worker.pipe.poll():
            found = worker.pipe.recv()
            if found is None:
                worker.begun = True
                return None
            if isinstance(found, Shard):
                return found
            raise WorkerError(f"A worker failed: {found}")
    except (EOFError, OSError):
        pass
    worker.process.join()
    worker.pipe.close()
    code = worker.process.exitcode
    if not worker.begun and code > 0:  # whatever it died of, it was no graph
        raise WorkerError(
            f"A worker could not be started: it exited with code {code}. A script that computes on a graphics card "
            'must call runs.run under `if __name__ == "__main__":`.'
        )
    return Died(worker.job, _ended(code))


def _ended(code: int | None) -> str:
    """How a process ended, in words.

    >>> _ended(-9), _ended(3)
    ('its process was ended by SIGKILL', 'its process exited with code 3')
    """
    if code == _CARD_LOST:
        return "the graphics card failed; on the CPU, the error message would say why"
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return f"its process was ended by {signal.Signals(-code).name}"
    return f"its process exited with code {code}"


def _trim() -> None:
    """Gives memory back that lies free between what is in use, where the C library can: shards leave more and more."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def _work(given: Work | Path, pipe: Connection, parent: int, close: int, number: int, crew: int) -> None:
    """A worker's life: jobs in, shards out, until nobody wants more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if close >= 0:
        with contextlib.suppress(OSError):
            os.close(close)
    torch.set_num_threads(1)
    with contextlib.suppress(EOFError, OSError):
        try:
            work: Work = pickle.loads(given.read_bytes()) if isinstance(given, Path) else given
            work.settle(number, crew)
            gc.freeze()  # what is shared with the parent is not gone through again, which would copy it
            pipe.send(None)
            while True:
                while not pipe.poll(_LOOK):
                    if os.getppid() != parent:
                        return
                told = pipe.recv()
                if told is None:
                    return
                _trim()
                pipe.send(work.shard(*told, stop=lambda: pipe.poll() or os.getppid() != parent))
        except (EOFError, OSError):
            raise
        except CardLostError:
            os._exit(_CARD_LOST)
        except Exception:  # not of a graph, which would be a row
            pipe.send(traceback.format_exc(limit=-3))

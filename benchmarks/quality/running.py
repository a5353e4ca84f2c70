"""Trains what is not trained yet and asks what has not been asked yet."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch_geometric.data import Data
from tqdm.auto import tqdm

from quality.measures import Fidelities, measured
from quality.methods import Case, Method, PassedByError, Together
from quality.networks import DESIGNS, ENOUGH, Examples, Network, build, fit, is_right
from quality.store import Record, Run, Store, digest
from quality.tasks import TASKS, Split, Task, UnavailableError, has_truth
from walkwise.baselines import baseline
from walkwise.baselines.registry import Explain, is_trained
from walkwise.errors import WalkwiseError
from walkwise.evaluation.predictions import Prediction, predict

LEARNS_FROM = 20  # predictions on training graphs, for explainers that are trained
FLUSH = 20.0  # seconds between two writings of results


@dataclass(frozen=True)
class Plan:
    """What to do: every task with every design and seed."""

    tasks: tuple[str, ...]
    designs: tuple[str, ...]
    seeds: tuple[int, ...]
    graphs: int  # explained per model
    short: bool = False

    @property
    def epochs(self) -> int:
        return 30 if self.short else 100

    def runs(self) -> list[Run]:
        return [Run(task, design, seed) for seed in self.seeds for task in self.tasks for design in self.designs]


@dataclass(frozen=True)
class Explained:
    """One prediction to be explained, with its truth."""

    number: int
    prediction: Prediction
    truths: torch.Tensor  # (K, M)
    seen: torch.Tensor  # (M,)


def carry_out(plan: Plan, methods: Sequence[Method], store: Store) -> dict[str, str]:
    """Do all that is not done yet; the tasks and models that are left out, with the reason."""
    left: dict[str, str] = {}
    bar = tqdm(plan.runs(), unit="model", file=sys.stderr)
    loaded: tuple[tuple[str, int], Split] | None = None
    for run in bar:
        bar.set_description(run.name)
        if run.task in left or finished(plan, run, methods, store):
            continue
        try:
            if loaded is None or loaded[0] != (run.task, run.seed):
                loaded = (run.task, run.seed), TASKS[run.task].load(run.seed, plan.short)
        except UnavailableError as error:
            left[run.task] = str(error)
            continue
        network = trained(plan, run, loaded[1], store)
        if network is not None:
            explain_all(plan, run, network, loaded[1], methods, store)
    return left | dropped(plan, store)


def finished(plan: Plan, run: Run, methods: Sequence[Method], store: Store) -> bool:
    """Whether nothing is left to do for a run, as far as the files say."""
    told = store.fit(run)
    if told is None:
        return False
    if told["accuracy"] < ENOUGH:
        return True
    count = told.get("explainable", -1)
    if count < 0:
        return False
    for method in methods:
        record = store.record(run, method.name, meaning(method, told["digest"]))
        if not all(record.done(number) for number in range(min(count, plan.graphs))):
            return False
    return count >= plan.graphs or told.get("all_tried", False)


def dropped(plan: Plan, store: Store) -> dict[str, str]:
    """The models that did not learn their task."""
    told = {run: store.fit(run) for run in plan.runs()}
    return {
        run.name: f"test accuracy {fit['accuracy']:.3f} < {ENOUGH}"
        for run, fit in told.items()
        if fit is not None and fit["accuracy"] < ENOUGH
    }


def trained(plan: Plan, run: Run, split: Split, store: Store) -> Network | None:
    """The run's network, from its file or trained now; None if it is not good enough."""
    task, told = TASKS[run.task], store.fit(run)
    network = build(DESIGNS[run.design], task, split, run.seed)
    if told is None or not store.models(run).exists():
        found = fit(network, Examples(split, task), epochs=round(task.effort * plan.epochs))
        told = {"accuracy": found.accuracy, "epochs": found.epochs, "seconds": found.seconds, "digest": digest(network)}
        store.save_fit(run, network, told)
    else:
        network.load_state_dict(torch.load(store.models(run)))
    return network if told["accuracy"] >= ENOUGH else None


def explainable(network: Network, task: Task, split: Split, count: int) -> Iterator[Explained]:
    """The first test examples (then validation ones) of the positive class that the network tells rightly."""
    number = 0
    for given in [*split.test, *split.validation]:
        data = split.example(given)
        if not has_truth(task, data):
            continue
        prediction = prediction_of(network, task, data)
        right = torch.tensor([data.y])
        if not bool(is_right(task, prediction.logits[None], right)):
            continue
        seen = data.seen if "seen" in data else torch.ones(len(data.x), dtype=torch.bool)
        yield Explained(number, prediction, data.motifs, seen)
        number += 1
        if number == count:
            return


def prediction_of(network: Network, task: Task, data: Data) -> Prediction:
    """What is explained: the logit of the right class, or the number."""
    target = 0 if task.level == "number" else int(data.y)
    index = data.index if task.level == "node" else None
    return predict(network, data.x, data.edge_index, target=target, index=index)


def explain_all(plan: Plan, run: Run, network: Network, split: Split, methods: Sequence[Method], store: Store) -> None:
    """Ask every method about every graph that it has not answered for, graph by graph."""
    task, told = TASKS[run.task], store.fit(run)
    assert told is not None
    records = {m.name: store.record(run, m.name, meaning(m, told["digest"])) for m in methods}
    learned: dict[str, Explain] = {}
    written = time.monotonic()
    explained = list(explainable(network, task, split, plan.graphs))
    together = Together(network, [one.prediction for one in explained])
    for one in explained:
        todo = [m for m in methods if not records[m.name].done(one.number)]
        for method in todo:
            if is_learned(method) and method.name not in learned:
                learned[method.name] = learn(method.name, network, task, split, run.seed)
        size = int(one.truths[:, one.seen].sum(1).min())
        case = Case(one.prediction, together, one.number, size, learned)
        fidelity = Fidelities(one.prediction, task.level == "number")
        for method in todo:
            answer_into(records[method.name], method, case, one, fidelity, run.seed)
        if time.monotonic() - written > FLUSH:
            save(run, records, store)
            written = time.monotonic()
    save(run, records, store)
    store.save_fit(run, network, told | {"explainable": len(explained), "all_tried": len(explained) < plan.graphs})


def save(run: Run, records: dict[str, Record], store: Store) -> None:
    for name, record in records.items():
        store.save_record(run, name, record)


def answer_into(record: Record, method: Method, case: Case, one: Explained, fidelity: Fidelities, seed: int) -> None:
    """Ask one method about one graph and write down what came of it."""
    torch.manual_seed(seed * 100_003 + one.number)
    begun = time.process_time()
    try:
        answer = method.answer(case)
    except (PassedByError, WalkwiseError) as error:
        record.left[str(one.number)] = str(error)
        return
    seconds = time.process_time() - begun if answer.seconds is None else answer.seconds
    record.graphs[str(one.number)] = measured(answer, one.truths, one.seen, fidelity) | {"seconds": seconds}


def learn(name: str, network: Network, task: Task, split: Split, seed: int) -> Explain:
    """An explainer trained on predictions for training examples, without their truth."""
    torch.manual_seed(seed)
    some = (split.example(given) for given in split.train)
    chosen = [data for data, _ in zip((d for d in some if d.y), range(LEARNS_FROM), strict=False)]
    return baseline(name, [prediction_of(network, task, data) for data in chosen])


def is_learned(method: Method) -> bool:
    return method.group == "explainer" and is_trained(method.name)


def meaning(method: Method, weights: str) -> str:
    return f"{method.meaning} | weights {weights}"

"""Training graph classifiers: mini-batches, early stopping, one seed for everything that is drawn."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from walkwise.datasets.graphset import Graphs, GraphSet
from walkwise.errors import InputError, as_count


@dataclass(frozen=True)
class Epoch:
    """One pass over the training graphs: mean losses (cross-entropy), and accuracy on the validation graphs."""

    train_loss: float
    val_loss: float
    val_accuracy: float


@dataclass(frozen=True)
class Training:
    """How a training went. Accuracies are those of the weights that were kept."""

    history: tuple[Epoch, ...]
    best_epoch: int  # counted from 1
    train_accuracy: float
    val_accuracy: float
    test_accuracy: float

    def __repr__(self) -> str:
        share = f"train {self.train_accuracy:.2%}, val {self.val_accuracy:.2%}, test {self.test_accuracy:.2%}"
        return f"Training({len(self.history)} epochs, best {self.best_epoch}: {share})"


def train(
    model: nn.Module,
    graphs: GraphSet,
    *,
    seed: int = 0,
    epochs: int = 100,
    patience: int = 20,
    batch_size: int = 64,
    lr: float = 1e-3,
    negative_biases: bool = False,
    progress: bool = False,
) -> Training:
    """How the training went; the model has the weights of the best epoch and is in evaluation mode.

    The best epoch has the highest accuracy on the validation graphs, and of several such the least loss. Adam
    on the cross-entropy of mini-batches, with the paper's decreasing rate lr / (1 + epoch / epochs).

    Args:
        model: takes (x, edge_index, batch) and returns logits (G, classes). Its weights change.
        graphs: the data set.
        seed: of the order of the graphs and of dropout. The model's first weights are the caller's.
        epochs: passes over the training graphs at most.
        patience: stop after so many epochs without a better one.
        batch_size: graphs per step.
        lr: the learning rate at the start.
        negative_biases: keep biases from rising above 0. The authors' are negative by construction, so that biases
            take no relevance under LRP-γ.
        progress: show a progress bar.

    >>> from walkwise import datasets, models
    >>> _ = torch.manual_seed(0)
    >>> result = train(models.build("ba2motif-gin2"), datasets.load("ba2motif-generated"), epochs=2)
    >>> len(result.history)
    2
    """
    _check(epochs=epochs, patience=patience, batch_size=batch_size, lr=lr)
    _check_given(model, graphs, seed)
    with torch.random.fork_rng(), torch.enable_grad():
        torch.manual_seed(seed % (1 << 63))
        history, best = _fit(model, graphs, epochs, patience, batch_size, lr, negative_biases, progress)
    model.eval()
    shares = [evaluate(model, graphs.graphs, part)[1] for part in (graphs.train, graphs.val, graphs.test)]
    return Training(tuple(history), best, *shares)


def _check(lr: float, **counts: int) -> None:
    whole = {name: type(count) is int and 0 < count < 1 << 62 for name, count in counts.items()}
    whole["lr"] = isinstance(lr, int | float) and 0 < lr < math.inf
    wrong = {name: {**counts, "lr": lr}[name] for name, fits in whole.items() if not fits}
    if wrong:
        name = next(iter(wrong))
        raise InputError(
            f"Expected positive numbers, got {', '.join(f'{n}={v}' for n, v in wrong.items())}.",
            argument=name,
            expected="a positive number" if name == "lr" else "a positive whole number",
            got=wrong[name],
        )


def _check_given(model: object, graphs: object, seed: object) -> None:
    if not isinstance(model, nn.Module) or next(model.parameters(), None) is None:
        raise InputError(argument="model", expected="a torch.nn.Module with weights to train", got=model)
    if not isinstance(graphs, GraphSet):
        raise InputError(
            argument="graphs",
            expected="a GraphSet, which datasets.load returns",
            got=graphs,
            remedy="Make one of your own graphs: GraphSet(name, datasets.pack(graphs), train, val, test, class_names).",
        )
    if not len(graphs.train) or not len(graphs.val) or not len(graphs.test):
        raise InputError(argument="graphs", expected="a GraphSet with graphs to train, stop and test on", got=graphs)
    as_count(seed, "seed", least=0)


def _fit(
    model: nn.Module,
    graphs: GraphSet,
    epochs: int,
    patience: int,
    batch_size: int,
    lr: float,
    negative_biases: bool,
    progress: bool,
) -> tuple[list[Epoch], int]:
    from tqdm.auto import tqdm

    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch / epochs))
    history: list[Epoch] = []
    best, highest, kept = 0, (-1.0, 0.0), copy.deepcopy(model.state_dict())
    bar = tqdm(range(1, epochs + 1), disable=not progress, leave=False, unit="epoch")
    for epoch in bar:
        loss = _pass(model, graphs, optimizer, batch_size, negative_biases)
        rate.step()
        model.eval()
        history.append(Epoch(loss, *evaluate(model, graphs.graphs, graphs.val)))
        bar.set_postfix(loss=f"{loss:.3f}", val=f"{history[-1].val_accuracy:.1%}")
        score = history[-1].val_accuracy, -history[-1].val_loss
        if score > highest:
            best, highest, kept = epoch, score, copy.deepcopy(model.state_dict())
        if epoch - best >= patience:
            break
    bar.close()
    model.load_state_dict(kept)
    return history, best


def _pass(
    model: nn.Module, graphs: GraphSet, optimizer: torch.optim.Optimizer, batch_size: int, negative_biases: bool
) -> float:
    """One pass over the training graphs in a new order; the mean loss."""
    model.train()
    total = 0.0
    for part in torch.split(graphs.train[torch.randperm(len(graphs.train))], batch_size):
        optimizer.zero_grad()
        loss = _loss(model, graphs.graphs, part)[0]
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # sums over hubs make some gradients huge
        optimizer.step()
        if negative_biases:
            _clamp_biases(model)
        total += loss.item() * len(part)
    return total / len(graphs.train)


def _loss(model: nn.Module, graphs: Graphs, part: Tensor) -> tuple[Tensor, Tensor]:
    """The mean cross-entropy of these graphs, and which of them are classified rightly: (), (B,)."""
    data = graphs.batch(part).to(str(next(model.parameters()).device))
    logits = model(data.x, data.edge_index, data.batch)
    return F.cross_entropy(logits, data.y), logits.argmax(dim=1) == data.y


@torch.no_grad()
def _clamp_biases(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if name.rpartition(".")[2] == "bias":
            parameter.clamp_(max=0.0)


@torch.no_grad()
def evaluate(model: nn.Module, graphs: Graphs, index: Tensor, *, batch_size: int = 512) -> tuple[float, float]:
    """(mean cross-entropy, accuracy) of the model as it is, on the graphs of these numbers.

    Args:
        model: takes (x, edge_index, batch) and returns logits.
        graphs: the graphs.
        index: numbers of graphs: (B,).
        batch_size: graphs at a time.
    """
    if isinstance(index, Tensor) and not index.numel():
        raise InputError(argument="index", expected="numbers of graphs, one at least", got=index.tolist())
    total, right = 0.0, 0
    for part in torch.split(index, batch_size) if isinstance(index, Tensor) and index.dim() else [index]:
        loss, correct = _loss(model, graphs, part)
        total += float(loss) * len(part)
        right += int(correct.sum())
    return total / len(index), right / len(index)

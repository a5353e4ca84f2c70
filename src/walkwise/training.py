"""Training graph classifiers: mini-batches, early stopping, one seed for all randomness."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from walkwise.datasets.graphset import Graphs, GraphSet
from walkwise.errors import InputError, as_count

#: What is added to a loss: of the model and a batch of graphs.
Penalty = Callable[[nn.Module, Any], Tensor]


@dataclass(frozen=True)
class Epoch:
    """One pass over the training graphs: mean losses (cross-entropy), and accuracy on the validation graphs."""

    train_loss: float
    val_loss: float
    val_accuracy: float


@dataclass(frozen=True)
class Training:
    """The result of a training. Accuracies are those of the weights that were kept."""

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
    penalty: Penalty | None = None,
    progress: bool = False,
) -> Training:
    """Train a model and return the result; the model then has the weights of the best epoch, in evaluation mode.

    The best epoch has the highest accuracy on the validation graphs, and among ties the lowest loss. Training uses Adam
    on the cross-entropy of mini-batches, with the paper's decreasing rate lr / (1 + epoch / epochs).

    Args:
        model: takes (x, edge_index, batch) and returns logits (G, classes). Its weights change.
        graphs: the data set.
        seed: the seed of the order of the graphs and of dropout. The caller sets the model's initial weights.
        epochs: the most passes over the training graphs.
        patience: stop after this many epochs without improvement.
        batch_size: graphs per step.
        lr: the initial learning rate.
        negative_biases: keep biases from rising above 0. The authors' biases are negative by construction, so that they
            take no relevance under LRP-γ.
        penalty: a function of the model and the batch that is added to the loss of every mini-batch, such as a multiple
            of `relevance_penalty`. Losses in the history exclude it.
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
        history, best = _fit(model, graphs, epochs, patience, batch_size, lr, negative_biases, penalty, progress)
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
            remedy="Build one from your own graphs: GraphSet(name, datasets.pack(graphs), train, val, test, "
            "class_names).",
        )
    if not len(graphs.train) or not len(graphs.val) or not len(graphs.test):
        raise InputError(
            argument="graphs", expected="a GraphSet with graphs for training, early stopping and testing", got=graphs
        )
    as_count(seed, "seed", least=0)


def _fit(
    model: nn.Module,
    graphs: GraphSet,
    epochs: int,
    patience: int,
    batch_size: int,
    lr: float,
    negative_biases: bool,
    penalty: Penalty | None,
    progress: bool,
) -> tuple[list[Epoch], int]:
    from tqdm.auto import tqdm

    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch / epochs))
    history: list[Epoch] = []
    best, highest, kept = 0, (-1.0, 0.0), copy.deepcopy(model.state_dict())
    bar = tqdm(range(1, epochs + 1), disable=not progress, leave=False, unit="epoch")
    for epoch in bar:
        loss = _pass(model, graphs, optimizer, batch_size, negative_biases, penalty)
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
    model: nn.Module,
    graphs: GraphSet,
    optimizer: torch.optim.Optimizer,
    batch_size: int,
    negative_biases: bool,
    penalty: Penalty | None,
) -> float:
    """One pass over the training graphs in a new order; the mean loss."""
    model.train()
    total = 0.0
    for part in torch.split(graphs.train[torch.randperm(len(graphs.train))], batch_size):
        optimizer.zero_grad()
        loss = _loss(model, graphs.graphs, part)[0]
        whole = loss if penalty is None else loss + penalty(model, _batch(model, graphs.graphs, part))
        whole.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # sums over hubs make some gradients huge
        optimizer.step()
        if negative_biases:
            _clamp_biases(model)
        total += loss.item() * len(part)
    return total / len(graphs.train)


def _batch(model: nn.Module, graphs: Graphs, part: Tensor) -> Any:
    """These graphs as one, where the model is."""
    return graphs.batch(part).to(str(next(model.parameters()).device))


def _loss(model: nn.Module, graphs: Graphs, part: Tensor) -> tuple[Tensor, Tensor]:
    """The mean cross-entropy of these graphs, and which of them are classified correctly: (), (B,)."""
    data = _batch(model, graphs, part)
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
        raise InputError(argument="index", expected="the numbers of one graph or more", got=index.tolist())
    total, right = 0.0, 0
    for part in torch.split(index, batch_size) if isinstance(index, Tensor) and index.dim() else [index]:
        loss, correct = _loss(model, graphs, part)
        total += float(loss) * len(part)
        right += int(correct.sum())
    return total / len(index), right / len(index)


def relevance_penalty(model: nn.Module, batch: Any, wanted: Tensor, *, path: bool = True) -> Tensor:
    """The share of relevance that falls where it is not wanted, from 0 to 1: a scalar to add to the loss.

    With f_g the logit of graph g's label minus the mean of its other logits, the relevance of feature n of node m is
    gradient × input, R_mn = x_mn · ∂f_g/∂x_mn: LRP-0 of a network of linear maps and ReLUs. The penalty is the mean
    over graphs of

        Σ_mn (1 − wanted_mn) R_mn² / Σ_mn R_mn² ,

    which does not change when logits are scaled. It is differentiable with respect to the weights (second
    derivatives; those of ReLU are 0), so that training can move relevance to where a person wants it, which is the idea
    of GNES (Gao et al., 2021), on this relevance.

    A network can hide what it has learned from a gradient: an unwanted feature that switches ReLUs on and off can
    decide, and yet have no gradient at the training graphs. So the gradient is taken at a random point of the path
    along which the unwanted features grow from 0 to their values, a new one for every graph and call. Over many steps
    this gives the integrated gradient along the path, which cannot be hidden.

    Args:
        model: called as ``model(x, edge_index, batch)``, returns logits: (G, classes).
        batch: graphs as one, with x (M, F), edge_index, batch (M,) and labels y (G,).
        wanted: 1 where relevance should fall and 0 where it should not. Broadcast against x: (M, 1) for nodes, (F,)
            for features, (M, F) for both.
        path: whether to take the gradient along that path, as in training. If False, it is taken at the graphs
            themselves, which gives the same number every time, for measuring.

    >>> from types import SimpleNamespace as Batch
    >>> model = lambda x, edge_index, batch: x[:1] @ torch.tensor([[0.0, 3.0], [0.0, 1.0]])
    >>> batch = Batch(x=torch.ones(1, 2), edge_index=None, batch=torch.zeros(1).long(), y=torch.tensor([1]))
    >>> relevance_penalty(model, batch, wanted=torch.tensor([1.0, 0.0]))  # 1² of 3² + 1²
    tensor(0.1000)
    """
    x = batch.x.detach()
    unwanted = (1 - wanted.to(x)).expand_as(x)
    grown = torch.rand(len(batch.y), 1).to(x)[batch.batch] if path else torch.ones_like(x[:, :1])  # (M, 1)
    point = (x * (1 - unwanted * (1 - grown))).requires_grad_(True)
    with torch.enable_grad():
        logits = model(point, batch.edge_index, batch.batch)
        label = F.one_hot(batch.y, logits.shape[1]).to(logits)
        f = (logits * (label - (1 - label) / max(1, logits.shape[1] - 1))).sum()
        (slope,) = torch.autograd.grad(f, point, create_graph=True)
        squares = (x * slope).square()  # (M, F)
        parts = torch.stack([(unwanted * squares).sum(dim=1), squares.sum(dim=1)], dim=1)  # (M, 2)
        sums = parts.new_zeros(len(logits), 2).index_add(0, batch.batch, parts)
        return (sums[:, 0] / sums[:, 1].clamp(min=torch.finfo(x.dtype).tiny)).mean()

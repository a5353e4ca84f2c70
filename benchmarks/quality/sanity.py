"""Checks that a good explainer passes whatever the truth is: it looks at the weights, and not at what means nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from scipy.stats import spearmanr
from torch import Tensor, nn

from quality.networks import Network
from walkwise.evaluation.predictions import Prediction, predict

Scores = Callable[[Prediction], Tensor]  # (M,) from a prediction


def of_model(prediction: Prediction, model: nn.Module) -> Prediction:
    """The same prediction made by another model."""
    index = prediction.index
    return predict(model, prediction.x, prediction.edge_index, target=prediction.target, index=index)


def likeness(first: Tensor, second: Tensor) -> float:
    """Spearman's rank correlation; 1 where neither varies, 0 where one does not."""
    flat = [bool((scores == scores[0]).all()) for scores in (first, second)]
    if any(flat):
        return float(all(flat))
    return float(spearmanr(first.detach().numpy(), second.detach().numpy()).statistic)


def cascade(scores: Scores, prediction: Prediction, seed: int = 0) -> list[float]:
    """How like the first explanation is the one after the head, the last layer, … the first layer get random weights.

    The weights stay random once they are (Adebayo et al., 2018): an explainer that looks at the model loses
    its likeness on the way down, and one that does not keeps 1.
    """
    before = scores(prediction)
    return [likeness(before, scores(other)) for other in randomised(prediction, seed)]


def randomised(prediction: Prediction, seed: int = 0) -> Iterator[Prediction]:
    """The same prediction after the head, then the last layer, … then the first have random weights too."""
    model = copy.deepcopy(prediction.model)
    assert isinstance(model, Network)
    generator = torch.Generator().manual_seed(seed)
    for part in ((model.head,), *reversed(list(zip(model.convs, model.norms, strict=True)))):
        for module in part:
            _randomise(module, generator)
        yield of_model(prediction, model)


@torch.no_grad()
def _randomise(module: nn.Module, generator: torch.Generator) -> None:
    """Weights of the same spread in another order of signs and places."""
    for parameter in module.parameters():
        spread = float(parameter.std()) if parameter.numel() > 1 else float(parameter.abs().max())
        parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype) * (spread or 0.1))


def relabelled(scores: Scores, prediction: Prediction, seed: int = 0) -> float:
    """The largest change, relative to the largest score, when the nodes get other numbers."""
    place = torch.randperm(prediction.num_nodes, generator=torch.Generator().manual_seed(seed))
    index = None if prediction.index is None else int(place.argsort()[prediction.index])
    other = predict(
        prediction.model,
        prediction.x[place],
        place.argsort()[prediction.edge_index],
        target=prediction.target,
        index=index,
    )
    return _apart(scores(prediction)[place], scores(other))


def noised(scores: Scores, prediction: Prediction, noise: float = 1e-6, seed: int = 0) -> float:
    """The largest change, relative to the largest score, when features change by so little; per unit of noise."""
    generator = torch.Generator().manual_seed(seed)
    x = prediction.x
    shaken = x + noise * torch.randn(x.shape, generator=generator, dtype=x.dtype)
    other = predict(prediction.model, shaken, prediction.edge_index, target=prediction.target, index=prediction.index)
    return _apart(scores(prediction), scores(other)) / noise


def on_equivalent(scores: Scores, prediction: Prediction, change: Callable[[Network], Network]) -> float:
    """The largest change, relative to the largest score, for a model that computes the same in other words."""
    assert isinstance(prediction.model, Network)
    other = of_model(prediction, change(prediction.model))
    if not torch.allclose(other.logits, prediction.logits, rtol=1e-4, atol=1e-4):
        raise ValueError(f"The models are not equivalent: {prediction.logits.tolist()}, {other.logits.tolist()}.")
    return _apart(scores(prediction), scores(other))


def _apart(first: Tensor, second: Tensor) -> float:
    largest = float(first.abs().max())
    return float((first - second).abs().max()) / (largest or 1.0)


def folded(network: Network) -> Network:
    """The same network with the normalisation after each layer folded into the layer's last linear map."""
    network = copy.deepcopy(network)
    for i, norm in enumerate(network.norms):
        if isinstance(norm, nn.BatchNorm1d):
            for linear in _outward(network.convs[i]):
                _fold(linear, norm)
            network.norms[i] = nn.Identity()
    return network.eval()


def _outward(layer: nn.Module) -> list[tuple[nn.Module, bool]]:
    """The linear maps whose sum a layer gives out, and whether each carries the bias."""
    if hasattr(layer, "nn"):
        return [(layer.nn[-1], True)]
    return [(layer.lin_l, True), (layer.lin_r, False)]  # GraphSAGE


@torch.no_grad()
def _fold(part: tuple[nn.Module, bool], norm: nn.BatchNorm1d) -> None:
    linear, carries = part
    slope = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    linear.weight.mul_(slope[:, None])
    if carries:
        linear.bias.copy_((linear.bias - norm.running_mean) * slope + norm.bias)


def split_in_two(network: Network) -> Network:
    """The same network with the head's first linear map written as two: a scaling of neurons, and the rest."""
    network = copy.deepcopy(network)
    first = network.head[0]
    scale = nn.Linear(first.in_features, first.in_features, bias=False).to(first.weight)
    factors = torch.linspace(0.5, 2.0, first.in_features).to(first.weight)
    with torch.no_grad():
        scale.weight.copy_(torch.diag(factors))
        first.weight.div_(factors)
    network.head.insert(0, scale)
    return network.eval()


def in_double(prediction: Prediction) -> Prediction:
    """The prediction in double precision: the checks compare numbers closely."""
    model = copy.deepcopy(prediction.model).double()
    return of_model(replace(prediction, x=prediction.x.double()), model)


DRAWS = 10  # of random weights
#: What the columns of the table mean.
LEGEND = f"""\
On a trained GIN with normalisation, in double precision, the worst of three graphs. `cascade`: the likeness (rank
correlation) to the explanation of the same model with random weights, the mean over the graphs and {DRAWS} draws of
weights, and `its size` the mean without the sign; 0 is good. `relabelling`, `folded norm`, `split linear`: the largest
change, relative to the largest score, when nodes get other numbers, a BatchNorm is folded into the linear map before
it, and a linear map is written as two; 0 is good. `noise`: by how many times a tiny change of the features is outdone;
thousands mean that rounding decides. Orders are scored by place: nodes that are alike stand in the order of their
numbers, so that relabelling and noise may swap them."""


def examine(scores: Scores, predictions: list[Prediction]) -> dict[str, float]:
    """Every check, the worst over some predictions of a network with norms; of the cascade its end, on average."""
    exact = [in_double(p) for p in predictions]
    ends = [cascade(scores, p, seed)[-1] for p in exact for seed in range(DRAWS)]
    return {
        "cascade": sum(ends) / len(ends),
        "its size": sum(map(abs, ends)) / len(ends),
        "relabelling": max(relabelled(scores, p) for p in exact),
        "noise": max(noised(scores, p) for p in exact),
        "folded norm": max(on_equivalent(scores, p, folded) for p in exact),
        "split linear": max(on_equivalent(scores, p, split_in_two) for p in exact),
    }

"""The sanity checks: relevance passes, and explainers that look at the wrong things do not."""

import pytest
import torch
from quality import planted, randomised, sanity
from quality.measures import Answer
from quality.methods import Method
from quality.networks import DESIGNS, Network
from quality.running import Explained
from quality.tasks import TASKS
from torch import nn

import walkwise as ww
from walkwise.evaluation.predictions import predict, traced


def relevance(rule):
    return lambda prediction: ww.node_relevance(traced(prediction, rule=rule))


def degree(prediction):
    """An explainer that does not look at the model."""
    return prediction.edge_index[0].bincount(minlength=prediction.num_nodes).double()


def numbering(prediction):
    """An explainer that looks at the order of the nodes."""
    return torch.arange(prediction.num_nodes).double()


def rounding(prediction):
    """An explainer that looks at what hardly matters."""
    return (prediction.x * 1e7).frac().sum(1)


def size_of_weights(prediction):
    """An explainer that looks at how the model is written."""
    total = sum(float(p.detach().abs().sum()) for p in prediction.model.head[0].parameters())
    return degree(prediction) * total


@pytest.fixture(params=["gin-relu-norm", "sage-gelu-norm"])
def prediction(request):
    data = planted.many(planted.two_motifs(planted.tree, planted.house, planted.cycle), 2, 0)[1]
    torch.manual_seed(0)
    network = Network(DESIGNS[request.param], TASKS["house-on-tree"], data.x.shape[1]).double()
    for _ in range(20):  # running statistics that matter
        network(data.x.double() + torch.randn(data.x.shape).double(), data.edge_index)
    return predict(network.eval(), data.x.double(), data.edge_index, target=1)


@pytest.mark.parametrize("rule", ["gamma", "zero"])
def test_relevance_passes(prediction, rule):
    scores = relevance(rule)
    assert sanity.relabelled(scores, prediction) < 1e-9
    if rule == "zero" or isinstance(prediction.model.activations[0], nn.ReLU):  # plain γ divides by what cancels
        assert sanity.noised(scores, prediction) < 1e3
    assert sanity.on_equivalent(scores, prediction, sanity.folded) < 1e-9
    assert sanity.on_equivalent(scores, prediction, sanity.split_in_two) < 1e-9
    assert min(sanity.cascade(scores, prediction)) < 0.99


def test_others_are_found_out(prediction):
    assert sanity.cascade(degree, prediction) == pytest.approx([1.0] * 4)
    assert sanity.relabelled(numbering, prediction) > 0.1
    assert sanity.relabelled(degree, prediction) == 0
    assert sanity.noised(rounding, prediction) > 1e3
    assert sanity.on_equivalent(size_of_weights, prediction, sanity.split_in_two) > 0.01


def test_the_cascade_goes_on_from_the_top(prediction):
    """Every step leaves random what was random, so that the first layer is the last to lose its weights."""
    seen = []

    def watch(given):
        seen.append([p.detach().clone() for p in given.model.convs[0].parameters()])
        return degree(given)

    before = {name: value.clone() for name, value in prediction.model.state_dict().items()}
    sanity.cascade(watch, prediction)
    same = [all(torch.equal(a, b) for a, b in zip(seen[0], later, strict=True)) for later in seen[1:]]
    assert same == [True, True, True, False]
    assert all(torch.equal(value, before[name]) for name, value in prediction.model.state_dict().items())


def test_random_weights_change_what_looks_at_weights_alone(prediction):
    truths = torch.zeros(1, prediction.num_nodes, dtype=torch.bool)
    truths[0, -5:] = True
    one = Explained(0, prediction, truths, torch.ones(prediction.num_nodes, dtype=torch.bool))

    def asked(scores):
        return randomised.compared(Method("some", "explainer", lambda case: Answer(scores(case.prediction))), one)

    blind, seeing = asked(degree), asked(relevance("zero"))
    assert blind["likeness"] == pytest.approx([1.0] * randomised.DRAWS)
    assert blind["with random weights"] == blind["AUROC"] * randomised.DRAWS
    assert max(seeing["its size"]) < 0.99
    assert seeing["its size"] == [abs(likeness) for likeness in seeing["likeness"]]
    assert seeing["likeness"][0] != seeing["likeness"][1]  # another draw
    last = list(sanity.randomised(prediction))[-1]
    assert seeing["likeness"][0] == sanity.likeness(relevance("zero")(prediction), relevance("zero")(last))


def test_models_that_are_not_equivalent_are_refused(prediction):
    def other(network):
        changed = sanity.split_in_two(network)
        with torch.no_grad():
            changed.head[-1].bias += 1
        return changed

    with pytest.raises(ValueError, match="not equivalent"):
        sanity.on_equivalent(degree, prediction, other)


def test_likeness_of_scores_that_do_not_vary():
    flat, rising = torch.ones(4), torch.arange(4.0)
    assert sanity.likeness(flat, flat) == 1
    assert sanity.likeness(flat, rising) == 0
    assert sanity.likeness(rising, -rising) == pytest.approx(-1)

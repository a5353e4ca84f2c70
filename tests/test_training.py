"""Training: it learns, it stops, it follows its seed, and it keeps the best weights."""

import importlib.util
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Batch, Data

from walkwise import datasets, models, training
from walkwise.errors import InputError

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def motifs():
    return datasets.load("ba2motif-generated")


def trained(motifs, *, seed=0, start=0, **options):
    torch.manual_seed(start)
    model = models.GIN(1, 32, 2, 5)
    return model, training.train(model, motifs, seed=seed, **{"epochs": 3, "batch_size": 32, "lr": 3e-3} | options)


@pytest.fixture(scope="module")
def longer(motifs):
    return trained(motifs, epochs=10)


def test_it_learns_motifs(motifs, longer):
    model, result = longer
    assert result.test_accuracy > 0.75
    assert not model.training
    assert result.history[-1].train_loss < 0.6 * result.history[0].train_loss
    _, accuracy = training.evaluate(model, motifs.graphs, motifs.test)
    assert accuracy == result.test_accuracy


def test_the_same_seed_gives_the_same_weights(motifs):
    (first, once), (again, twice), (other, _) = (trained(motifs, seed=seed) for seed in (1, 1, 2))
    assert once == twice
    for ours, same, different in zip(first.parameters(), again.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, same)
        assert not torch.equal(ours, different)


def test_the_callers_random_numbers_are_left_alone(motifs):
    model = models.GIN(1, 4, 2, 2)
    before = torch.get_rng_state()
    training.train(model, motifs, epochs=1)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_best_epoch_is_kept_and_patience_ends_it(motifs):
    model, result = trained(motifs, epochs=40, patience=2, lr=0.05)
    scores = [(epoch.val_accuracy, -epoch.val_loss) for epoch in result.history]
    assert result.best_epoch == scores.index(max(scores)) + 1
    assert len(scores) == min(40, result.best_epoch + 2)
    loss, accuracy = training.evaluate(model, motifs.graphs, motifs.val)
    assert (accuracy, -loss) == pytest.approx(max(scores), rel=1e-6)
    assert accuracy == result.val_accuracy


def test_biases_stay_negative_where_asked(motifs, longer):
    def largest(model):
        return max(float(p.detach().max()) for name, p in model.named_parameters() if name.endswith("bias"))

    held, _ = trained(motifs, epochs=10, negative_biases=True)
    assert largest(held) <= 0 < largest(longer[0])


def test_accuracy_is_by_the_graph(motifs):
    model, index = models.GIN(1, 4, 2, 2), torch.tensor([3, 700, 20, 999, 5])
    loss, accuracy = training.evaluate(model, motifs.graphs, index, batch_size=2)
    with torch.no_grad():
        logits = torch.cat([model(motifs.graphs[g].x, motifs.graphs[g].edge_index) for g in index.tolist()])
    y = motifs.graphs.y[index]
    assert accuracy == int((logits.argmax(dim=1) == y).sum()) / 5
    assert loss == pytest.approx(float(-logits.log_softmax(dim=1)[torch.arange(5), y].mean()), rel=1e-5)


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"lr": -1.0}, {"batch_size": 0}, {"patience": 0}])
def test_numbers_must_be_positive(motifs, wrong):
    with pytest.raises(InputError, match=f"{next(iter(wrong))} must be a positive"):
        training.train(models.GIN(1, 4, 2, 2), motifs, **wrong)


# -- relevance where it is wanted -----------------------------------------------------------------


def _rings(seed=0):
    """Two rings side by side, with two features."""
    torch.manual_seed(seed)
    ring = torch.tensor([[m, (m + 1) % 4] for m in range(4)]).t()
    graph = Data(torch.randn(4, 2, dtype=torch.float64), torch.cat([ring, ring.flip(0)], dim=1), y=torch.tensor([1]))
    other = Data(torch.randn(4, 2, dtype=torch.float64), graph.edge_index, y=torch.tensor([0]))
    return Batch.from_data_list([graph, other])


def test_the_penalty_is_the_share_of_gradient_times_input():
    batch, model = _rings(), models.GIN(2, 6, 3, 2).double()
    wanted = torch.tensor([1.0, 0.25])

    def expected(grown):
        shares = []
        for graph, part in zip(batch.to_data_list(), grown, strict=True):
            label = int(graph.y)
            x = (graph.x * torch.tensor([1.0, 0.25 + 0.75 * part])).requires_grad_(True)
            logits = model(x, graph.edge_index)[0]
            others = [logits[column] for column in range(3) if column != label]
            (slope,) = torch.autograd.grad(logits[label] - sum(others) / 2, x)
            squares = (graph.x * slope).detach() ** 2
            shares.append(float((squares * (1 - wanted)).sum() / squares.sum()))
        return sum(shares) / 2

    found = training.relevance_penalty(model, batch, wanted, path=False)
    assert found.item() == pytest.approx(expected([1, 1]), rel=1e-10)
    torch.manual_seed(3)
    grown = torch.rand(2, 1).flatten().tolist()
    torch.manual_seed(3)
    found = training.relevance_penalty(model, batch, wanted)
    assert found.item() == pytest.approx(expected(grown), rel=1e-10)
    nodes = torch.ones(8, 1)
    nodes[:4] = 0
    assert training.relevance_penalty(model, batch, nodes).item() == pytest.approx(0.5)  # all of one graph, none of two
    assert training.relevance_penalty(model, batch, torch.ones(2)).item() == 0


def test_the_penalty_has_the_gradient_of_finite_differences():
    batch, model, wanted = _rings(), models.GIN(2, 6, 2, 2).double(), torch.tensor([1.0, 0.0])
    weight = next(model.parameters())
    (slope,) = torch.autograd.grad(training.relevance_penalty(model, batch, wanted, path=False), weight)
    step = 1e-6
    for place in ((0, 0), (1, 1), (3, 0)):
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                weight[place] += sign * step
            values.append(training.relevance_penalty(model, batch, wanted, path=False).item())
            with torch.no_grad():
                weight[place] -= sign * step
        assert (values[0] - values[1]) / (2 * step) == pytest.approx(float(slope[place]), rel=1e-4, abs=1e-8)


def test_a_penalised_model_ignores_what_a_plain_one_believes():
    spec = importlib.util.spec_from_file_location("right_reasons", ROOT / "examples/right_reasons.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    found = example.main()
    assert found["plain"][0] < 0.7
    assert found["plain"][1] > 0.5
    assert found["penalised"][0] > 0.9
    assert found["penalised"][1] < 0.1

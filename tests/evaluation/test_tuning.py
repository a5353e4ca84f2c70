"""The discount chosen on held-out graphs."""

import pytest
import torch
from torch import nn
from torch.utils.data import Subset
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, global_add_pool
from torch_geometric.utils import remove_self_loops, to_undirected

from walkwise.errors import InputError
from walkwise.evaluation import activation_curve, motif_auroc, pruning_curve, scores_of_order
from walkwise.evaluation.predictions import predict, traced
from walkwise.evaluation.tuning import tune_alpha
from walkwise.search.orders import order_nodes


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([GCNConv(3, 6), GCNConv(6, 2)])

    def forward(self, x, edge_index, batch=None):
        x = self.convs[0](x, edge_index).relu()
        return global_add_pool(self.convs[1](x, edge_index), batch)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Classifier().double()


def graphs():
    for seed in range(3):
        rng = torch.Generator().manual_seed(seed)
        edges = remove_self_loops(torch.randint(0, 8, (2, 14), generator=rng))[0]
        yield Data(torch.randn(8, 3, generator=rng, dtype=torch.float64), to_undirected(edges, num_nodes=8), y=seed % 2)


def slow_score(model, data, task, alpha):
    chain = traced(predict(model, data, target=data.y))
    order = order_nodes(chain, mode="pruning" if task == "pruning" else "activation", alpha=alpha)
    if task == "motif":
        return motif_auroc(scores_of_order(order), [0, 1])
    curve = pruning_curve if task == "pruning" else activation_curve
    return curve(model, data, order, target=data.y).area


@pytest.mark.parametrize("task", ["activation", "pruning", "motif"])
def test_the_curve_is_what_each_alpha_gives_alone(model, task):
    alphas = [0.7, 0.0, 0.3]
    found = tune_alpha(model, graphs(), task=task, alphas=alphas, target=lambda d: d.y, motif=lambda d: [0, 1])
    assert found.alphas == (0.0, 0.3, 0.7)
    expected = [[slow_score(model, data, task, alpha) for alpha in found.alphas] for data in graphs()]
    torch.testing.assert_close(found.scores, torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(found.mean, found.scores.mean(0))
    torch.testing.assert_close(found.standard_error, found.scores.std(0) / 3**0.5)
    best = min if task == "pruning" else max
    assert found.mean[found.alphas.index(found.best_alpha)] == best(found.mean.tolist())


def test_of_equal_alphas_the_smallest_is_best(model):
    lonely = Data(torch.ones(3, 3, dtype=torch.float64), torch.empty(2, 0, dtype=torch.long))
    assert tune_alpha(model, [lonely], target=0).best_alpha == 0


def test_graphs_may_be_part_of_a_data_set(model):
    part = Subset(list(graphs()), [2, 0])
    found = tune_alpha(model, part, alphas=0.5, target=0)
    expected = tune_alpha(model, list(graphs()), alphas=0.5, target=0)
    torch.testing.assert_close(found.scores, expected.scores[[2, 0]])


def test_errors_say_what_was_expected(model):
    with pytest.raises(InputError, match='"activation", "pruning" or "motif"'):
        tune_alpha(model, graphs(), task="auac")
    with pytest.raises(InputError, match="Give motif="):
        tune_alpha(model, graphs(), task="motif")
    with pytest.raises(InputError, match="at least one graph"):
        tune_alpha(model, [])
    with pytest.raises(InputError, match=r"list of graphs, got one Data. Write \[data\]"):
        tune_alpha(model, next(graphs()))
    with pytest.raises(InputError, match=r"Data objects, got torch\.float32 of shape"):
        tune_alpha(model, [torch.ones(3)])
    with pytest.raises(InputError, match="Data objects, got None"):
        tune_alpha(model, None)


@pytest.mark.parametrize("alphas", [["a"], [None], None, 1.5, [0.5, float("nan")], "all"])
def test_alphas_are_discounts(model, alphas):
    with pytest.raises(InputError, match="between 0 and 1"):
        tune_alpha(model, graphs(), alphas=alphas)


def test_no_alpha_is_refused_and_one_is_enough(model):
    with pytest.raises(InputError, match=r"alphas is empty\. Give at least one discount"):
        tune_alpha(model, graphs(), alphas=[])
    for one in (0.3, torch.tensor(0.3, dtype=torch.float64), torch.tensor([0.3], dtype=torch.float64)):
        found = tune_alpha(model, graphs(), target=0, alphas=one)
        assert found.alphas == (found.best_alpha,) == (0.3,)

# %% [markdown]
# # Training a model to look in the right place
#
# BA-2motif: a house or a ring of five nodes hangs on a random graph and decides the label. Here every node also has a
# tag that equals the label, on the graphs for training only: an easy lie. A model that is simply trained believes the
# tag. With a penalty on relevance that falls on the tag (`training.relevance_penalty`), it learns the motif instead.
#
# Needs nothing but the library; about a minute on one core.
#
#     python examples/right_reasons.py

# %%
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GINConv, global_add_pool

from walkwise import training
from walkwise.datasets import GraphSet, ba2motif, pack

torch.set_num_threads(1)  # tensors this small gain nothing from more

# %% [markdown]
# ## Graphs with a tag
#
# The first feature is 1 on every node, as in BA-2motif; the second is the tag. On the graphs that decide when to stop,
# and on those for testing, the tag is drawn by lot.

# %%
WANTED = torch.tensor([1.0, 0.0])  # relevance is wanted on the structure, not on the tag
STRENGTH = 30  # of the penalty, beside a cross-entropy of about 1


def tagged(count=1000, seed=0):
    """As many graphs as asked: six tenths of them for training, two to stop by, two for testing."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(count, generator=generator)
    train, val, test = order.split([count * 6 // 10, count // 5, count - count * 6 // 10 - count // 5])
    honest = torch.zeros(count, dtype=torch.bool)
    honest[train] = True
    graphs = []
    for number, graph in enumerate(ba2motif.generate(count, seed=seed)):
        lot = int(torch.randint(0, 2, (1,), generator=generator))
        tag = 2.0 * (int(graph.y) if honest[number] else lot) - 1
        x = torch.tensor([[1.0, tag]]).repeat(graph.num_nodes, 1)
        graphs.append(Data(x, graph.edge_index, y=graph.y))
    return GraphSet("tagged BA-2motif", pack(graphs), train, val, test, ba2motif.CLASSES)


# %% [markdown]
# ## Trained both ways


# %%
class Classifier(nn.Module):
    """A GIN with normalisation, as many people write it."""

    def __init__(self, width=32, layers=3):
        super().__init__()
        self.convs = nn.ModuleList()
        for before in [2] + [width] * (layers - 1):
            maps = nn.Linear(before, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
            self.convs.append(GINConv(nn.Sequential(*maps)))
        self.head = nn.Linear(width, 2)

    def forward(self, x, edge_index, batch):
        for conv in self.convs:
            x = conv(x, edge_index)
        return self.head(global_add_pool(x, batch))


def fit(graphs, penalty=None, seed=0):
    """The model, trained: its accuracy on the test graphs, and how much of the relevance falls on the tag there."""
    torch.manual_seed(seed)
    model = Classifier()
    result = training.train(model, graphs, epochs=40, patience=40, batch_size=64, lr=5e-3, seed=seed, penalty=penalty)
    share = training.relevance_penalty(model, graphs.graphs.batch(graphs.test), WANTED, path=False)
    return result.test_accuracy, float(share.detach())


def on_the_tag(model, batch):
    """What is added to the loss."""
    return STRENGTH * training.relevance_penalty(model, batch, WANTED)


def main():
    """Accuracy and share of the tag, with and without the penalty."""
    graphs, found = tagged(), {}
    for name, penalty in (("plain", None), ("penalised", on_the_tag)):
        accuracy, share = found[name] = fit(graphs, penalty)
        print(f"{name:>10}: test accuracy {accuracy:.1%}, relevance on the tag {share:.1%}")
    return found


if __name__ == "__main__":
    main()

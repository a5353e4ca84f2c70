# %% [markdown]
# # Training a model to look in the right place
#
# Every graph is a ring of eight nodes that carry a noisy signal of its label, sure only together. The
# nodes also carry a tag that equals the label, on the graphs for training only: an easy lie. A model that is simply
# trained believes the tag. With a penalty on relevance that falls on the tag (`training.relevance_penalty`), it learns
# the signal instead.
#
# Needs nothing but the library; less than a minute on one core.
#
#     python examples/right_reasons.py

# %%
import torch
from torch_geometric.data import Data

from walkwise import models, training
from walkwise.datasets import GraphSet, pack

torch.set_num_threads(1)  # tensors this small gain nothing from more

# %% [markdown]
# ## Graphs with a tag
#
# The first feature is the signal, the second the tag. On the graphs that decide when to stop, and on those for testing,
# the tag is drawn by lot.

# %%
RING = torch.tensor([[m, (m + 1) % 8] for m in range(8)]).t()
EDGES = torch.cat([RING, RING.flip(0)], dim=1)
WANTED = torch.tensor([1.0, 0.0])  # relevance is wanted on the signal, not on the tag


def tagged(count=600, seed=0):
    """As many graphs as asked: half of them for training, a sixth to stop by, the rest for testing."""
    generator = torch.Generator().manual_seed(seed)
    index = torch.arange(count)
    train, val, test = index.split([count // 2, count // 6, count - count // 2 - count // 6])
    graphs = []
    for number in range(count):
        label, lot = torch.randint(0, 2, (2,), generator=generator).tolist()
        signal = 0.6 * (2 * label - 1) + torch.randn(8, generator=generator)
        tag = torch.full((8,), 4.0 * (label if number < len(train) else lot) - 2)
        graphs.append(Data(torch.stack([signal, tag], dim=1), EDGES, y=torch.tensor([label])))
    return GraphSet("tagged rings", pack(graphs), train, val, test, ("low", "high"))


# %% [markdown]
# ## Trained both ways


# %%
def fit(graphs, penalty=None):
    """A GIN-2, trained: its accuracy on the test graphs, and how much of the relevance falls on the tag there."""
    torch.manual_seed(0)
    model = models.GIN(2, 16, 2, 2)
    result = training.train(model, graphs, epochs=30, patience=30, batch_size=32, lr=5e-3, penalty=penalty)
    share = training.relevance_penalty(model, graphs.graphs.batch(graphs.test), WANTED)
    return result.test_accuracy, float(share.detach())


def main():
    """Accuracy and share of the tag, with and without the penalty."""
    graphs, found = tagged(), {}
    penalties = {"plain": None, "penalised": lambda model, batch: training.relevance_penalty(model, batch, WANTED)}
    for name, penalty in penalties.items():
        accuracy, share = found[name] = fit(graphs, penalty)
        print(f"{name:>10}: test accuracy {accuracy:.1%}, relevance on the tag {share:.1%}")
    return found


if __name__ == "__main__":
    main()

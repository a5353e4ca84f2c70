# %% [markdown]
# # Who makes this thread a question-and-answer thread?
#
# Threads on a discussion board as graphs: a node is a user, an edge a reply. In a question-and-answer thread a few
# people answer everybody, so that there are hubs; in a discussion people answer each other in chains. A model that
# tells them apart without any feature of the users can only look at the structure. Which part of it?
#
# With REDDIT-BINARY in the data root (see `walkwise.datasets.data_root`) the graphs are real threads; without it they
# are made here. Writes figures to `out/`.
#
#     python examples/social_graph.py

# %%
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import torch
from torch_geometric.data import Data
from torch_geometric.utils import degree, to_undirected

import walkwise as ww
from walkwise import datasets, models, plotting, training

torch.set_num_threads(1)  # tensors this small gain nothing from more
torch.manual_seed(0)
OUT = Path("out")
OUT.mkdir(exist_ok=True)


# %% [markdown]
# ## Threads
#
# Made threads have 40 to 80 users. In a question-and-answer thread (label 1) three hubs get three quarters of the
# replies; in a discussion (label 0) a reply goes to one of the last few who wrote, so that long chains grow.


# %%
def make_thread(label, generator):
    users = int(torch.randint(40, 81, (), generator=generator))
    replies = []
    for user in range(1, users):
        if label and torch.rand((), generator=generator) < 0.75:
            to = int(torch.randint(min(3, user), (), generator=generator))
        else:
            to = max(0, user - 1 - int(torch.randint(6, (), generator=generator)))
        replies.append((user, to))
    edge_index = to_undirected(torch.tensor(replies).t(), num_nodes=users)
    return Data(torch.ones(users, 1), edge_index, y=torch.tensor([label]))


def made_threads(count=300):
    generator = torch.Generator().manual_seed(0)
    graphs = datasets.pack([make_thread(i % 2, generator) for i in range(count)])
    order = torch.arange(count)
    split = order[: count // 2], order[count // 2 : 2 * count // 3], order[2 * count // 3 :]
    return datasets.GraphSet("made threads", graphs, *split, ("discussion", "question and answer"))


def load_threads():
    if (datasets.data_root() / "tu" / "REDDIT-BINARY" / "raw").is_dir():
        return datasets.load("reddit-binary")
    return made_threads()


threads = load_threads()
print(threads)

# %% [markdown]
# ## A model

# %%
model = models.GIN(in_channels=1, hidden_channels=16, out_channels=2, num_layers=3)
result = training.train(model, threads, epochs=30, patience=10, batch_size=32, lr=3e-3, negative_biases=True)
print(result)


# %% [markdown]
# ## One thread
#
# A test thread with hubs that the model classifies rightly, of a size that can be drawn. What speaks for label 1
# rather than 0?


# %%
def contrast(logits):
    return logits[0, 1] - logits[0, 0]


def choose():
    for g in threads.test.tolist():
        graph = threads.graphs[g]
        if int(graph.y) == 1 and graph.num_nodes <= 120 and contrast(model(graph.x, graph.edge_index)) > 0:
            return graph
    raise SystemExit("The model classifies no small thread of label 1 rightly; train it for longer.")


thread = choose()
chain = ww.trace(model, thread.x, thread.edge_index, target=contrast)
print(chain)

# %% [markdown]
# ## Hubs, and what hangs on them
#
# Three groups: the hubs (the three users with most replies), the users next to a hub, and the others. Interaction terms
# say how much relevance walks have that visit exactly these groups.

# %%
replies = degree(thread.edge_index[0], thread.num_nodes)
hubs = replies.topk(3).indices.tolist()
near = sorted({v for u, v in thread.edge_index.t().tolist() if u in hubs} - set(hubs))
others = [n for n in range(thread.num_nodes) if n not in hubs and n not in near]
groups = {"hubs": hubs, "next to a hub": near, "others": others}
terms = ww.interactions(chain, groups)
for names, value in terms.terms.items():
    print(f"{' + '.join(names):<30}{value:9.3f}")
without = ww.query(chain, "~hubs", groups)
print(f"walks that avoid the hubs have {without:.3f} of {chain.input_relevance:.3f}")

# %% [markdown]
# A thousand random sets of ten users are one call.

# %%
sets = [torch.randperm(thread.num_nodes)[:10].tolist() for _ in range(1000)]
relevance = ww.subgraph_relevance(chain, sets)
has_hub = torch.tensor([bool(set(hubs) & set(s)) for s in sets])
print(f"mean relevance of 10 random users: {relevance[has_hub].mean():.4f} with a hub among them, ", end="")
print(f"{relevance[~has_hub].mean():.4f} without")

# %% [markdown]
# ## Figures
#
# The hubs have a band around them.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained", width_ratios=[1.3, 1])
plotting.graph_heatmap(
    ww.node_relevance(chain),
    thread.edge_index,
    edge_scores=ww.edge_relevance(chain),
    subgraph=hubs,
    labels=[],
    meaning="relevance for label 1, not 0",
    ax=left,
)
plotting.interaction_bars(terms, ax=right)
figure.savefig(OUT / "social_graph.png", dpi=150)

order = ww.order_nodes(chain, alpha=0.1)
curves = [
    ww.activation_curve(model, thread.x, thread.edge_index, nodes, target=contrast)
    for nodes in (order, replies.argsort(descending=True), torch.randperm(thread.num_nodes))
]
figure, ax = plt.subplots(figsize=(5.5, 3.6), layout="constrained")
plotting.activation_curves(curves, labels=["by relevance", "by replies", "at random"], ax=ax)
figure.savefig(OUT / "social_graph_curves.png", dpi=150)
print("areas under the activation curves (relevance, replies, random):", [round(c.area, 3) for c in curves])
print(f"figures: {OUT / 'social_graph.png'}, {OUT / 'social_graph_curves.png'}")

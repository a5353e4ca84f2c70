# %% [markdown]
# # Which words made the model say "positive"?
#
# Sentences as graphs: a node is a word, an edge joins a word and its head in the dependency parse. "not" turns a word
# over only where it is joined to it, so the answer lies in what words do together, along the parse.
#
# With Graph-SST2 in the data root (see `walkwise.datasets.data_root`; the rebuilt copy needs the extra `text`) the
# model learns from film reviews. Without it, from sentences made here from a handful of patterns with their heads
# written out. Writes figures to `out/`.
#
#     python examples/text.py

# %%
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

import walkwise as ww
from walkwise import datasets, models, plotting, training

torch.set_num_threads(1)  # tensors this small gain nothing from more
torch.manual_seed(0)
OUT = Path("out")
OUT.mkdir(exist_ok=True)

# %% [markdown]
# ## Sentences
#
# A pattern has a place for a word of praise or blame, marked `*`, and every word's head beside it; the root's is its
# own. The label is 1 (positive) if the word is praise and not negated, or blame and negated.

# %%
PRAISE = ["good", "great", "charming", "moving", "funny", "clever"]
BLAME = ["bad", "dull", "boring", "weak", "silly", "tedious"]
PATTERNS = [  # words, heads, whether it is negated
    ("the film is *", [1, 3, 3, 3], False),
    ("the film is not *", [1, 4, 4, 4, 4], True),
    ("a * story about a family", [2, 2, 2, 5, 5, 2], False),
    ("not a * story about a family", [3, 3, 3, 3, 6, 6, 3], True),
    ("i found the acting *", [1, 1, 3, 1, 1], False),
    ("i never found the acting *", [2, 2, 2, 4, 2, 2], True),
    ("it is a * film with no great ambition", [4, 4, 4, 4, 4, 8, 8, 8, 4], False),
    ("the plot , which does not matter , is *", [1, 9, 1, 6, 6, 6, 1, 1, 9, 9], False),
]
SHOWN = [
    "the film is not dull",
    "it is a boring film with no great ambition",
    "the plot , which does not matter , is funny",
]


def pattern_graph(pattern, heads, negated, word, vocabulary):
    tokens = [word if token == "*" else token for token in pattern.split()]
    edges = [(word, head) for word, head in enumerate(heads) if word != head]
    x = torch.eye(len(vocabulary))[[vocabulary.index(token) for token in tokens]]
    label = torch.tensor([int((word in PRAISE) != negated)])
    return Data(x, to_undirected(torch.tensor(edges).t(), num_nodes=len(tokens)), y=label), tokens, heads


def made_sentences():
    words = {token for pattern, _, _ in PATTERNS for token in pattern.split()} - {"*"}
    vocabulary = sorted(words | set(PRAISE) | set(BLAME))
    made = [pattern_graph(*pattern, word, vocabulary) for pattern in PATTERNS for word in PRAISE + BLAME]
    order = torch.randperm(len(made))
    split = order[30:], order[15:30], order[:15]
    data = datasets.GraphSet("made sentences", datasets.pack([graph for graph, _, _ in made]), *split, ("neg", "pos"))
    wanted = [
        "the film is not dull",
        "it is a boring film with no great ambition",
        "the plot , which does not matter , is funny",
    ]
    return data, [one for text in wanted for one in made if " ".join(one[1]) == text]


def reviews():
    """Graph-SST2, and three of its test sentences; heads are read off the tree as seen from its middle."""
    data = datasets.load("graph-sst2")
    chosen = [
        data.graphs[g]
        for g in data.test.tolist()
        if 8 <= data.graphs[g].num_nodes <= 12 and "not" in data.graphs[g].tokens
    ]
    return data, [(graph, graph.tokens, tree_heads(graph)) for graph in chosen[:3]]


def tree_heads(graph):
    """A head for every word: the neighbour on the way to the word with most neighbours."""
    near = {n: [] for n in range(graph.num_nodes)}
    for u, v in graph.edge_index.t().tolist():
        near[u].append(v)
    root = max(near, key=lambda n: len(near[n]))
    heads, todo = {root: root}, [root]
    for word in todo:
        new = [n for n in near[word] if n not in heads]
        heads |= dict.fromkeys(new, word)
        todo += new
    return [heads.get(n, n) for n in range(graph.num_nodes)]


def load_sentences():
    root = datasets.data_root()
    real = (root / "Graph-SST2" / "raw").is_dir() or (root / "graph-sst2-rebuilt").is_dir()
    return reviews() if real else made_sentences()


data, sentences = load_sentences()
print(data)

# %% [markdown]
# ## A model
#
# The paper's GCN with three layers, so that a walk has four words. Biases that do not rise above 0 take less relevance.

# %%
width = data.graphs.x.shape[1]
few = len(data.train) < 1000
size = {"epochs": 100, "batch_size": 8} if few else {"epochs": 6, "batch_size": 256}
torch.manual_seed(0)
model = models.GCN(in_channels=width, hidden_channels=32, out_channels=2, num_layers=3)
result = training.train(model, data, patience=60, lr=5e-3, negative_biases=True, **size)
print(result)


# %% [markdown]
# ## Words, and what they do together


# %%
def positive(logits):
    return logits[0, 1] - logits[0, 0]


figures = []
for number, (graph, tokens, heads) in enumerate(sentences):
    chain = ww.trace(model, graph.x, graph.edge_index, target=positive)
    best = ww.top_walks(chain, 100, by="magnitude")
    far = [i for i, walk in enumerate(best.walks.tolist()) if len(set(walk)) >= 3][:2]  # the rest stay where they are
    walks, relevances = best.walks[far], best.relevance[far]
    print(f"\n{' '.join(tokens)}")
    print(f"  {data.class_names[int(graph.y)]}; model {chain.output:+.2f}, biases absorb {chain.bias_leak:+.2f} of it")
    for walk, relevance in zip(walks.tolist(), relevances.tolist(), strict=True):
        print(f"  {' → '.join(tokens[n] for n in walk)}   {relevance:+.3f}")
    ax = plotting.sentence_heatmap(
        tokens,
        ww.node_relevance(chain),
        heads,
        walks=walks,
        relevances=relevances,
        meaning='relevance for "positive"',
    )
    figures.append(OUT / f"text_{number + 1}.png")
    ax.figure.savefig(figures[-1], dpi=150)
    plt.close(ax.figure)

# %% [markdown]
# A negation and the word it turns over, as groups: what they do each alone, and together.

# %%
graph, tokens, heads = sentences[0]
negation = [i for i, token in enumerate(tokens) if token in ("not", "never", "no", "n't")]
joined = sorted({v for u, v in graph.edge_index.t().tolist() if u in negation} - set(negation))
chain = ww.trace(model, graph.x, graph.edge_index, target=positive)
groups = {" ".join(tokens[i] for i in negation): negation, " ".join(tokens[i] for i in joined): joined}
terms = ww.interactions(chain, groups)
print(f"\nin '{' '.join(tokens)}':")
for names, value in terms.terms.items():
    print(f"  {' + '.join(names):<20}{value:+8.3f}")
figure, ax = plt.subplots(figsize=(5, 2.6), layout="constrained")
plotting.interaction_bars(terms, ax=ax)
figure.savefig(OUT / "text_negation.png", dpi=150)
figures.append(OUT / "text_negation.png")
print("figures:", ", ".join(map(str, figures)))

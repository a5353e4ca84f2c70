"""Models that go by the numbers of nodes are not run on parts of a graph; all others are."""

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import (
    GATConv,
    GCNConv,
    GINConv,
    HeteroConv,
    SAGEConv,
    SAGPooling,
    global_add_pool,
    global_mean_pool,
)
from torch_geometric.utils import sort_edge_index, to_undirected

import walkwise as ww
from typed_graphs import BACK, Reader, papers
from walkwise import evaluation as ev
from walkwise.errors import InputError
from walkwise.evaluation.inputs import wants
from walkwise.evaluation.parts import subgraph_logits, subgraph_values
from walkwise.evaluation.predictions import predict


def graph(M=8, dtype=torch.float64):
    torch.manual_seed(3)
    pairs = torch.stack([torch.arange(M), (torch.arange(M) + 1) % M])
    edge_index = to_undirected(torch.cat([pairs, torch.tensor([[0, 1, 2], [3, 5, 6]])], 1), num_nodes=M)
    return Data(torch.randn(M, 4, dtype=dtype), edge_index)


class Net(nn.Module):
    """Two layers; subclasses say what goes in and what comes out."""

    def __init__(self, conv=GCNConv, width=4, out=3):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = conv(width, 8), conv(8, out)
        self.table = nn.Embedding(8, 4)
        self.double()

    def embedded(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)

    def forward(self, x, edge_index):
        return self.embedded(x, edge_index)


class ByNumber(Net):
    def forward(self, x, edge_index):
        return self.embedded(x + self.table(torch.arange(len(x))), edge_index)


class FirstRows(Net):
    def forward(self, x, edge_index):
        return self.embedded(x + self.table.weight[: len(x)], edge_index)


class Beside(Net):
    """Fails with fewer nodes."""

    def __init__(self):
        super().__init__(width=8)

    def forward(self, x, edge_index):
        return self.embedded(torch.cat([x, self.table.weight], 1), edge_index)


class Named(Net):
    """The row of a node that an argument names."""

    def forward(self, x, edge_index, root):
        return self.embedded(x, edge_index)[root]


class Pairs(Net):
    def forward(self, x, edge_index, edge_label_index):
        z = self.embedded(x, edge_index)
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(-1)


class Halves(Net):
    """The first nodes are of one kind, the others of another; of fewer nodes it takes others for the first."""

    def forward(self, x, edge_index):
        return self.embedded(torch.cat([x[:3], -x[3:]]), edge_index)


class Refuses(Net):
    """Fails where nodes come in another order."""

    def forward(self, x, edge_index, rank):
        if bool((rank.diff() < 0).any()):
            raise ValueError("ranks must ascend")
        return self.embedded(x, edge_index)


GOES_BY_NUMBERS = {
    "arange": (ByNumber, {"index": 4, "target": 0}, {}),
    "rows of a table": (FirstRows, {"index": 4, "target": 0}, {}),
    "a whole table": (Beside, {"index": 4, "target": 0}, {}),
    "a named node": (Named, {"target": 0}, {"root": torch.tensor([2])}),
    "pairs, by a function": (Pairs, {"target": lambda out: out[0]}, {"edge_label_index": torch.tensor([[0], [1]])}),
    "pairs, as many as nodes": (Pairs, {"index": 0}, {"edge_label_index": torch.tensor([[0, 1] * 4, [1, 0] * 4])}),
    "kinds by number": (Halves, {"index": 4}, {}),
    "fails": (Refuses, {"index": 4}, {"rank": torch.arange(8)}),
    "a row by a function": (Net, {"target": lambda out: out[4, 0]}, {}),
}


@pytest.mark.parametrize("case", GOES_BY_NUMBERS)
def test_what_goes_by_the_numbers_of_nodes_is_not_asked_about_parts(case):
    kind, said, given = GOES_BY_NUMBERS[case]
    model, data = kind().eval(), graph()
    data.update(given)
    found = ww.explain(model, data, size=2, **said)
    assert found.check is None
    assert found.notes[-1].startswith("the model was not run on parts of the graph: the ")
    assert found.prediction.output == pytest.approx(found.chain.output)
    on = {"on": "logit"}
    for ask in (ev.activation_curve, ev.pruning_curve, ev.fidelity_plus, ev.fidelity_minus):
        with pytest.raises(InputError, match="depends on node numbers") as caught:
            ask(model, data, [0, 1, 2, 3, 4, 5, 6, 7], **said, **on)
        assert caught.value.argument == ("target" if case == "a row by a function" else "model")
        assert caught.value.expected
        assert caught.value.got
        assert caught.value.remedy
    named = [name for name in given if name != "rank"]
    assert all(name in str(caught.value) for name in named)
    assert ("ranks must ascend" in str(caught.value)) == (case == "fails")


@pytest.mark.parametrize("given", [True, False])
def test_a_table_that_is_handed_in_goes_along(given):
    class HandedIn(Net):
        def forward(self, x, edge_index, own=None):
            own = self.table.weight if own is None else own
            return self.embedded(x + own, edge_index)

    model, data = HandedIn().eval(), graph()
    said = {"own": model.table.weight.detach()} if given else {}
    found = ww.explain(model, data, index=4, size=2, **said)
    assert (found.check is not None) == given
    if given:
        nodes = sorted({*found.subgraph.nodes, 4})
        part = data.subgraph(torch.tensor(nodes))
        row = model(part.x, part.edge_index, model.table.weight[nodes])[nodes.index(4)]
        assert found.check.alone.output == pytest.approx(row[found.chain.explained.target].item())


class Pooled(Net):
    def forward(self, x, edge_index, batch=None):
        return global_mean_pool(self.embedded(x, edge_index), batch)


class Draws(Net):
    """Random numbers, in evaluation mode, too."""

    def forward(self, x, edge_index):
        return self.embedded(x + torch.rand_like(x), edge_index)


class Flipped(Net):
    """Knows the reverse of every edge by its place: edges of a graph that is sorted by both of its rows."""

    def forward(self, x, edge_index):
        source, target = edge_index
        back = (target * len(x) + source).argsort()
        messages = self.first.lin(x)[source]
        return torch.zeros(len(x), 8, dtype=x.dtype).index_add(0, target, messages * messages[back])


class Keeps(Net):
    """Keeps the half of the nodes that scores highest; of those with equal scores, the first."""

    def __init__(self):
        super().__init__()
        self.pool = SAGPooling(8, 0.5).double()

    def forward(self, x, edge_index, batch):
        x, edge_index, _, batch, _, _ = self.pool(self.first(x, edge_index), edge_index, batch=batch)
        return global_add_pool(self.second(x, edge_index), batch)


class Cancels(Net):
    """What is left where sums in two orders are taken from each other: rounding alone."""

    def forward(self, x, edge_index):
        h = self.embedded(x, edge_index)
        return (h.cumsum(0)[-1] - h.sort(0).values.cumsum(0)[-1])[None]


def sorted_by(row, dtype=torch.float64):
    data = graph(dtype=dtype)
    data.edge_index = sort_edge_index(data.edge_index, sort_by_row=row == 0)
    return data


def lstm(i, o):
    return SAGEConv(i, o, aggr="lstm")


GOES_BY_NOTHING = {
    "node": (lambda: Net(), graph(), {"index": 4}),
    "attention": (lambda: Net(GATConv), graph(), {"index": 4}),
    "graph": (lambda: Pooled(), graph(), {}),
    "single precision": (lambda: Pooled().float(), graph(dtype=torch.float32), {}),
    "half precision": (lambda: Pooled().bfloat16(), graph(dtype=torch.bfloat16), {"target": 0}),
    "random": (Draws, graph(), {"index": 4}),
    "sorted by target, neighbours in order": (lambda: Net(lstm), sorted_by(1), {"index": 4}),
    "sorted by both": (Flipped, sorted_by(0), {"index": 4}),
    "pooling": (Keeps, graph(), {}),
    "only rounding": (Cancels, graph(), {"target": 0}),
    "one node": (lambda: Net(), Data(torch.ones(1, 4).double(), torch.zeros(2, 0, dtype=torch.long)), {"index": 0}),
    "a function of the graph": (lambda: Pooled(), graph(), {"target": lambda out: out[0, 0] - out[0, 1]}),
}


@pytest.mark.parametrize("case", GOES_BY_NOTHING)
def test_all_others_are_asked(case):
    made, data, said = GOES_BY_NOTHING[case]
    torch.manual_seed(5)
    prediction = predict(made().eval(), data, **said)
    assert prediction.by_numbers is None
    masks = torch.ones(1, data.num_nodes, dtype=torch.bool)
    assert subgraph_values(prediction, masks).values.shape == (1,)


def test_which_of_equal_scores_is_kept_is_chance():
    class Ties(Net):
        def forward(self, x, edge_index):
            return self.embedded(x, edge_index)[x[:, 0].topk(len(x) // 2).indices].sum(0, keepdim=True)

    data = graph()
    data.x[:, 0] = 1
    assert predict(Ties().eval(), data).by_numbers is None


def test_it_costs_one_run_of_a_prediction():
    class Counts(Pooled):
        runs = 0

        def forward(self, x, edge_index, batch=None):
            Counts.runs += 1
            return super().forward(x, edge_index, batch)

    prediction = predict(Counts().eval(), graph())
    assert Counts.runs == 1
    assert prediction.by_numbers is None
    assert Counts.runs == 2
    ev.fidelities(prediction, [0, 1])
    asked = Counts.runs
    ev.fidelities(prediction, [0, 1])
    assert Counts.runs - asked == asked - 2


class WithTable(Reader):
    """Adds a row of its own to every author, or picks a paper by an argument."""

    def __init__(self, **options):
        super().__init__(**options)
        self.table = nn.Embedding(5, 4).double()

    def forward(self, x_dict, edge_index_dict):
        x = x_dict["author"]
        return super().forward({**x_dict, "author": x + self.table.weight[: len(x)]}, edge_index_dict)


class OfOne(Reader):
    def forward(self, x_dict, edge_index_dict, root):
        return super().forward(x_dict, edge_index_dict)["paper"][root]


@pytest.mark.parametrize(
    ("model", "said", "given", "argument"),
    [
        (WithTable, {"index": ("paper", 1), "target": 1}, {}, "model"),
        (OfOne, {"target": 1}, {"root": torch.tensor([3])}, "model"),
        (Reader, {"target": lambda out: out["paper"][1, 0]}, {}, "target"),
    ],
    ids=["table", "named", "function"],
)
def test_heterogeneous_graphs(model, said, given, argument):
    data, model = papers(), model().eval()
    for name, value in given.items():
        data[name] = value
    prediction = predict(model, data, **said)
    assert prediction.by_numbers.argument == argument
    assert all(name in prediction.by_numbers.remedy for name in given)
    found = ww.explain(model, data, size=3, **said)
    assert found.check is None
    assert found.notes[-1] == prediction.by_numbers.note
    with pytest.raises(InputError, match="depends on node numbers"):
        subgraph_logits(prediction, torch.ones(1, 13, dtype=torch.bool)) if argument == "model" else (
            ww.activation_curve(model, data, list(range(13)), **said)
        )


def test_heterogeneous_graphs_keep_their_edges_sorted():
    class Sequences(Reader):
        def __init__(self):
            super().__init__()
            kinds, widths = [*BACK, *BACK.values()], {"author": 4, "paper": 6, "venue": 3}
            self.first = HeteroConv(
                {kind: SAGEConv((widths[kind[0]], widths[kind[2]]), 8, aggr="lstm") for kind in kinds}
            )
            self.second = HeteroConv({kind: SAGEConv((8, 8), 2, aggr="lstm") for kind in kinds})
            self.double()

    data = papers()
    for kind in data.edge_types:
        data[kind].edge_index = sort_edge_index(data[kind].edge_index, num_nodes=6, sort_by_row=False)
    for index in (("paper", 1), ("author", 3)):
        assert predict(Sequences().eval(), data, index=index).by_numbers is None
        assert predict(Reader(), data, index=index).by_numbers is None


def test_rows_of_edges_go_along():
    class Weighted(Net):
        def forward(self, x, edge_index, edge_weight):
            return self.second(self.first(x, edge_index, edge_weight).relu(), edge_index, edge_weight)

    for data in (graph(), sorted_by(1)):
        data.edge_weight = torch.rand(data.num_edges, dtype=torch.float64)
        assert predict(Weighted().eval(), data, index=4).by_numbers is None


def test_an_explanation_without_a_check_is_kept_and_shown(tmp_path):
    found = ww.explain(ByNumber().eval(), graph(), index=4, size=2)
    assert "On these nodes alone" not in str(found)
    assert "these nodes alone" not in found._repr_html_()
    found.save(tmp_path / "one.safetensors")
    again = ww.Explanation.load(tmp_path / "one.safetensors")
    assert again.check is None
    assert (str(again), again.to_dict()) == (str(found), found.to_dict())


def test_nodes_that_are_all_alike_do_not_matter():
    def gin(i, o):
        return GINConv(nn.Linear(i, o))

    data = graph()
    data.x = torch.ones(8, 4, dtype=torch.float64)
    assert predict(Net(gin).eval(), data, index=4).by_numbers is None


class Siamese(nn.Module):
    """Compares the graph with another one that comes as tensors, of as many nodes."""

    def __init__(self):
        super().__init__()
        self.conv = GCNConv(4, 3)

    def forward(self, x, edge_index, x_t, edge_index_t):
        return (self.conv(x, edge_index) * self.conv(x_t, edge_index_t).mean(0)).mean(0, keepdim=True)


def test_another_graph_stays_as_it_is_where_parts_are_asked_about():
    torch.manual_seed(0)
    x, edges, model = torch.rand(4, 4), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]), Siamese()
    other = {"x_t": torch.rand(4, 4), "edge_index_t": torch.tensor([[0, 2, 3], [1, 1, 1]])}
    curve = ww.activation_curve(model, x, edges, [0, 1, 2, 3], target=1, **other)
    with torch.no_grad():
        alone = model(x[:2], torch.tensor([[0], [1]]), **other)[0, 1]
    assert float(curve.values[1]) == pytest.approx(float(alone))


@pytest.mark.parametrize("M", [4, 5, 6, 8])
@pytest.mark.parametrize("turned", [lambda rows: rows.flip(0), lambda rows: rows.roll(1, 0)])
def test_rows_that_are_turned_round_are_seen_in_small_graphs(M, turned):
    class Turned(Net):
        def forward(self, x, edge_index):
            return turned(self.embedded(x, edge_index))

    data = graph(M) if M > 6 else Data(torch.rand(M, 4, dtype=torch.float64), torch.tensor([[0, 1, 2], [1, 2, 3]]))
    assert predict(Turned(), data, index=1, target=0).by_numbers is not None


def test_names_of_parameters():
    class Named(nn.Module):
        def forward(self, x, *rest, batch=None, **named):
            return x

    names = ("x", "batch", "rest", "named", "pos")
    assert [wants(Named(), name) for name in names] == [True, True, False, False, False]

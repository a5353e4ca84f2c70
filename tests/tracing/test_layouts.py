"""Chains of heterogeneous and pooled graphs, laid out by node, say what they say row by row."""

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.data import HeteroData

import walkwise as ww
from walkwise.core.edges import Edges
from walkwise.core.operators import Aggregate, Identity, Scale, Step, Visit
from walkwise.core.report import balances
from walkwise.core.row_maps import Gather, Scatter, Send, SumRows
from walkwise.questions import subgraphs
from walkwise.tracing.steps import layouts, locality

USERS, ITEMS = 7, 5
RATES = torch.tensor([[0, 1, 1, 2, 3, 4, 6, 6], [0, 0, 1, 2, 2, 3, 4, 0]])
FOLLOWS = torch.tensor([[0, 1, 2, 5, 6], [1, 2, 0, 6, 5]])
TYPES = ("user", "rates", "item"), ("item", "rated by", "user"), ("user", "follows", "user")


def graph():
    torch.manual_seed(3)
    data = HeteroData()
    data["user"].x, data["item"].x = torch.randn(USERS, 3).double(), torch.randn(ITEMS, 3).double()
    for kind, edges in zip(TYPES, (RATES, RATES.flip(0), FOLLOWS), strict=True):
        data[kind].edge_index = edges
    return data


class Typed(nn.Module):
    """Two layers of one convolution per edge type, and a head on the items."""

    def __init__(self, make, aggr="sum"):
        super().__init__()
        layer = [pyg.HeteroConv({kind: make(i) for kind in TYPES}, aggr=aggr) for i in (3, 4)]
        self.a, self.b, self.head = *layer, nn.Linear(4, 2)

    def forward(self, x_dict, edge_index_dict):
        hidden = {kind: h.relu() for kind, h in self.a(x_dict, edge_index_dict).items()}
        return self.head(self.b(hidden, edge_index_dict)["item"]).sum(0, keepdim=True)


class Pooled(nn.Module):
    """A layer, a pooling that keeps some of the nodes, and another layer."""

    def __init__(self, pool):
        super().__init__()
        self.a, self.pool, self.b, self.head = pyg.GCNConv(3, 4), pool, pyg.SAGEConv(4, 4), nn.Linear(4, 2)

    def forward(self, x, edge_index):
        x, edge_index, *_ = self.pool(self.a(x, edge_index).relu(), edge_index)
        return self.head(self.b(x, edge_index).sum(0, keepdim=True))


MODELS = {
    "SAGE by type": lambda: Typed(lambda i: pyg.SAGEConv((i, i), 4)),
    "attention by type": lambda: Typed(lambda i: pyg.GATConv((i, i), 2, heads=2, add_self_loops=False), "mean"),
    "transformer by type": lambda: Typed(lambda i: pyg.TransformerConv((i, i), 4)),
    "top k": lambda: Pooled(pyg.TopKPooling(4, 0.6)),
    "self-attention": lambda: Pooled(pyg.SAGPooling(4, 0.6)),
}


@pytest.mark.parametrize("rule", ["zero", "auto", "gamma", "alphabeta"])
@pytest.mark.parametrize("name", MODELS)
def test_rows_by_node_say_what_rows_of_types_say(name, rule, monkeypatch):
    torch.manual_seed(1)
    model = MODELS[name]().double().eval()
    data = graph()
    typed = isinstance(model, Typed)
    both = torch.cat([data["user"].x, data["item"].x])
    joined = torch.cat([RATES + torch.tensor([[0], [USERS]]), RATES.flip(0) + torch.tensor([[USERS], [0]])], dim=1)
    given = (data,) if typed else (both, joined)
    near = ww.trace(model, *given, target=1, rule=rule)
    monkeypatch.setattr(locality, "by_node", lambda *_: None)
    far = ww.trace(model, *given, target=1, rule=rule)
    assert near.local
    assert not far.local
    monkeypatch.setattr(subgraphs, "_FEW_ROWS", 0)
    sets = [[0, 1, 7, 8], [6, 11, 7], [5], list(range(12))]
    walks = ww.enumerate_walks(far)
    for query in (
        lambda c: ww.subgraph_relevance(c, sets, alpha=[0.0, 0.3]),
        lambda c: ww.subgraph_polynomial(c, sets),
        lambda c: ww.walk_relevance(c, walks),
        lambda c: ww.top_walks(c, k=1000).relevance.sum(),
        lambda c: torch.tensor([c.input_relevance, c.amplification]),
        lambda c: torch.tensor([[b.relevance_in, b.relevance_out] for b in balances(c)]),
    ):
        ours, theirs = query(near), query(far)
        assert float(theirs.abs().max()) > 0
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_answers_name_types():
    torch.manual_seed(1)
    chain = ww.trace(MODELS["SAGE by type"]().double().eval(), graph(), target=1)
    best = ww.find_subgraph(chain, 3, method="exact")
    assert ww.subgraph_relevance(chain, [best.named]).tolist() == pytest.approx([best.score])
    assert best.score == pytest.approx(max(found.score for found in (best, ww.find_subgraph(chain, 3))))
    assert {"item", "user"} >= set(best.named)
    assert best.nodes == best.named == chain.types.grouped(best.numbers)
    assert f"nodes={best.named}" in repr(best)
    first = chain.types.named(best.numbers[0])
    assert f"{first[0]} {first[1]}" in best._repr_html_()
    order = ww.order_nodes(chain)
    assert order.named == [chain.types.named(int(node)) for node in order]
    assert str(order.named[0]) in repr(order)
    shapley = ww.shapley_values(chain)
    assert list(shapley.named)[USERS] == ("item", 0)
    assert shapley.named["item", 0] == float(shapley.values[USERS])
    assert ">item 0<" in shapley._repr_html_()
    walks = ww.top_walks(chain, 2)
    assert walks.tied[0].words() == " → ".join(f"{kind} {i}" for kind, i in walks.named[0])


class RunningSums(pyg.SimpleConv):
    """Every node gets something of all nodes before it."""

    def forward(self, x, edge_index):
        return super().forward(x, edge_index) + x.cumsum(0)


def test_a_large_graph_says_why_questions_cost_all_of_it():
    def notes(conv):
        model = nn.Module()
        model.conv = conv
        model.forward = lambda x, edge_index: model.conv(x, edge_index).sum().view(1, 1)
        ring = torch.arange(1000)
        chain = ww.trace(model, torch.rand(1000, 2), torch.stack([ring, ring.roll(1)]), rule="zero")
        assert (chain.hops is not None) == (not chain.notes)
        return chain.notes

    assert notes(pyg.TransformerConv(2, 2)) == ()
    whole = "questions about subgraphs cost a pass over the whole graph, because "
    assert notes(RunningSums()) == (f"{whole}what layer 'conv' (RunningSums) does cannot be written edge by edge",)
    assert notes(pyg.SGConv(2, 2, K=2)) == ()


# -- steps by hand ----------------------------------------------------------------------------

PLACES, OTHERS = torch.tensor([4, 1, 3]), torch.tensor([0, 2])  # of five nodes: three of one type, two of another
BETWEEN = Edges(torch.tensor([0, 1, 2, 2]), torch.tensor([1, 2, 0, 1]), 3)
ACROSS = Edges(torch.tensor([0, 1, 2, 2]), torch.tensor([1, 1, 0, 1]), 3)
WEIGHT = torch.tensor([1.0, -2.0, 3.0, 0.5], dtype=torch.float64)
FACTOR = torch.tensor([[1.0, 2.0], [-3.0, 4.0], [5.0, -6.0]], dtype=torch.float64)
VALUES = torch.tensor([[1.0, -1.0], [2.0, 3.0], [-4.0, 0.5], [0.0, 7.0], [5.0, 6.0]], dtype=torch.float64)


def filled(steps, value=VALUES):
    values = {0: value}
    for step in steps:
        pushed = [o.push(values[s]) for o, s in zip(step.operators, step.sources, strict=True)]
        values[step.target] = sum(pushed[1:], pushed[0])
    return values


def in_a_row(*operators):
    """From nodes to rows of some of them, through the operators, and back to nodes."""
    every = [Visit(0, 0), Gather(PLACES, 5), *operators]
    return [Step((operator,), (slot,), slot + 1) for slot, operator in enumerate(every)]


@pytest.mark.parametrize(
    ("operators", "kinds"),
    [
        ([Scale(FACTOR), Scatter(PLACES, 5)], [Scale, Scale, Scale]),
        ([Scale(FACTOR[:1]), Identity(), Scatter(PLACES, 5)], [Scale, Scale, Identity, Scale]),
        ([Aggregate(BETWEEN, WEIGHT), Scatter(PLACES, 5)], [Scale, Aggregate, Scale]),
        ([Aggregate(BETWEEN, WEIGHT, 2.0), Scatter(PLACES, 5)], [Scale, Aggregate, Scale]),
        ([Send(ACROSS, WEIGHT, 3, 2), Scatter(OTHERS, 5)], [Scale, Aggregate, Scale]),
        ([Gather(torch.tensor([2, 0]), 3), Scatter(PLACES[[2, 0]], 5)], [Scale, Scale, Scale]),
        ([Gather(torch.tensor([2, 0]), 3), Scatter(OTHERS, 5)], [Scale, Scale, Aggregate]),
        ([Gather(torch.tensor([1, 1]), 3), Scatter(torch.tensor([0, 0]), 2)], [Scale, Gather, Scatter]),
    ],
    ids=lambda item: "-".join(type(o).__name__ if not isinstance(o, type) else "" for o in item),
)
def test_steps_between_rows_of_some_nodes_as_steps_between_nodes(operators, kinds):
    steps = in_a_row(*operators)
    if isinstance(operators[-1], Scatter) and operators[-1].num_rows == 5:
        steps.append(Step((Visit(1, steps[-1].target),), (steps[-1].target,), steps[-1].target + 1))
    found = layouts.layouts(steps, 5, VALUES)
    written = layouts.by_node(steps, found, VALUES)
    assert written is not None
    assert [type(o) for step in written if step.visit is None for o in step.operators] == kinds
    before, after = filled(steps), filled(written)
    for slot, value in before.items():
        assert torch.equal(found.laid_out(slot, value), after[slot]), slot
    assert found.num_nodes == 5
    assert torch.equal(found.nodes[2], PLACES)
    assert found.natural(found.nodes[0])
    assert not found.natural(PLACES)
    places = found.places([(2, before[2])])
    assert places[0][0] == 2
    assert torch.equal(places[0][1], after[2])


def test_steps_that_cannot_be_written_by_node():
    rooted = Aggregate(BETWEEN, WEIGHT, 2.0)
    ids = {1: PLACES, 2: PLACES[[1, 2, 0]], 3: OTHERS}
    found = layouts.Layouts(torch.arange(5), ids)
    unknown = 9
    for operator, source, target in [
        (rooted, 1, 2),  # the root is another node's
        (Scale(FACTOR), 1, 2),
        (Scale(FACTOR), 1, unknown),
        (Scale(FACTOR), unknown, 1),
        (SumRows(3, 1.0, False), 1, 3),
    ]:
        assert layouts.by_node([Step((operator,), (source,), target)], found, VALUES) is None
    plain = Aggregate(BETWEEN, WEIGHT)
    (step,) = layouts.by_node([Step((plain,), (1,), 2)], found, VALUES)
    rows = VALUES[PLACES]
    expected = torch.zeros(5, 2).double().index_copy(0, ids[2], plain.push(rows))
    assert torch.equal(step.operators[0].push(found.laid_out(1, rows)), expected)
    (step,) = layouts.by_node([Step((plain,), (8,), unknown)], found, VALUES)
    assert step.operators[0] is plain


@pytest.mark.parametrize(
    "operator",
    [Send(ACROSS, WEIGHT, 3, 2), Gather(torch.tensor([2, 0]), 3), Scatter(torch.tensor([1, 0, 1]), 2)],
    ids=lambda operator: type(operator).__name__,
)
def test_rows_of_nodes_and_others(operator):
    """What is read of nodes, or added up at nodes, on the other side of rows that are none."""
    found = layouts.Layouts(torch.arange(5), {1: PLACES, 3: OTHERS})
    unknown, rows = 9, VALUES[PLACES]
    expected = operator.push(rows)
    (step,) = layouts.by_node([Step((operator,), (1,), unknown)], found, VALUES)
    assert torch.equal(step.operators[0].push(found.laid_out(1, rows)), expected)
    (step,) = layouts.by_node([Step((operator,), (unknown,), 3)], found, VALUES)
    assert torch.equal(step.operators[0].push(rows), found.laid_out(3, expected))

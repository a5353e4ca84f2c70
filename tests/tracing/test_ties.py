"""Equal values share what a maximum gets, so that other numbers for the nodes only renumber the answer."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import (
    GCNConv,
    MaxAggregation,
    MedianAggregation,
    QuantileAggregation,
    ResGatedGraphConv,
    SAGEConv,
    SimpleConv,
    global_max_pool,
)

import walkwise as ww
from walkwise.core.contract import tapped_messages
from walkwise.tracing.meaning.selections import _parts, _windows, evened, shared

AROUND = torch.stack([torch.arange(6), torch.arange(1, 7) % 6])
EDGES = torch.cat([AROUND, AROUND.flip(0)], dim=1)  # a ring: every node is like every other
RENUMBERED = torch.tensor([3, 0, 5, 1, 4, 2])


def graph_of(h):
    return torch.zeros(len(h), dtype=torch.long)


READOUTS = {
    "max(dim)": lambda h: h.max(dim=0, keepdim=True).values,
    "max(dim) by place": lambda h: torch.max(h, 0)[0].view(1, -1),
    "min(dim)": lambda h: h.min(dim=0).values.view(1, -1),
    "amax": lambda h: h.amax(0, keepdim=True),
    "max of all": lambda h: h.max().view(1, 1).expand(1, 4),
    "global_max_pool": lambda h: global_max_pool(h, graph_of(h)),
    "MaxAggregation": lambda h: MaxAggregation()(h, graph_of(h)),
    "scatter_reduce": lambda h: h.new_zeros(1, 4).scatter_reduce(
        0, graph_of(h)[:, None].expand(-1, 4), h, "amax", include_self=False
    ),
    "max_pool1d": lambda h: nn.functional.max_pool1d(h.t()[None], 6)[0].t(),
    "max_pool1d with padding": lambda h: nn.functional.max_pool1d(h.t()[None], 6, padding=3, stride=7)[0].t()[:1],
    "max_pool2d": lambda h: nn.functional.max_pool2d(h[None, None], (6, 1), padding=(3, 0))[0, 0][:1],
    "max_pool1d that gives places": lambda h: nn.functional.max_pool1d(h.t()[None], 6, return_indices=True)[0][0].t(),
    "adaptive_max_pool2d": lambda h: nn.functional.adaptive_max_pool2d(h[None, None], (1, 4))[0, 0],
    "adaptive_max_pool1d": lambda h: nn.functional.adaptive_max_pool1d(h.t()[None], 1)[0].t(),
    "sort": lambda h: h.sort(dim=0, descending=True).values[:1],
    "topk": lambda h: h.topk(2, dim=0).values[1:],
    "kthvalue": lambda h: h.kthvalue(6, dim=0).values.view(1, -1),
    "median": lambda h: h.median(dim=0).values.view(1, -1),
    "MedianAggregation": lambda h: MedianAggregation()(h, graph_of(h)),
    "QuantileAggregation": lambda h: QuantileAggregation(0.3)(h, graph_of(h)),
    "cummax": lambda h: h.cummax(dim=0).values[-1:],
    "quantile": lambda h: h.quantile(0.5, dim=0).view(1, -1),
    "maximum": lambda h: torch.maximum(h[:3], h[3:]).maximum(h[[1, 2, 0]]).maximum(h[[2, 0, 1]])[:1] + 0 * h.sum(),
    "fmax": lambda h: torch.fmax(h.flip(0), h).sum(0, keepdim=True),
    "fmin": lambda h: torch.fmin(h.flip(0), h).sum(0, keepdim=True),
    "minimum": lambda h: torch.minimum(h, h.flip(0)).sum(0, keepdim=True),
    "maximum with one row": lambda h: torch.maximum(h, h.mean(0)).sum(0, keepdim=True),
    "maximum with a constant": lambda h: torch.maximum(h, torch.zeros_like(h)).sum(0, keepdim=True),
    "max(axis)": lambda h: torch.max(h, axis=0, keepdim=True).values,
    "min by place": lambda h: torch.min(h, 0, True)[0],
    "amin": lambda h: torch.amin(h, 0, True),
    "amax by name": lambda h: h.amax(dim=(0,), keepdim=True),
    "amax of all": lambda h: torch.amax(h).view(1, 1).expand(1, 4),
    "largest neurons": lambda h: h.max(-1, keepdim=True).values.sum(0, keepdim=True).expand(1, 4),
    "scatter_reduce to the least": lambda h: h.new_zeros(1, 4).scatter_reduce(
        0, graph_of(h)[:, None].expand(-1, 4), h, "amin", include_self=False
    ),
    "scatter_reduce with a constant": lambda h: h.new_full((1, 4), -9.0).scatter_reduce(
        0, graph_of(h)[:, None].expand(-1, 4), h, "amax"
    ),
    "index_reduce": lambda h: h.new_zeros(1, 4).index_reduce(0, graph_of(h), h, "amax", include_self=False),
    "index_reduce with a constant": lambda h: h.new_full((1, 4), 9.0).index_reduce(0, graph_of(h), h, "amin"),
    "index_reduce of neurons": lambda h: (
        h.t().new_zeros(4, 1).index_reduce(1, graph_of(h), h.t(), "amax", include_self=False).t()
    ),
    "segment_reduce": lambda h: torch.segment_reduce(h, "max", lengths=torch.tensor([6])),
    "scatter_reduce into itself": lambda h: h.scatter_reduce(0, (graph_of(h)[:, None] + 1).expand(-1, 4), h, "amax")[
        1:2
    ],
    "msort": lambda h: torch.msort(h)[-2:-1],
    "sort of neurons": lambda h: h.sort().values[:, 1:].sum(0, keepdim=True).repeat(1, 2)[:, :4],
    "topk of neurons": lambda h: h.topk(2).values.sum(0, keepdim=True).repeat(1, 2),
    "kthvalue of neurons": lambda h: h.kthvalue(2).values.sum().view(1, 1).expand(1, 4),
    "median of all": lambda h: h.median().view(1, 1).expand(1, 4),
    "median of neurons": lambda h: h.median(-1).values.sum().view(1, 1).expand(1, 4),
    "nanmedian": lambda h: h.nanmedian(dim=0).values.view(1, -1),
    "cummin": lambda h: h.cummin(dim=0).values[-1:],
    "quantile of all": lambda h: h.quantile(0.3).view(1, 1).expand(1, 4),
    "quantile by place": lambda h: torch.quantile(h, 0.25, 0, True),
    "aminmax": lambda h: sum(torch.aminmax(h, dim=0)).view(1, -1),
    "max_pool3d": lambda h: nn.functional.max_pool3d(h[None, None, None], (1, 6, 1))[0, 0, 0],
    "max_pool2d of neurons": lambda h: nn.functional.max_pool2d(h[None], (1, 2), (1, 1), (0, 1), ceil_mode=True)[0].sum(
        0, keepdim=True
    )[:, :4],
    "adaptive_max_pool3d": lambda h: nn.functional.adaptive_max_pool3d(h[None, None], (None, 1, 4))[0, 0],
}
try:
    torch.aminmax(torch.ones(2, requires_grad=True), dim=0).min.backward()
except RuntimeError:  # older versions of torch have no derivative of it
    del READOUTS["aminmax"]
#: Those that look at nodes by their numbers, so that their own answer depends on them.
BY_NUMBER = {"maximum", "max_pool1d with padding", "max_pool2d", "fmin", "minimum", "scatter_reduce into itself"}


class Model(nn.Module):
    def __init__(self, readout):
        super().__init__()
        self.first, self.second = GCNConv(3, 4), SAGEConv(4, 4, aggr="max")
        self.readout, self.head = readout, nn.Linear(4, 2)

    def forward(self, x, edge_index):
        return self.head(self.readout(self.second(self.first(x, edge_index).relu(), edge_index)))


def traced(name, x, edges):
    torch.manual_seed(3)
    return ww.trace(Model(READOUTS[name]).double().eval(), x, edges, target=0, rule="zero")


@pytest.mark.parametrize("name", sorted(set(READOUTS) - BY_NUMBER))
def test_nodes_that_are_alike_get_the_same(name):
    chain = traced(name, torch.ones(6, 3, dtype=torch.float64), EDGES)
    relevance = ww.node_relevance(chain)
    assert float(relevance.abs().max()) > 1e-3
    torch.testing.assert_close(relevance, relevance.mean().expand(6), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", sorted(set(READOUTS) - BY_NUMBER))
def test_other_numbers_for_the_nodes_renumber_the_answer(name):
    """Two kinds of nodes in turn around the ring, so that there are ties, but not everywhere."""
    x = torch.tensor([[0.3, 0.2, 0.9], [1.0, 0.1, 0.4]], dtype=torch.float64).repeat(3, 1)
    moved = torch.empty_like(x)
    moved[RENUMBERED] = x
    sets = [[0, 1], [2], [1, 3, 4]]
    ours, theirs = traced(name, x, EDGES), traced(name, moved, RENUMBERED[EDGES])
    for alpha in (0.0, 0.3):
        a = ww.subgraph_relevance(ours, sets, alpha=alpha)
        b = ww.subgraph_relevance(theirs, [RENUMBERED[s].tolist() for s in sets], alpha=alpha)
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_the_relevance_of_what_is_picked_is_kept():
    """Sharing moves relevance between equal values, and none is gained or lost."""
    x = torch.ones(6, 3, dtype=torch.float64)
    for name in sorted(READOUTS):
        chain = traced(name, x, EDGES)
        torch.manual_seed(3)
        model = Model(READOUTS[name]).double()
        leaf = x.clone().requires_grad_(True)
        (gradient,) = torch.autograd.grad(model(leaf, EDGES)[0, 0], leaf)
        assert chain.input_relevance == pytest.approx(float((gradient * x).sum()), rel=1e-9), name


@pytest.mark.parametrize("larger", [torch.maximum, torch.minimum, torch.fmax, torch.fmin, torch.max, torch.min])
def test_of_two_equal_tensors_each_gets_half(larger):
    """Also where they are equal up to rounding alone, and where nothing else shares it out."""
    READOUTS["of two halves"] = lambda h: larger(h[:3], h[3:] * (1 + 1e-15)).sum(0, keepdim=True)
    relevance = ww.node_relevance(traced("of two halves", torch.ones(6, 3, dtype=torch.float64), EDGES), layer=2)
    del READOUTS["of two halves"]
    assert float(relevance.abs().max()) > 1e-3
    torch.testing.assert_close(relevance, relevance.mean().expand(6), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", READOUTS)
def test_where_nothing_ties_what_is_picked_gets_it_all(name):
    """That is gradient × input under LRP-0, with nothing but ReLU in the model."""
    x = torch.rand(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(8))
    chain = traced(name, x, EDGES)
    torch.manual_seed(3)
    model, leaf = Model(READOUTS[name]).double(), x.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(model(leaf, EDGES)[0, 0], leaf)
    torch.testing.assert_close(ww.feature_relevance(chain), gradient * x, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("length", [7, 8])
@pytest.mark.parametrize("beyond", [False, True])
@pytest.mark.parametrize(("kernel", "stride", "padding", "dilation"), [(3, 2, 1, 1), (4, 3, 2, 1), (2, 3, 1, 2)])
def test_windows_are_those_of_torch(length, beyond, kernel, stride, padding, dilation):
    x = torch.randn(2, 3, length, length + 1, dtype=torch.float64)
    tables = [_windows(n, kernel, stride, padding, dilation, beyond) for n in x.shape[-2:]]
    expected = nn.functional.max_pool2d(x, kernel, stride, padding, dilation, beyond)
    torch.testing.assert_close(shared(x, x, tables), expected)
    cubes = torch.randn(1, 2, 5, 6, 7, dtype=torch.float64)
    tables = [_parts(n, size) for n, size in zip(cubes.shape[-3:], (2, 4, 7), strict=True)]
    torch.testing.assert_close(shared(cubes, cubes, tables), nn.functional.adaptive_max_pool3d(cubes, (2, 4, 7)))


def test_what_is_padded_takes_no_part():
    values, like = torch.tensor([[1.0, 2.0, 4.0]]), torch.tensor([[-3.0, -3.0, -5.0]])
    assert shared(values, like, [_windows(3, 3, 1, 1, 1, False)]).tolist() == [[1.5, 1.5, 2.0]]


def test_a_window_of_nothing_but_padding_has_no_share():
    values = torch.tensor([1.0, 2.0], requires_grad=True)
    pooled = shared(values, values.detach(), [torch.tensor([[-1, -1], [0, 1]])])
    pooled.sum().backward()
    assert pooled.tolist() == [0.0, 2.0]
    assert values.grad.tolist() == [0.0, 1.0]


class Largest(nn.Module):
    """Sums over neighbours, as the model's author writes them, and the largest of all nodes."""

    def __init__(self, largest):
        super().__init__()
        self.conv, self.largest, self.head = ResGatedGraphConv(3, 4), largest, nn.Linear(4, 2)

    def forward(self, x, edge_index):
        return self.head(self.largest(self.conv(x, edge_index)))


@pytest.mark.parametrize("name", ["max(dim)", "amax", "global_max_pool", "scatter_reduce", "max_pool1d", "sort"])
def test_values_are_equal_up_to_rounding(name):
    """Two nodes of the same features and neighbours, whose messages come in another order."""
    torch.manual_seed(0)
    model = Largest(READOUTS[name]).double().eval()
    for parameter in model.conv.parameters():
        parameter.data.abs_()  # the two, which alone have neighbours, are the largest
    x = torch.rand(6, 3, dtype=torch.float64)
    x[0] = x[5]
    others = torch.tensor([1, 2, 3, 4])
    edges = torch.cat([torch.stack([others, others * 0]), torch.stack([others.flip(0), others * 0 + 5])], dim=1)
    with torch.no_grad():
        h = model.conv(x, edges)
    assert not torch.equal(h[0], h[5])
    torch.testing.assert_close(h[0], h[5], rtol=1e-12, atol=0)
    assert bool((h[0] > h[1:5]).all())
    relevance = ww.node_relevance(ww.trace(model, x, edges, target=0, rule="zero"), layer=1)
    assert float(relevance[0].abs()) > 1e-3
    torch.testing.assert_close(relevance[0], relevance[5], rtol=1e-9, atol=0)


class LargestFeature(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = SimpleConv(aggr="sum")

    def forward(self, x, edge_index):
        return self.conv(x, edge_index).max(dim=0).values[None]


@pytest.mark.parametrize(
    ("dtype", "apart", "shared"),
    [(torch.float64, 100, True), (torch.float64, 5000, False), (torch.float32, 10, True), (torch.float32, 100, False)],
)
def test_how_far_apart_equal_values_may_come_out(dtype, apart, shared):
    """In units of rounding: sums that nearly cancel leave more than a few of them."""
    x = torch.tensor([[1.0], [1.0], [0.5]], dtype=dtype)
    x[1] += apart * torch.finfo(dtype).eps
    alone = torch.arange(3).repeat(2, 1)
    relevance = ww.node_relevance(ww.trace(LargestFeature(), x, alone, target=0))
    expected = [0.5, 0.5, 0.0] if shared else [0.0, 1.0, 0.0]
    torch.testing.assert_close(relevance, torch.tensor(expected, dtype=dtype), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dim", [0, 1, -1, None])
def test_evening_out_is_the_mean_over_equal_places(dim):
    like = torch.tensor([[1.0, 2.0, 1.0], [1.0, 1.0, 3.0]])
    values = torch.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]])
    expected = values.clone()
    for i in range(2):
        for j in range(3):
            places = [(i, c) for c in range(3)] if dim in (1, -1) else [(r, j) for r in range(2)]
            places = [(r, c) for r in range(2) for c in range(3)] if dim is None else places
            expected[i, j] = torch.stack([values[p] for p in places if like[p] == like[i, j]]).mean()
    torch.testing.assert_close(evened(values, like, dim), expected)


def test_a_maximum_of_nothing_but_zeros_is_shared_out_whole():
    """torch counts the zeros that a maximum is scattered into among the equal ones, although they do not take part."""

    class Zero(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = SAGEConv(2, 2, aggr="max", root_weight=False, bias=False)

        def forward(self, x, edge_index):
            return (self.conv(x, edge_index) + 1).sum().view(1, 1)

    model, x = Zero().double(), torch.zeros(6, 2, dtype=torch.float64)
    chain = ww.trace(model, x, EDGES, target=0, rule="zero")
    message = tapped_messages(chain)[chain.roots[0][0]][:, 0, 0]  # each node is half of two maxima
    torch.testing.assert_close(message, model.conv.lin_l.weight.detach().sum(0).expand(6, 2))


@pytest.mark.parametrize("aggregation", ["median", QuantileAggregation(0.4), QuantileAggregation(0.4, "nearest")])
def test_a_median_is_shared_by_the_messages_of_its_node_alone(aggregation):
    """Messages to other nodes have the same values."""
    torch.manual_seed(0)
    conv = SAGEConv(3, 1, aggr=aggregation, root_weight=False, bias=False).double()
    x = torch.tensor([[0.3, 0.2, 0.9], [1.0, 0.1, 0.4], [1.0, 0.1, 0.4]], dtype=torch.float64).repeat(2, 1)
    star = torch.tensor([[1, 2], [0, 0]])
    chain = ww.trace(conv, x, torch.cat([star, star + 3, torch.tensor([[0, 3], [1, 5]])], dim=1), index=0, rule="zero")
    relevance = ww.node_relevance(chain)
    half = float(conv.lin_l(x[1]).detach()) / 2
    assert abs(half) > 1e-3
    assert relevance.tolist() == pytest.approx([0, half, half, 0, 0, 0])

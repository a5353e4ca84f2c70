"""What tracing takes, and the clear error that everything else gets."""

from __future__ import annotations

import sys
from contextlib import nullcontext

import pytest
import torch
from torch import distributed, nn
from torch.nn.parameter import is_lazy
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.nn import (
    GATConv,
    GCNConv,
    GINConv,
    HeteroConv,
    MessagePassing,
    SAGEConv,
    TransformerConv,
)

import walkwise as ww
from walkwise import hooks
from walkwise.errors import InputError, TargetError, TraceError, UnsupportedLayerError
from walkwise.rules import Gamma, Zero


def spoiled(tensor, value):
    with torch.no_grad():
        tensor.view(-1)[1] = value
    return tensor


class Wrapped(nn.Module):
    """A model whose output is handed on by a function."""

    def __init__(self, inner, change):
        super().__init__()
        self.inner = inner
        self.change = change

    def forward(self, x, edge_index, **kwargs):
        return self.change(self.inner(x, edge_index, **kwargs))


@pytest.fixture
def refused(graph, unchanged):
    """Asserts that tracing raises an error with these words and changes nothing."""

    def check(model, error, words, **arguments):
        x, edge_index = graph()
        arguments = {"x": x, "edge_index": edge_index} | arguments
        tensors = [a for a in arguments.values() if isinstance(a, torch.Tensor) and not a.isnan().any()]
        with unchanged(model, *tensors), pytest.raises(error, match=words) as caught:
            ww.trace(model, **arguments)
        assert type(caught.value) is error

    return check


# -- numbers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["x", "edge_weight"])
def test_arguments_must_be_finite(net, graph, refused, name, value):
    x, edge_index = graph()
    given = {"x": x, "edge_weight": torch.ones(edge_index.shape[1], dtype=torch.float64)}
    refused(net(), InputError, f"{name} has NaN or infinite", **given | {name: spoiled(given[name], value)})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["convs.1.lin.weight", "head.1.running_var"])
def test_the_model_must_be_finite(net, graph, name, value):
    model, (x, edge_index) = net(), graph()
    model.head = nn.Sequential(model.head, nn.BatchNorm1d(3).double().eval())
    spoiled(model.get_buffer(name) if "running" in name else model.get_parameter(name), value)
    with pytest.raises(InputError, match=f"'{name}' has NaN or infinite"):
        ww.trace(model, x, edge_index)


def test_weights_that_cancel_infinities_are_seen(net, graph):
    model, (x, edge_index) = net(), graph()
    spoiled(model.head.weight, float("inf"))
    spoiled(model.head.bias, -float("inf"))
    with pytest.raises(InputError, match=r"head\.weight"):
        ww.trace(model, x, edge_index)


def test_the_output_must_be_finite(net, refused):
    refused(Wrapped(net(), lambda out: (out * 0).log()), InputError, "output is not finite")


def test_large_finite_weights_are_no_error(net, graph):
    model, (x, edge_index) = net(), graph()
    with torch.no_grad():
        model.head.weight.fill_(1e300)  # their sum is still finite, a careless norm would not be
    assert ww.trace(model, x * 1e-10, edge_index).output


# -- shapes and types -------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [6, 100, -1])
def test_edges_must_be_between_nodes(net, graph, refused, wrong):
    _, edge_index = graph()
    edge_index[1, 3] = wrong
    refused(net(), InputError, f"edge_index names nodes .*{wrong}.* x has 6 rows", edge_index=edge_index)


def test_edges_of_floating_point_numbers_are_refused(net, graph, refused):
    wrong = "edge_index must be node ids, of torch.long"
    refused(net(), InputError, wrong, edge_index=graph()[1].double())


def test_edges_must_be_columns(net, graph, refused):
    refused(net(), InputError, r"edge_index.*\(14, 2\)", edge_index=graph()[1].t().contiguous())


@pytest.mark.parametrize("x", [None, [[1.0]], torch.tensor(1.0), torch.ones(6, 3).numpy()])
def test_x_must_be_a_tensor_of_nodes(net, refused, x):
    refused(net(), InputError, "x must be a tensor with one row per node", x=x)


def test_a_graph_object_is_no_tensor(net, graph):
    x, edge_index = graph()
    data, model = Data(x=x, edge_index=edge_index), net()
    instead = r"write ww\.trace\(model, data\)"
    for given, words in (
        ((data, edge_index), f"x must be a tensor .* got Data.*{instead}"),
        ((x, data), f"edge_index must be the edges.* got Data.*{instead}"),
        ((Batch.from_data_list([data]), edge_index), f"x must be a tensor .* got DataBatch.*{instead}"),
        (([data, data],), r"got list.*Batch\.from_data_list"),
        ((HeteroData(),), "x has no nodes"),
        ((x,), r"edge_index .* left out.*write ww\.trace\(model, x, edge_index\)"),
    ):
        with pytest.raises(InputError, match=f"(?i){words}"):
            ww.trace(model, *given, target=0)
    assert ww.trace(model, data, target=0).num_nodes == 6  # as advised


def test_there_must_be_nodes(net, graph, refused):
    refused(net(), InputError, "no nodes", x=graph()[0][:0], edge_index=torch.empty(2, 0, dtype=torch.long))


def test_flat_features_are_refused(graph, refused):
    class Flat(MessagePassing):
        def forward(self, x, edge_index):
            return x * 2

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = Flat()

        def forward(self, x, edge_index):
            return self.conv(x, edge_index).sum().view(1, 1)

    refused(Model(), TraceError, r"shape \(6,\)", x=graph()[0][:, 0].clone())


def test_flat_features_that_the_model_shapes_are_fine(net, graph):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = net(features=1)

        def forward(self, x, edge_index):
            return self.inner(x.view(-1, 1), edge_index)

    x, edge_index = graph()
    chain = ww.trace(Model(), x[:, 0].clone(), edge_index)
    assert ww.feature_relevance(chain).shape == (6, 1)
    assert float(ww.feature_relevance(chain).sum()) == pytest.approx(chain.input_relevance)


def test_dtypes_must_agree(net, graph, refused):
    refused(net(), InputError, r"x is torch\.float32 .* weights are torch\.float64", x=graph()[0].float())


@pytest.mark.parametrize("lazy", [nn.LazyLinear(2), nn.LazyBatchNorm1d(affine=False)])
def test_lazy_parameters_must_be_initialised(net, graph, lazy):
    model = Wrapped(net(), lazy)
    with pytest.raises(InputError, match=r"not initialised.*Run it"):
        ww.trace(model, *graph())


def test_lazy_parameters_of_layers_that_do_not_run_are_left_alone():
    """The layer of a kind of edges, say, of which there are none."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            kinds = (("a", "to", "b"), ("b", "to", "a"), ("a", "self", "a"))
            self.first, self.last = (HeteroConv({kind: SAGEConv((-1, -1), 4) for kind in kinds}) for _ in range(2))

        def forward(self, x_dict, edge_index_dict):
            return self.last({k: h.relu() for k, h in self.first(x_dict, edge_index_dict).items()}, edge_index_dict)

    model, x = Net(), {"a": torch.randn(3, 4), "b": torch.randn(4, 5)}
    edges = {
        ("a", "to", "b"): torch.tensor([[0, 1, 2], [0, 1, 3]]),
        ("b", "to", "a"): torch.tensor([[0, 1, 3], [0, 1, 2]]),
    }
    with pytest.raises(InputError, match=r"not initialised.*Run it"):
        ww.trace(model, x, edges, index=("a", 0), target=0)
    assert all(is_lazy(weight) for name, weight in model.named_parameters() if name.endswith("lin_l.weight"))
    model(x, edges)
    lazy = [name for name, weight in model.named_parameters() if is_lazy(weight)]
    assert len(lazy) == 4
    chain = ww.trace(model, x, edges, index=("a", 0), target=0)
    assert [name for name, weight in model.named_parameters() if is_lazy(weight)] == lazy
    del model.first.convs["<a___self___a>"], model.last.convs["<a___self___a>"]
    other = ww.trace(model, x, edges, index=("a", 0), target=0)
    torch.testing.assert_close(ww.node_relevance(chain), ww.node_relevance(other))


def test_the_model_must_be_a_module(graph):
    with pytest.raises(InputError, match=r"torch\.nn\.Module, got function"):
        ww.trace(lambda x, edge_index: x.sum(), *graph())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rule": "gama"}, "'gama'.*alphabeta, auto, epsilon, gamma, positive, zero, zplus"),
        ({"rule": 3}, "got 3"),
        ({"rule": [Zero(), "gamma"]}, "one Rule per layer"),
        ({"rule": [Zero(), Zero(), Gamma(1.0)]}, "3 rules.*2 message-passing"),
        ({"fallback": "guess"}, "'guess'"),
        ({"fallback": None}, "None"),
    ],
)
def test_options_must_be_known(net, refused, arguments, words):
    refused(net(), InputError, words, **arguments)


# -- targets ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"target": 3}, r"target=3 .*3 column\(s\), 0 to 2"),
        ({"target": -1}, "target=-1 is out of range"),
        ({"target": 1.0}, r"integer, got 1\.0"),
        ({"target": True}, r"integer, got True \(bool\)"),
        ({"target": torch.tensor(True)}, "integer, got True"),
        ({"target": "1"}, "column of the output.*got '1'"),
        ({"target": [0, 1]}, "2 columns for 1 explained row"),
        ({"target": []}, "0 columns for 1 explained row"),
        ({"index": 1}, r"index=1 is out of range: the output has 1 row\. .*leave index out"),
        ({"target": lambda out: out[0, 0], "index": 0}, "inside the callable"),
        ({"target": lambda out: out}, r"tensor of shape \(1, 3\)"),
        ({"target": lambda out: out.argmax()}, "floating-point"),
        ({"target": lambda out: out.argmax().double()}, "does not depend differentiably"),
        ({"target": lambda out: out.max().detach()}, "does not depend differentiably"),
        ({"target": lambda out: out.max().round()}, "does not depend differentiably"),
        ({"target": lambda out: (out > 0).double().sum()}, "does not depend differentiably"),
        ({"target": lambda out: out.max().item()}, "a float"),
        ({"target": lambda out: None}, "a NoneType"),
    ],
)
def test_targets_of_graph_models(net, refused, arguments, words):
    refused(net(), TargetError, words, **arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "6 rows but the input has 1 graph.*index="),
        ({"index": 6}, "index=6 is out of range: the output has 6 rows, 0 to 5"),
        ({"index": -1}, "index=-1 is out of range"),
        ({"index": 1.0}, r"index must be an integer, got 1\.0"),
        ({"index": True}, "index must be an integer, got True"),
        ({"index": 2, "target": 3}, "target=3 is out of range"),
        ({"index": 2, "target": [0, 1]}, "2 columns for 1"),
    ],
)
def test_targets_of_node_models(net, refused, arguments, words):
    refused(net(pooled=False), TargetError, words, **arguments)


def test_one_target_per_graph(net, refused):
    batch = torch.tensor([0, 0, 0, 0, 1, 1])
    refused(net(), TargetError, r"3 columns for 2 explained row\(s\)", batch=batch, target=[0, 1, 2])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda out: out.view(1, 1, 3), r"got \(1, 1, 3\).*target=lambda"),
        (lambda out: (out, out), "a tuple.*target=lambda"),
        (lambda out: {"logits": out}, "a dict.*target=lambda"),
        (lambda out: out.argmax(1), r"int64.*target=lambda"),
    ],
)
def test_outputs_that_need_a_callable(net, refused, change, words):
    refused(Wrapped(net(), change), TargetError, words, target=0)


def test_a_callable_picks_from_any_output(net, graph):
    model, (x, edge_index) = net(), graph()
    plain = ww.node_relevance(ww.trace(model, x, edge_index, target=1))
    for change, pick in [
        (lambda out: (out, None), lambda out: out[0][0, 1]),
        (lambda out: {"logits": out.view(1, 3, 1)}, lambda out: out["logits"][:, 1]),
    ]:
        chain = ww.trace(Wrapped(model, change), x, edge_index, target=pick)
        assert torch.allclose(ww.node_relevance(chain), plain)


def test_relevance_of_a_difference_is_the_difference(net, graph):
    model, (x, edge_index) = net(), graph()
    first, second = (ww.trace(model, x, edge_index, target=t, rule="zero") for t in (0, 1))
    chain = ww.trace(model, x, edge_index, target=lambda out: out[0, 0] - out[0, 1], rule="zero")
    assert chain.output == pytest.approx(first.output - second.output)
    assert torch.allclose(ww.node_relevance(chain), ww.node_relevance(first) - ww.node_relevance(second))


def test_a_link_score(net, graph):
    """Each of the two embeddings gets half of a product, so the score is conserved without biases."""
    model, (x, edge_index) = net(pooled=False, bias=False), graph()
    chain = ww.trace(model, x, edge_index, target=lambda z: (z[0] * z[1]).sum(), rule="zero")
    z = model(x, edge_index)
    assert chain.output == pytest.approx(float((z[0] @ z[1]).detach()))
    assert chain.input_relevance == pytest.approx(chain.output)
    ends = ww.node_relevance(chain, layer=2)
    assert torch.allclose(ends[2:], torch.zeros(4, dtype=torch.float64))
    assert float(ends[0]) == pytest.approx(chain.output / 2)


def test_one_row_of_a_node_model(net, graph):
    model, (x, edge_index) = net(pooled=False), graph()
    chain = ww.trace(model, x, edge_index, index=2, target=1)
    assert chain.output == pytest.approx(float(model(x, edge_index)[2, 1].detach()))
    assert ww.node_relevance(chain, layer=2).nonzero().tolist() == [[2]]
    largest = ww.trace(model, x, edge_index, index=2)
    assert largest.output == pytest.approx(float(model(x, edge_index)[2].max().detach()))


@pytest.mark.parametrize(
    ("pooled", "out", "change", "arguments"),
    [
        (True, 3, lambda out: out[0], {"target": 1}),  # the columns of one graph
        (True, 1, lambda out: out.squeeze(1), {}),  # one number per graph
        (True, 1, lambda out: out.squeeze(), {"target": 0}),  # a scalar
        (False, 1, lambda out: out.squeeze(1), {"index": 2}),  # one number per node
    ],
)
def test_outputs_with_fewer_dimensions(net, graph, pooled, out, change, arguments):
    model, (x, edge_index) = net(pooled=pooled, out=out), graph()
    flat = ww.trace(Wrapped(model, change), x, edge_index, **arguments)
    full = ww.trace(model, x, edge_index, **arguments)
    assert flat.output == full.output
    assert torch.allclose(ww.node_relevance(flat), ww.node_relevance(full))


# -- models -----------------------------------------------------------------------------------


def test_a_model_without_message_passing(graph, unchanged):
    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 2).double()

        def forward(self, x, edge_index):
            return self.linear(x).sum(0, keepdim=True)

    model = Bag()
    with unchanged(model), pytest.raises(TraceError, match="Bag has no message-passing layer"):
        ww.trace(model, *graph())


def test_a_model_that_ignores_its_layers(net, refused):
    class Idle(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net()

        def forward(self, x, edge_index):
            return x.sum(0, keepdim=True)

    refused(Idle(), TraceError, "does not depend on any message-passing layer")


def test_an_unsupported_layer_is_named(net, refused):
    words = r"'convs\.0' \(ARMAConv\).*linearize\.register\(ARMAConv\).*fallback=\"autograd\""
    refused(net("ARMA"), UnsupportedLayerError, words, fallback="error")


def test_supported_layers_need_no_fallback(net, graph):
    for kind in ("GCN", "GIN", "SAGE", "GAT", "SG", "Transformer"):
        chain = ww.trace(net(kind), *graph(), fallback="error")
        assert {layer.route for layer in chain.layers} == {"closed form"}


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class DoubleConv(GCNConv):
    def forward(self, x, edge_index):
        return Double.apply(super().forward(x, edge_index))


class DoubleModule(nn.Module):
    def forward(self, x):
        return Double.apply(x)


class Between(nn.Module):
    """Something between two layers."""

    def __init__(self, between):
        super().__init__()
        self.first, self.second = GCNConv(3, 4).double(), GCNConv(4, 2).double()
        self.between = between

    def forward(self, x, edge_index):
        return self.second(self.between(self.first(x, edge_index)), edge_index).sum(0, keepdim=True)


def test_a_layer_that_cannot_be_followed(net, refused):
    model = net(lambda i, o, bias: DoubleConv(i, o))
    refused(model, TraceError, r"'convs\.0' \(DoubleConv\).*custom autograd\.Function")


@pytest.mark.parametrize(
    ("between", "why"),
    [
        (DoubleModule(), r"autograd\.Function"),
        (Double.apply, r"autograd\.Function"),
        (lambda h: torch.from_numpy(2 * h.numpy()), "Node features went through NumPy or Python"),
    ],
    ids=["module", "call", "numpy"],
)
def test_what_cannot_be_followed_between_layers(refused, between, why):
    """The second layer must not pass for the first."""
    refused(Between(between), TraceError, why)


def test_a_scripted_module_cannot_be_followed(refused):
    model = Between(torch.jit.script(nn.Linear(4, 4).double()))
    refused(model, TraceError, r"is TorchScript.*scripted from")


def test_a_scripted_branch_is_not_lost_without_a_word(refused):
    """Beside a skip everything else would be followed, and the branch would count as constant."""
    branch = torch.jit.script(nn.Linear(4, 4).double())

    class Skip(nn.Module):
        def __init__(self):
            super().__init__()
            self.branch = branch

        def forward(self, h):
            return h + self.branch(h)

    refused(Between(Skip()), TraceError, r"'\S*branch' is TorchScript")


@torch.jit.script
def scripted_function(h: torch.Tensor) -> torch.Tensor:
    return torch.tanh(h) * 2


class SpeaksTorchScript(nn.Module):
    def forward(self, h):
        return h + scripted_function(h)


def helping(h):
    return scripted_function(h)


class SpeaksOfHelp(nn.Module):
    def forward(self, h):
        return self.helped(h)

    def helped(self, h):
        return h + helping(h)


class SpeaksOfAModule(nn.Module):
    def forward(self, h):
        return h + here.scripted_function(h)


here = sys.modules[__name__]


@pytest.mark.parametrize("kind", [SpeaksTorchScript, SpeaksOfHelp, SpeaksOfAModule])
def test_a_scripted_function_is_warned_about(kind):
    """However it is reached: by name, by another function, or as an attribute of its module."""
    model = Between(kind()).double()
    with pytest.warns(ww.errors.CoverageWarning, match="TorchScript function scripted_function"):
        ww.trace(model, torch.randn(5, 3, dtype=torch.float64), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]]), target=0)


def test_a_read_out_that_cannot_be_followed(net, refused):
    refused(
        Wrapped(net(), Double.apply),
        TargetError,
        r"cannot be traced back.*went through torch\.no_grad\(\) or a custom autograd\.Function",
    )


def test_a_compiled_model_is_unwrapped(net, graph):
    model, (x, edge_index) = net(), graph()
    compiled = torch.compile(model, backend="eager")
    assert torch.equal(
        ww.node_relevance(ww.trace(compiled, x, edge_index)), ww.node_relevance(ww.trace(model, x, edge_index))
    )


class Listed(nn.DataParallel):
    """Takes a list of graphs, as torch_geometric.nn.DataParallel does."""

    def forward(self, data_list):
        return self.module(Batch.from_data_list(data_list))


def test_a_model_for_several_devices_is_unwrapped(net, graph):
    model, (x, edge_index) = net(), graph()

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, data):
            return self.inner(data.x, data.edge_index)

    plain, data = ww.trace(model, x, edge_index), Data(x=x, edge_index=edge_index)
    parallel, listed = ww.trace(nn.DataParallel(model), x, edge_index), ww.trace(Listed(Whole()), data)
    assert [layer.name for layer in parallel.layers] == [layer.name for layer in plain.layers]
    for chain in (parallel, listed):
        torch.testing.assert_close(ww.node_relevance(chain), ww.node_relevance(plain))


def test_processes_that_train_together_are_not_waited_for(net, graph, tmp_path):
    """Where one of them traces, the others do not take part."""
    model, (x, edge_index) = net(), graph()
    expected = ww.node_relevance(ww.trace(model, x, edge_index))
    model.register_buffer("seen", torch.zeros(1))
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        together = nn.parallel.DistributedDataParallel(model)
        together._sync_buffers = None  # what would be waited for
        torch.testing.assert_close(ww.node_relevance(ww.trace(together, x, edge_index)), expected)
    finally:
        distributed.destroy_process_group()


class Normalised(nn.Module):
    """A layer and a batch normalisation before a ReLU, and an output of another type."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.last = GCNConv(3, 4), nn.BatchNorm1d(4), GCNConv(4, 2)
        self.double().eval()

    def forward(self, x, edge_index):
        return self.last(self.norm(self.conv(x, edge_index)).relu(), edge_index).sum(0, keepdim=True).float()


@pytest.mark.parametrize("name", ["conv.bias", "norm.bias", "norm.running_mean", "norm.running_var"])
def test_an_activation_does_not_hide_weights_that_are_not_finite(graph, name):
    """A bias of -inf is a neuron that is off, and the output is finite: refused all the same."""
    model, (x, edge_index) = Normalised(), graph()
    spoiled(model.get_buffer(name) if "running" in name else model.get_parameter(name), INFINITE[name])
    assert bool(model(x, edge_index).isfinite().all())
    with pytest.raises(InputError, match=f"'{name}' has NaN or infinite"):
        ww.trace(model, x, edge_index, target=0)


INFINITE = {
    "conv.bias": -float("inf"),
    "norm.bias": -float("inf"),
    "norm.running_mean": float("inf"),
    "norm.running_var": float("inf"),
}


def test_features_must_be_finite_even_where_the_model_mends_them(net, graph):
    class Mending(Wrapped):
        def forward(self, x, edge_index):
            return super().forward(x.nan_to_num(), edge_index)

    x, edge_index = graph()
    with pytest.raises(InputError, match="x has NaN"):
        ww.trace(Mending(net(), lambda out: out), spoiled(x, float("nan")), edge_index, target=0)


# -- types of numbers and of nodes --------------------------------------------------------------


class Cast(nn.Module):
    """Layers of one kind, some of them run under autocast or in another type."""

    def __init__(self, layer, cast):
        super().__init__()
        self.a, self.b, self.cast = layer(), layer(), cast

    def forward(self, x, edge_index):
        if self.cast == "autocast":
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.b(self.a(x, edge_index), edge_index).sum(0, keepdim=True)
        h = self.a(x, edge_index)
        return self.b(h.double() if self.cast == "double" else h, edge_index).sum(0, keepdim=True)


KINDS = {
    "gin": lambda: GINConv(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))),
    "gcn": lambda: GCNConv(4, 4),
    "attention": lambda: TransformerConv(4, 4),
}


@pytest.mark.parametrize("layer", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("inside", [False, True], ids=["around", "inside"])
def test_autocast_is_refused(layer, inside, graph, unchanged):
    x, edge_index = graph()
    model, x = Cast(layer, "autocast" if inside else None), torch.randn(len(x), 4)
    context = nullcontext() if inside else torch.autocast("cpu", dtype=torch.bfloat16)
    with unchanged(model), context, pytest.raises(TraceError, match=r"torch\.autocast\('cpu'\).*bfloat16"):
        ww.trace(model, x, edge_index, target=0)


@pytest.mark.parametrize("layer", KINDS.values(), ids=KINDS)
def test_layers_may_compute_in_different_types(layer, graph):
    x, edge_index = graph()
    model, x = Cast(layer, "double"), torch.randn(len(x), 4)
    model.b.double()
    mixed = ww.trace(model, x, edge_index, target=0)
    double = ww.trace(model.double(), x.double(), edge_index, target=0)
    for sets in ([[0, 1]], [[0, 1], [2], list(range(len(x)))]):
        got, expected = (ww.subgraph_relevance(chain, sets).double() for chain in (mixed, double))
        torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4)


class Typed(nn.Module):
    """Several relations, between nodes of one type or of two."""

    def __init__(self, *relations):
        super().__init__()
        self.relations = relations
        self.conv = HeteroConv({relation: SAGEConv((4, 4), 4) for relation in relations})
        self.register_buffer("others", torch.randn(5, 4))

    def forward(self, x, edge_index):
        nodes = {"atom": x, "bond": self.others[: len(x)]}
        return self.conv(nodes, dict.fromkeys(self.relations, edge_index))["atom"].sum(0, keepdim=True)


def test_several_types_of_nodes_are_refused_though_equally_many():
    edge_index = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    model = Typed(("atom", "in", "bond"), ("bond", "of", "atom"))
    with pytest.raises(TraceError, match=r"nodes of several types \(bond, atom\).*Give the graph by type"):
        ww.trace(model, torch.randn(5, 4), edge_index, target=0)
    chain = ww.trace(Typed(("atom", "a", "atom"), ("atom", "b", "atom")), torch.randn(5, 4), edge_index, target=0)
    assert len(chain.layers) == 2


class Halfway(nn.Module):
    """A layer in float64, what comes out of it rounded to float32, and another layer there."""

    def __init__(self, first, last, rounded=torch.Tensor.float):
        super().__init__()
        self.first, self.last, self.rounded = first, last, rounded

    def forward(self, x, edge_index):
        return self.last(self.rounded(self.first(x, edge_index).relu()), edge_index).sum(0, keepdim=True)


@pytest.mark.parametrize(
    "conv",
    [GCNConv, lambda i, o: GINConv(nn.Linear(i, o)), GATConv, lambda i, o: SAGEConv(i, o, aggr="max")],
    ids=["GCN", "GIN", "GAT", "max"],
)
def test_layers_of_several_types_are_traced_in_the_widest(graph, conv):
    torch.manual_seed(0)
    first, last, (x, edge_index) = conv(3, 4).double(), conv(4, 2), graph()
    chain = ww.trace(Halfway(first, last).eval(), x, edge_index, target=0)
    exact = ww.trace(Halfway(first, last.double(), lambda h: h).eval(), x, edge_index, target=0)
    assert chain.dtype == torch.float64
    for alpha in (0.0, 0.5):
        ours, theirs = (ww.subgraph_relevance(c, [[0, 1, 2], [3]], alpha=alpha) for c in (chain, exact))
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert ww.order_nodes(chain).tolist() == ww.order_nodes(exact).tolist()
    torch.testing.assert_close(ww.edge_relevance(chain), ww.edge_relevance(exact), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("kind", [GCNConv, GATConv, TransformerConv, SAGEConv])
def test_an_edge_index_that_knows_its_order(kind, rule):
    torch.manual_seed(0)

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = kind(3, 4), kind(4, 2)

        def forward(self, x, edge_index):
            return self.b(self.a(x, edge_index).tanh(), edge_index)

    model, x = Two(), torch.rand(4, 3)
    plain = torch.tensor([[1, 0, 2, 1, 3], [0, 1, 1, 2, 2]])
    ordered = EdgeIndex(plain, sparse_size=(4, 4), sort_order="col")
    ours, theirs = (ww.trace(model, x, edges, index=1, target=0, rule=rule) for edges in (ordered, plain))
    torch.testing.assert_close(ww.feature_relevance(ours), ww.feature_relevance(theirs))
    asked = {"nodes": [0, 1], "index": 1, "target": 0, "rule": rule}
    found = [hooks.subgraph_relevance(model, x, edges, **asked) for edges in (ordered, plain)]
    assert found[0] == pytest.approx(found[1]) != 0


@pytest.mark.parametrize("sparse", [torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr])
def test_sparse_features_are_refused_in_words(net, graph, sparse):
    x, edge_index = graph()
    with pytest.raises(InputError, match=r"x is sparse .* Give x\.to_dense\(\)"):
        ww.trace(net(), sparse(x), edge_index)
    data = HeteroData(user={"x": sparse(x)})
    data["user", "to", "user"].edge_index = edge_index
    with pytest.raises(InputError, match=r"x\['user'\] is sparse"):
        ww.trace(net(), data)


def test_a_model_compiled_in_place_runs_in_sight(net, graph):
    model, (x, edge_index) = net(), graph()
    expected = ww.node_relevance(ww.trace(model, x, edge_index))
    model.compile(backend="eager")
    called = vars(model)["_compiled_call_impl"]
    torch.testing.assert_close(ww.node_relevance(ww.trace(model, x, edge_index)), expected)
    assert vars(model)["_compiled_call_impl"] is called


@torch.compile(backend="eager")
def compiled_step(h):
    return h.relu()


class InSteps(nn.Module):
    """A model whose parts may be compiled one by one."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = GCNConv(3, 4), SAGEConv(4, 2)
        self.double().eval()

    def forward(self, x, edge_index):
        return self.b(self.a(x, edge_index).relu(), edge_index)


class CallsCompiled(InSteps):
    def forward(self, x, edge_index):
        return self.b(compiled_step(self.a(x, edge_index)), edge_index)


class Decorated(InSteps):
    @torch.compile(backend="eager")
    def forward(self, x, edge_index):
        return self.b(self.a(x, edge_index).relu(), edge_index)


def compiled_forward(part):
    def made():
        model = InSteps()
        module = model.get_submodule(part)
        module.forward = torch.compile(module.forward, backend="eager", fullgraph=True)
        return model

    return made


@pytest.mark.parametrize("make", [CallsCompiled, Decorated, compiled_forward(""), compiled_forward("a")])
def test_functions_that_were_compiled_one_by_one_run_as_they_were_written(make):
    """Compiling the tape with them would fail, or take long."""
    x, edges = torch.rand(4, 3, dtype=torch.float64), torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    expected = ww.subgraph_relevance(ww.trace(InSteps(), x, edges, index=1, target=0), [[0, 1], [2]])
    model = make()
    given = vars(model).get("forward")
    torch._dynamo.reset()
    with torch.compiler.set_stance("fail_on_recompile"):
        chain = ww.trace(model, x, edges, index=1, target=0)
    torch.testing.assert_close(ww.subgraph_relevance(chain, [[0, 1], [2]]), expected)
    assert vars(model).get("forward") is given

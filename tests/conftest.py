"""Small graphs and models that the tests share, and a check that a model was left alone."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch
from hypothesis import HealthCheck, settings
from torch import nn
from torch_geometric.nn import conv as pyg
from torch_geometric.nn import global_add_pool

settings.register_profile(
    "walkwise", deadline=None, max_examples=20, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)  # a busy machine is no fault
settings.load_profile("walkwise")
torch.set_num_threads(1)  # on tensors this small threads only wait for each other


def pytest_addoption(parser):
    """``--full`` checks everything of which there is just a sample otherwise."""
    parser.addoption("--full", action="store_true", help="all cells of tests/matrix, and the tests marked full")


def pytest_collection_modifyitems(config, items):
    """Leave out what takes long, unless all is asked for."""
    for item in items:
        if item.get_closest_marker("full") and not config.getoption("--full"):
            item.add_marker(pytest.mark.skip(reason="takes long: pytest --full, or make test-full"))


def _gin(i, o, bias):
    return pyg.GINConv(nn.Sequential(nn.Linear(i, o, bias), nn.ReLU(), nn.Linear(o, o, bias)))


def _transformer(i, o, bias):
    conv = pyg.TransformerConv(i, o, bias=bias)
    for linear in (conv.lin_key, conv.lin_query, conv.lin_value):  # older versions give them biases all the same
        linear.bias = linear.bias if bias else None
    return conv


KINDS = {
    "GCN": lambda i, o, bias: pyg.GCNConv(i, o, bias=bias),
    "GIN": _gin,
    "SAGE": lambda i, o, bias: pyg.SAGEConv(i, o, bias=bias),
    "GAT": lambda i, o, bias: pyg.GATConv(i, o // 2, heads=2, bias=bias),
    "SG": lambda i, o, bias: pyg.SGConv(i, o, K=2, bias=bias),
    "Transformer": _transformer,
    "ARMA": lambda i, o, bias: pyg.ARMAConv(i, o, bias=bias),  # carried by autograd
}


class Net(nn.Module):
    """Layers with ReLU between, then a head on the sum over nodes (or, at node level, on every node)."""

    def __init__(self, convs, head, *, pooled=True, jump=False):
        super().__init__()
        self.convs = nn.ModuleList(convs)
        self.head = head
        self.pooled = pooled
        self.jump = jump

    def forward(self, x, edge_index, batch=None, **edge_data):
        seen = []
        for conv in self.convs:
            x = conv(x, edge_index, **edge_data).relu()
            seen.append(x)
        if self.jump:
            x = torch.cat(seen, dim=-1)
        return self.head(global_add_pool(x, batch) if self.pooled else x)


@pytest.fixture(scope="session")
def net():
    """A builder of float64 models: net("GCN", layers=2, out=3, ...)."""

    def build(kind="GCN", *, layers=2, features=3, width=4, out=3, bias=True, seed=0, **kwargs):
        torch.manual_seed(seed)
        make = KINDS[kind] if isinstance(kind, str) else kind
        convs = [make(features if i == 0 else width, width, bias) for i in range(layers)]
        read = width * (layers if kwargs.get("jump") else 1)
        model = Net(convs, nn.Linear(read, out, bias), **kwargs).double().eval()
        with torch.no_grad():  # PyG starts biases at zero
            for name, parameter in model.named_parameters():
                if name.endswith("bias"):
                    parameter.normal_(std=0.3)
        return model

    return build


@pytest.fixture(scope="session")
def graph():
    """A builder of float64 graphs, x and edge_index: a path with some chords, both ways."""

    def build(num_nodes=6, *, features=3, seed=0, chords=3):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(num_nodes, features, generator=generator, dtype=torch.float64)
        path = torch.stack([torch.arange(num_nodes - 1), torch.arange(1, num_nodes)])
        extra = torch.randint(num_nodes, (2, chords), generator=generator)
        edges = torch.cat([path, extra[:, extra[0] != extra[1]]], dim=1)
        return x, torch.unique(torch.cat([edges, edges.flip(0)], dim=1), dim=1)

    return build


def _surroundings():
    """What tracing could leave behind in torch itself."""
    modes = torch._C._len_torch_function_stack()
    flags = torch.is_grad_enabled(), torch._C._is_torch_function_enabled(), torch.get_default_dtype()
    return modes, *flags, torch.get_rng_state().tolist()


def _same(now, before):
    return list(now) == list(before) and all(now[key] is value for key, value in before.items())


@pytest.fixture(scope="session")
def unchanged():
    """A context inside which nothing may happen to a model, to tensors, or to torch."""

    @contextmanager
    def check(model, *tensors):
        state = {name: value.clone() for name, value in model.state_dict().items()}
        attributes = [(m, dict(m.__dict__)) for m in model.modules()]  # training flags are among them
        # Hooks (also PyG's), parameters, buffers and submodules are dicts among the attributes.
        inner = [(v, dict(v)) for _, d in attributes for v in d.values() if isinstance(v, dict)]
        copies = [(t, t.clone(), t.requires_grad, t._version) for t in tensors]
        around = _surroundings()
        yield
        assert _surroundings() == around
        for tensor, copy, requires_grad, version in copies:
            assert torch.equal(tensor, copy)
            assert (tensor.requires_grad, tensor._version, tensor.grad) == (requires_grad, version, None)
        for module, before in attributes:
            assert _same(module.__dict__, before), type(module).__name__
        for now, before in inner:
            assert _same(now, before)
        assert all(parameter.grad is None for parameter in model.parameters())
        assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
        assert model.state_dict().keys() == state.keys()

    return check


collect_ignore = [
    "authors.py",
    "chains.py",
    "coincidences.py",
    "explained.py",
    "idioms.py",
    "paper/cases.py",
    "small_runs.py",
]

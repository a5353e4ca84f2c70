"""What every architecture of the zoo is held to."""

import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType

import pytest
import torch
from torch_geometric.nn import GroupAddRev

import walkwise as ww
from walkwise import reference
from walkwise.errors import WalkwiseError
from zoo.held import Held, gradient_times_input
from zoo.models import EDGES, Entry, M, hetero

SETS = [[0, 1], [2], [0, 2, 3, 5], list(range(M)), []]


@dataclass(frozen=True)
class Result:
    """A line of the table."""

    name: str
    origin: str
    layers: str
    route: str
    cost: str
    result: str


def built(entry: Entry):
    """The model, or None where torch_geometric is older than what it is made of."""
    try:
        return entry.build()
    except AttributeError as error:
        if isinstance(error.obj, ModuleType):
            return None
        raise


def made(entry: Entry):
    """The model, in evaluation mode and double precision, with biases that are not zero."""
    torch.manual_seed(6)
    model = built(entry)
    if model is None:
        pytest.skip(f"this torch_geometric has not what {entry.name} is made of")
    if isinstance(model, torch.jit.ScriptModule):
        return model
    for name, parameter in model.double().named_parameters():
        if "bias" in name:
            torch.nn.init.uniform_(parameter, 0.05, 0.3)  # with negative ones small models are easily dead
    return model.eval()


def inputs(entry: Entry):
    generator = torch.Generator().manual_seed(1)
    if entry.graph == "hetero":
        data = hetero()
        return {n: x.double() for n, x in data.x_dict.items()}, data.edge_index_dict
    if entry.graph == "numbers":
        return torch.randint(0, 10, (M, 1), generator=generator), EDGES
    return torch.randn(M, 4, generator=generator, dtype=torch.float64), EDGES


@contextmanager
def double_precision():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def checked(entry: Entry) -> Result:
    """The entry's line, after everything that is claimed of it was checked."""
    with double_precision(), warnings.catch_warnings():
        model, (x, edges) = made(entry), inputs(entry)
        warnings.simplefilter("ignore")
        if entry.refused is not None:
            with pytest.raises(WalkwiseError, match=entry.refused) as caught:
                ww.trace(model, x, edges, target=0)
            return Result(entry.name, entry.origin, "–", "–", "–", f"refused: {_first_sentence(str(caught.value))}")
        for rule in ("zero", "auto"):
            chain = ww.trace(model, x, edges, target=0, rule=rule)
            _check_walks(chain)
            if rule == "zero":
                _check_gradient(model, x, edges, chain, entry.gates)
    kinds = list(dict.fromkeys(layer.kind for layer in chain.layers))
    routes = " and ".join(sorted({layer.route for layer in chain.layers}))
    cost = "S" if chain.local else "the graph" if chain.hops is None else "the ball"
    return Result(entry.name, entry.origin, ", ".join(kinds), routes, cost, "exact")


def _check_walks(chain):
    """All walks, one by one, sum to what is asked of subgraphs and of the whole."""
    walks = ww.enumerate_walks(chain)
    relevance = ww.walk_relevance(chain, walks)
    scale = float(relevance.abs().sum())
    assert scale > 1e-6, "nothing to compare: the model is dead on this input"
    assert float(relevance.sum()) == pytest.approx(chain.input_relevance, abs=1e-9 * scale)
    table = dict(zip(map(tuple, walks.tolist()), relevance.tolist(), strict=True))
    sets = [[i for i in nodes if i < chain.num_nodes] for nodes in SETS]
    for alpha in (0.0, 0.4):
        ours = ww.subgraph_relevance(chain, sets, alpha=alpha).tolist()
        expected = [reference.subgraph_relevance(table, nodes, alpha) for nodes in sets]
        assert ours == pytest.approx(expected, abs=1e-9 * scale)


def _check_gradient(model, x, edges, chain, gates):
    """Gradient times input of the model that detaches what is held constant."""
    numbers = isinstance(x, torch.Tensor) and not x.is_floating_point()
    features = ww.node_relevance(chain) if numbers else ww.feature_relevance(chain)
    for module in model.modules():
        if isinstance(module, GroupAddRev):
            module.disable = True  # its trick to save memory
    model.requires_grad_(False)  # so that a product with a weight is none of two followed tensors
    if isinstance(x, dict):
        leaves = {name: value.clone().requires_grad_(True) for name, value in x.items()}
        with Held(model, gates):
            output = model(leaves, edges)[0, 0]
        gradients = torch.autograd.grad(output, list(leaves.values()))
        for (name, value), gradient in zip(x.items(), gradients, strict=True):
            _check_close(features[name], gradient * value)
        return
    expected = gradient_times_input(model, x, edges, lambda out: out[0, 0], gates)
    _check_close(features, expected.sum(1) if numbers else expected)


def _check_close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9 * float(theirs.abs().max()))


def _first_sentence(message: str) -> str:
    return message.split(". ")[0].split(": ")[0].rstrip(".")

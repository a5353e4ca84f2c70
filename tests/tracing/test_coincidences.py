"""Graphs whose sizes coincide: the same relevance beside another component, and in another order.

A chain on a graph with as many edges (features, heads, layers, time steps) as nodes, or of a special form, must say of
its nodes what it says beside another component, where the sizes no longer coincide. That needs no oracle.
"""

import random

import pytest
import torch

import programs
import walkwise as ww
from coincidences import BESIDE, GRAPHS, beside, compared, laid_out, renumbered, sends, spread
from idioms import IDIOMS, Net
from matrix.cells import cells
from matrix.models import RULES, N, model_of


def fits(idiom, graph):
    """Whether a graph can be asked about: what is left out is known."""
    M, pairs = GRAPHS[graph]
    if idiom.startswith("plain"):  # layers are not found, and refused, if rows of edges are as many as nodes, or none
        return len(pairs) != M and sends(graph)
    return True


@pytest.fixture(autouse=True)
def _double_precision():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def layouts(name, draw):
    """The graph, and the same beside another component and in another order."""
    first = laid_out(name)
    apart = beside(first, draw.choice(list(BESIDE)), before=draw.random() < 0.5)
    return first, (apart, renumbered(first, draw.randrange(100)))


def drawn(generator, *shape):
    return torch.randn(*shape, generator=generator)


def held(name, model, given, rows, first, others, trace):
    """Compare, after a check that the model itself gives the same."""
    with torch.no_grad():
        expected = model(*given(first))[rows(first)]
        for other in others:
            torch.testing.assert_close(model(*given(other))[rows(other)], expected, rtol=1e-9, atol=1e-9)
    compared(name, trace, first, others)


def check_idiom(idiom, seed):
    draw = random.Random(f"{idiom} {seed}")
    name = draw.choice([graph for graph in GRAPHS if fits(idiom, graph)])
    first, others = layouts(name, draw)
    M, E = first.num_nodes, first.edges.shape[1]
    torch.manual_seed(seed)
    run, parts = IDIOMS[idiom]
    f, n = (draw.choice((small, M, max(E, 1))) for small in (4, 2))
    f = max(f, 2 if M == 1 else 1)  # of one number, nothing tells what it is
    model = Net(run, min(f, 8), min(n, 6), **parts).eval()
    for key, parameter in model.named_parameters():
        if "bias" in key:
            torch.nn.init.uniform_(parameter, 0.05, 0.3)
    generator = torch.Generator().manual_seed(seed)
    x, edge_attr, kinds = drawn(generator, M, model.f), drawn(generator, E, 3), torch.arange(E) % 2

    def given(graph):
        return spread(x, graph.nodes), graph.edges, spread(edge_attr, graph.numbers), spread(kinds, graph.numbers)

    def rows(graph):
        return graph.edges_at if model.of_edges else graph.at

    with torch.no_grad():
        model(*given(first))
    count = len(rows(first))
    if not count:
        return
    number, whole = draw.randrange(count), draw.random() < 0.5

    def target(graph):
        at, shares = rows(graph), torch.linspace(1, 2, count)
        return lambda out: ((out[at] if out.dim() == 1 else out[at, 0]) * shares).sum()

    def trace(graph):
        x, edges, edge_attr, kinds = given(graph)
        asked = {"target": target(graph)} if whole else {"target": 0, "index": int(rows(graph)[number])}
        rule = "zero" if seed % 2 else "auto"
        return ww.trace(model, x, edges, edge_attr=edge_attr, edge_type=kinds, rule=rule, **asked)

    held(name, model, given, rows, first, others, trace)


def check_program(seed):
    """Random statements, none of which mixes all nodes."""
    draw = random.Random(seed)
    name = draw.choice(list(GRAPHS))
    first, others = layouts(name, draw)
    torch.manual_seed(seed)
    model = programs.Program(draw, programs.LOCAL).eval()
    model.read_out, model.way_out, model.plain = [lambda h: h], 0, False
    x = drawn(torch.Generator().manual_seed(seed), first.num_nodes, programs.WIDTH)

    def given(graph):
        return spread(x, graph.nodes), graph.edges

    def trace(graph):
        shares, at = torch.linspace(1, 2, len(x)), graph.at
        return ww.trace(model, *given(graph), target=lambda out: (out[at, 0] * shares).sum(), rule="zero")

    held(name, model, given, lambda graph: graph.at, first, others, trace)


def check_cell(cell, seed):
    """A cell of the matrix, on a graph with a coincidence, in a batch with the other component."""
    draw = random.Random(seed)
    name = draw.choice([name for name, (M, _) in GRAPHS.items() if M >= 4])
    first, others = layouts(name, draw)
    M, E = first.num_nodes, first.edges.shape[1]
    model, generator = model_of(cell), torch.Generator().manual_seed(seed)
    x, pair = drawn(generator, M, N), torch.randint(M, (2, 3), generator=generator)
    read = {"edge_attr": drawn(generator, E, 2), "edge_type": torch.arange(E) % 2, "edge_weight": torch.rand(E) + 0.2}
    names = [name for name, of in (("edge_attr", ("GINE", "NNConv")), ("edge_type", ("RGCN",))) if cell.layer in of]
    names += ["edge_weight"] if cell.weights != "none" else []

    def arguments(graph):
        found = {name: spread(read[name], graph.numbers) for name in names}
        found |= {"edge_weight": found["edge_weight"].abs()} if "edge_weight" in found else {}
        found |= {"pair": graph.at[pair]} if cell.task == "link" else {}
        return found | {"batch": (graph.nodes < 0).long()}

    def target(graph):
        row = {"node": int(graph.at[3]), "link": 1}.get(cell.task, 0)
        return lambda out: out[row] if out.dim() == 1 else out[row, -1]

    def trace(graph):
        asked = {"target": target(graph), "rule": RULES[cell.rule](cell.depth)}
        return ww.trace(model, spread(x, graph.nodes), graph.edges, **asked, **arguments(graph))

    compared(name, trace, first, others)


@pytest.mark.parametrize("idiom", IDIOMS)
def test_idioms(idiom):
    for seed in range(2):
        check_idiom(idiom, seed)


@pytest.mark.full
@pytest.mark.parametrize("idiom", IDIOMS)
def test_idioms_on_many_graphs(idiom):
    for seed in range(2, 60):
        check_idiom(idiom, seed)


@pytest.mark.parametrize("seed", range(12))
def test_programs(seed):
    check_program(seed)


@pytest.mark.full
@pytest.mark.parametrize("start", range(12, 612, 60))
def test_many_programs(start):
    for seed in range(start, start + 60):
        check_program(seed)


CELLS = [cell for cell in cells() if cell.dtype == "float64" and cell.fallback == "autograd"]
CELLS = [cell for cell in CELLS if cell.weights in ("none", "positive") and cell.refusal is None]


@pytest.mark.parametrize("cell", CELLS[:20], ids=lambda cell: cell.name)
def test_cells(cell):
    check_cell(cell, cell.seed)


@pytest.mark.full
@pytest.mark.parametrize("start", range(20, 620, 60))
def test_many_cells(start):
    for cell in CELLS[start : start + 60]:
        check_cell(cell, cell.seed)

"""Whatever a model does with rows and entries that is linear, each of the many ways to write it is that linear map."""

import pytest
import torch
from torch import nn
from torch.func import jacrev
from torch.nn import functional as F

import walkwise as ww
from everywhere import EDGES, Model, check_same, same, traced
from walkwise.core.operators import Columns, RowMap
from walkwise.rules import GeneralisedGamma

torch.manual_seed(6)
C, W, A = (torch.randn(*s, dtype=torch.float64) for s in ([5, 4], [4, 4], [5, 5]))
ORDER, CLUSTERS = torch.tensor([2, 0, 4, 1, 3]), torch.tensor([1, 3, 1, 0, 3])
PLACES = torch.stack([torch.tensor([2, 0, 3, 1]).roll(i) for i in range(5)])
BY_ROW = CLUSTERS[:, None].expand(5, 4)
SPARSE = (A * (A > 0)).to_sparse()
ZEROS = torch.zeros(5, 4, dtype=torch.float64)

#: Entries moved, added up or left out.
MOVES = {
    "columns side by side": lambda h: torch.cat([h[:, 2:], h[:, :2]], 1),
    "columns side by side, from behind": lambda h: torch.cat([h[:, 2:], h[:, :2]], dim=-1),
    "columns side by side, by name": lambda h: torch.cat(tensors=[h[:, 1:], h[:, :1]], axis=1),
    "columns of three": lambda h: torch.cat([h[:, 3:], h[:, :1], h[:, 1:3]], 1),
    "rows below each other": lambda h: torch.cat([h[2:], h[:2]]),
    "heads side by side": lambda h: torch.cat([h.view(5, 2, 2)[:, 1:], h.view(5, 2, 2)[:, :1]], 1).flatten(1),
    "rows by number": lambda h: h[ORDER],
    "rows by short numbers": lambda h: h[ORDER.int()],
    "rows from behind": lambda h: h[ORDER - 5],
    "rows twice": lambda h: h[torch.tensor([0, 0, 1, 2, 3])],
    "rows by name": lambda h: h.index_select(dim=0, index=ORDER),
    "rows of the last dimension but one": lambda h: h.index_select(-2, ORDER),
    "columns by number": lambda h: h.index_select(1, PLACES[0]),
    "columns by numbers in brackets": lambda h: h[:, PLACES[0]],
    "rows by a mask": lambda h: F.pad(h[CLUSTERS == 1], (0, 0, 1, 2)),
    "parts": lambda h: torch.cat(h.split([1, 3], 1)[::-1], 1),
    "parts of rows": lambda h: torch.cat(h.split(2)[::-1]),
    "chunks": lambda h: torch.cat(h.chunk(2, -1)[::-1], 1),
    "one of the rows": lambda h: h.select(0, 1).expand(5, 4),
    "one of the columns": lambda h: h.select(1, 2)[:, None].expand(5, 4),
    "some of the columns": lambda h: F.pad(h.narrow(1, 1, 2), (1, 1)),
    "rows one by one": lambda h: torch.stack(h.unbind(0)[::-1]),
    "the sum of all rows": lambda h: h.sum(0, keepdim=True).expand(5, 4),
    "the sum of all rows as a row": lambda h: h.sum(0).expand(5, 4),
    "the sum over a list": lambda h: h.sum([0]).expand(5, 4),
    "the sum from behind": lambda h: h.sum(-2, True).expand(5, 4),
    "the sum over both": lambda h: h.sum((0, 1)).expand(5, 4),
    "the sum of all": lambda h: h.sum().expand(5, 4),
    "the mean of all rows": lambda h: h.mean(0, keepdim=True).expand(5, 4),
    "the mean of all rows by name": lambda h: torch.mean(h, dim=(-2,)).expand(5, 4),
    "the mean of all": lambda h: h.mean().expand(5, 4),
    "the sum of neurons": lambda h: h.sum(1, keepdim=True).expand(5, 4),
    "the mean of neurons": lambda h: h.mean(-1)[:, None].expand(5, 4),
    "the mean of heads": lambda h: h.view(5, 2, 2).mean(1).repeat(1, 2),
    "the sum of pictures": lambda h: h.view(5, 2, 2).sum(0).flatten().expand(5, 4),
    "a stack added up": lambda h: torch.stack([h, h[ORDER]]).sum(0),
    "a stack by name": lambda h: torch.stack(tensors=[h, h[ORDER]], dim=0).mean(0),
    "a stack averaged": lambda h: torch.stack([h, h[ORDER], h], 0).mean(0, False),
    "a stack across": lambda h: torch.stack([h, h[ORDER]], 1).sum(1),
    "a stack behind": lambda h: torch.stack([h, h[ORDER]], dim=-1).mean(-1),
    "a stack kept": lambda h: torch.stack([h, h[ORDER]]).sum(0, keepdim=True)[0],
    "a stack over its rows": lambda h: torch.stack([h, h[ORDER]]).sum(1).repeat(3, 1)[:5],
    "rows added by number": lambda h: ZEROS.index_add(0, CLUSTERS, h),
    "rows added, half of each": lambda h: ZEROS.index_add(0, CLUSTERS, h, alpha=0.5),
    "columns added by number": lambda h: ZEROS.index_add(1, torch.tensor([1, 1, 0, 3]), h),
    "rows scattered": lambda h: ZEROS.scatter_add(0, BY_ROW, h),
    "rows scattered, written out": lambda h: ZEROS.scatter_add(0, BY_ROW.contiguous(), h),
    "rows scattered from behind": lambda h: ZEROS.scatter_add(-2, BY_ROW, h),
    "rows scattered into wider ones": lambda h: torch.zeros(5, 6).double().scatter_add(0, BY_ROW, h)[:, :4],
    "entries scattered over nodes": lambda h: ZEROS.scatter_add(0, PLACES, h),
    "entries scattered": lambda h: ZEROS.scatter_add(1, PLACES, h),
    "entries put": lambda h: ZEROS.scatter(1, PLACES, h),
    "means scattered": lambda h: ZEROS.scatter_reduce(0, BY_ROW, h, "mean", include_self=False),
    "some left out": lambda h: h.masked_fill(C > 0, 0.0),
    "some rows left out": lambda h: h.masked_fill(C[:, :1] > 0, 0.0),
    "some left out by name": lambda h: h.masked_fill(mask=C > 0, value=0.0),
    "one or none": lambda h: torch.where(C > 0, h, 0.0),
    "turned": lambda h: h.t().reshape(5, 4),
    "permuted": lambda h: h.view(5, 2, 2).permute(0, 2, 1).flatten(1),
    "gathered": lambda h: h.gather(1, PLACES),
    "rolled": lambda h: h.roll((1, 2), (0, 1)),
    "running sums": lambda h: h.cumsum(0),
    "a column for all": lambda h: h + h[:, :1],
    "a row for all": lambda h: h[0] + h,
    "both at once": lambda h: h[:, :1] + h[:1],
    "sums twice": lambda h: h + h,
    "a positive factor": lambda h: 0.3 * h,
    "a positive factor for each": lambda h: h * C.abs(),
    "a positive factor for every node": lambda h: C.abs()[:, :1] * h,
    "a positive divisor": lambda h: h / C.abs(),
    "halves": lambda h: h / 2,
    "positive numbers from the left": lambda h: A.abs() @ h,
    "an equation over nodes": lambda h: torch.einsum("mn,nf->mf", A.abs(), h),
    "graphs of a batch": lambda h: torch.bmm(A.abs()[None], h[None])[0],
    "a matrix on one feature": lambda h: (A.abs() @ h[:, 0])[:, None].expand(5, 4),
}  # fmt: skip

#: With constants, which are biases, and with coefficients of both signs.
AFFINE = {
    "constants beside": lambda h: torch.cat([h[:, :3], C[:, :1]], dim=-1),
    "constants before": lambda h: torch.cat([C[:, :1], h[:, 1:]], 1),
    "constants below": lambda h: torch.cat([h[:3], C[3:]]),
    "a stack with constants": lambda h: torch.stack([h, C]).sum(0),
    "rows added to constants": lambda h: C.index_add(0, CLUSTERS, h),
    "rows scattered over constants": lambda h: C.scatter_add(0, BY_ROW, h),
    "numbers in the place of some": lambda h: h.masked_fill(C > 0, -0.7),
    "a number in the place of some by name": lambda h: h.masked_fill(C > 0, value=0.3),
    "one or the other": lambda h: torch.where(C > 0, C, h),
    "padded with a number": lambda h: F.pad(h[:, :3], (1, 0), value=-0.4),
    "plus constants": lambda h: h + C,
    "plus a number": lambda h: 0.4 + h,
    "plus a row": lambda h: h + C[0],
    "plus a column": lambda h: h + C[:, :1],
    "plus a multiple of constants": lambda h: torch.add(h, C, alpha=-0.5),
    "plus a multiple": lambda h: torch.add(C, h, alpha=-0.5),
    "constants minus it": lambda h: C - h,
    "a number minus it": lambda h: 0.4 - h,
    "minus a multiple of constants": lambda h: torch.sub(h, C, alpha=2),
    "minus a multiple": lambda h: torch.sub(C, h, alpha=2),
    "from the right": lambda h: torch.rsub(h, C),
    "from the right, a multiple": lambda h: torch.rsub(h, C, alpha=0.5),
    "by name": lambda h: torch.sub(h, other=C),
    "differences of nodes": lambda h: h - h[ORDER],
    "less the mean": lambda h: h - h.mean(0),
    "turned over": lambda h: -h,
    "a factor for each": lambda h: h * C,
    "a negative factor": lambda h: -1.5 * h,
    "a divisor for each": lambda h: h / C,
    "numbers from the left": lambda h: A @ h,
    "a sparse matrix": lambda h: torch.sparse.mm(SPARSE, h),
    "a sparse matrix by its operator": lambda h: SPARSE @ h,
    "numbers from the right": lambda h: h @ W,
    "numbers from the right on heads": lambda h: (h.view(5, 2, 2) @ W[:2, :2]).flatten(1),
    "a vector from the right": lambda h: (h @ W[0])[:, None].expand(5, 4),
    "a matrix and a vector": lambda h: torch.mv(h, W[0])[:, None].expand(5, 4),
    "a weight": lambda h: F.linear(h, W),
    "a weight with a bias": lambda h: F.linear(h, W, C[0]),
    "a weight with a bias by name": lambda h: F.linear(h, W, bias=C[0]),
    "a weight on heads": lambda h: F.linear(h.view(5, 2, 2), W[:2, :2], C[0, :2]).flatten(1),
    "one row of a weight": lambda h: F.linear(h, W[0])[:, None].expand(5, 4),
    "an equation": lambda h: torch.einsum("mf,fg->mg", h, W),
    "an equation with heads": lambda h: torch.einsum("mhd,hd->mh", h.view(5, 2, 2), W[:2, :2]).repeat(1, 2),
    "a product of tensors": lambda h: torch.tensordot(h, W, 1),
    "an inner product": lambda h: torch.inner(h, W),
    "an outer product": lambda h: torch.outer(h[:, 0], W[0]),
    "a product with a learned row": lambda h: (h * ROW).sum(-1, keepdim=True).expand(5, 4),
    "a product with a learned row, flat": lambda h: (h * ROW).sum(1)[:, None].expand(5, 4),
}
ROW = nn.Parameter(W[1].clone())
EVERY = MOVES | AFFINE


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("place", ["inside", "after"])
@pytest.mark.parametrize("name", EVERY)
def test_linear_maps_pass_on_gradient_times_input(name, place):
    """Under LRP-0, with nothing but ReLU in the model."""
    torch.manual_seed(4)
    model = Model(lambda w, h, held: EVERY[name](h), place, same).double().eval()

    def run(x, edges):
        h = model.first(x, edges).relu()
        h = (model.inner if place == "inside" else model.second)(model.step(h, "between"), edges)
        return model.head(model.step(h, "after").sum(0, keepdim=True))

    model.forward = run
    x = torch.randn(5, 4, dtype=torch.float64)
    leaf = x.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(run(leaf, EDGES)[0, 0], leaf)
    chain = ww.trace(model, x, EDGES, target=0, rule="zero")
    assert not any("no rule" in note for note in chain.notes)
    torch.testing.assert_close(ww.feature_relevance(chain), gradient * x, rtol=1e-9, atol=1e-11)


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("name", MOVES)
def test_moves_are_part_of_a_rule_s_stretch_as_their_matrix_is(name):
    """Between a weight and the end of its layer, entries that are moved are no end of a stretch."""
    matrix = jacrev(MOVES[name])(C).reshape(20, 20).detach()

    def written(w, h, held):
        return (matrix @ w.a(h).reshape(20)).view(5, 4)

    ours = traced(lambda w, h, held: MOVES[name](w.a(h)), "inside", same, GeneralisedGamma(3.0))
    check_same(ours, traced(written, "inside", same, GeneralisedGamma(3.0)))


#: Functions that move columns, and the columns that each of theirs is.
COLUMNS = {
    "parts of rows, in order": (lambda h: torch.cat(h.split([1, 3], 1)[::-1], 1), (1, 2, 3, 0)),
    "columns by numbers": (lambda h: h[:, [2, 0, 2, 1]], (2, 0, 2, 1)),
    "heads and columns turned": (lambda h: h.view(5, 2, 2).transpose(1, 2).reshape(5, 4), (0, 2, 1, 3)),
    "one head twice": (lambda h: h.view(5, 2, 2)[:, 1].repeat(1, 2), (2, 3, 2, 3)),
    "zeros beside": (lambda h: torch.cat([h[:, :3], ZEROS[:, :1]], 1), (0, 1, 2, -1)),
}


def maps_between(function):
    """The operators of what a function does between two layers."""
    torch.manual_seed(4)
    model = Model(lambda w, h, held: function(h), "between", same).double().eval()
    chain = ww.trace(model, torch.randn(5, 4, dtype=torch.float64), EDGES, target=0, rule="zero")
    before, after = chain.layers[0].ends[0][0], chain.layers[1].starts[0][0]
    made = {step.target: step for step in chain.steps}
    found, todo = [], [after]
    while todo:
        step = made[todo.pop()]
        found += step.operators
        todo += [slot for slot in step.sources if slot != before]
    return found


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_that_are_moved_are_no_matrix(name):
    function, expected = COLUMNS[name]
    found = maps_between(function)
    assert any(isinstance(operator, Columns) for operator in found)
    assert not any(isinstance(operator, RowMap) for operator in found)
    columns = function(torch.arange(1.0, 5.0, dtype=torch.float64).expand(5, 4))
    assert [int(column) - 1 for column in columns[0]] == list(expected)


@pytest.mark.parametrize("function", [lambda h: h.view(5, 2, 2).mean(1), lambda h: h.view(5, 2, 2).sum(2)])
def test_sums_of_columns_are_matrices(function):
    """Also where they come to whole numbers, as those of a move do."""
    found = maps_between(lambda h: function(h).repeat(1, 2))
    assert any(isinstance(operator, RowMap) for operator in found)

"""Functions that are several others in one mean what they mean when they are written out."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from everywhere import check_same, detached, same, traced
from walkwise.errors import CoverageWarning
from walkwise.rules import Gamma, GeneralisedGamma


def constants():
    """A mask over pairs of nodes, and numbers of both signs for every entry."""
    generator = torch.Generator().manual_seed(7)
    entries = torch.randn(5, 4, generator=generator, dtype=torch.float64)
    return entries, torch.rand(5, 5, generator=generator) > 0.4


def either(library, written):
    """The library's function where nothing is detached, and the same written out where something is."""

    def run(w, h, held):
        return library(w, h) if held is same else written(w, h, held)

    return run


def attention(q, k, v, held, hidden=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    scores = scores if hidden is None else scores.masked_fill(hidden, -math.inf)
    return held(scores.softmax(-1)) @ v


def in_heads(h):
    return h.view(5, 2, 2).transpose(0, 1)


def multi_head(w, h, held, mask=None):
    q, k, v = F.linear(h, w.heads.in_proj_weight, w.heads.in_proj_bias).chunk(3, dim=-1)
    v = F.linear(h, w.heads.in_proj_weight[8:], w.heads.in_proj_bias[8:])
    seen = attention(held(in_heads(q)), held(in_heads(k)), in_heads(v), held, mask)
    return w.heads.out_proj(seen.transpose(0, 1).reshape(5, 4))


def causal():
    return ~torch.ones(5, 5, dtype=torch.bool).tril()


ENTRIES, SEEN = constants()
BATCH = torch.stack([ENTRIES[:4], ENTRIES[1:]])  # (2, 4, 4)

KERNEL = torch.stack([BATCH[0, :, :3].repeat(2, 1)[i : i + 5] for i in range(3)] * 2)[:5]  # (5, 5, 3)
LAST = torch.tensor([False, False, False, True])

#: Where the entries of every row go, and where those that come there are from.
ROWS = torch.tensor([2, 0, 4, 1, 3])
PLACES = torch.stack([torch.tensor([2, 0, 3, 1]).roll(i) for i in range(5)])
FROM = PLACES.argsort(1)

torch.manual_seed(11)
GRU, LSTM, RNN = (kind(4, 4).double() for kind in (nn.GRUCell, nn.LSTMCell, nn.RNNCell))
GRUS = nn.GRU(2, 2, num_layers=2, bidirectional=True).double()
LSTMS = nn.LSTM(2, 4, batch_first=True).double()


def gru(cell, x, memory, held):
    on_x = F.linear(x, cell.weight_ih, cell.bias_ih).chunk(3, -1)
    on_memory = F.linear(memory, cell.weight_hh, cell.bias_hh).chunk(3, -1)
    reset, update = (held(torch.sigmoid(a + b)) for a, b in zip(on_x[:2], on_memory[:2], strict=True))
    return (1 - update) * torch.tanh(on_x[2] + reset * on_memory[2]) + update * memory


def lstm(cell, x, memory, cells, held):
    both = F.linear(x, cell.weight_ih, cell.bias_ih) + F.linear(memory, cell.weight_hh, cell.bias_hh)
    let_in, forget, new, let_out = both.chunk(4, -1)
    cells = held(forget.sigmoid()) * cells + held(let_in.sigmoid()) * new.tanh()
    return held(let_out.sigmoid()) * cells.tanh(), cells


def lstm_of_layer(x, held):
    weights = SimpleNamespace(**{name.removesuffix("_l0"): weight for name, weight in LSTMS.named_parameters()})
    memory = cells = torch.zeros(5, 4, dtype=torch.float64)
    seen = []
    for step in x.unbind(1):
        memory, cells = lstm(weights, step, memory, cells, held)
        seen.append(memory)
    return torch.stack(seen, 1)


def gru_of_layers(x, held):
    weights = dict(GRUS.named_parameters())
    for layer in range(2):
        ways = []
        for way in ("", "_reverse"):
            end = f"_l{layer}{way}"
            cell = SimpleNamespace(**{n.removesuffix(end): v for n, v in weights.items() if n.endswith(end)})
            memory, seen = torch.zeros(5, 2, dtype=torch.float64), []
            for step in reversed(x.unbind(0)) if way else x.unbind(0):
                memory = gru(cell, step, memory, held)
                seen.append(memory)
            ways.append(torch.stack(seen[::-1] if way else seen))
        x = torch.cat(ways, -1)
    return x


COMPOSITES = {
    "GRU cell": either(lambda w, h: GRU(w.a(h), w.b(h)), lambda w, h, held: gru(GRU, w.a(h), w.b(h), held)),
    "LSTM cell": either(
        lambda w, h: sum(LSTM(w.a(h), (w.b(h), h))), lambda w, h, held: sum(lstm(LSTM, w.a(h), w.b(h), h, held))
    ),
    "RNN cell": either(
        lambda w, h: RNN(w.a(h), w.b(h)),
        lambda w, h, held: torch.tanh(
            F.linear(w.a(h), RNN.weight_ih, RNN.bias_ih) + F.linear(w.b(h), RNN.weight_hh, RNN.bias_hh)
        ),
    ),
    "LSTM": either(
        lambda w, h: LSTMS(w.a(h).view(5, 2, 2))[0][:, -1],
        lambda w, h, held: lstm_of_layer(w.a(h).view(5, 2, 2), held)[:, -1],
    ),
    "GRU": either(
        lambda w, h: GRUS(w.a(h).view(5, 2, 2).transpose(0, 1))[0].mean(0),
        lambda w, h, held: gru_of_layers(w.a(h).view(5, 2, 2).transpose(0, 1), held).mean(0),
    ),
    "glu": either(
        lambda w, h: F.glu(torch.cat([w.a(h), w.b(h)], dim=-1)),
        lambda w, h, held: w.a(h) * held(torch.sigmoid(w.b(h))),
    ),
    "glu over nodes": either(
        lambda w, h: F.glu(torch.cat([w.a(h), w.b(h)], dim=0), dim=0),
        lambda w, h, held: w.a(h) * held(torch.sigmoid(w.b(h))),
    ),
    "lerp": either(lambda w, h: torch.lerp(w.a(h), w.b(h), 0.3), lambda w, h, held: 0.7 * w.a(h) + 0.3 * w.b(h)),
    "lerp with a gate": either(
        lambda w, h: torch.lerp(w.a(h), w.b(h), torch.sigmoid(w.c(h))),
        lambda w, h, held: w.a(h) * held(1 - torch.sigmoid(w.c(h))) + w.b(h) * held(torch.sigmoid(w.c(h))),
    ),
    "addcmul": either(
        lambda w, h: torch.addcmul(w.a(h), w.b(h), torch.sigmoid(w.c(h)), value=-0.5),
        lambda w, h, held: w.a(h) - 0.5 * (w.b(h) * held(torch.sigmoid(w.c(h)))),
    ),
    "addcdiv": either(
        lambda w, h: torch.addcdiv(w.a(h), w.b(h), w.c(h).square() + 1, value=-0.5),
        lambda w, h, held: w.a(h) - 0.5 * (w.b(h) / held(w.c(h).square() + 1)),
    ),
    "baddbmm": either(
        lambda w, h: torch.baddbmm(ENTRIES[None], held_scores(w, h, same)[None], w.c(h)[None], beta=0.5, alpha=-2)[0],
        lambda w, h, held: 0.5 * ENTRIES - 2 * (held_scores(w, h, held) @ w.c(h)),
    ),
    "addbmm": either(
        lambda w, h: torch.addbmm(ENTRIES, held_scores(w, h, same)[None], w.c(h)[None], beta=0.5, alpha=-2),
        lambda w, h, held: 0.5 * ENTRIES - 2 * (held_scores(w, h, held) @ w.c(h)),
    ),
    "addmv": either(
        lambda w, h: h + torch.addmv(ENTRIES[:, 0], w.a(h), ENTRIES[0], beta=0.5, alpha=-2).unsqueeze(-1),
        lambda w, h, held: h + (0.5 * ENTRIES[:, 0] - 2 * (w.a(h) @ ENTRIES[0])).unsqueeze(-1),
    ),
    "addr": either(
        lambda w, h: torch.addr(ENTRIES, w.a(h)[:, 0], ENTRIES[0], beta=0.5, alpha=-2),
        lambda w, h, held: 0.5 * ENTRIES - 2 * torch.outer(w.a(h)[:, 0], ENTRIES[0]),
    ),
    "addmm": either(
        lambda w, h: torch.addmm(ENTRIES, h, BATCH[0], beta=0.5, alpha=-2),
        lambda w, h, held: 0.5 * ENTRIES - 2 * (h @ BATCH[0]),
    ),
    "addmm with a skip": either(
        lambda w, h: torch.addmm(h, h.relu(), BATCH[0], beta=0.5),
        lambda w, h, held: 0.5 * h + h.relu() @ BATCH[0],
    ),
    "chain_matmul": either(
        lambda w, h: torch.chain_matmul(held_scores(w, h, same), w.c(h), w.a.weight.t()),
        lambda w, h, held: (held_scores(w, h, held) @ w.c(h)) @ w.a.weight.t(),
    ),
    "rows of a table": either(
        lambda w, h: F.embedding(ROWS[:, None], w.a(h)).squeeze(1), lambda w, h, held: w.a(h)[ROWS]
    ),
    "the larger, by column": either(
        lambda w, h: ENTRIES.index_reduce(1, PLACES[0], w.a(h), "amax"),
        lambda w, h, held: torch.maximum(w.a(h)[:, FROM[0]], ENTRIES),
    ),
    "the larger, by entry": either(
        lambda w, h: ENTRIES.scatter_reduce(1, PLACES, w.a(h), "amax"),
        lambda w, h, held: torch.maximum(w.a(h).gather(1, FROM), ENTRIES),
    ),
    "the smaller, by entry": either(
        lambda w, h: ENTRIES.scatter_reduce(1, PLACES, w.a(h), "amin"),
        lambda w, h, held: torch.minimum(w.a(h).gather(1, FROM), ENTRIES),
    ),
    "the only ones, by entry": either(
        lambda w, h: (
            w.b(ENTRIES.scatter_reduce(1, PLACES, w.a(h), "amax", include_self=False))
            + w.c(ENTRIES.scatter_reduce(1, PLACES, w.a(h), "amin", include_self=False))
        ),
        lambda w, h, held: w.b(w.a(h).gather(1, FROM)) + w.c(w.a(h).gather(1, FROM)),
    ),
    "multi_dot": either(
        lambda w, h: torch.linalg.multi_dot([held_scores(w, h, same), w.c(h), w.a.weight.t()]),
        lambda w, h, held: (held_scores(w, h, held) @ w.c(h)) @ w.a.weight.t(),
    ),
    "stacked by name": either(
        lambda w, h: torch.stack(tensors=[w.a(h), w.b(h)], dim=0).sum(0), lambda w, h, held: w.a(h) + w.b(h)
    ),
    "diff": either(
        lambda w, h: torch.diff(F.pad(w.a(h), (1, 0)), dim=-1),
        lambda w, h, held: w.a(h) - F.pad(w.a(h), (1, 0))[:, :4],
    ),
    "attention": either(
        lambda w, h: F.scaled_dot_product_attention(w.a(h), w.b(h), w.c(h)),
        lambda w, h, held: attention(w.a(h), w.b(h), w.c(h), held),
    ),
    "attention in heads, masked": either(
        lambda w, h: (
            F.scaled_dot_product_attention(
                in_heads(w.a(h)), in_heads(w.b(h)), in_heads(w.c(h)), attn_mask=SEEN | torch.eye(5, dtype=torch.bool)
            )
            .transpose(0, 1)
            .reshape(5, 4)
        ),
        lambda w, h, held: (
            attention(
                in_heads(w.a(h)), in_heads(w.b(h)), in_heads(w.c(h)), held, ~(SEEN | torch.eye(5, dtype=torch.bool))
            )
            .transpose(0, 1)
            .reshape(5, 4)
        ),
    ),
    "causal attention": either(
        lambda w, h: F.scaled_dot_product_attention(w.a(h), w.b(h), w.c(h), is_causal=True, scale=0.5),
        lambda w, h, held: attention(w.a(h), w.b(h), w.c(h), held, causal()),
    ),
    "many heads": either(
        lambda w, h: w.heads(h[None], h[None], h[None])[0][0], lambda w, h, held: multi_head(w, h, held)
    ),
    "many heads without a batch": either(
        lambda w, h: w.heads(h, h, h, attn_mask=causal(), need_weights=False)[0],
        lambda w, h, held: multi_head(w, h, held, causal()),
    ),
    "cosine similarity": either(
        lambda w, h: (
            h * F.cosine_similarity(w.a(h), ENTRIES, dim=-1).unsqueeze(-1).detach()
            + F.cosine_similarity(w.a(h), ENTRIES, dim=-1).unsqueeze(-1)
        ),
        lambda w, h, held: (
            h * held(F.cosine_similarity(w.a(h), ENTRIES, dim=-1).unsqueeze(-1))
            + ((w.a(h) * ENTRIES).sum(-1) / held(w.a(h).norm(dim=-1) * ENTRIES.norm(dim=-1))).unsqueeze(-1)
        ),
    ),
    "bilinear": either(
        lambda w, h: F.bilinear(h, torch.sigmoid(w.c(h)), BATCH[:, :4].repeat(2, 1, 1)),
        lambda w, h, held: torch.einsum(
            "moj,mj->mo", torch.einsum("mi,oij->moj", h, BATCH.repeat(2, 1, 1)), torch.sigmoid(w.c(h))
        ),
    ),
    "convolution": either(
        lambda w, h: F.conv1d(w.a(h)[None], KERNEL, ENTRIES[:, 0], padding=1)[0],
        lambda w, h, held: (F.conv1d(w.a(h)[None], KERNEL, padding=1) + ENTRIES[:, :1])[0],
    ),
    "filled": either(
        lambda w, h: w.a(h.masked_fill(ENTRIES > 0.5, -0.7)),
        lambda w, h, held: w.a(h * (ENTRIES <= 0.5).double() - 0.7 * (ENTRIES > 0.5).double()),
    ),
    "one or the other": either(
        lambda w, h: w.a(torch.where(ENTRIES > 0.5, ENTRIES, h)),
        lambda w, h, held: w.a(h * (ENTRIES <= 0.5) + ENTRIES * (ENTRIES > 0.5)),
    ),
    "padded": either(
        lambda w, h: F.linear(F.pad(h[:, :3], (0, 1), value=0.6), w.a.weight, w.a.bias),
        lambda w, h, held: w.a(h * LAST.logical_not() + 0.6 * LAST.double()),
    ),
    "joined rows": either(
        lambda w, h: w.a(torch.cat([h[:3], ENTRIES[3:]])),
        lambda w, h, held: w.a(h * (torch.arange(5) < 3).view(5, 1) + ENTRIES * (torch.arange(5) >= 3).view(5, 1)),
    ),
}


def held_scores(w, h, held):
    return held((w.a(h) @ w.b(h).t() / 2).softmax(-1))


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("rule", ["zero", Gamma(2.0), GeneralisedGamma(3.0)], ids=repr)
@pytest.mark.parametrize("place", ["before", "between", "inside", "after"])
@pytest.mark.parametrize("name", COMPOSITES)
def test_a_function_means_what_it_means_written_out(name, place, rule):
    ours, theirs = (traced(COMPOSITES[name], place, held, rule) for held in (same, detached))
    assert not any("no rule" in note for note in ours.notes)
    check_same(ours, theirs)


@pytest.mark.parametrize("place", ["between", "after"])
def test_products_by_place_have_no_rule_and_it_is_said(place):
    with pytest.warns(CoverageWarning, match="scatter_reduce"):
        ours = traced(lambda w, h, held: ENTRIES.scatter_reduce(1, PLACES, w.a(h), "prod"), place, same, "zero")
    check_same(ours, traced(lambda w, h, held: w.a(h).gather(1, FROM) * ENTRIES, place, same, "zero"))

"""Functions that are several others in one mean what they mean when they are written out."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import walkwise as ww
from everywhere import EDGES, Model, check_same, detached, same, traced
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
RNNS = nn.RNN(2, 2, num_layers=2, bidirectional=True).double()
RECTIFIED_RNNS = nn.RNN(2, 4, nonlinearity="relu", bias=False).double()
BARE_GRU, RECTIFIED = nn.GRUCell(4, 4, bias=False).double(), nn.RNNCell(4, 4, nonlinearity="relu").double()
BARE_LSTMS = nn.LSTM(2, 2, num_layers=2, bidirectional=True, bias=False).double()
NODES_IN_TIME = nn.GRU(4, 4, batch_first=True).double()
PROJECTED = nn.LSTM(2, 4, proj_size=2, batch_first=True).double()
OTHER_SIZES = nn.MultiheadAttention(4, 2, kdim=3, vdim=3).double()
BARE_HEADS = nn.MultiheadAttention(4, 2, bias=False).double()
WITH_EXTRA = nn.MultiheadAttention(4, 2, add_bias_kv=True).double()


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


def rnn(cell, x, memory, nonlinearity):
    total = F.linear(x, cell.weight_ih, cell.bias_ih) + F.linear(memory, cell.weight_hh, cell.bias_hh)
    return torch.tanh(total) if nonlinearity == "tanh" else torch.relu(total)


def unrolled(module, x, held):
    """What nn.GRU, nn.LSTM or nn.RNN gives, time first: all outputs, and what every layer and way remembers at last."""
    weights, memories, last_cells = dict(module.named_parameters()), [], []
    for layer in range(module.num_layers):
        ways = []
        for way in ("", "_reverse")[: 1 + module.bidirectional]:
            end = f"_l{layer}{way}"
            own = {n.removesuffix(end): v for n, v in weights.items() if n.endswith(end)}
            cell = SimpleNamespace(**{"bias_ih": None, "bias_hh": None} | own)
            memory = cells = torch.zeros(x.shape[1], module.hidden_size, dtype=torch.float64)
            seen = []
            for step in reversed(x.unbind(0)) if way else x.unbind(0):
                if isinstance(module, nn.LSTM):
                    memory, cells = lstm(cell, step, memory, cells, held)
                elif isinstance(module, nn.RNN):
                    memory = rnn(cell, step, memory, module.nonlinearity)
                else:
                    memory = gru(cell, step, memory, held)
                seen.append(memory)
            ways.append(torch.stack(seen[::-1] if way else seen))
            memories.append(memory)
            last_cells.append(cells)
        x = torch.cat(ways, -1)
    return x, torch.stack(memories), torch.stack(last_cells)


def in_time(h):
    """Two steps of two entries each.  # (T, M, 2)"""
    return h.view(5, 2, 2).transpose(0, 1)


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
        lambda w, h, held: unrolled(LSTMS, in_time(w.a(h)), held)[0][-1],
    ),
    "RNN": either(
        lambda w, h: RNNS(in_time(w.a(h)))[0].mean(0),
        lambda w, h, held: unrolled(RNNS, in_time(w.a(h)), held)[0].mean(0),
    ),
    "RNN with ReLU, what it remembers": either(
        lambda w, h: RECTIFIED_RNNS(in_time(w.a(h)))[1][0],
        lambda w, h, held: unrolled(RECTIFIED_RNNS, in_time(w.a(h)), held)[1][0],
    ),
    "GRU": either(
        lambda w, h: GRUS(in_time(w.a(h)))[0].mean(0),
        lambda w, h, held: unrolled(GRUS, in_time(w.a(h)), held)[0].mean(0),
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


def other_sizes(w, h, held):
    """Values, keys and queries projected by weights of their own."""
    m, part = OTHER_SIZES, h[:, :3]
    on_q, on_k, on_v = m.in_proj_bias.view(3, 4)
    q, k, v = (
        F.linear(given, weight, bias)
        for given, weight, bias in (
            (h, m.q_proj_weight, on_q), (part, m.k_proj_weight, on_k), (part, m.v_proj_weight, on_v)
        )
    )  # fmt: skip
    seen = attention(in_heads(q), in_heads(k), in_heads(v), held)
    return m.out_proj(seen.transpose(0, 1).reshape(5, 4))


def bare_heads(w, h, held):
    q, k, v = F.linear(h, BARE_HEADS.in_proj_weight).chunk(3, -1)
    seen = attention(held(in_heads(q)), held(in_heads(k)), in_heads(v), held)
    return F.linear(seen.transpose(0, 1).reshape(5, 4), BARE_HEADS.out_proj.weight)


def one_picture(w, h):
    """An image of one channel, nodes by neurons."""
    return w.a(h)[None, None]


BAGS = torch.tensor([0, 3, 1, 4, 4, 2, 0, 1])
STARTS = torch.tensor([0, 2, 2, 5, 7])  # the second is empty
IN_BAG = torch.tensor([0, 0, 2, 2, 2, 3, 3, 4])
SHARES = ENTRIES.flatten()[:8]


def bags(rows, over=None):
    """Rows of a table added up bag by bag, perhaps over a number for each."""
    total = torch.zeros(5, 4, dtype=torch.float64).index_add(0, IN_BAG, rows)
    return total if over is None else total / over


SIZES = torch.tensor([2.0, 1, 3, 2, 1], dtype=torch.float64).view(5, 1)  # an empty bag counts as one

#: The same with other options, or with something left out.
OPTIONS = {
    "GRU cell without biases": either(
        lambda w, h: BARE_GRU(w.a(h), w.b(h)),
        lambda w, h, held: gru(BARE_GRU, w.a(h), w.b(h), held),
    ),
    "LSTM cell, what it remembers": either(
        lambda w, h: LSTM(w.a(h), (w.b(h), h))[1], lambda w, h, held: lstm(LSTM, w.a(h), w.b(h), h, held)[1]
    ),
    "RNN cell with ReLU": either(
        lambda w, h: RECTIFIED(w.a(h), w.b(h)),
        lambda w, h, held: torch.relu(
            F.linear(w.a(h), RECTIFIED.weight_ih, RECTIFIED.bias_ih)
            + F.linear(w.b(h), RECTIFIED.weight_hh, RECTIFIED.bias_hh)
        ),
    ),
    "GRU, what it remembers": either(
        lambda w, h: GRUS(in_time(w.a(h)))[1].transpose(0, 1).reshape(5, 8)[:, 2:6],
        lambda w, h, held: unrolled(GRUS, in_time(w.a(h)), held)[1].transpose(0, 1).reshape(5, 8)[:, 2:6],
    ),
    "LSTM both ways without biases": either(
        lambda w, h: BARE_LSTMS(in_time(w.a(h)))[0][0],
        lambda w, h, held: unrolled(BARE_LSTMS, in_time(w.a(h)), held)[0][0],
    ),
    "LSTM, what it remembers": either(
        lambda w, h: torch.cat([part[1:3].sum(0) for part in BARE_LSTMS(in_time(w.a(h)))[1]], -1),
        lambda w, h, held: torch.cat(
            [part[1:3].sum(0) for part in unrolled(BARE_LSTMS, in_time(w.a(h)), held)[1:]], -1
        ),
    ),
    "GRU from node to node": either(
        lambda w, h: NODES_IN_TIME(w.a(h))[0],
        lambda w, h, held: unrolled(NODES_IN_TIME, w.a(h)[:, None], held)[0].squeeze(1),
    ),
    "lerp with numbers": either(
        lambda w, h: torch.lerp(w.a(h), w.b(h), ENTRIES),
        lambda w, h, held: w.a(h) * (1 - ENTRIES) + w.b(h) * ENTRIES,
    ),
    "addcmul as it is": either(
        lambda w, h: torch.addcmul(w.a(h), w.b(h), ENTRIES), lambda w, h, held: w.a(h) + w.b(h) * ENTRIES
    ),
    "addcdiv as it is": either(
        lambda w, h: torch.addcdiv(w.a(h), w.b(h), ENTRIES), lambda w, h, held: w.a(h) + w.b(h) / ENTRIES
    ),
    "addmm as it is": either(
        lambda w, h: torch.addmm(ENTRIES, w.a(h), BATCH[0]), lambda w, h, held: ENTRIES + w.a(h) @ BATCH[0]
    ),
    "addbmm of two": either(
        lambda w, h: torch.addbmm(ENTRIES, torch.stack([w.a(h), w.b(h)]), BATCH),
        lambda w, h, held: ENTRIES + w.a(h) @ BATCH[0] + w.b(h) @ BATCH[1],
    ),
    "diff over nodes": either(
        lambda w, h: torch.diff(F.pad(w.a(h), (0, 0, 1, 0)), 1, 0),
        lambda w, h, held: w.a(h) - F.pad(w.a(h), (0, 0, 1, 0))[:5],
    ),
    "an equation of a list": either(
        lambda w, h: torch.einsum("mn,nf->mf", [held_scores(w, h, same), w.c(h)]),
        lambda w, h, held: held_scores(w, h, held) @ w.c(h),
    ),
    "a product over named dimensions": either(
        lambda w, h: torch.tensordot(held_scores(w, h, same), w.c(h), ([1], [0])),
        lambda w, h, held: held_scores(w, h, held) @ w.c(h),
    ),
    "bilinear with a bias": either(
        lambda w, h: F.bilinear(h, ENTRIES, BATCH.repeat(2, 1, 1), ENTRIES[0]),
        lambda w, h, held: (
            torch.einsum("moj,mj->mo", torch.einsum("mi,oij->moj", h, BATCH.repeat(2, 1, 1)), ENTRIES) + ENTRIES[0]
        ),
    ),
    "bilinear, the second followed": either(
        lambda w, h: F.bilinear(ENTRIES, h, BATCH.repeat(2, 1, 1)),
        lambda w, h, held: torch.einsum("moi,mi->mo", torch.einsum("mj,oij->moi", h, BATCH.repeat(2, 1, 1)), ENTRIES),
    ),
    "convolution, its bias by name": either(
        lambda w, h: F.conv1d(w.a(h)[None], KERNEL, padding=1, bias=ENTRIES[:, 0])[0],
        lambda w, h, held: (F.conv1d(w.a(h)[None], KERNEL, padding=1) + ENTRIES[:, :1])[0],
    ),
    "convolution without a bias": either(
        lambda w, h: F.conv1d(w.a(h)[None], KERNEL, None, 1, 1)[0],
        lambda w, h, held: F.conv1d(w.a(h)[None], KERNEL, padding=1)[0],
    ),
    "convolution of a picture": either(
        lambda w, h: F.conv2d(one_picture(w, h), BATCH[:1, None, :3, :3], ENTRIES[0, :1], padding=1)[0, 0],
        lambda w, h, held: (F.conv2d(one_picture(w, h), BATCH[:1, None, :3, :3], padding=1) + ENTRIES[0, 0])[0, 0],
    ),
    "transposed convolution": either(
        lambda w, h: F.conv_transpose1d(w.a(h)[None], KERNEL, ENTRIES[:, 0], padding=1)[0],
        lambda w, h, held: (F.conv_transpose1d(w.a(h)[None], KERNEL, padding=1) + ENTRIES[:, :1])[0],
    ),
    "a table of rows by pairs": either(
        lambda w, h: F.embedding(torch.stack([ROWS, ROWS.flip(0)], 1), w.a(h)).sum(1),
        lambda w, h, held: w.a(h)[ROWS] + w.a(h)[ROWS.flip(0)],
    ),
    "bags of rows": either(
        lambda w, h: F.embedding_bag(BAGS, w.a(h), STARTS, mode="sum"), lambda w, h, held: bags(w.a(h)[BAGS])
    ),
    "means of bags": either(
        lambda w, h: F.embedding_bag(BAGS, w.a(h), STARTS), lambda w, h, held: bags(w.a(h)[BAGS], SIZES)
    ),
    "weighted bags": either(
        lambda w, h: F.embedding_bag(BAGS, w.a(h), STARTS, mode="sum", per_sample_weights=SHARES),
        lambda w, h, held: bags(w.a(h)[BAGS] * SHARES[:, None]),
    ),
    "bags as rows of numbers": either(
        lambda w, h: F.embedding_bag(torch.stack([ROWS, ROWS.flip(0)], 1), w.a(h), mode="sum"),
        lambda w, h, held: w.a(h)[ROWS] + w.a(h)[ROWS.flip(0)],
    ),
    "cosine similarity of two": either(
        lambda w, h: h + F.cosine_similarity(w.a(h), w.b(h)).unsqueeze(-1),
        lambda w, h, held: h + ((w.a(h) * w.b(h)).sum(1) / held(w.a(h).norm(dim=1) * w.b(h).norm(dim=1))).unsqueeze(-1),
    ),
    "cosine similarity, norms at least 9": either(
        lambda w, h: h + F.cosine_similarity(w.a(h), ENTRIES, dim=1, eps=9.0).unsqueeze(-1),
        lambda w, h, held: h + ((w.a(h) * ENTRIES).sum(1) / 81).unsqueeze(-1),
    ),
    "attention with numbers added": either(
        lambda w, h: F.scaled_dot_product_attention(w.a(h), w.b(h), w.c(h), ENTRIES @ ENTRIES.t()),
        lambda w, h, held: held((w.a(h) @ w.b(h).t() / 2 + ENTRIES @ ENTRIES.t()).softmax(-1)) @ w.c(h),
    ),
    "attention with another scale": either(
        lambda w, h: F.scaled_dot_product_attention(w.a(h), w.b(h), w.c(h), scale=-0.9),
        lambda w, h, held: held((-0.9 * w.a(h) @ w.b(h).t()).softmax(-1)) @ w.c(h),
    ),
    "attention to constants": either(
        lambda w, h: h + F.scaled_dot_product_attention(w.a(h), w.b(h), ENTRIES),
        lambda w, h, held: h + held((w.a(h) @ w.b(h).t() / 2).softmax(-1)) @ ENTRIES,
    ),
    "heads over constants": either(
        lambda w, h: h + BARE_HEADS(h, ENTRIES, ENTRIES)[0],
        lambda w, h, held: h + held(BARE_HEADS(h, ENTRIES, ENTRIES)[0]),
    ),
    "causal attention to some": either(
        lambda w, h: F.scaled_dot_product_attention(w.a(h), w.b(h)[:3], w.c(h)[:3], is_causal=True),
        lambda w, h, held: attention(w.a(h), w.b(h)[:3], w.c(h)[:3], held, ~torch.ones(5, 3, dtype=torch.bool).tril()),
    ),
    "heads of other sizes": either(
        lambda w, h: OTHER_SIZES(h, h[:, :3], h[:, :3])[0], lambda w, h, held: other_sizes(w, h, held)
    ),
    "heads without biases": either(lambda w, h: BARE_HEADS(h, h, h)[0], bare_heads),
    "the attention of heads is a gate": either(
        lambda w, h: w.heads(h, h, h)[1] @ w.c(h), lambda w, h, held: held(w.heads(h, h, h)[1]) @ w.c(h)
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


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("rule", ["zero", Gamma(2.0)], ids=repr)
@pytest.mark.parametrize("place", ["inside", "after"])
@pytest.mark.parametrize("name", OPTIONS)
def test_options_mean_what_they_mean_written_out(name, place, rule):
    ours, theirs = (traced(OPTIONS[name], place, held, rule) for held in (same, detached))
    assert not any("no rule" in note for note in ours.notes)
    check_same(ours, theirs)


UNWRITTEN = {
    "differences of differences": lambda w, h: torch.diff(F.pad(w.a(h), (2, 0)), 2),
    "differences with an end": lambda w, h: torch.diff(w.a(h), append=ENTRIES[:, :1]),
    "differences with a beginning": lambda w, h: torch.diff(w.a(h), prepend=ENTRIES[:, :1]),
    "a followed kernel": lambda w, h: F.conv1d(w.a(h)[None], w.b(h)[None])[0] + w.c(h),
    "a followed mask": lambda w, h: F.scaled_dot_product_attention(w.a(h), w.b(h), w.c(h), w.a(h) @ ENTRIES.t()),
    "groups of heads": lambda w, h: (
        F.scaled_dot_product_attention(in_heads(w.a(h)), in_heads(w.b(h))[:1], in_heads(w.c(h))[:1], enable_gqa=True)
        .transpose(0, 1)
        .reshape(5, 4)
    ),
    "projected memory": lambda w, h: PROJECTED(w.a(h).view(5, 2, 2))[0].flatten(1),
    "heads with a bias of their own": lambda w, h: WITH_EXTRA(h, h, h)[0],
    "a bag of the largest": lambda w, h: F.embedding_bag(BAGS, w.a(h), STARTS, mode="max"),
    "a bag with padding": lambda w, h: F.embedding_bag(BAGS, w.a(h), STARTS, mode="sum", padding_idx=1),
}


@pytest.mark.parametrize("name", UNWRITTEN)
def test_what_is_not_written_out_has_its_gradient_and_it_is_said(name):
    """Under LRP-0, and with nothing but this after the layers, that is gradient × input of the layers' output."""
    with pytest.warns(CoverageWarning, match="has no rule; its plain gradient was used"):
        chain = traced(lambda w, h, held: UNWRITTEN[name](w, h), "after", same, "zero")
    torch.manual_seed(4)
    model = Model(lambda w, h, held: UNWRITTEN[name](w, h), "after", same).double().eval()
    x = torch.randn(5, 4, dtype=torch.float64)
    h = model.second(model.first(x, EDGES).relu(), EDGES).detach().requires_grad_(True)
    (gradient,) = torch.autograd.grad(_tail(model, h), h)
    torch.testing.assert_close(ww.node_relevance(chain, layer=2), (gradient * h).sum(1), rtol=1e-9, atol=1e-11)


def _tail(model, h):
    """What follows the layers; tanh is held to be linear, as it is under every rule."""
    z = model.written(model.w, h, same)
    return model.head((z * (z.tanh() / z).detach()).sum(0, keepdim=True))[0, 0]


@pytest.mark.parametrize("place", ["between", "after"])
def test_products_by_place_have_no_rule_and_it_is_said(place):
    with pytest.warns(CoverageWarning, match="scatter_reduce"):
        ours = traced(lambda w, h, held: ENTRIES.scatter_reduce(1, PLACES, w.a(h), "prod"), place, same, "zero")
    check_same(ours, traced(lambda w, h, held: w.a(h).gather(1, FROM) * ENTRIES, place, same, "zero"))

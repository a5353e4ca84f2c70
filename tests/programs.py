"""Models made at random from short statements, each of which can be written in several ways.

The first way to write a statement takes ``held``: detaching what is held constant there must change nothing. All ways
compute the same, and so must have the same relevance, whatever stands before and after.
"""

import random

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch_geometric import utils as U
from torch_geometric.nn import (
    GCNConv,
    GINConv,
    GraphConv,
    MessagePassing,
    SAGEConv,
    global_add_pool,
    global_max_pool,
    global_mean_pool,
)

WIDTH = 6
TURN = torch.tensor([3, 4, 5, 0, 1, 2])
WIDENED = torch.tensor([2.0, 2.0, 1.0, 1.0, 1.0, 1.0])


class Weights(nn.Module):
    """What one statement has learned."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Parameter(torch.randn(WIDTH, WIDTH) / 2) for _ in range(3))
        self.bias, self.score = (nn.Parameter(torch.randn(WIDTH) / 2) for _ in range(2))
        self.norm, self.cell, self.map = nn.LayerNorm(WIDTH), nn.GRUCell(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        nn.init.normal_(self.norm.weight, 1.0, 0.3)
        nn.init.normal_(self.norm.bias, 0.0, 0.3)


def halved(a, b, held):
    """A product of which each factor gets half."""
    return a * b if held is same else (a * b.detach() + a.detach() * b) / 2


def same(tensor):
    return tensor


def kept(h, value, held):
    """A function of single entries, h · [value / h]."""
    ratio = torch.where(h == 0, 0.0, value / h).detach()
    return value if held is same else h * ratio + (value - h * ratio).detach()


def layer_norm(w, h, held):
    mean, spread = held(h.mean(-1, keepdim=True)), held((h.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt())
    return w.norm(h) if held is same else (h - mean) / spread * w.norm.weight + w.norm.bias


def by_moments(h):
    centred = h - h.sum(-1, keepdim=True) / WIDTH
    return centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-5)


def gru(w, h, skip, held):
    if held is same:
        return w.cell(h, skip)
    ways = F.linear(h, w.cell.weight_ih, w.cell.bias_ih), F.linear(skip, w.cell.weight_hh, w.cell.bias_hh)
    (r, z, n), (r2, z2, n2) = (way.chunk(3, 1) for way in ways)
    r, z = held(torch.sigmoid(r + r2)), held(torch.sigmoid(z + z2))
    new = n + r * n2
    return (1 - z) * kept(new, new.tanh(), held) + z * skip


def written(h, *statements, **names):
    """A copy c of a tensor after statements that write into it."""
    names |= {"torch": torch, "h": h, "c": h.clone()}
    for statement in statements:
        exec(statement, names)
    return names["c"]


def raised(scores):
    """Powers of e, as softmax takes them."""
    return (scores - scores.amax(-1, keepdim=True)).exp()


def attention(w, h, held=same):
    return h + held((h @ w.a @ (h @ w.b).t()).softmax(-1)) @ (h @ w.c)


def even(h):
    """Every other row."""
    return torch.arange(len(h)) % 2 == 0


def halves(h):
    """The half of the graph that every node is in."""
    return (torch.arange(len(h)) >= len(h) // 2).long()


def of_halves(h, reduce):
    """One row for either half."""
    return U.scatter(h, halves(h), reduce=reduce)


def blocks(w):
    """The weights of two heads.  # (H, O, F)"""
    return torch.stack([w.a[:3, :3], w.a[3:, 3:]])


def heads(*tensors):
    """Heads first.  # (H, M, D)"""
    return [h.view(-1, 2, 3).transpose(0, 1) for h in tensors]


def attention_by_heads(w, h, held=same):
    q, k, v = heads(h @ w.a, h @ w.b, h @ w.c)
    return (held((q @ k.mT / 3**0.5).softmax(-1)) @ v).transpose(0, 1).flatten(1)


def lstm(w, h, s, held):
    parts = F.linear(h, torch.cat([w.a, w.b, w.c, w.a]), w.bias.repeat(4)) + F.linear(
        s, torch.cat([w.b, w.c, w.a, w.b])
    )
    let_in, forget, new, let_out = parts.chunk(4, 1)
    c = held(forget.sigmoid()) * s + held(let_in.sigmoid()) * kept(new, new.tanh(), held)
    return held(let_out.sigmoid()) * kept(c, c.tanh(), held)


#: For every statement, ways to write it: functions of its weights, h and what the layer before was given.
STATEMENTS = {
    "linear": [
        lambda w, h, s, held: F.linear(h, w.a, w.bias),
        lambda w, h, s: h @ w.a.t() + w.bias,
        lambda w, h, s: torch.addmm(w.bias, h, w.a.t()),
        lambda w, h, s: torch.einsum("mf,of->mo", h, w.a) + w.bias,
        lambda w, h, s: (w.a @ h.t()).t() + w.bias,
        lambda w, h, s: F.linear(h[None], w.a, w.bias)[0],
        lambda w, h, s: F.conv1d(h.unsqueeze(-1), w.a.unsqueeze(-1), w.bias).squeeze(-1),
        lambda w, h, s: (h.unsqueeze(1) * w.a).sum(-1) + w.bias,
        lambda w, h, s: torch.cat([F.linear(h, w.a[:2], w.bias[:2]), F.linear(h, w.a[2:], w.bias[2:])], -1),
        lambda w, h, s: F.linear(h, w.a).add_(w.bias),
        lambda w, h, s: torch.baddbmm(w.bias.expand(1, len(h), -1), h[None], w.a.t()[None])[0],
        lambda w, h, s: functional_call(w.map, {"weight": w.a, "bias": w.bias}, (h,)),
        lambda w, h, s: checkpoint(F.linear, h, w.a, w.bias, use_reentrant=False),
        lambda w, h, s: torch.tensordot(h, w.a, dims=([1], [1])) + w.bias,
    ],
    "made weight": [
        lambda w, h, s, held: F.linear(h, w.a.softmax(-1)),
        lambda w, h, s: h @ (w.a.exp() / w.a.exp().sum(-1, keepdim=True)).t(),
        lambda w, h, s: torch.einsum("mf,of->mo", h, torch.softmax(w.a, 1)),
    ],
    "turned weight": [
        lambda w, h, s, held: F.linear(h, w.a.t()),
        lambda w, h, s: h @ w.a,
        lambda w, h, s: torch.matmul(w.a.t(), h.t()).t(),
        lambda w, h, s: F.linear(h, w.a.detach().t()),
    ],
    "two inputs": [
        lambda w, h, s, held: F.linear(torch.cat([h, s], 1), torch.cat([w.a, w.b], 1), w.bias),
        lambda w, h, s: F.linear(h, w.a) + F.linear(s, w.b, w.bias),
        lambda w, h, s: torch.addmm(F.linear(s, w.b, w.bias), h, w.a.t()),
        lambda w, h, s: torch.einsum("kmf,kof->mo", torch.stack([h, s]), torch.stack([w.a, w.b])) + w.bias,
    ],
    "own share": [
        lambda w, h, s, held: (1 + w.score[0]) * h,
        lambda w, h, s: h + w.score[0] * h,
        lambda w, h, s: torch.addcmul(h, h, w.score[0]),
        lambda w, h, s: h.clone().mul_(1 + w.score[0]),
    ],
    "scaled residual": [
        lambda w, h, s, held: h + 0.3 * s,
        lambda w, h, s: torch.add(h, s, alpha=0.3),
        lambda w, h, s: h - (-0.3) * s,
        lambda w, h, s: torch.sub(h, s, alpha=-0.3),
        lambda w, h, s: h.clone().add_(s, alpha=0.3),
        lambda w, h, s: torch.addcmul(h, s, torch.full_like(s, 0.3)),
        lambda w, h, s: torch.addcdiv(h, s, torch.ones_like(s), value=0.3),
    ],
    "gated residual": [
        lambda w, h, s, held: h + held(torch.sigmoid(F.linear(h, w.a))) * s,
        lambda w, h, s: torch.addcmul(h, torch.sigmoid(F.linear(h, w.a)), s),
        lambda w, h, s: h + s / (1 + torch.exp(-F.linear(h, w.a))),
        lambda w, h, s: h + s * (1 / (1 + torch.exp(-F.linear(h, w.a)))),
        lambda w, h, s: h.clone().addcmul_(s, F.linear(h, w.a).sigmoid()),
    ],
    "channel gate": [
        lambda w, h, s, held: h * held((h @ w.a).softmax(-1)),
        lambda w, h, s: h * (lambda e: e / e.sum(-1, keepdim=True))(raised(h @ w.a)),
        lambda w, h, s: h * (h @ w.a - (h @ w.a).logsumexp(-1, keepdim=True)).exp(),
        lambda w, h, s: h * F.log_softmax(h @ w.a, -1).exp(),
    ],
    "relu": [
        lambda w, h, s, held: F.relu(h),
        lambda w, h, s: h.clamp(min=0),
        lambda w, h, s: torch.where(h > 0, h, 0.0),
        lambda w, h, s: h * (h > 0),
        lambda w, h, s: torch.maximum(h, torch.zeros_like(h)),
        lambda w, h, s: F.relu_(h.clone()),
        lambda w, h, s: h.masked_fill(h < 0, 0),
        lambda w, h, s: (h + h.abs()) / 2,
        lambda w, h, s: written(h, "c[h < 0] = 0"),
    ],
    "leaky relu": [
        lambda w, h, s, held: F.leaky_relu(h, 0.2),
        lambda w, h, s: torch.where(h > 0, h, 0.2 * h),
        lambda w, h, s: torch.max(h, 0.2 * h),
        lambda w, h, s: F.relu(h) - 0.2 * F.relu(-h),
    ],
    "tanh": [lambda w, h, s, held: kept(h, h.tanh(), held), lambda w, h, s: h.clone().tanh_()],
    "silu": [
        lambda w, h, s, held: kept(h, F.silu(h), held),
        lambda w, h, s: h * torch.sigmoid(h),
        lambda w, h, s: h / (1 + torch.exp(-h)),
        lambda w, h, s: F.silu(h.clone(), inplace=True),
    ],
    "residual": [
        lambda w, h, s, held: h + s,
        lambda w, h, s: torch.stack([h, s]).sum(0),
        lambda w, h, s: 2 * torch.stack([h, s], -1).mean(-1),
        lambda w, h, s: torch.cat([h, s], 1).view(-1, 2, WIDTH).sum(1),
        lambda w, h, s: torch.lerp(h, s, 0.5) * 2,
        lambda w, h, s: written(h, "c += s", s=s),
        lambda w, h, s: written(h, "c[:, :2] += s[:, :2]", "c[:, 2:].add_(s[:, 2:])", s=s),
    ],
    "highway": [
        lambda w, h, s, held: (lambda g: g * h + (1 - g) * s)(held(torch.sigmoid(F.linear(h, w.a, w.bias)))),
        lambda w, h, s: torch.lerp(s, h, torch.sigmoid(F.linear(h, w.a, w.bias))),
    ],
    "gate of a node": [
        lambda w, h, s, held: h * held(torch.sigmoid(h @ w.score)).view(-1, 1),
        lambda w, h, s: torch.einsum("m,mf->mf", torch.sigmoid(h @ w.score), h),
        lambda w, h, s: torch.diag(torch.sigmoid(h @ w.score)) @ h,
        lambda w, h, s: torch.sigmoid((h * w.score).sum(-1, keepdim=True)).expand_as(h) * h,
    ],
    "gate": [
        lambda w, h, s, held: F.linear(h, w.a) * held(torch.sigmoid(F.linear(h, w.b))),
        lambda w, h, s: F.glu(torch.cat([h @ w.a.t(), h @ w.b.t()], -1)),
        lambda w, h, s: F.glu(F.linear(h, torch.cat([w.a, w.b]))),
        lambda w, h, s: torch.einsum("mf,mf->mf", torch.sigmoid(h @ w.b.t()), h @ w.a.t()),
    ],
    "product": [
        lambda w, h, s, held: halved(F.linear(h, w.a), F.linear(h, w.b), held),
        lambda w, h, s: torch.einsum("mf,mf->mf", h @ w.a.t(), h @ w.b.t()),
        lambda w, h, s: torch.stack([h @ w.a.t(), h @ w.b.t()]).prod(0),
    ],
    "square": [
        lambda w, h, s, held: halved(h, h, held),
        lambda w, h, s: h.pow(2),
        lambda w, h, s: torch.einsum("mf,mf->mf", h, h),
    ],
    "layer norm": [
        lambda w, h, s, held: layer_norm(w, h, held),
        lambda w, h, s: (h - h.mean(1, True)) / (h.var(1, False, True) + 1e-5).sqrt() * w.norm.weight + w.norm.bias,
        lambda w, h, s: by_moments(h) * w.norm.weight + w.norm.bias,
        lambda w, h, s: F.group_norm(h, 1, w.norm.weight, w.norm.bias),
    ],
    "unit": [
        lambda w, h, s, held: h / held(h.norm(dim=-1, keepdim=True).clamp(min=1e-12)),
        lambda w, h, s: F.normalize(h, dim=-1),
        lambda w, h, s: h * torch.rsqrt((h * h).sum(-1, keepdim=True) + 1e-30),
    ],
    "gru": [lambda w, h, s, held: gru(w, h, s, held), lambda w, h, s: w.cell(h, s)],
    "turn": [
        lambda w, h, s, held: torch.cat([h[:, 3:], h[:, :3]], 1),
        lambda w, h, s: h.roll(3, 1),
        lambda w, h, s: h.view(-1, 2, 3).flip(1).reshape(-1, WIDTH),
        lambda w, h, s: torch.stack(h.view(-1, 2, 3).unbind(1)[::-1], 1).flatten(1),
        lambda w, h, s: h.t()[TURN].t(),
        lambda w, h, s: h.gather(1, TURN.expand(len(h), -1)),
        lambda w, h, s: torch.zeros_like(h).index_copy(1, TURN, h),
    ],
    "nothing": [
        lambda w, h, s, held: h,
        lambda w, h, s: h.neg().neg(),
        lambda w, h, s: h.reshape(-1, 2, 3).transpose(1, 2).reshape(-1, 3, 2).transpose(1, 2).reshape(-1, WIDTH),
        lambda w, h, s: (lambda order: h[order][order.argsort()])(h[:, 0].argsort()),
        lambda w, h, s: (lambda order: torch.zeros_like(h).index_copy(0, order, h[order]))(h.sum(1).argsort()),
        lambda w, h, s: torch.cat([h[:2], h[2:]]),
        lambda w, h, s: h.expand(2, -1, -1).mean(0),
        lambda w, h, s: h.repeat_interleave(2, 0)[::2],
        lambda w, h, s: torch.zeros_like(h).index_put((torch.arange(len(h)),), h),
        lambda w, h, s: torch.zeros_like(h).scatter_add_(0, torch.arange(len(h))[:, None].expand_as(h), h),
        lambda w, h, s: torch.zeros_like(h).index_add_(0, torch.arange(len(h)), h),
        lambda w, h, s: torch.zeros_like(h).masked_scatter(torch.ones_like(h, dtype=torch.bool), h),
        lambda w, h, s: F.dropout(h, 0.5, training=False),
        lambda w, h, s: torch.stack(h.unbind(0)),
        lambda w, h, s: torch.cat(h.split(2, 0)),
        lambda w, h, s: torch.stack(h.chunk(3, 1), 1).flatten(1),
        lambda w, h, s: torch.where(torch.ones_like(h, dtype=torch.bool), h, 0.0),
        lambda w, h, s: written(h, "c = h.new_empty(h.shape)", "for i in range(len(h)): c[i] = h[i]"),
    ],
    "larger half": [
        lambda w, h, s, held: torch.maximum(h[:, :3], h[:, 3:]).repeat(1, 2),
        lambda w, h, s: h.view(-1, 2, 3).max(1).values.tile(1, 2),
        lambda w, h, s: torch.where(h[:, :3] > h[:, 3:], h[:, :3], h[:, 3:]).repeat(1, 2),
        lambda w, h, s: F.max_pool1d(h.view(-1, 2, 3).transpose(1, 2), 2).squeeze(-1).repeat(1, 2),
    ],
    "attention": [
        lambda w, h, s, held: attention(w, h, held),
        lambda w, h, s: h + F.scaled_dot_product_attention(*((h @ m)[None] for m in (w.a, w.b, w.c)), scale=1.0)[0],
        lambda w, h, s: h + torch.einsum("mn,nf->mf", (h @ w.a @ (h @ w.b).t()).softmax(1), h @ w.c),
        lambda w, h, s: h + torch.bmm((h @ w.a @ (h @ w.b).t()).softmax(1)[None], (h @ w.c)[None])[0],
        lambda w, h, s: h + (lambda e: e / e.sum(1, keepdim=True))(raised(h @ w.a @ (h @ w.b).t())) @ (h @ w.c),
        lambda w, h, s: h + (lambda e: e @ (h @ w.c) / e.sum(1, keepdim=True))(raised(h @ w.a @ (h @ w.b).t())),
        lambda w, h, s: torch.addmm(h, torch.einsum("mf,nf->mn", h @ w.a, h @ w.b).softmax(-1), h @ w.c),
    ],
    "mean of all": [
        lambda w, h, s, held: h + F.relu(h.mean(0, keepdim=True) @ w.a),
        lambda w, h, s: h + F.relu(h.mean(0) @ w.a).expand_as(h),
        lambda w, h, s: h + F.relu(torch.full((1, len(h)), 1 / len(h), dtype=h.dtype) @ h @ w.a),
    ],
    "wider": [
        lambda w, h, s, held: torch.cat([2 * h[:, :2], h[:, 2:]], 1),
        lambda w, h, s: h * WIDENED.to(h),
        lambda w, h, s: written(h, "c[:, :2].mul_(2)"),
        lambda w, h, s: written(h, "for i in range(2): c[:, i].add_(h[:, i])"),
        lambda w, h, s: written(h, "c.view(-1, 3, 2)[:, 0] += h[:, :2]"),
        lambda w, h, s: written(h, "c = torch.empty_like(h)", "c[:, :2].copy_(2 * h[:, :2])", "c[:, 2:] = h[:, 2:]"),
    ],
    "some rows written": [
        lambda w, h, s, held: torch.where(even(h)[:, None], F.linear(s, w.a), h),
        lambda w, h, s: written(h, "c[m] = v", m=even(h), v=F.linear(s[even(h)], w.a)),
        lambda w, h, s: written(h, "c[::2] = v[::2]", v=F.linear(s, w.a)),
        lambda w, h, s: h.index_put((even(h),), F.linear(s[even(h)], w.a)),
        lambda w, h, s: h.index_copy(0, even(h).nonzero().view(-1), F.linear(s, w.a)[::2]),
        lambda w, h, s: h.scatter(0, even(h).nonzero().expand(-1, WIDTH), F.linear(s, w.a)[::2]),
        lambda w, h, s: h.masked_scatter(even(h)[:, None].expand_as(h), F.linear(s, w.a)[::2]),
        lambda w, h, s: torch.slice_scatter(h, F.linear(s, w.a)[::2], 0, 0, None, 2),
        lambda w, h, s: h.masked_fill(even(h)[:, None], 0) + F.linear(s, w.a).masked_fill(~even(h)[:, None], 0),
        lambda w, h, s: torch.lerp(h, F.linear(s, w.a), even(h).to(h)[:, None]),
        lambda w, h, s: torch.stack([h, F.linear(s, w.a)])[even(h).long(), torch.arange(len(h))],
        lambda w, h, s: torch.stack([F.linear(row, w.a) if i % 2 == 0 else h[i] for i, row in enumerate(s)]),
    ],
    "linear by heads": [
        lambda w, h, s, held: F.linear(h, torch.block_diag(*blocks(w)), w.bias),
        lambda w, h, s: torch.einsum("mhf,hof->mho", h.view(-1, 2, 3), blocks(w)).flatten(1) + w.bias,
        lambda w, h, s: torch.bmm(*heads(h), blocks(w).mT).transpose(0, 1).flatten(1) + w.bias,
        lambda w, h, s: torch.baddbmm(w.bias.view(2, 1, 3), *heads(h), blocks(w).mT).permute(1, 0, 2).flatten(1),
        lambda w, h, s: (
            torch.cat([F.linear(p, b) for p, b in zip(h.chunk(2, -1), blocks(w), strict=True)], -1) + w.bias
        ),
        lambda w, h, s: (h.view(-1, 2, 1, 3) @ blocks(w).mT).reshape(-1, WIDTH) + w.bias,
        lambda w, h, s: (h.view(-1, 2, 1, 3) * blocks(w)).sum(-1).flatten(1) + w.bias,
        lambda w, h, s: F.conv1d(h[:, :, None], blocks(w).reshape(WIDTH, 3, 1), w.bias, groups=2)[:, :, 0],
    ],
    "gate of a head": [
        lambda w, h, s, held: (
            h.view(-1, 2, 3) * held((h.view(-1, 2, 3) * w.score.view(2, 3)).sum(-1).softmax(-1))[..., None]
        ).flatten(1),
        lambda w, h, s: h * (h.view(-1, 2, 3) * w.score.view(2, 3)).sum(-1).softmax(-1).repeat_interleave(3, 1),
        lambda w, h, s: torch.einsum(
            "mhf,mh->mhf",
            h.view(-1, 2, 3),
            torch.einsum("mhf,hf->mh", h.view(-1, 2, 3), w.score.view(2, 3)).softmax(1),
        ).flatten(1),
    ],
    "attention by heads": [
        lambda w, h, s, held: attention_by_heads(w, h, held),
        lambda w, h, s: F.scaled_dot_product_attention(*heads(h @ w.a, h @ w.b, h @ w.c)).transpose(0, 1).flatten(1),
        lambda w, h, s: (
            lambda q, k, v: torch.cat(
                [((a @ b.t()) / 3**0.5).softmax(1) @ c for a, b, c in zip(q, k, v, strict=True)], 1
            )
        )(*heads(h @ w.a, h @ w.b, h @ w.c)),
        lambda w, h, s: (
            lambda q, k, v: torch.einsum("hmn,hnd->mhd", (torch.einsum("hmd,hnd->hmn", q, k) / 3**0.5).softmax(-1), v)
        )(*heads(h @ w.a, h @ w.b, h @ w.c)).flatten(1),
    ],
    "virtual node": [
        lambda w, h, s, held: h + F.relu(F.linear(of_halves(h, "mean"), w.a, w.bias))[halves(h)],
        lambda w, h, s: h + F.relu(F.linear(global_mean_pool(h, halves(h)), w.a, w.bias)).index_select(0, halves(h)),
        lambda w, h, s: (
            h
            + torch.cat(
                [
                    F.relu(F.linear(p.mean(0), w.a, w.bias)).expand_as(p)
                    for p in h.split(torch.bincount(halves(h)).tolist())
                ]
            )
        ),
        lambda w, h, s: (
            h
            + F.relu(F.linear(torch.segment_reduce(h, "mean", lengths=torch.bincount(halves(h))), w.a, w.bias))[
                halves(h)
            ]
        ),
    ],
    "largest of a half": [
        lambda w, h, s, held: h + of_halves(h, "max")[halves(h)],
        lambda w, h, s: h + global_max_pool(h, halves(h))[halves(h)],
        lambda w, h, s: h + torch.full((2, WIDTH), -torch.inf).to(h).index_reduce(0, halves(h), h, "amax")[halves(h)],
    ],
    "attention in a half": [
        lambda w, h, s, held: h * held(U.softmax(h @ w.score, halves(h)))[:, None],
        lambda w, h, s: h * (lambda e: e / of_halves(e, "sum")[halves(h)])((h @ w.score).exp()).view(-1, 1),
        lambda w, h, s: h * U.softmax((h * w.score).sum(1, True), halves(h)),
    ],
    "gate of all nodes": [
        lambda w, h, s, held: h * held(torch.sigmoid(F.linear(h.mean(0), w.a, w.bias))),
        lambda w, h, s: h * torch.sigmoid(F.linear(h.mean(0, keepdim=True), w.a, w.bias)).expand_as(h),
        lambda w, h, s: h @ torch.diag(torch.sigmoid(w.a @ h.mean(0) + w.bias)),
    ],
    "lstm": [
        lambda w, h, s, held: lstm(w, h, s, held),
        lambda w, h, s: torch.lstm_cell(
            h,
            (s, s),
            torch.cat([w.a, w.b, w.c, w.a]),
            torch.cat([w.b, w.c, w.a, w.b]),
            w.bias.repeat(4),
            w.bias.new_zeros(24),
        )[0],
    ],
    "inner product": [
        lambda w, h, s, held: halved(F.linear(h, w.a), F.linear(s, w.b), held).sum(-1, keepdim=True) * w.bias,
        lambda w, h, s: torch.einsum("mf,mf->m", F.linear(h, w.a), F.linear(s, w.b))[:, None] * w.bias,
        lambda w, h, s: torch.bmm(F.linear(h, w.a)[:, None], F.linear(s, w.b)[..., None]).view(-1, 1) * w.bias,
        lambda w, h, s: torch.linalg.vecdot(F.linear(h, w.a), F.linear(s, w.b))[:, None] * w.bias,
    ],
    "one number": [
        lambda w, h, s, held: (h @ w.score)[:, None] * w.bias,
        lambda w, h, s: torch.mv(h, w.score).unsqueeze(-1) * w.bias,
        lambda w, h, s: torch.stack([torch.dot(row, w.score) for row in h]).view(-1, 1) * w.bias,
        lambda w, h, s: torch.tensordot(h, w.score, 1)[..., None] * w.bias,
    ],
    "soft choice": [
        lambda w, h, s, held: (
            torch.stack([h, s], 1) * held((torch.stack([h, s], 1) @ w.score).softmax(1))[..., None]
        ).sum(1),
        lambda w, h, s: torch.bmm((torch.stack([h, s], 1) @ w.score).softmax(1)[:, None], torch.stack([h, s], 1))[:, 0],
        lambda w, h, s: (lambda a, b: h * torch.sigmoid(a - b) + s * torch.sigmoid(b - a))(
            (h @ w.score)[:, None], (s @ w.score)[:, None]
        ),
    ],
    "both signs": [
        lambda w, h, s, held: F.linear(torch.cat([F.relu(h), F.relu(-h)], 1), torch.cat([w.a, w.b], 1)),
        lambda w, h, s: F.linear(F.relu(h), w.a) + F.linear(F.relu(-h), w.b),
        lambda w, h, s: torch.einsum("tmf,tof->mo", torch.stack([F.relu(h), F.relu(-h)]), torch.stack([w.a, w.b])),
    ],
    "the row before": [
        lambda w, h, s, held: h + 0.5 * h.roll(1, 0),
        lambda w, h, s: h.index_add(0, (torch.arange(len(h)) + 1) % len(h), h, alpha=0.5),
        lambda w, h, s: h.index_put(((torch.arange(len(h)) + 1) % len(h),), 0.5 * h, accumulate=True),
        lambda w, h, s: torch.add(h, torch.cat([h[-1:], h[:-1]]), alpha=0.5),
    ],
    "first node silent": [
        lambda w, h, s, held: torch.cat([0 * h[:1], h[1:]]),
        lambda w, h, s: h.masked_fill((torch.arange(len(h)) == 0)[:, None], 0.0),
        lambda w, h, s: F.pad(h[1:], (0, 0, 1, 0)),
        lambda w, h, s: written(h, "c[0] = 0"),
        lambda w, h, s: written(h, "c[0].zero_()"),
    ],
}
#: Those that can stand inside a layer, on nodes or on messages.
OF_ALL_NODES = {
    "attention", "mean of all", "first node silent", "some rows written", "attention by heads", "virtual node",
    "largest of a half", "attention in a half", "gate of all nodes", "the row before",
}  # fmt: skip
LOCAL = [name for name in STATEMENTS if name not in OF_ALL_NODES]
ACTIVATIONS = ("relu", "leaky relu", "silu")

#: Read-outs, the first of each kind being the plain one.
READ_OUTS = (
    [
        lambda h: h.sum(0, keepdim=True),
        lambda h: global_add_pool(h, None),
        lambda h: torch.einsum("mf->f", h)[None],
        lambda h: U.scatter(h, torch.zeros(len(h), dtype=torch.long)),
        lambda h: h.mean(0, keepdim=True) * len(h),
    ],
    [
        lambda h: h.amax(0, keepdim=True),
        lambda h: global_max_pool(h, None),
        lambda h: h.sort(0).values[-1:],
    ],
)


def largest(h):
    """The largest of every column; those that are equal up to rounding share."""
    best = (h >= h.amax(0) - 1e-13 * h.abs().amax(0)).to(h.dtype).detach()
    return (h * best / best.sum(0)).sum(0, keepdim=True)


class Weighed(MessagePassing):
    """A layer of one's own: the mean of neighbours, weighed on their way."""

    def __init__(self):
        super().__init__(aggr="mean")
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH) / 2)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_j):
        return x_j @ self.weight


class Inside(MessagePassing):
    """A layer with statements before messages are sent, in the messages, and after they are added up."""

    def __init__(self, names):
        super().__init__(aggr="add")
        self.weight, self.names = nn.Parameter(torch.randn(WIDTH, WIDTH) / 2), names
        self.weights, self.ways, self.held = nn.ModuleList(Weights() for _ in names), (0, 0, 0), same

    def stated(self, place, h):
        first, *others = STATEMENTS[self.names[place]]
        way = self.ways[place]
        given = self.weights[place], h, h
        return others[way - 1](*given) if way else first(*given, self.held)

    def forward(self, x, edge_index):
        h = self.propagate(edge_index, x=self.stated(0, x))
        return self.stated(2, h @ self.weight) + x

    def message(self, x_j):
        return self.stated(1, x_j)

    def __str__(self):
        return f"({self.names} {self.drawn})"


def perceptron():
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))


LAYERS = (
    lambda: GCNConv(WIDTH, WIDTH),
    lambda: GINConv(perceptron()),
    lambda: SAGEConv(WIDTH, WIDTH),
    lambda: GraphConv(WIDTH, WIDTH),
    Weighed,
)


class Program(nn.Module):
    """Statements before, between and after one to three layers, drawn by a generator."""

    def __init__(self, draw: random.Random, among=tuple(STATEMENTS)):
        super().__init__()
        self.parts, self.weights, self.layers = [], nn.ModuleList(), nn.ModuleList()
        count = draw.randint(1, 3)
        for number in range(count + 1):
            names = draw.choices(among, k=draw.choice((0, 1, 1, 2)))
            for name in names:
                self._state(name)
            if number < count:
                self.parts.append(("layer", number))
                inside = draw.random() < 0.3
                self.layers.append(Inside(draw.choices(LOCAL, k=3)) if inside else draw.choice(LAYERS)())
                if draw.random() < 0.7:
                    self._state(draw.choice(ACTIVATIONS))
        self.read_out, self.head = READ_OUTS[draw.random() < 0.3], nn.Linear(WIDTH, 2)
        self.ways = [draw.randrange(len(STATEMENTS[name])) for name, _ in self.parts if name != "layer"]
        for layer in self._inside():
            layer.drawn = [draw.randrange(len(STATEMENTS[name])) for name in layer.names]
        self.way_out = draw.randrange(len(self.read_out))
        self.plain = True

    def _inside(self):
        return [layer for layer in self.layers if isinstance(layer, Inside)]

    def _state(self, name):
        self.parts.append((name, len(self.weights)))
        self.weights.append(Weights())

    def forward(self, x, edge_index, held=same, standing=None):
        """Two outputs; ``standing`` is applied to node features wherever walks stand."""
        standing = standing or (lambda h: h)
        for layer in self._inside():
            layer.ways, layer.held = (0, 0, 0) if self.plain else layer.drawn, held
        h = given = x
        for name, number in self.parts:
            if name == "layer":
                given = standing(h)
                h = self.layers[number](given, edge_index)
                h = standing(h) if number == len(self.layers) - 1 else h
                continue
            first, *others = STATEMENTS[name]
            way = 0 if self.plain else self.ways[number]
            h = others[way - 1](self.weights[number], h, given) if way else first(self.weights[number], h, given, held)
        if held is not same and self.read_out is READ_OUTS[1]:
            return self.head(largest(h))
        return self.head(self.read_out[0 if self.plain else self.way_out](h))

    def __str__(self):
        return " ".join(f"{name}[{self.ways[n]}]" if name != "layer" else str(self.layers[n]) for name, n in self.parts)

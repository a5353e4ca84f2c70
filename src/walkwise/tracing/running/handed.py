"""The arguments of a layer: which of them are nodes, which are edges."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing, RGCNConv

from walkwise.tracing.private import parameters_of, unwatched
from walkwise.tracing.running.found import Found, is_edges
from walkwise.tracing.running.modules import Modules
from walkwise.tracing.running.places import by_name
from walkwise.tracing.running.stand_ins import stand_in


class EnoughError(Exception):
    """Ends a run after the last layer that anybody asks about."""


def note_handed(
    modules: Modules, disturbing: bool, last: int | None, aside: Collection[int] = ()
) -> list[list[Tensor]]:
    """Return a list that fills with the node tensors passed to the layers of a shadow, call by call.

    Args:
        modules: of the shadow.
        disturbing: whether the first layer's output is changed.
        last: the run ends after the beginning of this call; None if it goes on to the end.
        aside: calls to skip, which run on other graphs; they count as calls all the same.
    """
    notes = _Handed(disturbing, last, aside)
    for name, conv in modules.convs:
        stand_in(conv, "forward", notes.forward(conv, modules.found.get(name)))
        if isinstance(conv, MessagePassing):
            stand_in(conv, "propagate", notes.propagate(conv.propagate))
    return notes.handed


class _Handed:
    """Notes the inputs of layers; for a layer that embeds its nodes itself, what it sends first."""

    def __init__(self, disturbing: bool, last: int | None, aside: Collection[int]) -> None:
        self.handed: list[list[Tensor]] = []
        self._aside, self._count = aside, 0
        self._disturbing, self._last = disturbing, last
        self._depth, self._embeds = 0, False

    def forward(self, conv: Any, layer: Found | None) -> Callable[..., Any]:
        original = conv.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            self._depth += 1
            try:
                self._count += self._depth == 1
                noted = self._count - 1 not in self._aside
                if self._depth == 1 and noted:
                    self._embeds = layer is None and after_integers(args, kwargs)
                    if not self._embeds:
                        named = by_name(conv, args, kwargs)
                        self._note(nodes_of_layer(conv, args, kwargs) if layer is None else layer.nodes(named))
                result = original(*args, **kwargs)
            finally:
                self._depth -= 1
            first = noted and self._depth == 0 and len(self.handed) == 1
            changed = first and self._disturbing and isinstance(result, Tensor)
            return result + torch.linspace(1, 2, result.numel()).to(result).view_as(result) if changed else result

        return forward

    def propagate(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def propagate(*args: Any, **kwargs: Any) -> Any:
            if self._embeds:
                self._embeds = False
                self._note(handed_nodes((), kwargs))
            return original(*args, **kwargs)

        return propagate

    def _note(self, given: Any) -> None:
        tensors = {id(tensor): tensor for tensor in node_tensors(given)}
        self.handed.append([tensor.detach().clone() for tensor in tensors.values()])
        if len(self.handed) - 1 == self._last:
            raise EnoughError


def nodes_of_layer(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], follows: Callable[[Any], bool] = lambda _: False
) -> Any:
    """The argument that holds a layer's nodes (a tensor, a pair or a dictionary), or None. It is the first of these:

    1. What the layer calls ``x``, if that is followed.
    2. The first followed tensor before the edges: a weight may come before it, ``conv(W, h, edges)``.
    3. The layer's own table of nodes, if it takes edges alone.
    4. The first followed matrix, if there are rows of edges after the edges, but nothing before them.
    5. The first argument with a floating-point tensor; if it has other rows than what the layer calls ``x``, that.
    """
    args = opened(args)
    x = _called_x(module, args, kwargs)
    if follows(x):
        return x
    known = [item for item in _before_edges(args) if isinstance(item, Tensor) and follows(item)][:1]
    for found in (*known, own_table(module, args, kwargs), _behind_edges(args, kwargs, follows)):
        if found is not None:
            return found
    first = handed_nodes(args, kwargs)
    both = isinstance(first, Tensor) and isinstance(x, Tensor) and bool(node_tensors(x))
    return x if both and len(x) != len(first) else first


def _called_x(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a layer's ``forward`` calls ``x``; its first argument if it calls nothing so."""
    return kwargs["x"] if "x" in kwargs else next(iter(args[_place_of_x(type(module)) :]), None)  # type: ignore[arg-type]


@functools.cache
def _place_of_x(kind: type) -> int:
    """The place of ``x`` among a layer's parameters."""
    names = list(inspect.signature(kind.forward).parameters)[1:]  # type: ignore[attr-defined]
    return names.index("x") if "x" in names else 0


def _before_edges(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments before an edge index."""
    return args[: next((i for i, item in enumerate(args) if is_edges(item)), 0)]


def _behind_edges(args: tuple[Any, ...], kwargs: dict[str, Any], follows: Callable[[Any], bool]) -> Tensor | None:
    """The first followed matrix, if the first tensor does not come before the edges and has a row for each."""
    first, edges = handed_nodes(args, kwargs), edge_index_of(args, kwargs)
    if edges is None or "x" in kwargs or not isinstance(first, Tensor) or len(first) != edges.shape[1]:
        return None
    if any(item is first for item in _before_edges(args)):
        return None
    matrices = (item for item in (*args, *kwargs.values()) if isinstance(item, Tensor) and item.dim() > 1)
    return next(filter(follows, matrices), None)


def handed_nodes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The argument that holds a layer's nodes: the first with a floating-point tensor in it."""
    items = (*opened(args), *([kwargs["x"]] if "x" in kwargs else []), *kwargs.values())
    return next((item for item in items if node_tensors(item)), None)


def node_tensors(given: Any) -> list[Tensor]:
    """The node tensors in a layer's argument: one, or those of a pair or of a dictionary."""
    if isinstance(given, Tensor):
        return [given] if given.is_floating_point() and given.layout == torch.strided else []
    if isinstance(given, dict):
        return [tensor for item in given.values() for tensor in node_tensors(item)]
    if isinstance(given, (tuple, list)):
        return [tensor for item in given[:2] if isinstance(item, Tensor) for tensor in node_tensors(item)]
    return []


def opened(items: Sequence[Any]) -> tuple[Any, ...]:
    """A layer's arguments or result, with a graph (a Data or a Batch) replaced by its tensors."""
    if not any(isinstance(item, Data) for item in items):
        return tuple(items)
    names = ("x", "edge_index", "edge_attr")
    opened = [[item.get(n) for n in names if n in item] if isinstance(item, Data) else [item] for item in items]
    return tuple(itertools.chain.from_iterable(opened))


def with_features(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A layer's arguments, with None or node numbers replaced by the one-hot features they mean, as in RGCNConv."""
    if not isinstance(module, RGCNConv) or not (args or "x" in kwargs):
        return args, kwargs
    x = kwargs["x"] if "x" in kwargs else args[0]
    pair = tuple(x) if isinstance(x, (tuple, list)) else (x,)
    if all(isinstance(part, Tensor) and part.is_floating_point() for part in pair):
        return args, kwargs
    with unwatched():
        weight, width = module.weight, module.in_channels_l
        numbers = [torch.arange(width, device=weight.device) if part is None else part for part in pair]
        hot = tuple(n if n.is_floating_point() else one_hot(n, width).to(weight.dtype) for n in numbers)
    made = hot if isinstance(x, (tuple, list)) else hot[0]
    return (args, kwargs | {"x": made}) if "x" in kwargs else ((made, *args[1:]), kwargs)


def own_table(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """The layer's own table of nodes, its only matrix, if it takes edges (and their weights) alone: LINKX."""
    with unwatched():
        items = [item for item in (*args, *kwargs.values()) if item is not None]
        if not items or not is_edges(items[0]) or any(isinstance(t, Tensor) and t.dim() > 1 for t in items[1:]):
            return None
        matrices = [weight for weight in parameters_of(module).values() if weight is not None and weight.dim() == 2]
    return matrices[0] if len(matrices) == 1 else None


def types_said(name: str, given: Any, slots: list[int]) -> dict[int, str]:
    """The node types of tensors, from the keys of a dictionary or the name of a layer ("user__rates__item")."""
    if isinstance(given, dict):
        keys = [key for key, item in given.items() if node_tensors(item)]
        return {slot: key for slot, key in zip(slots, keys, strict=False) if isinstance(key, str)}
    ends = [part.strip("<>_") for part in name.rsplit(".", 1)[-1].split("__")]
    return dict(zip(slots, (ends[0], ends[-1]), strict=False)) if len(ends) >= 3 else {}


def edge_index_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """The edge index (2, E) passed to a layer, if there is one."""
    with unwatched():
        return next((torch.as_tensor(item) for item in (*args, *kwargs.values()) if is_edges(item)), None)


def about_integers(args: tuple[Any, ...]) -> str | None:
    """A remedy for a layer that received integer features."""
    whole = isinstance(args[0] if args else None, Tensor) and not args[0].is_floating_point()
    whole = whole and not (is_edges(args[0]) and not any(is_edges(item) for item in args[1:]))
    return "Its features are integers: convert them, x.float(), or embed them before the layer." if whole else None


def after_integers(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether all arguments before a layer's edges are whole numbers: it embeds its nodes itself."""
    with unwatched():
        items = (*args, *kwargs.values())
        edges = next((i for i, item in enumerate(items) if is_edges(item)), 0)
        before = [item for item in items[:edges] if item is not None]
        return bool(before) and all(isinstance(item, Tensor) and not item.is_floating_point() for item in before)

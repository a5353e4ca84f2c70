"""Calls of layers: where each begins and ends, its input nodes, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from walkwise.core.differential import leaves
from walkwise.errors import TraceError
from walkwise.tracing.recording.recorded import Call
from walkwise.tracing.recording.tape import Tape
from walkwise.tracing.running.found import Found, is_edges
from walkwise.tracing.running.handed import (
    about_integers,
    after_integers,
    edge_index_of,
    handed_nodes,
    node_tensors,
    nodes_of_layer,
    opened,
    own_table,
    types_said,
)
from walkwise.tracing.running.places import by_name
from walkwise.tracing.running.sides import Sides, offered, read_at_ends

_FEATURELESS = "Give it node features: an embedding, say, or one-hot ones, torch.eye(num_nodes)."
_OUT_OF_SIGHT = (
    "Some code computes in TorchScript, a custom autograd.Function, NumPy or under torch.no_grad(). Without it, "
    "relevance would be wrong: write it with ordinary torch functions, or detach() what should be constant."
)


@dataclass(frozen=True, eq=False)
class Returned:
    """What a call returned, by slot."""

    slots: list[int | None]  # of its tensors; None where they are not followed
    targets: list[int | None]  # the tensor whose rows each of them may have
    before: int  # how many slots there were before the call
    sides: Sides | None  # of the call, where it was handed several tensors


class Calls:
    """Tells the tape which message-passing call is under way."""

    def __init__(self, tape: Tape, found: Mapping[str, Found]) -> None:
        """Set up for a tape, with the layers found in a model without message-passing modules."""
        self.tape = tape
        self.found = found
        self.given: Any = None  # the nodes of the call under way: a tensor, a pair or a dictionary of tensors
        self.table: Any = None  # the layer's own, if it takes edges alone
        self.sides: Sides | None = None  # of the call under way, where it was handed several tensors
        self.embedding: tuple[Any, ...] | None = None  # what a call under way was given that embeds its nodes itself
        self.before = 0  # how many slots there were before the call under way
        self.count = 0  # how many calls there were, those on other graphs among them
        self.aside: list[int] = []  # which of all calls were on other graphs than the explained one
        self.others: dict[int, Tensor] = {}  # what calls received that follow nothing
        self.held = False  # whether the model has such a graph itself, which nobody knew of
        self.beside = False  # whether the call under way is
        self.returned: dict[int, Returned] = {}  # by the number of a call on the tape
        #: Later calls that were handed a tensor nothing is known of: of each of their tensors, whether it is one.
        self.fresh: dict[int, list[bool]] = {}

    def follows(self, tensor: Any) -> bool:
        """Whether a tensor is followed."""
        return self.tape.slot_of(tensor) is not None

    def begin(self, name: str, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Tell the tape that a message-passing call begins; one on another graph makes constants."""
        self.count += 1
        self.beside = self._on_another(args, kwargs)
        if self.beside:
            self.aside.append(self.count - 1)
            return
        layer = self.found.get(name)
        if layer is not None:
            given = layer.nodes(by_name(module, args, kwargs), self.follows)
            if given is None:
                raise nothing_handed(name, module)
            self._call(name, module, given, args, kwargs)
            return
        args = opened(args)
        given = nodes_of_layer(module, args, kwargs, self.follows)
        self.table = given if given is own_table(module, args, kwargs) else None
        tensors = [given] if self.follows(given) else node_tensors(given)
        if not self.tape.follows(tensors) and after_integers(args, kwargs):
            self.embedding = (args, kwargs)  # it embeds its nodes itself: they are what it sends
            return
        if not tensors:
            raise nothing_handed(name, module, about_integers((*args, *kwargs.values())))
        self._call(name, module, given, args, kwargs)
        several = offered(self.tape, (*args, *kwargs.values())) if isinstance(given, Tensor) else []
        self.sides = Sides(self.tape, several, getattr(module, "node_dim", -2)) if len(several) > 1 else None

    def _on_another(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a call receives only rows of a graph other than the explained one."""
        given = [item for item in leaves((opened(args), kwargs)) if isinstance(item, Tensor)]
        if self.tape.follows(given):
            return False
        rows = [item for item in given if not is_edges(item)]
        if rows and self._are_of_a_held_graph(rows[0], edge_index_of(args, kwargs)):
            self.tape.keep_outside(rows[0])
            self.held = True
        self.others.update((id(item), item) for item in rows)
        return self.tape.hangs_outside(rows)

    def _are_of_a_held_graph(self, rows: Tensor, edges: Tensor | None) -> bool:
        """Whether rows were neither given nor learned, and are not as many as nodes: of a query, say."""
        if len(self.tape.features) != 1 or edges is None or not rows.is_floating_point() or rows.requires_grad:
            return False
        known = id(rows) in self.tape.data or id(rows) in self.tape.outer
        count, M = len(rows), len(self.tape.values[self.tape.features[0]])
        return not known and rows.dim() == 2 and count != M and not bool((edges >= count).any())

    def _call(self, name: str, module: Any, given: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A message-passing call that is given these nodes."""
        tensors = node_tensors(given) if self.tape.slot_of(given) is None else [given]
        distinct = {id(tensor): tensor for tensor in tensors}.values()
        unknown = [not (self.follows(tensor) or self.tape.hangs_outside(tensor)) for tensor in distinct]
        own = any(unknown)
        if self.tape.calls and own:
            self.fresh[len(self.tape.calls)] = unknown
        slots = [self.tape.follow(tensor) for tensor in tensors]
        handed = tuple(dict.fromkeys(slots))
        layer = self.found.get(name)
        edges = edge_index_of(args, kwargs) if layer is None else layer.edge_index(by_name(module, args, kwargs))
        first = None if any(call.edge_index is not None for call in self.tape.calls) else edges
        call = Call(name, module, handed, edge_index=first, along=edges, type_of=types_said(name, given, slots))
        call.receivers_unknown = isinstance(given, (tuple, list)) and len(given) == 2 and given[1] is None
        call.beside = (*args, *kwargs.values(), edges) if own or call.receivers_unknown else ()
        call.found = layer is not None
        self.tape.calls.append(call)
        self.tape.active = len(self.tape.calls) - 1
        self.before = len(self.tape.values)
        self.given, self.sides = given, None

    def part(self, name: str, conv: Any, edge_index: Any, size: Any, arguments: dict[str, Any]) -> None:
        """Tell the tape if the call under way received the two sides of its edges separately."""
        call = self.tape.calls[-1]
        joined = None if self.sides is None or call.joined else self.sides.ends(conv, arguments, size)
        if joined is None:
            return
        handed = tuple(dict.fromkeys(slot for rows in joined for slot in rows))
        call.joined, call.handed_at_start, call.handed = joined, call.handed, handed
        call.type_of = types_said(name, None, list(handed))
        if call.edge_index is not None and is_edges(edge_index):
            call.edge_index = edge_index

    def sending(self, name: str, module: Any, arguments: dict[str, Any]) -> None:
        """Tell the tape that a call begins that has embedded its nodes itself, with what it sends."""
        assert self.embedding is not None
        (args, kwargs), self.embedding = self.embedding, None
        given = handed_nodes((), arguments)
        known = {id(item) for item in (*args, *kwargs.values())}
        rows = [(t.shape[:1], id(t)) for item in arguments.values() for t in node_tensors(item)]
        sent = {number for count, number in rows if number not in known and count == rows[0][0]}
        if given is None or len(sent) > 1:  # of several, none is where all walks begin
            raise nothing_handed(name, module, about_integers((*args, *kwargs.values())))
        self._call(name, module, given, args, kwargs)
        self.tape.calls[-1].embeds = True

    def end(self, name: str, module: Any, result: Any) -> None:
        """Tell the tape what a message-passing call returned."""
        if self.beside:
            self.tape.keep_outside(result)
            return
        if self.embedding is not None:  # it has sent nothing
            args, kwargs = self.embedding
            raise nothing_handed(name, module, about_integers((*args, *kwargs.values())))
        call = self.tape.calls[-1]
        slots, targets = self._results(call, self.found.get(name), result)
        if all(slot is None for slot in slots):
            raise lost_sight(name, module)
        self.returned[len(self.tape.calls) - 1] = Returned(slots, targets, self.before, self.sides)

    def _results(self, call: Call, layer: Found | None, result: Any) -> tuple[list[int | None], list[int | None]]:
        """The slots of the tensors that a call returned, and of those whose rows they may have."""
        alone = isinstance(self.given, Tensor) and self.sides is None  # names are then no types
        named = isinstance(result, dict) and layer is None
        call.by_type = named and not alone
        if call.by_type:
            return [*map(self.tape.slot_of, result.values())], [*map(self._rows_for, result)]
        result = tuple(result.values()) if named else result
        several = result if isinstance(result, (tuple, list)) else (result,)
        tensors = opened(several) if layer is None else layer.results(result)
        slots = [self.tape.slot_of(tensor) for tensor in tensors if isinstance(tensor, Tensor)]
        return slots, [self._target(call)] * len(slots)

    def _target(self, call: Call) -> int | None:
        """The slot of the tensor whose rows a layer's output has; None if no tensor tells."""
        if call.joined is not None:
            return call.joined[1][0] if len(call.joined[1]) == 1 else None
        given = self.given
        if isinstance(given, (tuple, list)):
            to_first = len(given) < 2 or getattr(call.module, "flow", "") == "target_to_source"
            given = given[0 if to_first else 1]
        return self.tape.slot_of(given)

    def _rows_for(self, key: Any) -> int | None:
        """The slot of the input under the key of a result."""
        return self.tape.slot_of(self.given.get(key)) if isinstance(self.given, dict) else None

    def sent(self, conv: Any, arguments: dict[str, Any]) -> list[tuple[int, int]]:
        """The tensors of three or more dimensions that are read at the ends of edges, and along which dimension."""
        if not any(t.dim() > 2 for item in arguments.values() for t in node_tensors(item)):
            return []
        names = read_at_ends(getattr(conv.message, "__func__", conv.message))
        tensors = [t for name in names for t in node_tensors(arguments.get(name)) if t.dim() > 2]
        slots = [(self.tape.slot_of(tensor), conv.node_dim % tensor.dim()) for tensor in tensors]
        return [(slot, dim) for slot, dim in slots if slot is not None]


def check_fresh(calls: Calls, handed: Callable[[bool], list[list[Tensor]]]) -> None:
    """Refuse a model in which a later layer's input depends on an earlier layer out of the tape's sight.

    ``handed`` runs the model again, with the first layer's output disturbed or not, and returns the input of every
    layer; an input may change only if it was followed.
    """
    undisturbed, disturbed = handed(False), handed(True)
    for number, unknown in calls.fresh.items():
        tensors = zip(unknown, undisturbed[number], disturbed[number], strict=True)
        if not all(torch.equal(before, after) for own, before, after in tensors if own):
            name, module = calls.tape.calls[number].name, calls.tape.calls[number].module
            raise TraceError(
                f"Layer '{name}' ({type(module).__name__}) received node features that depend on an earlier layer but "
                "cannot be traced back to it.",
                remedy=calls.tape.lost or _OUT_OF_SIGHT,
            )


def nothing_handed(name: str, module: Any, remedy: str | None = None) -> TraceError:
    """The error for a layer that received no nodes."""
    return TraceError(
        f"Layer '{name}' ({type(module).__name__}) received no floating-point node tensor, so there is nothing a walk "
        "could begin with.",
        remedy=remedy or _FEATURELESS,
    )


def lost_sight(name: str, module: Any) -> TraceError:
    """The error for a module whose output is not followed although its input is."""
    return TraceError(
        f"'{name}' ({type(module).__name__}) received node features, but its result cannot be traced back to them.",
        remedy=_OUT_OF_SIGHT,
    )

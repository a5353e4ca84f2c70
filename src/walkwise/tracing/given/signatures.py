"""The parameters of a model's ``forward``, by name and in order."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from types import FunctionType
from typing import Any, get_args

import torch
from torch import nn

from walkwise.tracing.given.holders import is_graph
from walkwise.tracing.private import wrapped_in

#: Kinds of parameters that have names.
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

#: Kinds of parameters that may be given in order.
ORDERED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def parameters_of(model: nn.Module) -> list[inspect.Parameter]:
    """The parameters of a model's ``forward`` that have names."""
    signature = signature_of(model)
    return [] if signature is None else [p for p in signature.parameters.values() if p.kind in NAMED]


def signature_of(model: nn.Module) -> inspect.Signature | None:
    """How a model is called, or None where Python does not know."""
    model = wrapped_in(model) or model
    if isinstance(model, torch.jit.ScriptModule):
        return None
    declared = getattr(getattr(model, "signature", None), "param_dict", None)  # torch_geometric.nn.Sequential
    if isinstance(declared, dict) and all(isinstance(name, str) for name in declared):
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(name, kind) for name in declared])
    if "forward" not in model.__dict__ and type(type(model).forward) is FunctionType:
        return _method_signature(type(model).forward)
    try:
        return inspect.signature(model.forward)
    except (TypeError, ValueError):
        return None


@functools.lru_cache(maxsize=256)
def _method_signature(method: FunctionType) -> inspect.Signature:
    """How a method of a class is called, without the object."""
    signature = inspect.signature(method)
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def ordered_names(parameters: list[inspect.Parameter]) -> list[str]:
    """The names of the parameters that may be given in order."""
    return [p.name for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]


def open_form(model: nn.Module) -> str | None:
    """What a ``forward`` takes that names no parameters: "*args", "**kwargs", or both, "*args, **kwargs"; else None.

    One that takes both finds its arguments itself, or hands them on to what it wraps, which may have parameters.
    """
    model = wrapped_in(model) or model
    declared = hasattr(getattr(model, "signature", None), "param_dict")  # torch_geometric.nn.Sequential, by name
    if not declared and _hands_on(model.__dict__.get("forward", getattr(type(model), "forward", None))):
        return "*args, **kwargs"
    signature = signature_of(model)
    kinds = [] if signature is None else [parameter.kind for parameter in signature.parameters.values()]
    if kinds == [inspect.Parameter.VAR_POSITIONAL]:
        return "*args"
    return "**kwargs" if kinds == [inspect.Parameter.VAR_KEYWORD] else None


@functools.lru_cache(maxsize=256)
def _hands_on(forward: Any) -> bool:
    """Whether a function takes ``*args`` and ``**kwargs``, and nothing else."""
    try:
        signature = inspect.signature(forward, follow_wrapped=False)
    except (TypeError, ValueError):
        return False
    kinds = [parameter.kind for name, parameter in signature.parameters.items() if name != "self"]
    return kinds == [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]


def left_for_a_graph(parameters: list[inspect.Parameter], given: Mapping[str, Any]) -> list[inspect.Parameter]:
    """The parameters that get no other graph by name."""
    return [parameter for parameter in parameters if not is_graph(given.get(parameter.name))]


def place_left(parameters: list[inspect.Parameter], given: Mapping[str, Any]) -> str | None:
    """The name of the parameter left for the graph if another graph is given as the first."""
    left = left_for_a_graph(parameters, given)
    return left[0].name if left and left[0] is not parameters[0] else None


def takes_none(parameter: inspect.Parameter) -> bool:
    """Whether a parameter that must be given may be None, as its type says."""
    kind = parameter.annotation
    named = isinstance(kind, str) and any(word in kind for word in ("Optional", "OptTensor", "None"))
    return parameter.default is parameter.empty and (named or type(None) in get_args(kind))


def written(signature: inspect.Signature) -> str:
    """A signature as it is called: without annotations."""
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=signature.empty))

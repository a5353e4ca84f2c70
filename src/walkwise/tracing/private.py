"""Everything that Walkwise uses of torch and torch_geometric beyond their public interface.

Each name appears here once, and has a test that says in words what would break without it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from contextlib import AbstractContextManager
from types import BuiltinFunctionType, FunctionType, WrapperDescriptorType
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.nn.modules import module as torch_module
from torch.overrides import get_overridable_functions
from torch_geometric.nn import to_hetero_transformer


def unwatched() -> AbstractContextManager[None]:
    """Hide computations inside from all torch-function modes."""
    return torch._C.DisableTorchFunction()


def watched() -> AbstractContextManager[None]:
    """Show computations inside to torch-function modes; on exit everything is as before, even after an interrupt."""
    return torch._C._EnableTorchFunction()


def modes_on() -> int:
    """How many torch-function modes are on."""
    return torch._C._len_torch_function_stack()


def take_modes_off(most: int) -> None:
    """Take off the modes that were put on last, until there are at most so many."""
    while modes_on() > most:
        torch._C._pop_torch_function_stack()


def overridable_functions() -> Iterable[Any]:
    """Every function that a torch-function mode may be handed: those torch lists, and those it leaves out."""
    listed = (func for functions in get_overridable_functions().values() for func in functions)
    spaces = (torch, Tensor, torch.nn.functional, torch.special, torch.linalg, torch.sparse, torch._C._nn)
    found = (getattr(space, name) for space in spaces for name in dir(space) if name not in _NO_FUNCTIONS)
    return dict.fromkeys((*listed, *(func for func in found if isinstance(func, _FUNCTIONS))))


_FUNCTIONS = (FunctionType, BuiltinFunctionType, type(Tensor.add), type(Tensor.__add__), WrapperDescriptorType)
#: Names that give a warning, or do something, when they are looked at.
_NO_FUNCTIONS = frozenset({"classes", "ops", "__getattr__"})


def autocasting() -> bool:
    """Whether any device computes under autocast."""
    return torch._C._is_any_autocast_enabled()


def transforming() -> bool:
    """Whether the running code is inside torch.func.vmap, grad or another transform."""
    return torch._C._functorch.maybe_current_level() is not None


def innermost(item: Any) -> Any:
    """The tensor that transforms have wrapped; anything else as it is."""
    while isinstance(item, Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(item):
        item = torch._C._functorch.get_unwrapped(item)
    return item


def version_of(tensor: Tensor) -> int:
    """How often a tensor has been written into; 0 where torch does not count (inference mode)."""
    return 0 if tensor.is_inference() else tensor._version


def base_of(tensor: Tensor) -> Tensor | None:
    """The tensor that this one is a view of, if it is one."""
    return tensor._base


#: Where a module holds its own parameters, buffers and modules, by attribute.
PARAMETERS, BUFFERS, MODULES = "_parameters", "_buffers", "_modules"


def parameters_of(module: nn.Module) -> dict[str, Tensor | None]:
    """A module's own parameters."""
    return module._parameters  # type: ignore[return-value]


def buffers_of(module: nn.Module) -> dict[str, Tensor | None]:
    """A module's own buffers."""
    return module._buffers


def children_of(module: nn.Module) -> dict[str, nn.Module | None]:
    """A module's own modules."""
    return module._modules


def wrapped_in(module: Any) -> nn.Module | None:
    """The module that torch.compile, or training on several devices, has wrapped in this one, if any.

    DistributedDataParallel would wait for processes that trace nothing; DataParallel would split the graph.
    """
    inner = module.__dict__.get("_modules") if isinstance(module, nn.Module) else None
    name = "module" if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)) else "_orig_mod"
    original = inner[name] if inner and name in inner else None
    return (wrapped_in(original) or original) if isinstance(original, nn.Module) else None


def made_by_type(model: nn.Module) -> bool:
    """Whether torch_geometric's to_hetero has made a model, which takes each input as a dictionary by type."""
    nodes = model.graph.nodes if isinstance(model, GraphModule) else ()
    return any(node.target is to_hetero_transformer.get_dict for node in nodes)


def global_hooks() -> bool:
    """Whether there are global module hooks."""
    kinds = (
        "_global_forward_hooks",
        "_global_forward_pre_hooks",
        "_global_backward_hooks",
        "_global_backward_pre_hooks",
    )
    return any(map(vars(torch_module).__getitem__, kinds))


def hooked(module: nn.Module) -> bool:
    """Whether a module has hooks."""
    own = module.__dict__
    return bool(
        own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"] or own["_backward_pre_hooks"]
    )


def without_pre_hooks(module: nn.Module) -> None:
    """Take the hooks off a shadow's module that run before it: lazy ones initialise the weights of the model itself."""
    module.__dict__["_forward_pre_hooks"] = OrderedDict()


#: PyG's hooks around the parts of message passing, by attribute.
MESSAGE_HOOKS = tuple(
    f"_{part}_forward{when}_hooks"
    for part in ("propagate", "message", "aggregate", "message_and_aggregate")
    for when in ("", "_pre")
)
#: PyG's hooks around what attention is computed in, by attribute.
EDGE_HOOKS = ("_edge_update_forward_pre_hooks", "_edge_update_forward_hooks")
#: The weights of edges that PyG's explainers put on a layer, by attribute.
EDGE_MASK = "_edge_mask"
#: What layers that propagate once for all remember of an earlier input (SGConv and its kin), by attribute.
REMEMBERED = ("_cached_x", "_cached_h")
#: What layers remember of the edges of an earlier graph, by attribute.
REMEMBERED_EDGES = ("_cached_edge_index", "_cached_adj_t")
#: What a reentrant ``torch.utils.checkpoint`` runs its function in, by its name there.
CHECKPOINT = "CheckpointFunction"
#: What ``model.compile()`` has made of a module, and is called in its place.
COMPILED = "_compiled_call_impl"


def uncompiled(function: Any) -> Any:
    """The function that torch.compile was given, of one that it has made; any other as it is."""
    return getattr(function, "_torchdynamo_orig_callable", function)

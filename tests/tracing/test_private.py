"""What walkwise uses of torch and torch_geometric beyond their public interface is there, and does what it is used for.

Each test says what a new version has broken.
"""

import inspect
import threading

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint
from torch_geometric import nn as pyg

from walkwise.tracing import private
from walkwise.tracing.running.checkpoints import checkpoints_in_sight

EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])


class Counting(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def test_every_name_has_a_test():
    names = [name for name, item in vars(private).items() if inspect.isfunction(item) or name.isupper()]
    names = [n for n in names if not n.startswith("_") and getattr(private, n) is not private.get_overridable_functions]
    tests = " ".join(name for name in globals() if name.startswith("test_"))
    assert [name for name in names if name.lower() not in tests] == []


def test_unwatched():
    """Without it the tape records what walkwise itself computes while it watches."""
    with Counting() as mode, private.unwatched():
        torch.ones(2) + 1
    assert mode.seen == [], "torch._C.DisableTorchFunction no longer keeps torch-function modes from looking"
    with Counting() as mode:
        torch.ones(2) + 1
    assert mode.seen, "a torch-function mode sees nothing at all"


def test_watched():
    """Without it an interrupt inside of ``unwatched`` blinds every later trace."""
    with private.watched():
        private.unwatched().__enter__()  # never left
    with Counting() as mode:
        torch.ones(2) + 1
    assert mode.seen, "torch._C._EnableTorchFunction no longer puts back what it found"


def test_overridable_functions():
    """Without them a spelling has no handler, and is carried by its plain gradient."""
    found = set(private.overridable_functions())
    looked_for = [torch.relu_, nn.functional.hardswish, torch._C._nn.gelu, torch.Tensor.__radd__, torch.linalg.norm]
    missing = [func for func in looked_for if func not in found]
    assert missing == [], "torch's functions are kept in other places than those that are looked at"


def test_a_property_is_among_the_overridable_functions():
    assert torch.Tensor.T.__get__ in set(private.overridable_functions()), "h.T is not known by its getter any more"


def test_autocasting():
    """Without it a model under autocast is traced in rounded numbers, and nobody is told."""
    assert not private.autocasting(), "torch._C._is_any_autocast_enabled says yes where there is none"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert private.autocasting(), "torch._C._is_any_autocast_enabled overlooks autocast on the CPU"


def test_version_of():
    """Without it edges that a model writes into are taken for those from before."""
    tensor = torch.zeros(2)
    before = private.version_of(tensor)
    tensor += 1
    assert private.version_of(tensor) > before, "Tensor._version no longer counts writes"
    with torch.inference_mode():
        assert private.version_of(torch.zeros(2)) == 0, "Tensor._version of an inference tensor is asked for"


def test_base_of():
    """Without it a write through a view is not noticed at the tensor it is a view of."""
    tensor = torch.zeros(4)
    assert private.base_of(tensor[:2]) is tensor, "Tensor._base is not the tensor of a view"
    assert private.base_of(tensor) is None, "Tensor._base of a tensor of its own is not None"


def test_parameters_of():
    """Without it lazy or broken weights are not noticed, nor linear modules that met no followed tensor."""
    module = nn.Linear(2, 3, bias=False)
    assert private.parameters_of(module) == {"weight": module.weight, "bias": None}, (
        "Module._parameters is kept elsewhere"
    )
    assert private.parameters_of(nn.Sequential(module)) == {}, "Module._parameters holds those of other modules"


def test_buffers_of():
    """Without it statistics of normalisations that are not numbers are not noticed."""
    module = nn.BatchNorm1d(2)
    assert private.buffers_of(module)["running_mean"] is module.running_mean, "Module._buffers is kept elsewhere"


def test_children_of():
    """Without it no layer is found."""
    module = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    assert list(private.children_of(module).values()) == list(module), "Module._modules is kept elsewhere"


def test_parameters_buffers_modules():
    module = nn.Sequential(nn.BatchNorm1d(2))
    held = {name: vars(module[0])[name] for name in (private.PARAMETERS, private.BUFFERS)}
    assert set(held[private.PARAMETERS]) == {"weight", "bias"}, "Module._parameters is kept elsewhere"
    assert "running_mean" in held[private.BUFFERS], "Module._buffers is kept elsewhere"
    assert vars(module)[private.MODULES] == {"0": module[0]}, "Module._modules is kept elsewhere"


def test_wrapped_in():
    """Without it a compiled model is watched from outside, where nothing can be seen."""
    module = nn.Linear(2, 3)
    assert private.wrapped_in(torch.compile(module)) is module, "torch.compile keeps the module elsewhere"
    assert private.wrapped_in(nn.DataParallel(module)) is module, "DataParallel keeps the module elsewhere"
    assert private.wrapped_in(torch.compile(nn.DataParallel(module))) is module, "both do"
    assert private.wrapped_in(module) is None, "a module that is not compiled looks as if it were"
    assert private.wrapped_in(nn.Sequential(module)) is None, "a module with another in it looks as if it were"


def test_without_pre_hooks():
    """Without it a trace initialises the lazy weights of the model itself."""
    module, heard = nn.Linear(2, 2), []
    module.register_forward_pre_hook(lambda *_: heard.append(1))
    private.without_pre_hooks(module)
    module(torch.rand(1, 2))
    assert not heard, "torch keeps the hooks that run before a module elsewhere than in _forward_pre_hooks"


def test_global_hooks():
    """Without it someone who listens to all modules hears the shadow's."""
    assert not private.global_hooks(), "torch says that someone listens to all modules"
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert private.global_hooks(), "torch no longer tells that someone listens to all modules"
    finally:
        handle.remove()


def test_transforming():
    """Without it features that a model hands to torch.func.vmap are lost without a word."""
    assert not private.transforming(), "torch says that a transform is under way where none is"
    seen = []
    torch.func.vmap(lambda row: seen.append(private.transforming()) or row)(torch.ones(2, 2))
    assert seen == [True], "torch no longer tells that vmap is under way"


def test_modes_on_and_take_modes_off():
    """Without them an interrupt at the end of a run leaves the recording on, for all that torch does later."""
    before = private.modes_on()
    for _ in range(2):
        TorchFunctionMode().__enter__()
    assert private.modes_on() == before + 2, "torch counts its modes in another way"
    private.take_modes_off(before + 1)
    assert private.modes_on() == before + 1
    private.take_modes_off(before)
    private.take_modes_off(before)
    assert private.modes_on() == before


def test_innermost():
    """Without it nobody knows what a model has handed to torch.func.vmap."""
    given, seen = torch.ones(2, 2), []
    torch.func.vmap(torch.func.vmap(lambda one: seen.append(private.innermost(one)) or one))(given)
    assert seen[0] is given, "torch wraps tensors in another way"
    assert private.innermost("a word") == "a word"


@pytest.mark.parametrize("name", private.MESSAGE_HOOKS)
def test_message_hooks(name):
    """Without them a hook on messages, or on what propagate is given, is passed over by the closed form."""
    conv = pyg.GCNConv(2, 2)
    register = getattr(conv, "register" + name.removesuffix("s"))
    register(lambda *_: None)
    assert vars(conv).get(name), f"torch_geometric keeps the hooks of {register.__name__} elsewhere than in {name}"


def test_all_message_hooks_are_known():
    known = set(private.MESSAGE_HOOKS)
    others = {"_edge_update_forward_hooks", "_edge_update_forward_pre_hooks"}  # of attention, which is held constant
    found = {n for n in vars(pyg.GCNConv(2, 2)) if n.endswith("hooks")} - set(vars(nn.Linear(2, 2)))
    assert found <= known | others, "torch_geometric has hooks around message passing that walkwise does not look at"


CACHING = [
    (name, conv)
    for name, conv in vars(pyg).items()
    if isinstance(conv, type) and "cached" in inspect.signature(conv.__init__).parameters
]


def remembered(name, conv):
    """What a layer holds after a run that it did not hold before."""
    more = {"APPNP": (2, 0.1), "GCN2Conv": (2, 0.1), "DNAConv": (2,), "FAConv": (2,), "SSGConv": (2, 2, 0.1)}
    made = conv(*more.get(name, (2, 8) if name == "EGConv" else (2, 2)), cached=True)
    before, x = dict(vars(made)), torch.ones(3, 1, 2) if name == "DNAConv" else torch.ones(3, 2)
    made(x, *[x] * (name in ("GCN2Conv", "FAConv")), EDGES)
    return {n for n, value in vars(made).items() if value is not None and before.get(n) is None}


def test_remembered():
    """Without it a layer that has seen an input answers for that one, whatever it is handed."""
    for kind, name in (("SGConv", private.REMEMBERED[0]), ("SSGConv", private.REMEMBERED[1])):
        assert name in remembered(kind, getattr(pyg, kind)), f"{kind} remembers under another name"


@pytest.mark.parametrize(("name", "conv"), CACHING)
def test_remembered_edges(name, conv):
    """Without it a layer that has seen a graph passes messages along its edges, whatever graph comes."""
    kept = remembered(name, conv)
    assert kept, f"{name} remembers nothing, or in another place"
    assert kept <= {*private.REMEMBERED, *private.REMEMBERED_EDGES}, f"{name} remembers under another name"


def test_hooked():
    """Without it a layer that someone listens to is computed past its hooks."""
    layer = nn.Linear(2, 2)
    assert not private.hooked(layer), "a fresh module is said to have hooks"
    for register in (layer.register_forward_hook, layer.register_forward_pre_hook, layer.register_full_backward_hook):
        handle = register(lambda *_: None)
        assert private.hooked(layer), f"{register.__name__} keeps its hooks in another place"
        handle.remove()


def test_edge_hooks():
    """Without them attention that someone changes by a hook is computed past it."""
    from torch_geometric.nn import GATConv

    conv = GATConv(2, 2)
    assert all(name in vars(conv) for name in private.EDGE_HOOKS), "PyG keeps the hooks of edge_update elsewhere"
    conv.register_edge_update_forward_hook(lambda *_: None)
    assert any(vars(conv)[name] for name in private.EDGE_HOOKS), "PyG keeps the hooks of edge_update elsewhere"


def test_edge_mask():
    """Without it nobody hears that an explainer has left its masks on a model."""
    from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
    from torch_geometric.nn import GCNConv

    conv, edges = GCNConv(2, 2), torch.tensor([[0, 1], [1, 0]])
    assert getattr(conv, private.EDGE_MASK) is None, "a layer without a mask looks as if it had one"
    set_masks(conv, torch.ones(2), edges)
    assert getattr(conv, private.EDGE_MASK) is not None, "PyG keeps the masks of edges elsewhere"
    clear_masks(conv)
    assert getattr(conv, private.EDGE_MASK) is None, "clear_masks leaves them"


def test_checkpoint():
    """Without it a layer in a reentrant checkpoint runs out of sight, and the model is refused."""
    own, ran = getattr(checkpoint, private.CHECKPOINT), []

    def function(value):
        ran.append(torch.is_grad_enabled())
        return 2 * value

    x = torch.ones(2, requires_grad=True)
    with checkpoints_in_sight(), checkpoints_in_sight():
        assert checkpoint.checkpoint(function, x, use_reentrant=True).tolist() == [2, 2]
    assert ran == [True], "checkpoint runs its function in another way"
    assert getattr(checkpoint, private.CHECKPOINT) is own, "checkpoints stay in sight"
    checkpoint.checkpoint(function, x, use_reentrant=True)
    assert ran == [True, False], "a checkpoint outside traces saves no memory any more"


def test_checkpoints_of_other_threads_stay_as_they_are():
    ran = []

    def train():
        x = torch.ones(2, requires_grad=True)
        checkpoint.checkpoint(lambda v: ran.append(torch.is_grad_enabled()) or 2 * v, x, use_reentrant=True)

    other = threading.Thread(target=train)
    with checkpoints_in_sight():
        other.start()
        other.join()
    assert ran == [False]


def test_made_by_type():
    """Without it a HeteroData gives a model that to_hetero has made no features of edges."""
    from torch_geometric.nn import SAGEConv, to_hetero

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = SAGEConv((2, 2), 2)

        def forward(self, x, edge_index):
            return self.conv(x, edge_index)

    kinds = ["a"], [("a", "to", "a")]
    assert private.made_by_type(to_hetero(Net(), kinds)), "to_hetero takes its inputs apart in another way"
    assert not private.made_by_type(torch.fx.symbolic_trace(nn.Linear(2, 2))), "any traced module looks as if it did"
    assert not private.made_by_type(Net()), "any model looks as if to_hetero had made it"


def test_compiled():
    """Without it a model that was compiled in place runs out of sight."""
    layer = nn.Linear(2, 2)
    layer.compile()
    assert vars(layer).get(private.COMPILED) is not None, "model.compile() keeps what is compiled under another name"


def test_uncompiled():
    """Without it a method that was compiled by itself is compiled with the tape inside of it."""
    lister = Lister()
    assert private.uncompiled(torch.compile(lister.ask)) == lister.ask, "torch.compile keeps it elsewhere"
    assert private.uncompiled(lister.ask) == lister.ask


class Lister:
    def ask(self, h):
        return h + 1

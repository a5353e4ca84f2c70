"""Tracing is nobody else's business: other threads, forked children, interrupts, and what is left behind."""

import linecache
import multiprocessing
import sys
import threading
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn import GAT, GCN, GIN, GraphSAGE

import walkwise as ww
from walkwise.tracing.private import modes_on

EDGES = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
KINDS = {"GCN": GCN, "GIN": GIN, "SAGE": GraphSAGE, "GAT": GAT}


def model_of(kind):
    torch.manual_seed(0)
    return KINDS[kind](3, 8, num_layers=2, out_channels=2, dropout=0.5, norm="batch_norm")


@pytest.mark.parametrize("kind", KINDS)
def test_another_thread_may_run_the_model_meanwhile(kind):
    model, x = model_of(kind).eval(), torch.randn(4, 3)
    expected, output = ww.node_relevance(ww.trace(model, x, EDGES, index=0, target=0)), model(x, EDGES)
    stop, wrong, failed = threading.Event(), [], []

    def run():
        while not stop.is_set():
            try:
                if not torch.equal(model(x, EDGES), output):
                    wrong.append("output")
            except Exception as error:
                failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        for _ in range(30):
            found = ww.node_relevance(ww.trace(model, x, EDGES, index=0, target=0))
            assert torch.equal(found, expected)
    finally:
        stop.set()
        thread.join()
    assert not wrong
    assert not failed


def test_threads_may_trace_one_model_at_once():
    model, x = model_of("GCN"), torch.randn(4, 3)
    expected = [ww.node_relevance(ww.trace(model, x, EDGES, index=i, target=0)) for i in range(4)]
    found = [None] * 4

    def trace(i):
        for _ in range(10):
            found[i] = ww.node_relevance(ww.trace(model, x, EDGES, index=i, target=0))

    threads = [threading.Thread(target=trace, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def _trace_in_child(model, x, queue):
    torch.set_num_threads(1)
    queue.put(ww.node_relevance(ww.trace(model, x, EDGES, index=0, target=0)).tolist())


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_a_forked_child_can_trace_while_its_parent_does():
    model, x = model_of("GIN"), torch.randn(4, 3)
    expected = ww.node_relevance(ww.trace(model, x, EDGES, index=0, target=0)).tolist()
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            ww.trace(model, x, EDGES, index=0, target=0)

    thread = threading.Thread(target=busy)
    thread.start()
    context = multiprocessing.get_context("fork")
    try:
        for _ in range(4):
            queue = context.Queue()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                child = context.Process(target=_trace_in_child, args=(model, x, queue))
                child.start()
            assert queue.get(timeout=60) == pytest.approx(expected)
            child.join(60)
            assert child.exitcode == 0
    finally:
        stop.set()
        thread.join()


ROOM = str(Path(ww.__file__).parent)


class Interrupted(BaseException):
    """What Ctrl-C raises, at a line of our choice."""


def interrupted_at(line):
    """A trace function that raises at the line-th line of tracing that is run."""
    seen = [0]

    def local(frame, event, arg):
        if event == "line":
            seen[0] += 1
            if seen[0] == line:
                raise Interrupted
        return local

    def watch(frame, event, arg):
        return local if frame.f_code.co_filename.startswith(ROOM) else None

    return watch, seen


def state(model):
    parts = []
    for name, module in model.named_modules():
        own = {
            key: value for key, value in module.__dict__.items() if key not in ("_parameters", "_buffers", "_modules")
        }
        parts.append((name, module.training, list(own), [id(v) for v in own.values()]))
        parts.append(
            [
                (k, id(v), v._version)
                for k, v in (*module._parameters.items(), *module._buffers.items())
                if v is not None
            ]
        )
    return parts, torch.is_grad_enabled(), torch.get_rng_state().tolist(), modes_on()


def saves_memory():
    """Whether a reentrant checkpoint runs its function without gradients, as it does outside traces."""
    ran = []
    checkpoint(
        lambda v: ran.append(torch.is_grad_enabled()) or 2 * v, torch.ones(1).requires_grad_(), use_reentrant=True
    )
    return ran == [False]


@pytest.fixture
def recording():
    """Whatever a test leaves behind, the next ones find gradients as they were."""
    before = torch.is_grad_enabled()
    yield
    torch.set_grad_enabled(before)


@pytest.mark.usefixtures("recording")
def test_an_interrupt_at_any_line_leaves_the_model_as_it_was():
    model, x = model_of("GCN").train(), torch.randn(4, 3)
    before = state(model)
    watch, seen = interrupted_at(-1)
    sys.settrace(watch)
    try:
        ww.trace(model, x, EDGES, index=0, target=0)
    finally:
        sys.settrace(None)
    total = seen[0]
    assert total > 500
    for line in range(1, total, max(1, total // 250)):
        watch, _ = interrupted_at(line)
        sys.settrace(watch)
        try:
            with pytest.raises(Interrupted):
                ww.trace(model, x, EDGES, index=0, target=0)
        finally:
            sys.settrace(None)
        assert state(model) == before, line
        assert saves_memory(), line


@pytest.mark.usefixtures("recording")
def test_an_interrupt_where_the_recording_ends_leaves_none_on():
    """At the end of a with statement, before what it has switched on is switched off."""
    model, seen = GCN(3, 8, num_layers=2, out_channels=2), []

    def local(frame, event, arg):
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event == "line" and text == "with tape:":
            seen.append(modes_on())
            if seen[-1]:
                raise Interrupted
        return local

    sys.settrace(lambda frame, event, arg: local if frame.f_code.co_filename.startswith(ROOM) else None)
    try:
        with pytest.raises(Interrupted):
            ww.trace(model, torch.randn(4, 3), EDGES, index=0, target=0)
    finally:
        sys.settrace(None)
    assert seen == [0, 1]
    assert modes_on() == 0


class Writer(nn.Module):
    """Writes on everything it can reach while it runs."""

    def __init__(self):
        super().__init__()
        self.gnn = GCN(3, 8, num_layers=2, out_channels=2)
        self.register_buffer("count", torch.zeros(()))
        self.log, self.calls, self.last = [], 0, None

    def forward(self, x, edge_index):
        self.calls += 1
        self.count += 1
        self.last = x
        self.extra = nn.Linear(2, 2)
        self.log.append(1)
        x.mul_(1.0)
        return self.gnn(x, edge_index)


def test_what_left_as_found_covers():
    """Attributes, buffers, modules, lists and the features are."""
    model, x = Writer(), torch.randn(4, 3)
    features = x.clone()
    ww.trace(model, x, EDGES, index=0)
    assert model.calls == 0
    assert model.last is None
    assert float(model.count) == 0
    assert not hasattr(model, "extra")
    assert torch.equal(x, features)
    assert model.log == []


def in_lists():
    model = nn.Module()
    model.convs = [layer for layer in model_of("GCN").convs]  # noqa: C416  (a plain list, as people write it)
    model.forward = lambda x, e: model.convs[1](model.convs[0](x, e).relu(), e)
    return model


def test_layers_in_plain_lists_and_functions_over_the_model_are_watched():
    model, x = in_lists(), torch.randn(4, 3)
    chain = ww.trace(model, x, EDGES, index=0, target=0)
    assert chain.num_layers == 2
    assert not any("forward" in conv.__dict__ for conv in model.convs)


class Holder:
    def __init__(self, conv):
        self.conv = conv


def test_a_layer_that_hides_is_told():
    model = nn.Module()
    model.seen = GCN(3, 8, num_layers=1, out_channels=8)
    model.hidden = Holder(GCN(8, 8, num_layers=1, out_channels=2))
    model.forward = lambda x, e: model.hidden.conv(model.seen(x, e), e)
    with pytest.warns(ww.errors.CoverageWarning, match="outside any message-passing layer"):
        chain = ww.trace(model, torch.randn(4, 3), EDGES, index=0, target=0)
    assert "outside any message-passing layer" in str(chain)

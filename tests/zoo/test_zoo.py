"""Real architectures: exact against the reference, or refused for a true reason."""

import warnings

import pytest
import torch

import walkwise as ww
from zoo.checks import checked, double_precision, inputs, made
from zoo.held import Held
from zoo.inventory import ALL
from zoo.models import Entry, M
from zoo.molecules import dimenet, dimenet_pp, force_field, same_as_ready_made
from zoo.table import PAGE, page

FOUND = {}


def test_there_are_many():
    assert len(ALL) >= 80
    assert len({entry.name for entry in ALL}) == len(ALL)


@pytest.mark.parametrize("entry", ALL, ids=lambda entry: entry.name)
def test_exact_or_refused(entry):
    FOUND[entry.name] = checked(entry)


@pytest.mark.parametrize("make", [dimenet, dimenet_pp])
def test_blocks_in_one_layer_give_what_the_model_does(make):
    torch.manual_seed(6)
    before, after = same_as_ready_made(make(), torch.arange(1, M + 1).view(M, 1))
    torch.testing.assert_close(before, after)


def test_the_force_field_as_it_comes():
    """Its first block gathers the atoms' own rows, which is no layer: walks begin after it."""
    entry = Entry("GNNFF", "", force_field, graph="numbers")
    with double_precision(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, (z, edges) = made(entry), inputs(entry)
        chain = ww.trace(model, z, edges, target=0, rule="zero")
        leaves = []
        hook = model.net.node_blocks[0].register_forward_hook(lambda *ran: leaves.append(ran[2]))
        with Held(model.requires_grad_(True), entry.gates):
            output = model(z, edges)[0, 0]
        hook.remove()
        (gradient,) = torch.autograd.grad(output, leaves[0])
    assert [layer.name for layer in chain.layers] == ["sum_1", "sum_2"]
    torch.testing.assert_close(ww.node_relevance(chain), (gradient * leaves[0]).sum(1).detach())


def test_the_page_is_current():
    results = [FOUND.get(entry.name) or checked(entry) for entry in ALL]
    assert PAGE.read_text(encoding="utf-8") == page(results), "run python tests/zoo/table.py"

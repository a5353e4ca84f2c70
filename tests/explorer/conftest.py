"""A session to explore, a server of it, and a browser to look at it with."""

from __future__ import annotations

import os
import shutil
import threading
from dataclasses import dataclass, field

import pytest
import torch
from torch_geometric.data import Data

from walkwise import models
from walkwise.datasets import ba2motif
from walkwise.explorer import Session
from walkwise.explorer.cases import open_case
from walkwise.explorer.serving import bind

SMILES = {
    "nitrotoluene": "Cc1ccc(cc1)[N+](=O)[O-]",
    "vinylacetylene": "C#CC=C",
    "nitrofluorene": "O=[N+]([O-])c1ccc2c(c1)Cc1ccccc1-2",
}


@pytest.fixture(scope="session")
def motifs():
    """BA-2motif graphs and a model that has not learned them."""
    torch.manual_seed(0)
    model = models.GIN(1, 16, 2, 3).double().eval()
    graphs = ba2motif.generate(4, seed=0)
    for graph in graphs:
        graph.x = graph.x.double()
    return Session(model, graphs, class_names=ba2motif.CLASSES)


@pytest.fixture(scope="session")
def molecules():
    """Molecules, a long chain, a graph that does not fit, and a model of MUTAG's size that has not learned them."""
    pytest.importorskip("rdkit")
    from walkwise.datasets.molecules import from_smiles

    torch.manual_seed(1)
    graphs = [from_smiles(smiles) for smiles in SMILES.values()]
    model = models.GIN(7, 128, 2, 3).eval()
    ends = torch.arange(89)
    paraffin = Data(
        torch.eye(7)[[0] * 90], torch.cat([torch.stack([ends, ends + 1]), torch.stack([ends + 1, ends])], 1)
    )
    misfit = Data(torch.ones(2, 3), torch.tensor([[0, 1], [1, 0]]))
    return Session(
        model, [*graphs, paraffin, misfit], names=[*SMILES, "paraffin", "misfit"], class_names=["harmless", "mutagenic"]
    )


@pytest.fixture(scope="session")
def motif(motifs):
    """The first BA-2motif graph, traced."""
    return open_case(motifs, 0)


@pytest.fixture(scope="session")
def molecule(molecules):
    """Nitrotoluene, traced."""
    return open_case(molecules, 0)


@pytest.fixture(scope="module")
def address(molecules):
    """Where the molecules are served."""
    server = bind(molecules, port=0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.port}/"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def chromium():
    """A browser without a window."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("no Chromium on this machine: install the package chromium to run the browser's tests")
    with sync_api.sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=found, args=arguments)
        yield browser
        browser.close()


@dataclass
class Seen:
    """What tabs have seen."""

    problems: list = field(default_factory=list)
    requests: list = field(default_factory=list)


@pytest.fixture(scope="module")
def seen():
    """Errors in the console, and requests."""
    return Seen()


@pytest.fixture(scope="module")
def open_tab(chromium, address, seen):
    """Opens tabs of one window, which share a cache."""
    window = chromium.new_context(viewport={"width": 1280, "height": 800}, accept_downloads=True)
    window.set_default_timeout(20_000)

    def new_tab():
        page = window.new_page()
        page.on("request", lambda request: seen.requests.append(request.url))
        page.on("console", lambda message: message.type == "error" and seen.problems.append(message.text))
        page.on("pageerror", lambda error: seen.problems.append(str(error)))
        page.goto(address)
        page.wait_for_selector("button.walk")
        page.wait_for_selector("#order-curve .main-svg")
        return page

    yield new_tab
    window.close()


@pytest.fixture
def quiet(address, seen):
    """No error and no request to another server until the test ends."""
    yield
    problems, seen.problems = seen.problems, []
    assert problems == []
    assert any("plotly" in url for url in seen.requests)
    assert [url for url in seen.requests if not url.startswith((address, "data:", "blob:"))] == []


@pytest.fixture
def tab(open_tab, quiet):
    """Opens new tabs, which are closed at the end."""
    pages = []

    def new_tab():
        pages.append(open_tab())
        return pages[-1]

    yield new_tab
    for page in pages:
        page.close()


@pytest.fixture(scope="module")
def _first_tab(open_tab):
    return open_tab()


@pytest.fixture
def page(_first_tab, quiet):
    """A tab that tests share: they leave α at 0, the groups alone and the order at its beginning."""
    return _first_tab

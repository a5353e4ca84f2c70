"""Served to this computer alone, and asking nothing of any other."""

from __future__ import annotations

import socket
import threading

import pytest

from walkwise.errors import InputError
from walkwise.explorer import app, serve
from walkwise.explorer.serving import bind


@pytest.fixture(scope="module")
def made(motifs):
    return app(motifs)


def test_the_page_comes_from_its_own_server(made):
    response = made.server.test_client().get("/")
    page = response.get_data(as_text=True)
    assert response.status_code == 200
    assert "//" not in page.replace("http-equiv", "").split("<body")[0].replace("https://", "@").replace("<!--", "")
    assert "https://" not in page
    assert "/assets/explorer.js" in page
    assert "/assets/explorer.css" in page


def test_the_policy_allows_nothing_from_elsewhere(made):
    policy = made.server.test_client().get("/").headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "http" not in policy
    assert "unsafe-eval" not in policy
    scripts = next(part for part in policy.split(";") if "script-src" in part)
    assert "unsafe-inline" not in scripts
    assert "'sha256-" in scripts


def test_it_listens_on_this_computer_only(motifs, monkeypatch):
    monkeypatch.setenv("HOST", "0.0.0.0")
    server = bind(motifs, port=0)
    try:
        assert server.server_address[0] == "127.0.0.1"
        client = server.app.test_client()
        assert client.get("/", headers={"Host": f"localhost:{server.port}"}).status_code == 200
        assert client.get("/", headers={"Host": "elsewhere.example"}).status_code == 400
    finally:
        server.server_close()


def test_another_address_of_this_computer_serves_too(motifs):
    server = bind(motifs, host="127.0.0.2", port=0)
    try:
        response = server.app.test_client().get("/", headers={"Host": f"127.0.0.2:{server.port}"})
        assert '<html lang="en">' in response.get_data(as_text=True)
    finally:
        server.server_close()


def test_a_named_host_is_taken_with_a_warning(motifs, monkeypatch, capsys):
    monkeypatch.setattr("werkzeug.serving.BaseWSGIServer.serve_forever", lambda self: None)
    serve(motifs, host="0.0.0.0", port=0, open_browser=False)
    assert "Anyone who can reach this address" in capsys.readouterr().err


def test_another_host_must_be_named(motifs):
    with pytest.raises(InputError, match="host is empty"):
        serve(motifs, host="")
    with pytest.raises(InputError, match=r"Cannot listen on no\.such\.host\.invalid"):
        bind(motifs, host="no.such.host.invalid", port=0)
    with pytest.raises(InputError, match="port must be a number"):
        bind(motifs, port=70_000)


def test_a_port_in_use_is_named(motifs):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port}.*Choose another port"):
            bind(motifs, port=port)


def test_serve_says_where_and_opens_the_browser(motifs, monkeypatch, capsys):
    opened = threading.Event()
    monkeypatch.setattr("webbrowser.open", lambda url: opened.set())

    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr("werkzeug.serving.BaseWSGIServer.serve_forever", interrupted)
    serve(motifs, port=0)
    assert "Walkwise explorer: http://127.0.0.1:" in capsys.readouterr().err
    assert opened.wait(5)
    opened.clear()
    serve(motifs, port=0, open_browser=False)
    assert not opened.wait(0.6)


def _asked_for_the_walks(made, graph):
    """The server's answer to the question for a graph's walks, as the page asks it."""
    inputs = {"by": "relevance", "graph": graph, "target": 0}
    question = {
        "output": "walks.children",
        "outputs": {"id": "walks", "property": "children"},
        "inputs": [{"id": name, "property": "data", "value": value} for name, value in inputs.items()],
        "changedPropIds": ["graph.data"],
    }
    return made.server.test_client().post("/_dash-update-component", json=question).get_json()


def test_a_problem_carries_the_graph_it_belongs_to(molecules):
    made = app(molecules)
    misfit = len(molecules.graphs) - 1
    problem = _asked_for_the_walks(made, misfit)["sideUpdate"]
    assert list(problem) == ["problem"]
    assert problem["problem"]["data"]["graph"] == misfit
    assert "Error" in problem["problem"]["data"]["words"]
    assert "sideUpdate" not in _asked_for_the_walks(made, 0)

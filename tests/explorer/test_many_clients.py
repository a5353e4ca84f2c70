"""Many at once, and from elsewhere: every answer is the one its own question has."""

from __future__ import annotations

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from page_questions import question
from walkwise.explorer import app
from walkwise.explorer.serving import bind

SELECTION = ["relevance.children", "relevance.className", "relevance-words.children", "alpha-curve.figure"]


def questions(graphs):
    """Walks and relevance of every graph and both classes, each with a selection of its own."""
    for graph in range(graphs):
        for target in (0, 1):
            yield question(["walks.children"], {"by": "relevance", "graph": graph, "target": target}, "graph")
            inputs = {"selection": [graph, graph + 5], "alpha": 0.1 * graph, "graph": graph, "target": target}
            yield question(SELECTION, inputs, "selection")


def ask(client, asked):
    response = client.post("/_dash-update-component", json=asked)
    assert response.status_code == 200
    return response.get_json()


def post(server, path, content, **headers):
    """Posts to a server as any program may; the status, and what comes back."""
    url = f"http://127.0.0.1:{server.port}/{path}"
    try:
        with urlopen(Request(url, content, {"Content-Type": "application/json"} | headers), timeout=120) as response:
            return response.status, response.read()
    except HTTPError as error:
        return error.code, b""


def test_fifty_clients_at_once_get_their_own_answers(motifs, everywhere):
    alone, asked = app(motifs), list(questions(len(motifs.graphs)))
    expected = [ask(alone.server.test_client(), one) for one in asked]
    assert len({json.dumps(one, sort_keys=True) for one in expected}) == len(asked)  # no two alike
    begin = threading.Barrier(50)

    def client(number):
        first = number % len(asked)
        begin.wait()
        order = [*range(first, len(asked)), *range(first)][:4]
        return [
            (which, post(everywhere, "_dash-update-component", json.dumps(asked[which]).encode())) for which in order
        ]

    with ThreadPoolExecutor(50) as pool:
        for found in pool.map(client, range(50)):
            for which, (code, answer) in found:
                assert code == 200
                assert json.loads(answer) == expected[which]


def test_two_sessions_share_nothing(motifs, molecules):
    first, second = app(motifs), app(molecules)
    walks = question(["walks.children"], {"by": "relevance", "graph": 0, "target": 0}, "graph")
    before = ask(first.server.test_client(), walks)
    assert ask(second.server.test_client(), walks) != before
    assert ask(first.server.test_client(), walks) == before
    assert "Set-Cookie" not in first.server.test_client().get("/").headers  # all state is the tab's own


@pytest.fixture(scope="module")
def everywhere(motifs):
    """The explorer on every network of this computer."""
    server = bind(motifs, host="0.0.0.0", port=0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def status(server, host):
    asked = Request(f"http://127.0.0.1:{server.port}/", headers={"Host": host})
    try:
        with urlopen(asked, timeout=20) as response:
            return response.status
    except HTTPError as error:
        return error.code


def test_another_host_answers_to_addresses_and_its_own_names(everywhere):
    for host in ("127.0.0.1", "192.168.7.7:8050", "localhost", "[::1]:80"):
        assert status(everywhere, host) == 200, host
    for host in ("elsewhere.example", "elsewhere.example:80", "127.0.0.1.elsewhere.example", "localhost.example"):
        assert status(everywhere, host) == 400, host


def test_there_is_no_debugger_and_questions_have_a_largest_size(everywhere):
    assert not everywhere.app.debug
    assert post(everywhere, "_dash-update-component", b" " * (5 << 20))[0] == 413
    assert post(everywhere, "_dash-update-component", b"{}", Host="elsewhere.example")[0] == 400
    assert post(everywhere, "closed", b"x" * 1000)[0] == 413
    assert post(everywhere, "closed", b"17")[0] == 204
    with socket.create_connection(("127.0.0.1", everywhere.port), timeout=60) as raw:  # an address without end
        raw.sendall(b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b" 414 " in raw.recv(200)

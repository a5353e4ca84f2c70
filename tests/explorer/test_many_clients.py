"""Many at once, and from elsewhere: every answer is the one its own question has."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from walkwise.explorer import app
from walkwise.explorer.serving import bind

SELECTION = ["relevance.children", "relevance.className", "relevance-words.children", "alpha-curve.figure"]


def question(output, inputs, changed):
    """A question as the page asks it: outputs, and the values of what it depends on."""
    outputs = [dict(zip(("id", "property"), part.split("."), strict=True)) for part in output]
    several = len(output) > 1
    return {
        "output": f"..{'...'.join(output)}.." if several else output[0],
        "outputs": outputs if several else outputs[0],
        "inputs": [{"id": name, "property": "data", "value": value} for name, value in inputs.items()],
        "changedPropIds": [f"{changed}.data"],
    }


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


def test_fifty_clients_at_once_get_their_own_answers(motifs):
    alone, asked = app(motifs), list(questions(len(motifs.graphs)))
    expected = [ask(alone.server.test_client(), one) for one in asked]
    assert len({json.dumps(one, sort_keys=True) for one in expected}) == len(asked)  # no two alike
    served, begin = app(motifs), threading.Barrier(50)

    def client(number):
        mine, first = served.server.test_client(), number % len(asked)
        begin.wait()
        order = [*range(first, len(asked)), *range(first)][:4]
        return [(which, ask(mine, asked[which])) for which in order]

    with ThreadPoolExecutor(50) as pool:
        for found in pool.map(client, range(50)):
            for which, answer in found:
                assert answer == expected[which]


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
    response = everywhere.app.test_client().post(
        "/_dash-update-component", data=b" " * (5 << 20), content_type="application/json", headers={"Host": "localhost"}
    )
    assert response.status_code == 413

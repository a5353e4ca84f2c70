"""An order that nobody wants any more is given up, whichever way it is made, and nobody else waits for it."""

from __future__ import annotations

import itertools
import threading

import pytest

import walkwise as ww
from chains import ring
from page_questions import question
from waiting import eventually
from walkwise.errors import AbandonedError
from walkwise.evaluation import activation_along
from walkwise.explorer import answers, app
from walkwise.explorer.cases import Desk, open_case
from walkwise.questions.progress import shown, while_wanted


@pytest.fixture
def endless(monkeypatch):
    """Orders take for ever, until they are given up; what has begun and what was given up comes back."""
    seen = {"begun": [], "given up": []}

    def order(case, alpha):
        seen["begun"].append((case.graph, alpha))
        try:
            for _ in shown(itertools.count(), progress=False):
                threading.Event().wait(0.01)
        except AbandonedError:
            seen["given up"].append((case.graph, alpha))
            raise

    monkeypatch.setattr(answers, "order_answer", order)
    return seen


def ask_order(client, graph, tab, alpha=0.5):
    """Posts the question for an order, as the page does; what comes back."""
    asked = question(["order.data"], {"graph": graph, "target": None}, "graph")
    asked["inputs"].insert(0, {"id": "order-alpha", "property": "value", "value": alpha})
    asked["inputs"][1:1] = [{"id": name, "property": "n_clicks", "value": None} for name in ("play", "forward")]
    asked["state"] = [
        {"id": "order", "property": "data", "value": None},
        {"id": "tab", "property": "data", "value": tab},
    ]
    return client.post("/_dash-update-component", json=asked).get_json()["response"]


@pytest.mark.parametrize("how", ["another order", "another graph", "a large graph", "the tab is closed"])
def test_an_order_is_given_up_and_other_tabs_are_not(molecules, endless, how):
    server = app(molecules).server
    answered = {}

    def begin(tab):
        answered[tab] = ask_order(server.test_client(), 0, tab)

    threads = [threading.Thread(target=begin, args=[tab], daemon=True) for tab in ("mine", "other")]
    for thread in threads:
        thread.start()
    eventually(lambda: len(endless["begun"]), 2)
    client = server.test_client()
    then = None
    if how == "the tab is closed":
        assert client.post("/closed", data="mine").status_code == 204
    else:
        graph, alpha = {"another order": (0, 0.1), "another graph": (1, 0.5), "a large graph": (3, 0.5)}[how]
        then = threading.Thread(target=ask_order, args=[client, graph, "mine", alpha], daemon=True)
        then.start()
    eventually(lambda: endless["given up"], [(0, 0.5)])
    threads[0].join()
    assert answered == {"mine": {}}  # nothing to show; the other tab's order goes on
    for tab in ("mine", "other"):
        server.test_client().post("/closed", data=tab)
    for thread in [*threads, *([then] if then else [])]:
        thread.join()
    assert answered == {"mine": {}, "other": {}}


def stops_after(count):
    """Says that something is wanted so many times, and then that it is not."""
    left = iter(range(count))
    return lambda: next(left, None) is not None


@pytest.mark.parametrize(
    ("alpha", "width", "route"),
    [(0.5, 12, "all walks listed"), (0.0, 300, "every step from the surroundings"), (0.3, 300, "every step one batch")],
)
def test_every_way_to_an_order_can_be_given_up(alpha, width, route, monkeypatch):
    chain = ring(0, M=width)
    if route != "all walks listed":
        monkeypatch.setattr("walkwise.search.orders._MOST_ROWS", 1)
    if route == "every step one batch":  # which is for walks that may lead anywhere
        monkeypatch.setattr("walkwise.search.orders.step_neighbours", lambda chain: None)
    assert ww.order_nodes(chain, alpha=alpha).route.startswith(route)
    for steps in (0, 3):
        with while_wanted(stops_after(steps)), pytest.raises(AbandonedError):
            ww.order_nodes(chain, alpha=alpha)


def test_listing_walks_and_running_the_model_can_be_given_up(motif):
    with while_wanted(lambda: False):
        with pytest.raises(AbandonedError):
            ww.order_nodes(motif.chain)  # while it lists walks
        with pytest.raises(AbandonedError):
            activation_along(motif.prediction, range(25))


def test_tracing_one_case_holds_up_no_other(motifs, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()

    def slow(session, graph, view):
        if graph == 0:
            begun.set()
            assert go_on.wait(60)
        return open_case(session, graph, view)

    monkeypatch.setattr("walkwise.explorer.cases.open_case", slow)
    desk = Desk(motifs)
    found = []
    threads = [threading.Thread(target=lambda: found.append(desk.case(0)), daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert begun.wait(60)
    assert desk.case(1).graph == 1
    go_on.set()
    for thread in threads:
        thread.join()
    assert found[0] is found[1]  # traced once

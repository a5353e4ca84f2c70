"""How long the explorer's server takes for an answer, on a graph of MUTAG's size.

python benchmarks/explorer.py [--rounds N]

The first table times whole requests as the browser makes them, from JSON to JSON; the network and the drawing in the
browser are not in it. The second times the answers alone. A goal that is missed says MISSED.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import cases
import torch
from torch_geometric.data import Data

from walkwise import models
from walkwise.explorer import Session, answers, app
from walkwise.explorer.cases import Desk, open_case

GOAL = 0.1
GROUPS = {"left": [0, 1, 2, 3], "right": [10, 11, 12]}


def session() -> Session:
    """A molecule of MUTAG's size, and the paper's GIN with random weights."""
    case = cases.mutag()
    torch.manual_seed(0)
    return Session(models.build("mutag-gin3").eval(), [Data(case.x, case.edge_index)])


def spent(call: Callable[[], object], rounds: int) -> list[float]:
    """Seconds of every call, after one to warm up."""
    call()
    seconds = []
    for _ in range(rounds):
        begun = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begun)
    return sorted(seconds)


def row(what: str, seconds: list[float], *, goal: bool = True) -> None:
    worst = seconds[int(0.95 * (len(seconds) - 1))]
    verdict = "" if not goal else ("met" if worst <= GOAL else "MISSED")
    print(f"{what:44} {1e3 * statistics.median(seconds):9.1f} {1e3 * worst:9.1f}  {verdict}")


def requests(made: Any, num_nodes: int) -> dict[str, Callable[[], object]]:
    """The requests that the page makes, by what the user does."""
    client, rng = made.server.test_client(), random.Random(0)
    target = open_case(session(), 0).target

    def post(output: str, changed: str) -> Callable[[], object]:
        key = next(name for name in made.callback_map if output in name)
        wiring = made.callback_map[key]

        def call() -> object:
            nodes = rng.sample(range(num_nodes), rng.randint(1, num_nodes))
            values = {"selection": sorted(nodes), "alpha": rng.random(), "graph": 0, "target": target}
            values |= {"groups": GROUPS, "asked": ["left & right", 1], "by": "relevance"}
            inputs = [{**wire, "value": values.get(wire["id"])} for wire in wiring["inputs"]]
            state = [{**wire, "value": None} for wire in wiring["state"]]
            outputs = [dict(zip(("id", "property"), part.rsplit(".", 1), strict=True)) for part in _parts(key)]
            body = {"output": key, "inputs": inputs, "changedPropIds": [changed], "state": state}
            body["outputs"] = outputs if key.startswith("..") else outputs[0]
            response = client.post("/_dash-update-component", json=body)
            assert response.status_code == 200, response.get_data(as_text=True)
            return response.get_data()

        return call

    return {
        "select nodes: R_S and its curve over α": post("relevance.children", "selection.data"),
        "move α: R_S and its curve": post("relevance.children", "alpha.data"),
        "move α: greedy order, activation curve": post("order.data", "alpha.data"),
        "change groups: interaction bars": post("interactions.figure", "groups.data"),
        "ask a query": post("query-answer.children", "asked.data"),
        "sort walks anew: top 8, exact": post("walks.children", "by.data"),
        "show another class: structure, colours": post("structure.elements", "target.data"),
    }


def _parts(key: str) -> list[str]:
    return key.strip(".").split("...")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    shown = session()
    case = Desk(shown).case(0)
    print(f"{case.num_nodes} nodes, {case.chain.num_layers} layers; milliseconds\n")
    print(f"{'request':44} {'median':>9} {'95 %':>9}  goal: 95 % within {1e3 * GOAL:.0f}")
    for what, call in requests(app(shown), case.num_nodes).items():
        row(what, spent(call, rounds))
    print(f"\n{'answer alone':44} {'median':>9} {'95 %':>9}")
    row("R_S and its curve over α", spent(lambda: answers.selection_answer(case, [0, 1, 2], 0.3), rounds), goal=False)
    row("greedy order, activation curve", spent(lambda: answers.order_answer(case, 0.3), rounds), goal=False)
    row("top 8 walks", spent(lambda: answers.walks_answer(case), rounds), goal=False)
    row("interactions", spent(lambda: answers.groups_answer(case, GROUPS), rounds), goal=False)
    row("open a graph: predict, trace, draw", spent(lambda: open_case(shown, 0), rounds), goal=False)


if __name__ == "__main__":
    main()

"""Every class of torch_geometric.nn is tried, or said not to be and why."""

from pathlib import Path

from zoo import inventory

TESTS = Path(__file__).parents[1]


def test_every_class_is_tried_or_there_is_a_reason():
    found, tried = inventory.offered(), inventory.exercised()
    assert len(found) > 150
    listed = {*inventory.TESTED, *(name for names in inventory.NOT_TRIED.values() for name in names)}
    forgotten = [name for name, kind in found.items() if kind not in tried and name not in listed]
    assert not forgotten, (
        f"torch_geometric.nn has {', '.join(forgotten)}, which no test tries. Write an Entry with it in "
        "tests/zoo/readymade.py, exact or refused; or, where it is no model of graphs, name it with the reason in "
        "NOT_TRIED of tests/zoo/inventory.py. Then run python tests/zoo/table.py."
    )
    superfluous = [name for name in listed if found.get(name) in tried]
    assert not superfluous, (
        f"{', '.join(superfluous)} is in a model of the zoo: take the name off the lists of tests/zoo/inventory.py."
    )


def test_what_is_said_to_be_tested_is():
    for name, where in inventory.TESTED.items():
        assert f"{name}(" in (TESTS / where).read_text(encoding="utf-8"), f"{where} does not make a {name}"

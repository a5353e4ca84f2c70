"""Units of work: kept when done, computed again when their settings change, never half written."""

from __future__ import annotations

import pytest

from walkwise.errors import InputError
from walkwise.paper.units import Store, Unit


def counting(calls, name="table/a", **settings):
    def compute():
        calls.append(name)
        return [{"value": len(calls)}]

    return Unit(name, settings, compute)


def test_a_finished_unit_is_not_computed_again(tmp_path):
    calls = []
    first = Store(tmp_path / "units").run(counting(calls, alpha=0.1))
    again = Store(tmp_path / "units").run(counting(calls, alpha=0.1))
    assert calls == ["table/a"]
    assert (first.resumed, again.resumed) == (False, True)
    assert again.rows == first.rows == ({"value": 1},)
    assert again.seconds == first.seconds


@pytest.mark.parametrize("other", [{"alpha": 0.2}, {"alpha": 0.1, "beta": 0}, {}])
def test_other_settings_are_another_unit(tmp_path, other):
    calls, store = [], Store(tmp_path)
    store.run(counting(calls, alpha=0.1))
    assert not store.run(counting(calls, **other)).resumed
    assert len(calls) == 2


def test_a_unit_that_fails_leaves_nothing(tmp_path):
    def compute():
        raise KeyboardInterrupt

    unit = Unit("a", {}, compute)
    with pytest.raises(KeyboardInterrupt):
        Store(tmp_path).run(unit)
    assert Store(tmp_path).read(unit) is None
    assert list(tmp_path.iterdir()) == []


def test_a_spoilt_file_is_named(tmp_path):
    unit = Unit("a", {}, list)
    Store(tmp_path).path(unit).write_text("{")
    with pytest.raises(InputError, match="Remove it to have it computed again"):
        Store(tmp_path).run(unit)

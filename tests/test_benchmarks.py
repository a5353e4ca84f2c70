"""What the benchmarks say of themselves."""

import importlib
import sys
from pathlib import Path

import pytest

import walkwise as ww

ROOT = Path(__file__).parent.parent


@pytest.fixture
def ground_truth(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    for name in ("ground_truth", "known_truths"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("ground_truth")


def test_the_ground_truth_page_names_a_version(ground_truth, monkeypatch):
    tomllib = pytest.importorskip("tomllib")
    monkeypatch.setattr(ww, "__version__", "7.8.9")
    assert ground_truth.own_version() == "7.8.9"
    monkeypatch.setattr(ww, "__version__", "0+unknown")  # sources that are not installed
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert f"with walkwise {declared}, torch" in ground_truth.document({}, {}, "command", "", 1)
    assert "unknown" not in (ROOT / "docs" / "ground-truth.md").read_text(encoding="utf-8")

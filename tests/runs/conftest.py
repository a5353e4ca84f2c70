"""Small graphs and a model for them."""

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pandas")

from small_runs import Pooled, some_graphs


@pytest.fixture(scope="session")
def model():
    return Pooled().double().eval().requires_grad_(False)


@pytest.fixture(scope="session")
def graphs():
    return some_graphs(30)

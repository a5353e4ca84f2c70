"""Axes to draw on, without a screen."""

from __future__ import annotations

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import pytest


@pytest.fixture
def ax():
    """Axes of a paper column's width."""
    figure = plt.figure(figsize=(3.3, 2.6), layout="constrained")
    yield figure.add_subplot()
    plt.close("all")


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")

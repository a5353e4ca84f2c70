"""Recipes: one per model of the paper, and the command that follows them."""

import json
from dataclasses import replace

import pytest
import torch

from walkwise import datasets, models, recipes, training
from walkwise.errors import InputError


def test_every_model_has_a_recipe():
    assert sorted(recipes.RECIPES) == sorted(models.names())
    assert {recipe.data for recipe in recipes.RECIPES.values()} <= set(datasets.names())


@pytest.fixture
def hurried(monkeypatch):
    """One epoch will do."""
    short = {name: replace(recipe, epochs=1) for name, recipe in recipes.RECIPES.items()}
    monkeypatch.setattr(recipes, "RECIPES", short)


def test_the_command_writes_weights_and_a_table(tmp_path, hurried, capsys):
    recipes.main(
        ["ba2motif-gin2", "ba2motif-gin3", "--data", "ba2motif-generated", "--seed", "3", "--out", str(tmp_path)]
    )
    model, graphs = models.open_weights(tmp_path / "ba2motif-gin3.safetensors"), datasets.load("ba2motif-generated")
    row = json.loads((tmp_path / "ba2motif-gin3.json").read_text())
    accuracy = training.evaluate(model, graphs.graphs, graphs.test)[1]
    assert (row["test"], row["data"], row["seed"]) == (f"{accuracy:.2%}", "ba2motif-generated", 3)
    table = (tmp_path / "models.md").read_text().splitlines()
    assert [line.split(" | ")[0] for line in table[2:]] == ["| ba2motif-gin2", "| ba2motif-gin3"]
    assert "ba2motif-gin2: Training(1 epochs" in capsys.readouterr().out


def test_seeds(hurried):
    weights = [
        recipes.train_model("ba2motif-gin2", data="ba2motif-generated", seed=seed)[0].convs[0].nn[0].weight
        for seed in (1, 1, 2)
    ]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_unknown_recipe():
    with pytest.raises(InputError, match="Unknown model 'mutag'"):
        recipes.train_model("mutag")

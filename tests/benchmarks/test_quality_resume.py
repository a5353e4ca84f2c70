"""An interrupted run goes on where it stopped, and asks nothing twice."""

import json

import pytest
import torch
from quality import candidates, methods, planted, running, store
from quality.measures import Answer
from quality.methods import Method, PassedByError, all_methods
from quality.running import Plan, carry_out
from quality.store import Record, Run, Store, file_name
from quality.tasks import TASKS, Split, Task, UnavailableError


@pytest.fixture
def plan(monkeypatch):
    def load(seed, short):
        graphs = planted.many(planted.two_motifs(planted.tree, planted.house, planted.cycle), 40, seed)
        return Split(graphs[:20], graphs[20:25], graphs[25:])

    monkeypatch.setitem(TASKS, "tiny", Task("tiny", "", "graph", load))
    monkeypatch.setattr(Plan, "epochs", 2)
    monkeypatch.setattr(running, "ENOUGH", 0.0)
    monkeypatch.setattr(running, "explainable", always_right(running.explainable))
    monkeypatch.setattr(running, "FLUSH", 0.0)
    return Plan(("tiny",), ("gin-relu",), (0,), graphs=3, short=True)


def always_right(explainable):
    """Whatever little a network has learned, its graphs are explained."""

    def found(*given):
        right = running.is_right
        running.is_right = lambda *_: torch.tensor([True])
        yield from explainable(*given)
        running.is_right = right

    return found


class Asked:
    """A method that writes down what it was asked."""

    def __init__(self, name="asked", meaning="", stop=None):
        self.count, self.stop = 0, stop
        self.method = Method(name, "rule", self.answer, meaning)

    def answer(self, case):
        self.count += 1
        if self.count == self.stop:
            raise KeyboardInterrupt
        return Answer(torch.arange(float(case.prediction.num_nodes)))


def test_nothing_is_asked_twice(plan, tmp_path):
    asked, kept = Asked(), Store(tmp_path)
    carry_out(plan, [asked.method], kept)
    assert asked.count == 3
    weights = kept.models(plan.runs()[0]).read_bytes()
    carry_out(plan, [asked.method], kept)
    assert asked.count == 3
    carry_out(Plan(plan.tasks, plan.designs, plan.seeds, 5, True), [asked.method], kept)
    assert asked.count == 5  # the new graphs only
    assert kept.models(plan.runs()[0]).read_bytes() == weights


def test_an_interrupted_run_goes_on(plan, tmp_path):
    broken, kept = Asked(stop=3), Store(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        carry_out(plan, [broken.method], kept)
    again = Asked()
    carry_out(plan, [again.method], kept)
    assert again.count == 1
    whole = Asked()
    carry_out(plan, [whole.method], Store(tmp_path / "other"))
    run = plan.runs()[0]
    first, second = (
        json.loads(Store(folder).results(run, "asked").read_text())["graphs"]
        for folder in (tmp_path, tmp_path / "other")
    )
    for graphs in (first, second):
        for row in graphs.values():
            row.pop("seconds")
            row.pop("fidelity_plus"), row.pop("fidelity_minus"), row.pop("characterisation")  # of other weights
    assert first == second


def test_another_meaning_of_a_name_is_asked_anew(plan, tmp_path):
    kept = Store(tmp_path)
    carry_out(plan, [Asked(meaning="γ = 1").method], kept)
    other = Asked(meaning="γ = 3")
    carry_out(plan, [other.method], kept)
    assert other.count == 3


def test_a_method_added_later_is_asked_for_all(plan, tmp_path):
    kept, old, new = Store(tmp_path), Asked("old"), Asked("new")
    carry_out(plan, [old.method], kept)
    carry_out(plan, [old.method, new.method], kept)
    assert (old.count, new.count) == (3, 3)


def test_reasons_are_kept(plan, tmp_path, monkeypatch):
    def refuse(case):
        raise PassedByError("too large")

    kept, run = Store(tmp_path), plan.runs()[0]
    left = carry_out(plan, [Method("shy", "rule", refuse)], kept)
    assert left == {}
    assert set(json.loads(kept.results(run, "shy").read_text())["left"].values()) == {"too large"}

    def absent(seed, short):
        raise UnavailableError("no file")

    monkeypatch.setitem(TASKS, "tiny", Task("tiny", "", "graph", absent))
    assert carry_out(plan, [], Store(tmp_path / "other")) == {"tiny": "no file"}


def test_a_model_that_has_not_learned_is_dropped(plan, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "ENOUGH", 1.1)
    asked = Asked()
    left = carry_out(plan, [asked.method], Store(tmp_path))
    assert list(left) == ["tiny/gin-relu-0"]
    assert "test accuracy" in left["tiny/gin-relu-0"]
    assert asked.count == 0


def test_files_are_whole_or_absent(tmp_path):
    path = tmp_path / "a" / "b.json"
    store.write(path, {"a": 1})
    with pytest.raises(TypeError):
        store.write(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": 1}


def test_names_of_files_differ():
    names = [m.name for m in all_methods()[0]]
    assert len({file_name(name) for name in names}) == len(names)
    assert file_name("lrp, γ = 1") != file_name("lrp, α = 1")


def test_rules_that_do_not_exist_are_left_out_with_a_note(monkeypatch):
    unknown = {"no such": lambda bent: "no such", "zero": candidates.RULES["zero"]}
    monkeypatch.setattr(candidates, "ALL", unknown)
    found, left = all_methods(short=True)
    assert "Unknown rule 'no such'" in left["lrp, no such"]
    assert "lrp, zero" in [m.name for m in found]
    assert not {m.name for m in found} & set(methods.SLOW)


def test_a_record_knows_what_is_done():
    record = Record("", {"0": {}}, {"2": "why"})
    assert [record.done(n) for n in range(3)] == [True, False, True]
    assert Run("a", "b", 1).name == "a/b-1"


def test_a_new_default_rule_is_a_new_meaning():
    meanings = {m.name: m.meaning for m in all_methods(short=True)[0]}
    assert meanings["lrp"] == meanings["sgnn-lrp"] != ""
    assert meanings["lrp"] in {candidates.signature(name) for name in ("gamma", *unless_unknown("auto"))}
    assert meanings["gradient"] == ""


def unless_unknown(name):
    try:
        candidates.signature(name)
    except candidates.UnknownRuleError:
        return []
    return [name]

"""The demo: its numbers, its files, and its page."""

from __future__ import annotations

import base64
import random
import sys
from html.parser import HTMLParser

import pytest
import torch

import walkwise as ww
from walkwise import models
from walkwise.cli import showcase
from walkwise.datasets.ba2motif import generate
from walkwise.errors import MissingExtraError
from walkwise.page import Grid, Image, Section, render


class Page(HTMLParser):
    """What a page refers to, and what its pictures are called."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.pictures: list[dict[str, str | None]] = []
        self.open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "srcset", "action")]
        if tag == "img":
            self.pictures.append(named)
        elif tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def found():
    return showcase.motifs(4, 1)


def test_the_shown_numbers_are_the_library_s(found):
    motifs, _ = found
    motif = motifs[-1]
    graph = generate(4, seed=1)[motif.traced.number]
    chain = ww.trace(models.bundled("ba2motif"), graph.x, graph.edge_index, target=int(graph.y))
    sets = [motif.truth, list(motif.found.nodes), list(range(25)), *motif.others]
    wanted = ww.subgraph_relevance(chain, sets, alpha=[0.0, 0.3, 1.0])
    torch.testing.assert_close(motif.relevance([0.0, 0.3, 1.0]), wanted, rtol=1e-4, atol=1e-5)
    assert motif.rank == pytest.approx(float((wanted[3:, 0] < wanted[0, 0]).double().mean()))
    assert motif.truth == [20, 21, 22, 23, 24]


def test_the_tally_counts_what_was_found(found):
    motifs, tallies = found
    for label, tally in enumerate(tallies):
        own = [motif for motif in motifs if motif.traced.target == label]
        assert (tally.graphs, tally.right) == (2, len(own))
        assert tally.exact == sum(set(motif.found.nodes) == set(motif.truth) for motif in own)
        hits = [len(set(motif.found.nodes) & set(motif.truth)) for motif in own]
        assert tally.mean_hits == pytest.approx(sum(hits) / len(hits))


def test_random_sets_are_connected_and_never_the_motif(found):
    motif = found[0][0]
    edges = set(map(tuple, motif.traced.data.edge_index.t().tolist()))
    for nodes in motif.others[:50]:
        assert len(set(nodes)) == 5
        assert set(nodes) != set(motif.truth)
        assert all(any((u, v) in edges for u in nodes[:i]) for i, v in enumerate(nodes) if i)
    again = showcase.random_sets(motif.traced.data, 5, 10, random.Random(3))
    assert again == showcase.random_sets(motif.traced.data, 5, 10, random.Random(3))


def test_the_demo_writes_figures_and_one_page(run, tmp_path):
    pytest.importorskip("rdkit")
    ran = run("demo", "--graphs", 4, "--out", tmp_path / "demo")
    assert (ran.code, ran.err) == (0, "")
    for words in (
        "the house",
        "most relevant",
        "random, mean",
        "→",
        "found exactly",
        "1-nitropyrene",
        "flips",
        "Try next",
    ):
        assert words in ran.out
    files = {path.name for path in (tmp_path / "demo").iterdir()}
    names = (
        "overview",
        "graph",
        "alpha",
        "walks",
        "motifs",
        "1-nitropyrene",
        "2-nitronaphthalene",
        "groups",
        "removal",
    )
    assert {f"{name}.{ending}" for name in names for ending in ("png", "svg")} | {"report.html"} <= files
    page = Page((tmp_path / "demo" / "report.html").read_text(encoding="utf-8"))
    assert page.open == []
    assert len(page.pictures) == 9
    assert all(address.startswith("data:image/svg+xml;base64,") for address in page.addresses)
    assert all(len(picture["alt"] or "") > 20 for picture in page.pictures)
    shown = (tmp_path / "demo" / "2-nitronaphthalene.svg").read_bytes()
    assert base64.b64decode(page.pictures[0]["src"].partition(",")[2]) == shown


def test_no_words_run_out_of_a_figure_at_its_sides(run, tmp_path, monkeypatch):
    pytest.importorskip("rdkit")
    pytest.importorskip("matplotlib")
    from matplotlib.axis import Tick
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    from walkwise.cli import figures

    seen, save = [], figures.Picture.save

    def look_and_save(picture, folder):
        saved = save(picture, folder)
        figure = picture.figure
        renderer = FigureCanvasAgg(figure).get_renderer()
        ticks = {id(words) for tick in figure.findobj(Tick) for words in tick.findobj(Text)}  # some beyond the axes
        for words in figure.findobj(Text):
            if words.get_visible() and words.get_text().strip() and id(words) not in ticks:
                box = words.get_window_extent(renderer)
                inside = box.x0 >= -1 and box.x1 <= figure.bbox.width + 1  # but for rounding
                assert inside, f"{words.get_text()!r} runs out of {picture.name}"
                seen.append(picture.name)
        return saved

    monkeypatch.setattr(figures.Picture, "save", look_and_save)
    assert run("demo", "--graphs", 4, "--out", tmp_path).code == 0
    assert len(set(seen)) == 10


def test_without_rdkit_and_matplotlib_the_rest_is_shown(run, tmp_path, monkeypatch):
    def missing():
        raise MissingExtraError("Reading SMILES needs RDKit: pip install 'walkwise[chem]'.")

    monkeypatch.setattr(showcase, "molecules", missing)
    monkeypatch.delitem(sys.modules, "walkwise.plotting", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    report = run("demo", "--graphs", 4, "--out", tmp_path, "--json").json
    assert (report["figures"], report["molecules"]) == ([], [])
    assert [line.partition(".")[0] for line in report["skipped"]] == ["Molecules are left out", "Figures are left out"]
    assert "walkwise[chem]" in report["skipped"][0]
    assert "walkwise[viz]" in report["skipped"][1]
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Motifs in graphs" in html
    assert "<img" not in html


def test_the_page_writes_text_as_text():
    grid = Grid("<b>", ["<i>", ">n"], [("a & b", 1.5)], note="<u>")
    image = Image(b"<svg/>", 'say "x"', "<s>", width="third")
    html = render("<title>", "<lead>", [Section("<h>", "<p>", (grid,), (image,))], commands=["a && b"], foot="<f>")
    for raw in ("<b>", "<i>", "<u>", "<s>", "<lead>", "<h>", "<f>", "a && b"):
        assert raw not in html
    page = Page(html)
    assert page.pictures[0]["alt"] == 'say "x"'
    assert '<td class="right">1.5</td>' in html


def test_the_story_of_the_molecules_is_true():
    pytest.importorskip("rdkit")
    found = {one.name: one for one in showcase.molecules()}
    moves, holds = found["2-nitronaphthalene"], found["1-nitropyrene"]
    assert moves.check.whole.says == holds.check.whole.says == holds.check.without.says == "mutagenic"
    assert moves.check.without.says == "non-mutagenic"
    assert moves.group == holds.group == "NO2"
    assert {found[name].check.whole.says for name in ("paracetamol", "toluene")} == {"non-mutagenic"}
    for name in ("2-nitronaphthalene", "1-nitropyrene", "4-aminobiphenyl", "styrene oxide", "N-nitrosodiethylamine"):
        assert found[name].relevance > 0.4 * found[name].check.whole.output
    two = found["4-(2-nitroethyl)nitrobenzene"]
    assert two.terms["NO2_on_ring"] > 3 * two.terms["NO2_on_chain"] > 0

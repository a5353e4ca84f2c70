"""The demo's findings in words and tables: what is printed, and what its page says beside the pictures."""

from __future__ import annotations

from collections.abc import Sequence

from walkwise.cli.output import listed, number
from walkwise.cli.page import Grid, Section
from walkwise.cli.showcase import ALPHAS, Molecule, Motif, Tally
from walkwise.search.best_walks import TopWalks

_ALPHA_NOTE = "α = 0: walks that never leave the set; α = 1: all walks that touch it. Random: {} connected sets of {}."
_TRUTH_NOTE = (
    "To tell two classes apart, a model may look for one motif and take the other class for what is left. Rank: the "
    "share of random connected sets with less relevance than the motif."
)


def of_motifs(shown: Motif, tallies: Sequence[Tally]) -> Section:
    """The graphs: one at length, and how the motif was found in all of them."""
    asked = shown.asked
    name = asked.class_name
    right, graphs = sum(tally.right for tally in tallies), sum(tally.graphs for tally in tallies)
    words = (
        f"A small GIN that tells cycles from houses gets {right} of {graphs} graphs right that were made just now. "
        f"Here is the first with a {name}. Its output for “{name}” is {asked.chain.output:.3g}; all walks together "
        f"have {asked.chain.input_relevance:.3g}, and biases took {number(asked.chain.bias_leak)}. Of the five nodes "
        f"of the {name}, {shown.hits} are in the most relevant connected set of five."
    )
    return Section("Motifs in graphs", words, (_sets(shown, name), _walks(shown, name), _truth(tallies)))


def _sets(shown: Motif, name: str) -> Grid:
    relevance = shown.relevance(ALPHAS)  # (B, A)
    others = relevance[3:]
    rows = [
        (f"the {name}", listed(shown.truth), *relevance[0].tolist()),
        ("most relevant", listed(shown.found.nodes), *relevance[1].tolist()),
        ("random, highest", "", *others.amax(dim=0).tolist()),
        ("random, mean", "", *others.mean(dim=0).tolist()),
        ("whole graph", f"all {shown.asked.chain.num_nodes}", *relevance[2].tolist()),
    ]
    columns = ["set", "nodes", *(f">α = {alpha:g}" for alpha in ALPHAS)]
    note = _ALPHA_NOTE.format(len(others), len(shown.truth))
    return Grid("Relevance of sets of nodes", columns, rows, note)


def _walks(shown: Motif, name: str) -> Grid:
    truth = set(shown.truth)
    rows = [
        (" → ".join(map(str, walk)), relevance, f"{sum(node in truth for node in walk)} of {len(walk)} visits")
        for walk, relevance in zip(shown.walks.walks.tolist(), shown.walks.relevance.tolist(), strict=True)
    ]
    title = f"The {len(rows)} most relevant of {shown.walks.num_walks} walks"
    return Grid(title, ["walk", ">relevance", f"in the {name}"], rows)


def _truth(tallies: Sequence[Tally]) -> Grid:
    rows = [
        (
            t.class_name,
            t.right,
            f"{t.exact} of {t.right}",
            f"{t.mean_hits:.1f} of 5",
            t.mean_auroc,
            f"{t.mean_rank:.0%}",
        )
        for t in tallies
    ]
    columns = ["motif", ">graphs", ">found exactly", ">nodes found", ">node AUROC", ">rank"]
    return Grid("What was found against the truth, in all graphs", columns, rows, _TRUTH_NOTE, wide=True)


def of_molecules(molecules: Sequence[Molecule]) -> Section:
    """The molecules: what their groups have, and the walks of the first."""
    first = molecules[0]
    name = first.asked.session.names[first.asked.number]
    words = (
        "A GIN trained on MUTAG is asked what speaks for “mutagenic” in molecules given as SMILES. Walks are sorted by "
        "the groups they visit: those within the carbons, those within the other atoms, and those that visit both. "
        "The model is for demonstration, not a judge of molecules."
    )
    return Section("Molecules", words, (_groups(molecules), _molecule_walks(first.walks, first.asked.labels, name)))


def _groups(molecules: Sequence[Molecule]) -> Grid:
    rows = []
    for one in molecules:
        asked, groups = one.asked, tuple(one.groups)
        said = asked.session.class_name(int(asked.prediction.logits.argmax()))
        others = (groups[1], one.terms[groups[1]], one.terms[groups]) if len(groups) > 1 else ("", None, None)
        rows.append((asked.session.names[asked.number], said, asked.chain.output, one.terms["carbons"], *others))
    columns = ["molecule", "the model says", ">output", ">carbons", "other group", ">alone", ">with carbons"]
    note = "Output: the logit of “mutagenic”. The groups' terms add up to it, but for what biases took."
    return Grid("What groups of atoms have alone and together", columns, rows, note, wide=True)


def _molecule_walks(walks: TopWalks, labels: Sequence[str], name: str) -> Grid:
    rows = [
        (" → ".join(f"{labels[node]}{node}" for node in walk), relevance)
        for walk, relevance in zip(walks.walks.tolist(), walks.relevance.tolist(), strict=True)
    ]
    return Grid(f"{name}: the {len(rows)} largest of {walks.num_walks} walks", ["walk", ">relevance"], rows)

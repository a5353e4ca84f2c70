"""The demo's findings in words and tables, for printing and for its page."""

from __future__ import annotations

from collections.abc import Sequence

from walkwise.cli.output import listed
from walkwise.cli.showcase import ALPHAS, Molecule, Motif, Tally
from walkwise.explanation import Outcome
from walkwise.page import Grid, Section, number
from walkwise.search.best_walks import TiedWalks

_ALPHA_NOTE = "α = 0: walks that never leave the set; α = 1: all walks that touch it. Random: {} connected sets of {}."
_TRUTH_NOTE = (
    "To tell two classes apart, a model may look for one motif and assign everything else to the other class. Rank: "
    "the share of random connected sets with less relevance than the motif."
)


def of_motifs(shown: Motif, tallies: Sequence[Tally]) -> Section:
    """The graphs: one in detail, and how well the motif was found in all of them."""
    traced = shown.traced
    name = traced.class_name
    right, graphs = sum(tally.right for tally in tallies), sum(tally.graphs for tally in tallies)
    words = (
        f"A small GIN that tells cycles from houses gets {right} of {graphs} newly generated graphs right. "
        f"Here is the first with a {name}. Its output for “{name}” is {traced.chain.output:.3g}; all walks sum to "
        f"{traced.chain.input_relevance:.3g}, and biases absorb {number(traced.chain.bias_leak)}. Of the five nodes "
        f"of the {name}, {shown.hits} are in the most relevant connected set of five."
    )
    return Section("Motifs in graphs", words, (_sets(shown, name), _walks(shown, name), _truth(tallies)))


def _sets(shown: Motif, name: str) -> Grid:
    relevance = shown.relevance(ALPHAS)  # (B, A)
    others = relevance[3:]
    rows = [
        (f"the {name}", listed(shown.truth), *relevance[0].tolist()),
        ("most relevant", listed(shown.found.numbers), *relevance[1].tolist()),
        ("random, highest", "", *others.amax(dim=0).tolist()),
        ("random, mean", "", *others.mean(dim=0).tolist()),
        ("whole graph", f"all {shown.traced.chain.num_nodes}", *relevance[2].tolist()),
    ]
    columns = ["set", "nodes", *(f">α = {alpha:g}" for alpha in ALPHAS)]
    note = _ALPHA_NOTE.format(len(others), len(shown.truth))
    return Grid("Relevance of sets of nodes", columns, rows, note)


def _walks(shown: Motif, name: str) -> Grid:
    truth = set(shown.truth)
    rows = [
        (tie.words(), _amount(tie), tie.relevance, f"{sum(node in truth for node in nodes)} of {len(nodes)}")
        for tie in shown.walks.tied
        for nodes in tie.walks[:1].tolist()
    ]
    title = f"The {len(shown.walks.walks)} most relevant of {shown.walks.num_walks} walks"
    return Grid(title, ["walk", ">walks", ">relevance of each", f">visits in the {name}"], rows)


def _amount(tie: TiedWalks) -> str:
    """How many walks tie, as a cell says it."""
    return f"{len(tie.walks)}{'' if tie.complete else ' or more'}"


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
    return Grid("What was found compared with the truth, in all graphs", columns, rows, _TRUTH_NOTE, wide=True)


def of_molecules(molecules: Sequence[Molecule]) -> Section:
    """The molecules: what each prediction rests on, and whether removing it changes the prediction."""
    holds, moves = _named(molecules, "1-nitropyrene"), _named(molecules, "2-nitronaphthalene")
    words = (
        "A GIN trained on Mutagenicity is asked what speaks for “mutagenic” and not for “non-mutagenic”. In "
        f"2-nitronaphthalene it is the nitro group, as textbooks have it: the output is {_out(moves.check.whole)}, and "
        f"without the group {_out(moves.check.without)}, so the prediction flips. In 1-nitropyrene the group "
        f"matters as much, but removing it leaves {_out(holds.check.without)} of {_out(holds.check.whole)}: pyrene's "
        "four fused rings are enough for the model, and the walks within the rings say so. The model is for "
        "demonstration, not a judge of molecules."
    )
    first = moves
    return Section("Molecules", words, (_removals(molecules), _terms(molecules), _molecule_walks(first)))


def _named(molecules: Sequence[Molecule], name: str) -> Molecule:
    return next(one for one in molecules if one.name == name)


def _out(outcome: Outcome) -> str:
    return number(round(outcome.output, 2))


def _removals(molecules: Sequence[Molecule]) -> Grid:
    rows = []
    for one in molecules:
        check = one.check
        then = "flips" if check.whole.says != check.without.says else "holds"
        group = one.group.replace("_", " ")
        rows.append((one.name, check.whole.output, group, one.relevance, check.without.output, then))
    columns = ["molecule", ">output", "group", ">its relevance", ">output without it", "then"]
    note = (
        "Output: the logit of “mutagenic” minus that of “non-mutagenic”; above 0, the model says mutagenic. "
        "Relevance: that of all walks that visit the group. Without: the model's output on the molecule with these "
        "atoms removed; its prediction then flips, or it holds."
    )
    return Grid("Explain, remove, ask again", columns, rows, note, wide=True)


def _terms(molecules: Sequence[Molecule]) -> Grid:
    """What groups carry alone and together, where one group stands in two places."""
    one = next(one for one in molecules if len(one.groups) > 2)
    ranked = sorted(one.terms.terms.items(), key=lambda item: -abs(item[1]))[:6]
    rows = [(" + ".join(names).replace("_", " "), value) for names, value in ranked]
    note = "Each of these walks visits every named group, and no other atom."
    return Grid(f"{one.name}: what groups carry alone and together", ["groups", ">relevance"], rows, note)


def _molecule_walks(molecule: Molecule) -> Grid:
    walks = molecule.walks
    rows = [(tie.words(molecule.traced.labels), _amount(tie), tie.relevance) for tie in walks.tied]
    title = f"{molecule.name}: the {len(walks.walks)} most relevant of {walks.num_walks} walks"
    return Grid(title, ["walk", ">walks", ">relevance of each"], rows)

"""Does the bundled model "mutagenicity" see what textbooks warn of? Relevance against structural alerts, by SMARTS.

    python benchmarks/alerts.py DATA        # the folder of data sets; about two minutes on one core

Of every held-out molecule with an alert that the model calls mutagenic: the AUROC of the atoms' relevance (mutagenic
against non-mutagenic) for being an atom of the alert, and whether the most relevant connected set of as many atoms as
the alert has is, in the larger part, the alert itself. Molecules with several kinds of alerts count for none.
"""

import sys
from collections import defaultdict
from statistics import mean

import torch

import walkwise as ww
from walkwise import datasets, models, smarts
from walkwise.datasets.tu import MUTAGENICITY_ATOMS
from walkwise.evaluation import motif_auroc

torch.set_num_threads(1)


def rows(root, most=None):
    """For every alert: its name, molecules, how many the model calls mutagenic, mean AUROC, share found."""
    graphs, model = datasets.load("mutagenicity-hydrogens", root=root), models.bundled("mutagenicity")
    found, seen = defaultdict(list), defaultdict(int)
    for number in graphs.test.tolist()[:most]:
        data = graphs.graphs[number]
        symbols = [MUTAGENICITY_ATOMS[i] for i in data.x[:, : len(MUTAGENICITY_ATOMS)].argmax(1).tolist()]
        patterns = {name.replace(" ", "_"): pattern for name, pattern in smarts.STRUCTURAL_ALERTS.items()}
        alerts = smarts.groups(data, symbols=symbols, **patterns)
        if len(alerts) != 1:
            continue
        ((name, atoms),) = alerts.items()
        name = name.replace("_", " ")
        seen[name] += 1
        chain = ww.trace(model, data, target=1, against=0)
        if chain.output > 0 and len(atoms) < data.num_nodes:
            best = ww.find_subgraph(chain, len(atoms), connected=False).nodes
            found[name].append((motif_auroc(ww.node_relevance(chain), atoms), 2 * len({*best} & {*atoms}) > len(atoms)))
    for name in smarts.STRUCTURAL_ALERTS:
        if seen[name]:
            aurocs, hits = zip(*found[name], strict=True) if found[name] else ((), ())
            yield name, seen[name], len(hits), mean(aurocs) if aurocs else None, mean(hits) if hits else None


def main():
    print("| alert | held-out molecules | called mutagenic | AUROC of its atoms | found |")
    print("|---|---|---|---|---|")
    for name, molecules, called, auroc, share in rows(sys.argv[1] if len(sys.argv) > 1 else None):
        score = "" if auroc is None else f"{auroc:.2f} | {share:.0%}"
        print(f"| {name} | {molecules} | {called} | {score} |")


if __name__ == "__main__":
    main()

"""The paper's own numbers, to compare ours with."""

from __future__ import annotations

from collections.abc import Mapping

#: Table 3, in ms: naive GNN-LRP (None where it failed) and sGNN-LRP, on a Xeon E5-2620 CPU with 8 GB of memory.
TABLE_3: Mapping[str, tuple[float | None, float]] = {
    "ba2motif-gin3": (224.22, 4.22),
    "ba2motif-gin5": (6.07e3, 6.44),
    "ba2motif-gin7": (1.42e5, 9.81),
    "mutag-gin3": (4.23e3, 28.90),
    "mutagenicity-gin3": (4.28e3, 26.68),
    "reddit-binary-gin5": (None, 195.43),
    "graph-sst2-gcn3": (3.16e5, 29.94),
}

#: Figure 5, from the authors' result files: accuracy, AUROC, and AUAC on the softmax probability, by α.
FIGURE_5: Mapping[float, Mapping[str, float]] = {
    0.0: {"accuracy": 0.9812, "auroc": 0.9928, "auac": 0.9152},
    0.5: {"accuracy": 0.9204, "auroc": 0.9373, "auac": 0.9067},
    1.0: {"accuracy": 0.7844, "auroc": 0.6803, "auac": 0.8184},
}

#: Figure 6, from the authors' result files: sGNN-LRP by data set, mode, graphs and α. Graph-SST2 is the published set.
FIGURE_6: Mapping[tuple[str, str, str], Mapping[float, float]] = {
    ("mutag", "activation", "positive"): {0.0: -5.6676, 0.5: -4.9896, 1.0: -2.9316},
    ("mutag", "activation", "negative"): {0.0: 11.7828, 0.5: 11.8181, 1.0: 9.2649},
    ("mutag", "pruning", "positive"): {0.0: 13.2652, 0.5: 13.1414, 1.0: 14.1414},
    ("mutag", "pruning", "negative"): {0.0: 5.8486, 0.5: 5.715, 1.0: 7.0696},
    ("graph-sst2", "activation", "positive"): {0.0: 4.9788, 0.5: 4.9761, 1.0: 3.5162},
    ("graph-sst2", "activation", "negative"): {0.0: 5.901, 0.5: 5.9101, 1.0: 4.1713},
    ("graph-sst2", "pruning", "positive"): {0.0: 3.8275, 0.5: 3.8969, 1.0: 5.5343},
    ("graph-sst2", "pruning", "negative"): {0.0: 3.8801, 0.5: 3.9459, 1.0: 5.8137},
}

#: The same for the other methods at α = 0, on 200 graphs drawn at random with replacement.
FIGURE_6_OTHERS: Mapping[tuple[str, str, str], Mapping[str, float]] = {
    ("mutag", "activation", "positive"): {"GNNExplainer": -4.4808, "Gradient": -4.9373, "CAM": -4.9652},
    ("mutag", "activation", "negative"): {"GNNExplainer": 10.0677, "Gradient": 10.4194, "CAM": 10.1955},
    ("mutag", "pruning", "positive"): {"GNNExplainer": 13.3150, "Gradient": 13.6288, "CAM": 12.9777},
    ("mutag", "pruning", "negative"): {"GNNExplainer": 6.6934, "Gradient": 6.6424, "CAM": 6.5386},
    ("graph-sst2", "activation", "positive"): {"GNNExplainer": 4.3110, "Gradient": 3.8960, "CAM": 4.1635},
    ("graph-sst2", "activation", "negative"): {"GNNExplainer": 5.4669, "Gradient": 4.8108, "CAM": 5.5186},
    ("graph-sst2", "pruning", "positive"): {"GNNExplainer": 3.6909, "Gradient": 3.9614, "CAM": 3.4162},
    ("graph-sst2", "pruning", "negative"): {"GNNExplainer": 4.1337, "Gradient": 4.6688, "CAM": 3.8854},
}

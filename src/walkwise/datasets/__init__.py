"""The paper's five data sets (appendix H): `load` by name, with the paper's split.

>>> from walkwise import datasets
>>> datasets.names()
['ba2motif', 'ba2motif-generated', 'mutag', 'mutagenicity', 'mutagenicity-hydrogens', 'reddit-binary', 'graph-sst2']
>>> graphs = datasets.load("ba2motif-generated")
>>> graphs.graphs[0]
Data(x=[25, 1], edge_index=[2, 50], y=[1], ground_truth=[25])
"""

from walkwise.datasets import ba2motif, molecules, sentiment, tu
from walkwise.datasets.graphset import Graphs, GraphSet, Statistics, pack
from walkwise.datasets.registry import data_root, load, names, register

__all__ = [
    "GraphSet",
    "Graphs",
    "Statistics",
    "ba2motif",
    "data_root",
    "load",
    "molecules",
    "names",
    "pack",
    "register",
    "sentiment",
    "tu",
]

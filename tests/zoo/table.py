"""The table of architectures in the documentation: ``python tests/zoo/table.py`` writes docs/coverage.md."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from zoo.checks import checked
from zoo.inventory import ALL, NOT_TRIED

PAGE = Path(__file__).parents[2] / "docs" / "coverage.md"
_HEAD = """# Architectures, one by one

{count} architectures of PyTorch Geometric, its examples, OGB and common idioms, written after the originals in small
sizes: {exact} exact, {refused} refused for the reason given. The tests check every line of this page, which
`python tests/zoo/table.py` writes; for a description in words see [which models are covered](guides/coverage.md).

*Exact*: under LRP-0 and under the default rule, all walks, listed one by one, sum to the relevance of every subgraph
asked for and of the whole graph. Moreover, under LRP-0 the relevance of every input feature equals gradient times input
of the model itself, run by plain autograd with everything detached that relevance holds constant (gates, attention,
statistics of normalisations, h / z of activations). If features are whole numbers, this is that of their embeddings,
with what is learned and added to them before the first layer.

*Cost*: the rows that a question about a subgraph S carries. *S*: the rows of S, plus those of the edges into S if a
message is not a weight times the neighbour's row (but a matrix or a perceptron for every edge). *The ball*: also the
rows of nodes around S from which messages can return, if messages are passed several times between two positions of a
walk, or from edge to edge. *The graph*: the rows of all nodes, if rows are mixed other than along edges (by attention
over all nodes, a virtual node, a matrix that stands for edges).
"""
_TAIL = """## Not tried

The tests compare every public class of `torch_geometric.nn` with this page: a class is in a model above, in another
test, or in this list.

"""


def _unbroken(words: str) -> str:
    """Two words, which stay in one line beside a long reason."""
    return "\N{NO-BREAK SPACE}".join(words.split(" ")) if words.count(" ") == 1 else words


def page(results) -> str:
    """The page of these results."""
    exact = sum(result.result.startswith("exact") for result in results)
    refused = sum(result.result.startswith("refused") for result in results)
    parts = [_HEAD.format(count=len(results), exact=exact, refused=refused)]
    for origin in dict.fromkeys(result.origin for result in results):
        rows = [
            f"| {r.name} | {r.layers} | {_unbroken(r.route)} | {_unbroken(r.cost)} | {r.result} |"
            for r in results
            if r.origin == origin
        ]
        title = origin[0].upper() + origin[1:]
        head = "| model | layers | route | cost | result |\n|---|---|---|---|---|\n"
        parts.append(f"## {title}\n\n{head}" + "\n".join(rows) + "\n")
    rows = [f"| {why} | {', '.join(names)} |" for why, names in NOT_TRIED.items()]
    parts.append(_TAIL + "| they … | classes |\n|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page([checked(entry) for entry in ALL]), encoding="utf-8")

"""The table of architectures in the documentation: ``python tests/zoo/table.py`` writes docs/coverage.md."""

import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "coverage.md"
_HEAD = """# Architectures, one by one

{count} architectures of PyTorch Geometric, its examples, OGB and common idioms, written after the originals in small
sizes: {exact} exact, {refused} refused for the reason given. The tests check every line of this page, which
`python tests/zoo/table.py` writes; [which models are covered](guides/coverage.md) says it in words.

*Exact*: under LRP-0 and under the default rule, all walks, listed one by one, sum to the relevance of every subgraph
asked for and of the whole graph. Moreover, under LRP-0 the relevance of every input feature is gradient times input of
the model itself, run by plain autograd with everything detached that relevance holds constant (gates, attention,
statistics of normalisations, h / z of activations); where features are whole numbers, that of their embedding.
"""


def page(results) -> str:
    """The page of these results."""
    exact = sum(result.result.startswith("exact") for result in results)
    refused = sum(result.result.startswith("refused") for result in results)
    parts = [_HEAD.format(count=len(results), exact=exact, refused=refused)]
    for origin in dict.fromkeys(result.origin for result in results):
        rows = [f"| {r.name} | {r.layers} | {r.route} | {r.result} |" for r in results if r.origin == origin]
        title = origin[0].upper() + origin[1:]
        parts.append(f"## {title}\n\n| model | layers | route | result |\n|---|---|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from zoo.checks import checked
    from zoo.models import ZOO

    PAGE.write_text(page([checked(entry) for entry in ZOO]), encoding="utf-8")

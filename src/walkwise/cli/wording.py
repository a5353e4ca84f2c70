"""The library's errors in the words of the command line: options in place of Python arguments; paragraphs, plurals."""

from __future__ import annotations

import inspect
import re

#: What the library says, and what the command says instead.
_SAID = (
    (r"index=\d+ is out of range: the output has 1 rows, 0 to 0\.", "{one_output}"),
    (r"\b(index|target)=(\d+) is out of range", r"--\1 \2 is out of range"),
    (
        r"For a node-level model (?:give|pass) index=<[^>]*>(?:; for several graphs pass batch=<[^>]*>)?\.",
        "Of a model with an output per node, name the node to explain: --index 0, say.",
    ),
    (r" but the input has 1 graph\(s\)", ""),
    (
        r"(?:Give a callable target|Select from it with target=lambda output: \.\.\.(?: \(a differentiable scalar\))?)"
        r"(?:\.|$)",
        "Wrap the model in one that returns (rows, columns), a row per graph or per node.",
    ),
    (r"with root= or", "with --data or"),
    (
        r"Build the model and use load_weights\(model, path\)\.",
        "Name the model, and this file with --weights.",
    ),
    (r"or ask query, which allows it", "or ask with --query, which allows it"),
    (r", or pass connected=False", ": --size"),
    (r"(\d+) column\(s\)", lambda found: count(int(found[1]), "column")),
)

ONE_OUTPUT = "{} has one output for the whole graph, not one per node: leave out --index."


def in_options(message: str, model: str = "The model") -> str:
    """A message of the library as the command line says it.

    Args:
        message: what the library says.
        model: what the model is called.

    >>> in_options("target=7 is out of range: the output has 1 column(s), 0 to 0.")
    '--target 7 is out of range: the output has 1 column, 0 to 0.'
    """
    for pattern, words in _SAID:
        message = re.sub(pattern, words, message)
    return message.replace("{one_output}", ONE_OUTPUT.format(model))


def paragraphs(docstring: str) -> str:
    r"""The text with a line for every paragraph: the terminal, not the source, says where lines end.

    >>> paragraphs("Title.\n\n    One line\n    and another.\n")
    'Title.\n\nOne line and another.'
    """
    return re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(docstring))


def count(number: int, thing: str) -> str:
    """So many of a thing.

    >>> count(1, "node"), count(2, "node"), count(0, "graph")
    ('1 node', '2 nodes', '0 graphs')
    """
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"

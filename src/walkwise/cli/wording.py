"""The library's errors in the words of the command line: options instead of arguments; paragraphs, plurals."""

from __future__ import annotations

import inspect
import re

from walkwise.errors import LEFT_OUT, MissingDataError, WalkwiseError

#: The library's arguments that have an option, and the option's name.
_OPTIONS = {"target": "--target", "against": "--against", "index": "--index"}

#: What to do, in place of the library's own advice, by the argument that does not fit.
_REMEDIES = {
    "output": "Wrap the model in one that returns (rows, columns), a row per graph or per node.",
    "index": "For a model with an output per node, give the node to explain, for example --index 0.",
    "metadata": "Name the model, and give this file with --weights.",
}

ONE_OUTPUT = "{} has one output for the whole graph, not one per node: leave out --index."


def in_options(error: WalkwiseError, model: str = "The model") -> str:
    """An error of the library as the command line says it: options in place of arguments, from the error's fields.

    Args:
        error: what the library raised.
        model: what the model is called.

    >>> from walkwise.errors import InputError
    >>> in_options(InputError(argument="target", expected="a column of the output, 0 to 1", got=7))
    '--target must be a column of the output, 0 to 1, got 7.'
    """
    option, remedy = _OPTIONS.get(error.argument or ""), error.remedy
    if isinstance(error, MissingDataError):
        return str(error)
    if option == "--index" and error.expected == LEFT_OUT:
        return ONE_OUTPUT.format(model)
    if option and error.got is not None and error.expected:
        return f"{option} must be {error.expected}, got {error.got}."
    if remedy is None:
        return str(error)
    return f"{error.problem} {_REMEDIES.get(error.argument or '', remedy)}"


def option_of(error: WalkwiseError) -> str | None:
    """The argument that does not fit, by the name of its option where it has one."""
    return _OPTIONS.get(error.argument or "", error.argument)


def paragraphs(docstring: str) -> str:
    r"""The text with a line for every paragraph: the terminal, not the source, says where lines end.

    >>> paragraphs("Title.\n\n    One line\n    and another.\n")
    'Title.\n\nOne line and another.'
    """
    return re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(docstring))

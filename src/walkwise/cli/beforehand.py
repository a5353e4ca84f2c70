"""Checks of a question, and its first words, before PyTorch is imported, which takes seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from walkwise.cli.names import BUNDLED, CLASSES, GRAPHS, MOLECULES, RECIPES, SIZES, SourceError, which_graphs
from walkwise.cli.wording import ONE_OUTPUT
from walkwise.display import listed
from walkwise.errors import LEFT_OUT, InputError


@dataclass(frozen=True)
class Request:
    """A command's question about a model and graphs; refused if it cannot fit, as far as is known.

    For models that come with Walkwise the outputs are known; for data sets that need no files, the number of graphs.

    Args:
        model: as `names.check_model` takes it.
        graphs: as `names.check_graphs` takes them; None if not given.
        weights: the file of the model's weights.
        root: the folder of data sets.
        smiles: molecules, instead of graphs.
        numbers: the numbers of the graphs in question.
        target: the output column or class to explain.
        against: another one, which is subtracted.
        index: the node to explain: its number, or (type, i).
        rule: a name of `walkwise.rules`.
        featurise: an import path of what makes graphs of the molecules.

    >>> Request("mutagenicity", numbers=[7]).words
    'Asking mutagenicity, which says non-mutagenic or mutagenic, about toluene.'
    >>> Request("mypkg.models:build", "graphs.pt", numbers=[3]).words
    'Asking mypkg.models:build about graphs.pt 3.'
    >>> Request("mutag", target="toxic")
    Traceback (most recent call last):
        ...
    walkwise.errors.InputError: --target must be a column of the output, 0 to 1, or one of 'non-mutagenic', ...
    """

    model: str
    graphs: str | None = None
    weights: Path | None = None
    root: Path | None = None
    smiles: Sequence[str] | None = None
    numbers: Sequence[int] = ()
    target: int | str | None = None
    against: int | str | None = None
    index: int | tuple[str, int] | None = None
    rule: str = "auto"
    featurise: str | None = None

    def __post_init__(self) -> None:
        check_subject(self.model, self.graphs, weights=self.weights, smiles=self.smiles, featurise=self.featurise)
        if count := len(self.smiles or ()) or SIZES.get(self.source):
            for number in self.numbers:
                check_number(number, count, self.source)
        if self.index is not None and self._known:
            raise InputError(ONE_OUTPUT.format(self.model), argument="--index", expected=LEFT_OUT, got=self.index)
        explained, other = self.column("--target", self.target), self.column("--against", self.against)
        if explained == other is not None:
            expected = "another output than the target"
            raise InputError(
                f"--against must be {expected}, got {self.against}.",
                argument="--against",
                expected=expected,
                got=self.against,
            )

    @property
    def source(self) -> str:
        """The source of the graphs, in a word."""
        if self.smiles:
            return "molecules"
        named = self.graphs or BUNDLED[self.model]
        return Path(named).name if Path(named).suffix in (".pt", ".pth") else named

    @property
    def _known(self) -> bool:
        """Whether the model comes with Walkwise."""
        return self.model in (*BUNDLED, *RECIPES)

    @property
    def classes(self) -> tuple[str, ...]:
        """The meanings of the model's outputs; empty if not known yet."""
        return CLASSES.get(self.source, ()) if self._known else ()

    @property
    def who(self) -> str:
        """The model and, if known, its classes."""
        return f"{self.model}, which says {' or '.join(self.classes)}," if self.classes else self.model

    @property
    def words(self) -> str:
        """The model and the graphs, in a line."""
        names = list(self.smiles or (MOLECULES if self.source == "molecules" else ()))
        called = [names[number] if names else f"{self.source} {number}" for number in self.numbers]
        return f"Asking {self.who} about {listed(called)}."

    def column(self, option: str, given: int | str | None) -> int | None:
        """The column of an output that is named; None if none is, or if the classes are not known yet.

        Args:
            option: the option that names it.
            given: a class or a column.
        """
        classes = self.classes
        if given is None or not classes:
            return None
        if given in classes:
            return classes.index(str(given))
        if isinstance(given, int) and 0 <= given < len(classes):
            return given
        expected = f"a column of the output, 0 to {len(classes) - 1}, or one of {', '.join(map(repr, classes))}"
        raise InputError(f"{option} must be {expected}, got {given}.", argument=option, expected=expected, got=given)


def check_subject(
    model: str,
    graphs: str | None,
    *,
    weights: Path | None = None,
    smiles: Sequence[str] | None = None,
    featurise: str | None = None,
) -> None:
    """Refuse a model without weights, and graphs that are given twice or not at all.

    Args:
        model: as `names.check_model` takes it.
        graphs: as `names.check_graphs` takes them; None if not given.
        weights: the file of the model's weights.
        smiles: molecules, instead of graphs.
        featurise: what makes graphs of them.

    >>> check_subject("mutag-gin3", None)
    Traceback (most recent call last):
        ...
    walkwise.cli.names.SourceError: mutag-gin3 is not trained. ...
    """
    check_weights(model, weights)
    if graphs and smiles:
        raise SourceError(
            f"Give either graphs ({graphs}) or --smiles, not both.",
            argument="smiles",
            expected="left out if graphs are named",
            got=list(smiles),
        )
    if featurise and not smiles:
        raise SourceError(
            "--featurise makes graphs of molecules, and none are given.",
            argument="featurise",
            expected="given together with --smiles",
            got=featurise,
            remedy="Give molecules with --smiles.",
        )
    if not graphs and not smiles and model not in BUNDLED:
        raise which_graphs(f"a data set ({', '.join(GRAPHS)}), a file, or an import path")


def check_weights(model: str, weights: Path | None) -> None:
    """Refuse a model of the paper that nobody has trained."""
    if model in RECIPES and weights is None:
        raise SourceError(
            f"{model} is not trained.",
            argument="weights",
            expected=f"a file with the weights of {model}",
            remedy=f"Give its --weights, or train it with: walkwise train {model}.",
        )


def check_number(number: int, count: int, source: str) -> None:
    """Refuse the number of a graph that does not exist.

    >>> check_number(8, 8, "molecules")
    Traceback (most recent call last):
        ...
    walkwise.cli.names.SourceError: There is no graph 8: molecules has 8, numbered 0 to 7.
    """
    if not 0 <= number < count:
        there = f"{count}, numbered 0 to {count - 1}" if count > 1 else "only one, number 0"
        raise SourceError(
            f"There is no graph {number}: {source} has {there}.",
            argument="graph",
            expected=f"a number from 0 to {count - 1}",
            got=number,
        )

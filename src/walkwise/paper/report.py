"""One page that compares our numbers with the paper's."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path

import torch
import torch_geometric

from walkwise.files import write_whole
from walkwise.paper.bench import Bench
from walkwise.paper.omissions import left_out, reasons
from walkwise.paper.run import Result


def write_report(results: Sequence[Result], bench: Bench, command: str) -> Path:
    """Writes report.md beside the results; the path."""
    path = bench.out / "report.md"
    write_whole(path, report(results, bench, command))
    return path


def report(results: Sequence[Result], bench: Bench, command: str) -> str:
    """The report as Markdown: every table and figure with its claim, what was found, and how."""
    parts = [_head(results, bench, command)]
    parts += [_section(result) for result in results]
    if lines := reasons(omission for result in results for omission in result.skipped):
        parts.append("## What is missing\n\n" + "\n".join(f"- {line}" for line in lines))
    return "\n\n".join(parts) + "\n"


def _head(results: Sequence[Result], bench: Bench, command: str) -> str:
    lines = [
        f"# The paper, reproduced: {bench.effort.name} run",
        "*Efficient Computation of Higher-Order Subgraph Attribution via Message Passing* (Xiong et al., ICML 2022),\n"
        "made by",
        f"```sh\n{command}\n```",
        _effort(bench),
        "| | holds | |\n|---|---|---|\n" + "\n".join(_summary(result) for result in results),
        f"Python {platform.python_version()}, torch {torch.__version__.partition('+')[0]}, torch_geometric "
        f"{torch_geometric.__version__}, {os.cpu_count()} cores. Times in tables are processor time of one thread, in "
        "float64, so that other programs disturb them less, if still by a third or more.",
    ]
    return "\n\n".join(lines)


def _effort(bench: Bench) -> str:
    effort = bench.effort
    said = (
        f"This is a {effort.name} run: {effort.samples} graphs per data set in table 3 and {effort.depth_samples} per "
        f"point of figure 4, timed {effort.trials} time{'s' if effort.trials > 1 else ''}; naive GNN-LRP fails after "
        f"{effort.limit:g} s for one subgraph, and gets no more graphs after that time; {effort.alphas} values of α"
    )
    if effort.sentences is not None:
        said += f"; the first {effort.sentences} test sentences of Graph-SST2"
    if effort.training < 1:
        said += f"; models without weights are trained for {effort.training:.0%} of their recipe's epochs"
    return said + "."


def _summary(result: Result) -> str:
    if result.finding is None:
        return f"| {result.exhibit.title} | skipped | without {left_out(result.skipped)} |"
    holds = result.finding.word
    return f"| [{result.exhibit.title}](#{_anchor(result.exhibit.title)}) | {holds} | {_cell(result.finding.verdict)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _anchor(title: str) -> str:
    """The address GitHub gives to a heading."""
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c == "-")


def _section(result: Result) -> str:
    name, finding = result.exhibit.name, result.finding
    parts = [f"## {result.exhibit.title}", f"**The paper:** {result.exhibit.claim}"]
    if finding is not None:
        parts += [
            f"**Here:** {finding.verdict}",
            f"**Verdict:** {finding.word}. {result.exhibit.rule}" if result.exhibit.rule else "",
            f"![{result.exhibit.title}]({name}.png)" if result.drawn else "",
            finding.table,
            "\n".join(f"- {note}" for note in finding.notes),
            f"Numbers: [{name}.csv]({name}.csv). Computed in {result.seconds:.0f} s of processor time.",
        ]
    if result.skipped:
        parts.append(f"**Skipped:** {left_out(result.skipped)} ([why](#what-is-missing)).")
    return "\n\n".join(part for part in parts if part)

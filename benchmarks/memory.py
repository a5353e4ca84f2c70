"""Peak memory of one job in a process of its own; run by run.py, prints JSON.

python benchmarks/memory.py walkwise|plain NODES EDGES
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

NUM_SUBGRAPHS, SIZE = 1000, 20


def measure(job: str, num_nodes: int, num_edges: int) -> dict[str, float]:
    """Bytes in use after the imports and at the peak, in a fresh process."""
    command = [sys.executable, __file__, job, str(num_nodes), str(num_edges)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def _status(field: str) -> int | None:
    """A field of /proc/self/status in bytes, where there is one."""
    path = Path("/proc/self/status")
    if not path.exists():
        return None
    line = next((text for text in path.read_text().splitlines() if text.startswith(field + ":")), None)
    return None if line is None else int(line.split()[1]) * 1024


def _peak() -> int:
    """The most memory ever resident.

    Linux starts ru_maxrss of a new program at the peak of the program that spawned it, so the kernel's own
    high-water mark of this address space is asked first.
    """
    unit = 1 if sys.platform == "darwin" else 1024
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _main(job: str, num_nodes: int, num_edges: int) -> None:
    import torch
    from cases import TARGET, connected_subgraphs, random_graph

    import walkwise as ww

    baseline = _status("VmRSS") or _peak()
    case = random_graph(num_nodes, num_edges)
    record = {"baseline": baseline}
    if job == "plain":
        case.forward_backward()
        record["total"] = 0.0
    else:
        subgraphs = connected_subgraphs(case, NUM_SUBGRAPHS, SIZE)
        record["input"] = _peak()
        chain = ww.trace(case.model, case.x, case.edge_index, target=TARGET)
        record["traced"] = _peak()
        result = ww.subgraph_relevance(chain, subgraphs)
        assert bool(torch.isfinite(result).all())
        record["total"] = float(result.sum())
    print(json.dumps(record | {"peak": _peak()}))


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

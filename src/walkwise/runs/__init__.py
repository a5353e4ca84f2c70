"""Whole data sets: explain every graph, on one machine or on a cluster, and lose nothing if a process dies.

`run` writes the answers to a folder, as Parquet; `read` returns them as tables. Needs pandas and pyarrow (``pip install
'walkwise[runs]'``); a Ray cluster needs Ray (``'walkwise[ray]'``).
"""

try:
    import pandas as _pandas  # noqa: F401
    import pyarrow as _pyarrow  # noqa: F401
except ImportError:
    from walkwise.errors import MissingExtraError

    raise MissingExtraError(
        "Runs need pandas and pyarrow.", remedy="Install them with: pip install 'walkwise[runs]'"
    ) from None

from walkwise.runs.folder import Run, UnfinishedWriteError, open_run, read
from walkwise.runs.local import WorkerError
from walkwise.runs.report_page import report
from walkwise.runs.running import run

__all__ = ["Run", "UnfinishedWriteError", "WorkerError", "open_run", "read", "report", "run"]

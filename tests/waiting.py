"""Waiting for what another process, thread or page brings about: for the thing itself, never for a fixed time."""

from __future__ import annotations

import time


def eventually(look, expected=True, within=300):
    """Looks until it sees what is expected, or says what it saw when the time was up."""
    end = time.monotonic() + within
    while (seen := look()) != expected and time.monotonic() < end:
        time.sleep(0.05)
    assert seen == expected

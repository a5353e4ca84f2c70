"""Faults at every write: a child process is killed, or refused by the disk, at its n-th change of a folder."""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from pathlib import Path

#: Exit codes of a child: an error that says what to do, and one that does not.
REFUSED, BROKEN = 9, 1

#: What changes files, as Python's audit hooks call it; the place of the path among the event's arguments.
_CHANGES = {"os.mkdir": 0, "os.rename": 1, "os.remove": 0, "os.chmod": 0, "os.truncate": 0, "os.rmdir": 0, "os.link": 1}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Faults:
    """Counts the changes of a folder, and lets the n-th fail."""

    def __init__(self, folder, kind, number):
        self.folder, self.kind, self.number, self.count = os.fspath(folder), kind, number, 0

    def arm(self):
        """From now on, in this process. Hooks stay for good: only a child may do this."""
        really = os.fsync

        def fsync(handle):
            if str(Path(f"/proc/self/fd/{handle}").readlink()).startswith(self.folder):
                self.happen()
            really(handle)

        os.fsync = fsync
        sys.addaudithook(self._event)

    def _event(self, event, args):
        if event == "open":
            path, changes = args[0], bool((args[2] or 0) & _WRITING)
        elif event in _CHANGES:
            path, changes = args[_CHANGES[event]], True
        else:
            return
        if changes and isinstance(path, (str, bytes, os.PathLike)) and os.fsdecode(path).startswith(self.folder):
            self.happen()

    def happen(self):
        """One more change: dies, or fails as a full or a read-only disk does."""
        self.count += 1
        if self.kind == "killed" and self.count == self.number:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == "full" and self.count == self.number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.kind == "read-only" and self.count >= self.number:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def with_fault(call, folder, kind, number, refusals):
    """Calls in a child with a fault at the n-th change of a folder; its exit code, and how many changes it came to.

    The code is 0 where all went well, REFUSED for an error of one of the classes ``refusals``, BROKEN for any other.
    """
    mine, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        code, faults = BROKEN, Faults(folder, kind, number)
        try:
            os.setsid()
            faults.arm()
            call()
            code = 0
        except refusals:
            code = REFUSED
        except BaseException:
            traceback.print_exc()
        finally:
            os.write(theirs, str(faults.count).encode())
            os._exit(code)
    os.close(theirs)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with os.fdopen(mine) as pipe:
        return code, int(pipe.read() or number)


def at_every_write(call, folder, kind, refusals, step=1):
    """Yields the exit code for a fault at a change of a folder, at every one of them or at one in ``step``."""
    number = 1
    while True:
        code, count = with_fault(call, folder, kind, number, refusals)
        if count < number:
            assert code == 0
            assert number > 3 * step
            return
        yield code
        number += step

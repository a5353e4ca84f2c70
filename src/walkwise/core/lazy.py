"""Properties that are computed once.

Python's own ``cached_property`` holds one lock per class up to version 3.11: a child process forked while another
thread computes a property waits for it forever. This one has no lock; at worst two threads compute the same value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from functools import cached_property
else:

    class cached_property:  # noqa: N801  (named as Python's own)
        """A property whose value is kept in the object's dictionary."""

        def __init__(self, func):
            """Of a method without arguments."""
            self.func, self.__doc__ = func, func.__doc__

        def __set_name__(self, owner, name):
            """Remember under which name to keep the value."""
            self.name = name

        def __get__(self, instance, owner=None):
            """The value, worked out."""
            if instance is None:
                return self
            value = instance.__dict__[self.name] = self.func(instance)
            return value


__all__ = ["cached_property"]

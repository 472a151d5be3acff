"""Whether somebody closed file descriptors of this process that are not theirs."""

from __future__ import annotations

import os


class DescriptorProbe:
    """An open file that nobody has a reason to close.

    A job that closes every descriptor of its process (``os.closerange``, as code that turns a process into a
    daemon does) also closes those of databases and event loops. Their numbers go to whatever is opened next:
    who writes to one then writes into another file, and SQLite's locks are gone without a word. So whoever
    depends on descriptors keeps one of these and asks it first. Asking takes 1 us.
    """

    def __init__(self) -> None:
        self._identity: tuple[int, int] | None = None
        self._number, other = os.pipe()
        os.close(other)
        self._identity = self._look()

    def is_intact(self) -> bool:
        """Whether the file is still the one that was opened; True of a probe that was let go."""
        return self._identity is None or self._look() == self._identity

    def close(self) -> None:
        """Safe to repeat."""
        if self._identity is not None and self.is_intact():
            os.close(self._number)
        self._identity = None

    def __del__(self) -> None:
        self.close()

    def _look(self) -> tuple[int, int] | None:
        try:
            found = os.fstat(self._number)
        except OSError:
            return None
        # A pipe has a number of its own, whatever its descriptor is.
        return found.st_dev, found.st_ino

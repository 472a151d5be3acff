"""File descriptors: how many this process may have, and whether a job has closed those of others."""

from __future__ import annotations

import os


def descriptor_limit() -> int | None:
    """Return how many files this process may open; None if the system sets no limit."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


class DescriptorProbe:
    """A descriptor that no other code uses: if it is closed, a job has closed all of them.

    A job that closes every descriptor of its process (``os.closerange``, as code that turns a process into a
    daemon does) also closes those of databases and event loops. The next files that are opened get their
    numbers: a write to such a descriptor goes into another file, and SQLite's locks are gone without an
    error. Code that depends on descriptors keeps a probe and checks it first, which takes 1 us.
    """

    def __init__(self) -> None:
        self._identity: tuple[int, int] | None = None
        self._number, other = os.pipe()
        os.close(other)
        self._identity = self._read_identity()

    def is_intact(self) -> bool:
        """Return whether the descriptor is still the one that was opened; True of a closed probe."""
        return self._identity is None or self._read_identity() == self._identity

    def close(self) -> None:
        """Close the probe. Safe to repeat."""
        if self._identity is not None and self.is_intact():
            os.close(self._number)
        self._identity = None

    def __del__(self) -> None:
        self.close()

    def _read_identity(self) -> tuple[int, int] | None:
        try:
            found = os.fstat(self._number)
        except OSError:
            return None
        # A pipe has a number of its own, which does not depend on its descriptor.
        return found.st_dev, found.st_ino

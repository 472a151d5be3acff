"""Limits: how many requests and event streams one token may have at once, and the server in all.

Requests of all tokens share one pool of 40 threads. Without a limit for each token, one token with slow
requests would hold all of them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from evenbeat.web.access import Principal
from evenbeat.web.problems import Refused

REQUESTS_OF_TOKEN = 20
"""How many requests of one token are answered at once: half of the threads."""
TOKEN_CHECKS = 8
"""How many tokens are compared with the store at once, in threads of their own."""
STREAMS_OF_TOKEN = 50
"""How many event streams one token may have open."""
STREAMS = 1_000
"""How many event streams a server has open for all tokens, if its process may open enough files."""


def streams_of_all(descriptors: int | None) -> int:
    """Return how many event streams a process with this many descriptors serves.

    At least half of them stay for requests, for the store, and for the jobs of a node in the same process.
    """
    return STREAMS if descriptors is None else min(STREAMS, descriptors // 2)


class Limit:
    """Counts what is in use, by token and in all, and refuses more than the limits. Any thread may use it."""

    def __init__(self, noun: str, of_token: int, of_all: int | None = None) -> None:
        self._noun = noun
        self._of_token = of_token
        self._of_all = of_all
        self._lock = threading.Lock()
        self._used: dict[str, int] = {}
        self._all = 0

    @property
    def used(self) -> int:
        """How many are in use in all."""
        return self._all

    @contextmanager
    def counted(self, principal: Principal) -> Iterator[None]:
        """Count one until the block ends. A sender without a token has no limit of their own."""
        self._take(principal.token)
        try:
            yield
        finally:
            self._give_back(principal.token)

    def _take(self, token: str | None) -> None:
        with self._lock:
            of_token = 0 if token is None else self._used.get(token, 0)
            if of_token >= self._of_token:
                raise self._too_many_of_token()
            if self._of_all is not None and self._all >= self._of_all:
                raise self._too_many()
            self._all += 1
            if token is not None:
                self._used[token] = of_token + 1

    def _give_back(self, token: str | None) -> None:
        with self._lock:
            self._all -= 1
            if token is not None:
                left = self._used.pop(token) - 1
                if left:
                    self._used[token] = left

    def _too_many_of_token(self) -> Refused:
        return Refused(
            HTTPStatus.TOO_MANY_REQUESTS,
            f"too-many-{self._noun}",
            f"the token has {self._of_token} {self._noun} at once, as many as it may have",
            hint="wait until one of them ends, or use a token for each program",
            headers={"Retry-After": "1"},
        )

    def _too_many(self) -> Refused:
        return Refused(
            HTTPStatus.SERVICE_UNAVAILABLE,
            f"too-many-{self._noun}",
            f"the server has {self._of_all:,} {self._noun} at once, as many as it may have",
            hint="try again later, or start another server: evenbeat web",
            headers={"Retry-After": "10"},
        )

"""Waiting and hints. In real time, because waiting is the subject: timeouts pass only when a test fails."""

from __future__ import annotations

import threading
from collections.abc import Callable

from evenbeat.stores.base import Store
from evenbeat.testing.contract.base import Contract, Handles

_TIMEOUT = 60.0


class WakingContract(Contract):
    def test_a_wait_ends_without_a_hint(self, store: Store) -> None:
        assert store.wait(0.001) is False

    def test_a_hint_wakes_every_waiting_thread(self, handles: Handles, store: Store) -> None:
        waiting = handles()
        waiting.open()
        woken: list[bool] = []
        threads = [threading.Thread(target=lambda: woken.append(waiting.wait(_TIMEOUT))) for _ in range(5)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            store.hint()  # more than once: a hint that comes before the wait may be lost
            for thread in threads:
                thread.join(0.005)
        assert woken == [True] * 5

    def test_a_hint_between_two_waits_of_a_thread_ends_the_second(
        self, handles: Handles, store: Store
    ) -> None:
        waiting = handles()
        waiting.open()
        waiting.wait(0)
        _in_thread(store.hint)
        assert waiting.wait(_TIMEOUT) is True

    def test_a_hint_does_not_end_the_next_wait_of_its_own_thread(self, store: Store) -> None:
        def is_cut_short() -> bool:
            store.hint()
            return store.wait(0.001)

        # A store that has just begun to receive hints may report once that it may have missed some.
        assert not all(is_cut_short() for _ in range(10))

    def test_closing_ends_a_wait(self, store: Store) -> None:
        store.wait(0)
        started = threading.Event()

        def wait() -> None:
            started.set()
            store.wait(10 * _TIMEOUT)

        thread = threading.Thread(target=wait)
        thread.start()
        started.wait(_TIMEOUT)
        while thread.is_alive():
            store.close()  # more than once: the first may come before the wait
            thread.join(0.01)


def _in_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

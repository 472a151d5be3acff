"""The service: one thread per process that evaluates alert rules and sends announcements.

It is not one of the node's duties: a receiver that answers slowly must not delay the reaper.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from evenbeat.alerts.channels.base import Channel
from evenbeat.alerts.evaluation import Announcer
from evenbeat.alerts.sender import AlertSender, Sent
from evenbeat.alerts.waiting import SIDE_BY_SIDE
from evenbeat.alerts.watch import TURN_EVERY, AlertWatch
from evenbeat.core.alerts import ChannelKind
from evenbeat.core.instants import Instant
from evenbeat.errors import StoreUnavailable
from evenbeat.executors.pool import Pool
from evenbeat.node.loop import Loop
from evenbeat.node.signals import Signals, stored_rules
from evenbeat.observe.events import Events
from evenbeat.rules.alert_records import StoredChannel, StoredIncident
from evenbeat.stores.base import Store

REST = 300_000
"""Milliseconds between two reads of the rules while nothing happens. So long, since a store knows when it may
have missed a hint."""
HINTED = 5_000
"""Milliseconds between two reads of the rules while hints arrive."""
_STOP_SECONDS = 5.0


class AlertService:
    """Reads the rules, and gives them to this process's signals, watch and sender.

    ``hint`` says that something in the store may have changed: a rule, or a delivery that waits. Without
    rules, ``step`` sends two small queries in ``rest`` ms.
    """

    def __init__(
        self,
        store: Store,
        *,
        name: str,
        link_base: str | None = None,
        allow_private: Iterable[str] = (),
        why: Callable[[StoredIncident], str | None] = lambda _: None,
        events: Events | None = None,
        rest: int = REST,
        every: int = TURN_EVERY,
    ) -> None:
        from evenbeat.alerts import texts

        self._store = store
        self._allow_private = frozenset(allow_private)
        self._rest = rest
        self._every = every
        self.signals = Signals(on_written=self._note_signal)
        self._watch = AlertWatch(store, Announcer(texts, link_base, why), name=name, every=every)
        self._pool: Pool[Callable[[], None]] = Pool("evenbeat-alert", SIDE_BY_SIDE, self._send)
        self._sender = AlertSender(
            store,
            self._open_channel,
            name=name,
            start=lambda send: self._pool.put([send]),
            on_sent=lambda kind, outcome: self.on_sent(kind, outcome),
        )
        self.on_sent: Callable[[ChannelKind, Sent], None] = lambda _kind, _outcome: None
        """Called after each try to send, for metrics."""
        self._events = Events() if events is None else events
        self._loop: Loop | None = None
        self._read_at: Instant | None = None
        """When the rules were last read."""
        self._is_hinted = False
        self._is_urgent = False
        """Whether this process has left a signal since its last turn."""
        self._has_sent = False
        """Whether a send has ended since the last step: its channel is free for the next one."""
        self._is_anything_waiting = False

    def start(self, clock: Callable[[], Instant] | None = None) -> None:
        """Start the thread. ``clock`` defaults to the store's."""
        self._loop = Loop("alerts", self.step, clock or self._store.now, self._rest, self._events)
        self._loop.start()

    def stop(self) -> None:
        """Stop after the current step. What is being sent may go on for a moment."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.stop()
            loop.join(_STOP_SECONDS)
        self._pool.stop()

    def refresh(self, now: Instant) -> None:
        """Read the rules. From then on, what they ask for leaves signals."""
        self._is_hinted = False
        rules = stored_rules(self._store)
        self._read_at = now
        self.signals.use(rules)
        self._watch.use(rules)

    def evaluate(self, now: Instant) -> None:
        """Take a turn with the rules that were read last, and send nothing. For virtual time."""
        self._is_urgent = False
        self._watch.step(now, is_alone=True)

    @property
    def has_signals(self) -> bool:
        """Whether this process has left a signal since its last turn."""
        return self._is_urgent

    def hint(self) -> None:
        """Take note that something in the store may have changed. Cheap: hints may come all the time."""
        if not self._is_hinted:
            self._is_hinted = True
            self._wake()

    def step(self, now: Instant) -> Instant:
        """Do what is due; return when to call again."""
        is_refreshed = self._is_refresh_due(now)
        if is_refreshed:
            self.refresh(now)
        is_urgent, self._is_urgent = self._is_urgent, False
        try:
            stepped = self._watch.step(now, is_urgent=is_urgent)
        except StoreUnavailable:
            raise
        except Exception:
            # Whatever keeps rules from being evaluated: what is written already is sent.
            self._is_anything_waiting = self._sender.step(now)
            raise
        if is_urgent and not stepped.took_turn:
            self._is_urgent = True  # another turn has just begun, and may have read the signals before
        has_sent, self._has_sent = self._has_sent, False
        if is_refreshed or stepped.took_turn or has_sent or self._is_anything_waiting:
            self._is_anything_waiting = self._sender.step(now)
        due = [(self._read_at or 0) + (HINTED if self._is_hinted else self._rest)]
        if stepped.again is not None:
            due.append(stepped.again)
        if self._is_anything_waiting:
            due.append(now + self._every)
        return max(now, min(due))

    def _is_refresh_due(self, now: Instant) -> bool:
        last = self._read_at
        if last is None or last > now:
            return True
        return now - last >= (HINTED if self._is_hinted else self._rest)

    def _note_signal(self) -> None:
        self._is_urgent = True
        self._wake()

    def _send(self) -> None:
        """What a thread of the pool does."""
        for send in self._pool.take():
            send()
            self._has_sent = True
            self._wake()

    def _open_channel(self, stored: StoredChannel) -> Channel:
        # Imported by the first process that sends something.
        from evenbeat.alerts.channels.making import make_channel

        return make_channel(stored, os.environ, self._allow_private)

    def _wake(self) -> None:
        if (loop := self._loop) is not None:
            loop.wake()

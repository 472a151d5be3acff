"""The self-check: once a minute, one node looks for work that does not go on, and announces what is new.

The findings are those of ``app.attention()`` that nodes can see without reading every schedule: late
schedules, stuck runs, runs whose task no live node has or whose schedule is deleted. A record in the store
has the findings that are known, so each is announced once, by one node: when it appears, and when it is
gone.
"""

from __future__ import annotations

import logging
import secrets

import msgspec

from evenbeat.core.attention import AttentionItem
from evenbeat.core.instants import Instant
from evenbeat.core.json_text import encode
from evenbeat.core.records import Record
from evenbeat.node.presence import live_nodes
from evenbeat.node.stuck_work import read_stuck_work
from evenbeat.observe.attention import AttentionFacts, attention_of
from evenbeat.observe.events import Events
from evenbeat.stores.base import Store

CHECK_EVERY = 60_000
MOST_KNOWN = 200
_KIND, _TENANT, _KEY = "self_check", "default", "findings"
_KINDS = frozenset(("late", "stuck", "no_node", "no_ticker", "orphaned"))

_log = logging.getLogger("evenbeat.node.self_check")


class CheckedFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding that is not gone."""

    item: AttentionItem
    since: Instant
    """When a check first saw it."""


class CheckResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of the latest check: the body of the record."""

    at: Instant
    by: str
    findings: dict[str, CheckedFinding] = {}


_decoder = msgspec.json.Decoder(CheckResult)


def identity_of(item: AttentionItem) -> str:
    """Return what makes a finding the same as one of the minute before."""
    subject = item.run if item.kind == "stuck" else item.task if item.kind == "no_node" else item.schedule
    return " ".join((item.kind, item.tenant or "", subject or ""))


def latest_check(store: Store) -> CheckResult | None:
    """Return the result of the latest check; None if there was none."""
    return _read(store.get_record(_KIND, _TENANT, _KEY))


class SelfCheck:
    """A duty of each node; the first that finds the last check a minute old makes the next one."""

    def __init__(self, store: Store, events: Events, name: str) -> None:
        self._store = store
        self._events = events
        self._name = name

    def step(self, now: Instant) -> Instant:
        record = self._store.get_record(_KIND, _TENANT, _KEY)
        before = _read(record)
        # A check in the future: the store's clock was set back.
        if before is not None and before.at <= now < before.at + CHECK_EVERY:
            return before.at + CHECK_EVERY
        known = {} if before is None else before.findings
        items = {identity_of(item): item for item in self._items(now)[:MOST_KNOWN]}
        findings = {
            key: CheckedFinding(item=item, since=known[key].since if key in known else now)
            for key, item in items.items()
        }
        result = CheckResult(at=now, by=self._name, findings=findings)
        # A version is never used twice, so that only one node replaces a result, and announces the changes.
        new = Record(kind=_KIND, tenant=_TENANT, key=_KEY, body=encode(result), version=secrets.randbits(53))
        if self._store.put_record(new, None if record is None else record.version):
            for key in findings.keys() - known.keys():
                self._announce(findings[key].item, now, is_over=False)
            for key in known.keys() - findings.keys():
                self._announce(known[key].item, now, is_over=True)
        return now + CHECK_EVERY

    def _items(self, now: Instant) -> list[AttentionItem]:
        nodes = live_nodes(self._store)
        queues = self._store.count_queues(now, now)
        work = read_stuck_work(self._store, None, now, queues)
        facts = AttentionFacts(
            now=now,
            has_ticker=any(node.ticker for node in nodes),
            nodes=[node.taker for node in nodes],
            # Without a ticker, only late schedules matter: counting all of them would read them all.
            active=len(work.late),
            late=work.late,
            more_late=work.more_late,
            waiting=work.waiting,
            more_waiting=work.more_waiting,
            orphaned=work.orphaned,
            running=work.running,
            usual=work.usual,
        )
        return [item for item in attention_of(facts).items if item.kind in _KINDS]

    def _announce(self, item: AttentionItem, now: Instant, *, is_over: bool) -> None:
        fields = {"component": "self-check", "finding": item.kind}
        if is_over:
            _log.info("not any more: %s", item.sentence, extra=fields)
        else:
            _log.warning("needs attention: %s", item.sentence, extra=fields)
        key = None if item.tenant is None else (item.tenant, item.schedule or "")
        self._events.publish("attention", now, key=key, finding=item, is_over=is_over)


def _read(record: Record | None) -> CheckResult | None:
    if record is None:
        return None
    try:
        return _decoder.decode(record.body)
    except (msgspec.MsgspecError, UnicodeError):
        return None  # damaged, or of a later version

"""Access tokens: what is checked, what the store keeps, and which of them work."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from evenbeat import Scheduler
from evenbeat.core.instants import from_ms
from evenbeat.errors import InvalidValue, StoreUnavailable
from evenbeat.record_errors import TokenNotFound
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing.clock import VirtualClock

DAY_MS = 86_400_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def app(clock: VirtualClock) -> Scheduler:
    return Scheduler(MemoryStore(clock))


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("name", {"name": "x" * 101}),
        ("name", {"name": ""}),
        ("name", {"name": "  "}),
        ("name", {"name": "\ud800"}),
        ("role", {"role": "owner"}),
        ("tenant", {"tenant": "two words"}),
        ("expires", {"expires": "0s"}),
        ("expires", {"expires": "soon"}),
    ],
)
def test_a_token_that_would_not_do_is_refused(app: Scheduler, field: str, values: dict[str, str]) -> None:
    with pytest.raises(InvalidValue) as refused:
        app.tokens.create(**({"name": "ci"} | values))  # type: ignore[arg-type]  # wrong on purpose
    assert refused.value.field == field
    assert app.tokens.list() == []


def test_a_token_ends_after_90_days_when_it_says_or_never(app: Scheduler, clock: VirtualClock) -> None:
    usual = app.tokens.create("x" * 100)
    soon = app.tokens.create("soon", expires="1ms")
    never = app.tokens.create("never", expires=None)
    assert usual.token.expires_at == from_ms(clock.now) + timedelta(days=90)
    assert (usual.token.role, usual.token.tenant, never.token.expires_at) == ("viewer", None, None)
    assert app.tokens.works(soon.token.id)
    clock.advance("1ms")
    assert not app.tokens.works(soon.token.id)
    assert app.tokens.verify(soon.secret) is None
    clock.advance("90d")
    assert app.tokens.verify(usual.secret) is None
    assert app.tokens.verify(never.secret) is not None
    assert [token.id for token in app.tokens.list()] == [never.token.id]


def test_tokens_are_listed_by_their_last_use_and_unused_ones_last(
    app: Scheduler, clock: VirtualClock
) -> None:
    made = {name: app.tokens.create(name) for name in ("old", "new", "unused")}
    assert [token.last_used_at for token in app.tokens.list()] == [None] * 3
    assert [token.id for token in app.tokens.list()] == sorted(each.token.id for each in made.values())
    for name in ("old", "new"):
        clock.advance("1h")
        verified = app.tokens.verify(made[name].secret)
        assert verified is not None
        assert verified.last_used_at == from_ms(clock.now)
    listed = app.tokens.list()
    assert [token.name for token in listed] == ["new", "old", "unused"]
    assert listed[0] == replace(made["new"].token, last_used_at=from_ms(clock.now))


def test_the_last_use_of_a_token_is_written_once_a_minute(app: Scheduler, clock: VirtualClock) -> None:
    made = app.tokens.create("ci", expires=None)
    uses = []
    for passed in ("0s", "59999ms", "1ms"):
        clock.advance(passed)
        app.tokens.verify(made.secret)
        (use,) = app.store.find_records("token_use")
        uses.append(int(use.body))
    assert uses == [clock.now - 60_000, clock.now - 60_000, clock.now]
    assert use.expires == clock.now + 400 * DAY_MS


def test_a_note_of_a_use_ends_with_its_token(app: Scheduler, clock: VirtualClock) -> None:
    made = app.tokens.create("ci", expires="2d")
    app.tokens.verify(made.secret)
    (use,) = app.store.find_records("token_use")
    assert use.expires == clock.now + 2 * DAY_MS
    app.tokens.revoke(made.token.id)
    assert list(app.store.find_records("token_use")) == []
    assert not app.tokens.works(made.token.id)


def test_a_token_is_revoked_once(app: Scheduler) -> None:
    made = app.tokens.create("ci")
    app.tokens.revoke(made.token.id)
    assert app.tokens.verify(made.secret) is None
    for _ in range(2):
        with pytest.raises(TokenNotFound):
            app.tokens.revoke(made.token.id)
    assert [entry.action for entry in app.audit.list()] == ["revoke", "create"]


def test_a_damaged_token_does_not_work_and_can_be_revoked(app: Scheduler) -> None:
    made, kept = app.tokens.create("ci"), app.tokens.create("kept")
    record = app.store.get_record("token", "default", made.token.id)
    assert record is not None
    assert app.store.put_record(replace(record, body="{}", version=7), record.version)
    assert app.tokens.verify(made.secret) is None
    assert not app.tokens.works(made.token.id)
    assert [token.id for token in app.tokens.list()] == [kept.token.id]
    app.tokens.revoke(made.token.id)
    assert app.store.get_record("token", "default", made.token.id) is None


def test_a_note_of_a_use_that_cannot_be_read_counts_as_none(app: Scheduler) -> None:
    made = app.tokens.create("ci")
    app.tokens.verify(made.secret)
    (use,) = app.store.find_records("token_use")
    assert app.store.put_record(replace(use, body="yesterday", version=7), use.version)
    assert [token.last_used_at for token in app.tokens.list()] == [None]


def test_the_audit_has_the_facts_of_a_token(app: Scheduler, clock: VirtualClock) -> None:
    made = app.tokens.create("ci", "operator", tenant="acme", expires="1d")
    app.tokens.revoke(made.token.id)
    revoked, created = app.audit.list(tenant="acme")
    facts = {"name": "ci", "role": "operator", "tenant": "acme", "expires": "2026-03-02T12:00:00Z"}
    assert (created.before, created.after) == ({}, facts)
    assert (revoked.before, revoked.after) == (facts, {})


def test_a_secret_that_cannot_be_one_of_ours_is_not_searched_for(
    app: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store may refuse such a key with an error."""

    def fail(*_: object) -> None:
        raise AssertionError("the store was asked")

    monkeypatch.setattr(app.store, "get_record", fail)
    for wrong in ("evb_\0_x", "evb__x", "evb_1_", "evc_1_x"):
        assert app.tokens.verify(wrong) is None


def test_a_token_works_though_its_use_cannot_be_written(
    app: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = app.tokens.create("ci")

    def fail(*_: object) -> bool:
        raise StoreUnavailable("read-only")

    monkeypatch.setattr(app.store, "put_record", fail)
    assert app.tokens.verify(made.secret) is not None

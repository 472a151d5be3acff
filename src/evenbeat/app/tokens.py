"""``app.tokens``: access tokens of the REST API. The store keeps their hashes."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from contextlib import suppress
from typing import TypeAlias

import msgspec

from evenbeat.app.acting import current_actor
from evenbeat.app.audit import write_entry
from evenbeat.app.session import AppSession
from evenbeat.core.audits import AuditAction
from evenbeat.core.awaitable import twin
from evenbeat.core.checks import check_label, check_one_of, check_text
from evenbeat.core.durations import Duration, read_duration
from evenbeat.core.instants import Instant, from_ms, write_instant
from evenbeat.core.json_text import encode
from evenbeat.core.records import Record
from evenbeat.core.tokens import ROLES, NewToken, Role, Token
from evenbeat.errors import InvalidValue, StoreUnavailable, shown
from evenbeat.record_errors import TokenNotFound
from evenbeat.rules import auditing
from evenbeat.stores.base import Store

LONGEST_NAME = 100
_PREFIX = "evb"
_KIND, _USES = "token", "token_use"
# A token's last use is written at most this often.
_USE_EVERY = 60_000
_USES_KEPT = 400 * 86_400_000

# Inside the class, ``list`` is a method.
TokenList: TypeAlias = list[Token]


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a token's record."""

    name: str
    role: Role
    tenant: str | None
    hash: str
    """The SHA-256 of the secret, which has 256 random bits: it can't be guessed, so it needs no salt."""
    created_at: Instant
    created_by: str


class Tokens:
    """The access tokens of a store."""

    def __init__(self, session: AppSession) -> None:
        self._session = session
        self._uses: dict[str, Instant] = {}
        """By id: when this process last wrote the use of a token."""

    def create(
        self, name: str, role: Role = "viewer", *, tenant: str | None = None, expires: Duration | None = "90d"
    ) -> NewToken:
        """Create a token; its secret is returned this once.

        ``tenant`` limits it to one tenant. It stops working after ``expires``; with None, when it is revoked.
        """
        check_text("name", name, LONGEST_NAME)
        if not name.strip():
            raise InvalidValue("name is empty", field="name", value=name, hint="say who or what will use it")
        if not name.isprintable():
            raise InvalidValue(
                f"name {shown(name)} has a control character, or another that is not visible",
                field="name",
                value=name,
                hint="give one line of visible characters: logs and the audit show it",
            )
        check_one_of("role", role, ROLES)
        if tenant is not None:
            check_label(tenant, "tenant")
        lasts = None if expires is None else read_duration(expires, "expires")
        if lasts is not None and lasts <= 0:
            raise InvalidValue(
                f"expires {shown(expires)} is not longer than 0",
                field="expires",
                value=expires,
                hint='say how long the token works, like "90d"',
            )
        store = self._session.store()
        now = store.now()
        key, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        stored = _Stored(
            name=name,
            role=role,
            tenant=tenant,
            hash=_hash(secret),
            created_at=now,
            created_by=current_actor().name,
        )
        record = Record(
            kind=_KIND,
            key=key,
            body=encode(stored),
            version=secrets.randbits(53),
            expires=None if lasts is None else now + lasts,
        )
        write_entry(store, _change("create", record, stored), now)
        is_new = store.put_record(record)
        assert is_new, "two tokens drew the same random id"
        return NewToken(secret=f"{_PREFIX}_{key}_{secret}", token=_view(record, stored, None))

    def list(self) -> TokenList:
        """Return the tokens that work, those used last first, those never used last."""
        store = self._session.store()
        uses = {record.key: _instant(record.body) for record in store.find_records(_USES)}
        found = [
            _view(record, stored, uses.get(record.key))
            for record in store.find_records(_KIND)
            if (stored := _read(record)) is not None
        ]
        return sorted(found, key=lambda token: (token.last_used_at is None, _age(token), token.id))

    def revoke(self, id: str) -> None:
        """Revoke a token: servers refuse it within 5 seconds. ``TokenNotFound`` if there is none."""
        store = self._session.store()
        record = store.get_record(_KIND, "default", id)
        stored = None if record is None else _read(record)
        if record is not None and stored is not None:
            write_entry(store, _change("revoke", record, stored), store.now())
        if record is None or not store.delete_record(_KIND, "default", id, record.version):
            raise TokenNotFound(id)
        use = store.get_record(_USES, "default", id)
        if use is not None:
            store.delete_record(_USES, "default", id, use.version)

    def verify(self, secret: str) -> Token | None:
        """Return the token of a secret; None if it is wrong, expired or revoked. Notes the use."""
        prefix, _, rest = secret.partition("_")
        key, _, secret = rest.partition("_")
        if prefix != _PREFIX or not key or not secret or not key.isalnum():
            return None
        store = self._session.store()
        record = store.get_record(_KIND, "default", key)
        stored = None if record is None else _read(record)
        # Compared also if there is no such token, so that the time does not tell whether the id exists.
        same = hmac.compare_digest(_hash(secret), "" if stored is None else stored.hash)
        if record is None or stored is None or not same:
            return None
        self._note_use(key, record.expires)
        return _view(record, stored, store.now())

    def use(self, id: str) -> Token | None:
        """Return the token with this id; None if it has expired or was revoked. Notes the use."""
        store = self._session.store()
        record = store.get_record(_KIND, "default", id)
        stored = None if record is None else _read(record)
        if record is None or stored is None:
            return None
        self._note_use(id, record.expires)
        return _view(record, stored, store.now())

    def works(self, id: str) -> bool:
        """Return whether a token with this id still works."""
        record = self._session.store().get_record(_KIND, "default", id)
        return record is not None and _read(record) is not None

    def _note_use(self, key: str, expires: Instant | None) -> None:
        store = self._session.store()
        now = store.now()
        if abs(now - self._uses.get(key, 0)) < _USE_EVERY:  # the clock may be set back
            return
        self._uses[key] = now
        # The owner of a token may also read from a store that can't be written, such as a standby.
        with suppress(StoreUnavailable):
            self._write_use(store, key, now, expires)

    def _write_use(self, store: Store, key: str, now: Instant, expires: Instant | None) -> None:
        present = store.get_record(_USES, "default", key)
        use = Record(
            kind=_USES,
            key=key,
            body=str(now),
            version=secrets.randbits(53),
            expires=now + _USES_KEPT if expires is None else expires,
        )
        # If another process notes a use at the same moment, either note is good.
        store.put_record(use, None if present is None else present.version)

    acreate = twin(create)
    alist = twin(list)
    arevoke = twin(revoke)
    averify = twin(verify)
    ause = twin(use)
    aworks = twin(works)


def _change(action: AuditAction, record: Record, stored: _Stored) -> auditing.Change:
    """Return what the audit says about a token that is created or revoked."""
    facts = {"name": stored.name, "role": stored.role, "tenant": stored.tenant}
    if record.expires is not None:
        facts["expires"] = write_instant(record.expires)
    before, after = ({}, facts) if action == "create" else (facts, {})
    # A token for all tenants is recorded with the default tenant, where the store keeps tokens.
    return auditing.Change("token", record.key, stored.tenant or "default", action, before, after)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def _read(record: Record) -> _Stored | None:
    """Return the body of a token's record; None if it was damaged: such a token does not work."""
    try:
        return msgspec.json.decode(record.body, type=_Stored)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def _instant(text: str) -> Instant | None:
    return int(text) if text.isdigit() else None


def _age(token: Token) -> float:
    used = token.last_used_at
    return 0.0 if used is None else -used.timestamp()


def _view(record: Record, stored: _Stored, used: Instant | None) -> Token:
    return Token(
        id=record.key,
        name=stored.name,
        role=stored.role,
        tenant=stored.tenant,
        created_at=from_ms(stored.created_at),
        created_by=stored.created_by,
        expires_at=None if record.expires is None else from_ms(record.expires),
        last_used_at=None if used is None else from_ms(used),
    )

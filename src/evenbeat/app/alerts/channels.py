"""``app.alerts.channels``: where announcements go."""

from __future__ import annotations

import secrets
from typing import TypeAlias, TypedDict, Unpack

from msgspec.structs import replace

from evenbeat.alerts.texts import test_message
from evenbeat.app.alerts.named import Found, NamedRecords, owner_from
from evenbeat.app.alerts.reports import delivery_view
from evenbeat.app.session import AppSession
from evenbeat.core.alerts import AlertChannel, ChannelKind, Delivery
from evenbeat.core.awaitable import twin
from evenbeat.core.json_text import encode
from evenbeat.core.records import Record
from evenbeat.record_errors import ChannelInUse
from evenbeat.rules.alert_records import (
    ALL,
    OWN,
    PENDING,
    StoredChannel,
    StoredDelivery,
    StoredRule,
    delivery_id,
    owner_of,
)
from evenbeat.tasks.options import refuse_unknown

# Inside the class, ``list`` is a method.
ChannelList: TypeAlias = list[AlertChannel]

FIELDS = ("kind", "url", "secret")


class ChannelChanges(TypedDict, total=False):
    """The fields of a channel that may change."""

    kind: ChannelKind
    url: str
    secret: str | None


class AlertChannels:
    """The alert channels of a scheduler; the ``a…`` twins are awaited.

    ``tenant`` defaults to the scheduler's own; ``all_tenants=True`` means the channels of rules that cover
    all tenants. No call returns a secret: a channel has the address that its URL leads to, without user,
    password, path and query.
    """

    def __init__(
        self, session: AppSession, channels: NamedRecords[StoredChannel], rules: NamedRecords[StoredRule]
    ) -> None:
        self._session = session
        self._channels = channels
        self._rules = rules

    def add(
        self,
        name: str,
        kind: ChannelKind,
        url: str,
        *,
        secret: str | None = None,
        tenant: str | None = None,
        all_tenants: bool = False,
    ) -> AlertChannel:
        """Create a channel; ``AlertExists`` if the name is taken.

        ``secret`` is the key by which a webhook is signed. ``url`` and ``secret`` may name a variable of the
        processes that send, ``env:EVENBEAT_SECRET_…``: then the store does not have the secret.
        """
        check(kind, url, secret)
        wanted = StoredChannel(kind=kind, url=url, secret=secret)
        owner = owner_from(self._session, tenant, all_tenants)
        return _view(self._channels.create(owner, name, wanted))

    def declare(
        self,
        name: str,
        kind: ChannelKind,
        url: str,
        *,
        secret: str | None = None,
        tenant: str | None = None,
        all_tenants: bool = False,
    ) -> AlertChannel:
        """Create the channel, or update it to match. Edits by hand do not stay."""
        check(kind, url, secret)
        wanted = StoredChannel(kind=kind, url=url, secret=secret)
        owner = owner_from(self._session, tenant, all_tenants)
        return _view(write_channel(self._channels, owner, name, wanted))

    def get(self, name: str, *, tenant: str | None = None, all_tenants: bool = False) -> AlertChannel:
        """Return the channel of that name; ``AlertNotFound`` if there is none."""
        return _view(self._channels.get(owner_from(self._session, tenant, all_tenants), name))

    def list(self, *, tenant: str | None = None, all_tenants: bool = False) -> list[AlertChannel]:
        """Return the channels of a tenant, by name; with ``all_tenants``, the channels of all owners: first
        those of rules that cover all tenants, then by tenant and name."""
        owner = owner_from(self._session, tenant, all_tenants)
        return list(map(_view, self._channels.everywhere() if owner is None else self._channels.of(owner)))

    def update(
        self,
        name: str,
        *,
        tenant: str | None = None,
        all_tenants: bool = False,
        if_revision: int | None = None,
        **changed: Unpack[ChannelChanges],
    ) -> AlertChannel:
        """Change the kind, the URL or the secret of a channel. ``secret=None`` removes it."""
        refuse_unknown(changed, FIELDS, "an alert channel")

        def decide(present: StoredChannel) -> StoredChannel:
            wanted = replace(present, **changed)
            check(wanted.kind, wanted.url, wanted.secret)
            return wanted

        owner = owner_from(self._session, tenant, all_tenants)
        return _view(self._channels.change(owner, name, "update", if_revision, decide))

    def delete(
        self,
        name: str,
        *,
        tenant: str | None = None,
        all_tenants: bool = False,
        if_revision: int | None = None,
    ) -> None:
        """Delete a channel; ``ChannelInUse`` if rules announce on it."""
        owner = owner_from(self._session, tenant, all_tenants)
        users = [each.name for each in self._rules.of(owner) if name in each.body.to]
        if users:
            raise ChannelInUse(owner, name, users)
        self._channels.delete(owner, name, if_revision)

    def test(self, name: str, *, tenant: str | None = None, all_tenants: bool = False) -> Delivery:
        """Write a test message for the channel, which any live node or web process sends.

        ``app.alerts.delivery(id)`` says what became of it.
        """
        owner = owner_from(self._session, tenant, all_tenants)
        channel = self._channels.get(owner, name)
        store = self._session.store()
        now = store.now()
        key = delivery_id(secrets.token_hex(8), "test", name, now)
        message = replace(test_message(name, key, now), tenant=owner)
        body = StoredDelivery(
            message=message, channel=name, scope=ALL if owner is None else OWN, created_at=now, next_at=now
        )
        record = Record(
            kind=PENDING, tenant=owner_of(owner), key=key, body=encode(body), version=secrets.randbits(53)
        )
        self._channels.note(owner, channel.name, "test")
        store.put_record(record)
        store.hint()
        return delivery_view(record, body)

    aadd = twin(add)
    adeclare = twin(declare)
    aget = twin(get)
    alist = twin(list)
    aupdate = twin(update)
    adelete = twin(delete)
    atest = twin(test)


def check(kind: str, url: object, secret: object) -> None:
    """Refuse a channel that can't work; the error does not show its secrets."""
    # Imported when the first channel is written or shown: most processes do neither.
    from evenbeat.alerts.channels.making import check_channel

    check_channel(kind, url, secret)


def address_of(channel: StoredChannel) -> str:
    """Return what may be shown of a channel's URL."""
    from evenbeat.alerts.channels.making import shown_address

    return shown_address(channel)


def write_channel(
    channels: NamedRecords[StoredChannel], owner: str | None, name: str, wanted: StoredChannel
) -> Found[StoredChannel]:
    """Create the channel, or update it to match."""

    def merge(present: StoredChannel | None) -> StoredChannel:
        if present is None:
            return wanted
        return replace(
            present, kind=wanted.kind, url=wanted.url, secret=wanted.secret, managed_by=wanted.managed_by
        )

    return channels.declare(owner, name, merge)


def _view(found: Found[StoredChannel]) -> AlertChannel:
    channel = found.body
    return AlertChannel(
        name=found.name,
        tenant=found.owner,
        kind=channel.kind,
        address=address_of(channel),
        managed_by=channel.managed_by,
        revision=channel.revision,
    )

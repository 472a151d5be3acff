"""The receiver of the demo's alerts: a channel that names its variable reaches it."""

from __future__ import annotations

import os

import pytest

from evenbeat.alerts.channels.base import Channel, DeliveryFailed
from evenbeat.alerts.channels.making import make_channel
from evenbeat.alerts.texts import test_message as message_of
from evenbeat.demo.on_call import CHANNEL, CHANNEL_VARIABLE, OnCall
from evenbeat.rules.alert_records import StoredChannel


def channel() -> Channel:
    stored = StoredChannel(kind="webhook", url=f"env:{CHANNEL_VARIABLE}")
    return make_channel(stored, os.environ, frozenset(["127.0.0.1"]))


def test_an_alert_reaches_the_receiver_while_it_listens() -> None:
    titles: list[str] = []
    with OnCall(titles.append):
        channel().send(message_of(CHANNEL, "1", 0))
    assert titles == ["Test of channel: on-call"]
    with pytest.raises(DeliveryFailed, match=CHANNEL_VARIABLE):
        channel()

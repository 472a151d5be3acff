"""Messages between our processes: what is not one ends the conversation, and nothing else."""

from __future__ import annotations

import os

import msgspec
import pytest

from evenbeat.processes.channel import LONGEST, Channel


class Hello(msgspec.Struct, tag=True):
    text: str


def test_garbage_that_a_job_writes_closes_the_channel_and_takes_no_memory() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", 0) as reader, os.fdopen(writing, "wb", 0) as writer:
        channel = Channel(reader, writer, msgspec.json.Decoder(Hello))
        assert channel.send(Hello("there"))
        assert channel.receive() == Hello("there")
        os.write(writing, b"\xff" * 64)
        assert channel.receive() is None


@pytest.mark.parametrize(("length", "accepted"), [(LONGEST + 1, False), (2, True)])
def test_a_length_is_accepted_up_to_the_longest_message(length: int, accepted: bool) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", 0) as reader, os.fdopen(writing, "wb", 0) as writer:
        channel = Channel(reader, writer, msgspec.json.Decoder(dict))
        os.write(writing, length.to_bytes(4, "big") + b"{}")
        assert (channel.receive() is not None) is accepted

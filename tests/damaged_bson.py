"""Documents for MongoDB that the driver would not write, as other clients and damaged files leave them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import bson
from bson.raw_bson import RawBSONDocument


class Damaged(NamedTuple):
    """A value that no version of the driver reads as it was written."""

    type: int
    raw: bytes


def not_utf_8(text: bytes) -> Damaged:
    """Return a text with these bytes."""
    return Damaged(0x02, (len(text) + 1).to_bytes(4, "little") + text + b"\0")


def not_binary(content: bytes) -> Damaged:
    """Return binary data whose inner length is not the length of its content. No codec option makes the
    driver read it."""
    return Damaged(0x05, (len(content) + 4).to_bytes(4, "little") + b"\x02\xff\xff\0\0" + content)


def document(fields: Mapping[str, Any]) -> RawBSONDocument:
    """Return a document to insert."""
    elements = b"".join(
        bytes([value.type]) + name.encode() + b"\0" + value.raw
        if isinstance(value, Damaged)
        else bson.encode({name: value})[4:-1]
        for name, value in fields.items()
    )
    return RawBSONDocument((len(elements) + 5).to_bytes(4, "little") + elements + b"\0")

"""Ids that the driver can't write as they are stored, and filters that find their documents. Pure.

Other clients, and damaged files, leave texts that are not UTF-8. The driver replaces the wrong bytes when it
reads such an ``_id``: a filter with that text finds no document. Nobody could quarantine the document, and it
would stay at the head of its queue. So filters of ids that were read contain the bytes that are stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument

from evenbeat.stores.mongo.location import Document

REPLACED = "\ufffd"
"""What the driver reads in place of wrong bytes."""

_ARRAY = 0x04


class DamagedId(str):
    """An ``_id`` as text for people, with the bytes that are stored."""

    type: int
    raw: bytes

    @classmethod
    def of(cls, kind: int, raw: bytes) -> DamagedId:
        # The text for people differs from id to id. A stored text begins with its length and ends with NUL.
        is_text = kind in (0x02, 0x0D, 0x0E)
        made = cls(raw[4:-1].decode(errors="backslashreplace") if is_text else raw.hex())
        made.type, made.raw = kind, raw
        return made


def is_doubtful(found: Any) -> bool:
    """Return whether an ``_id`` may differ from the one that is stored."""
    if isinstance(found, str):
        return REPLACED in found
    return isinstance(found, dict) and any(map(is_doubtful, found.values()))


def has_doubtful(documents: Iterable[Document]) -> bool:
    """Return whether a document may have another ``_id`` than the one that is stored. Takes 0.2 us each."""
    for one in documents:
        found = one.get("_id")
        if REPLACED in found if type(found) is str else is_doubtful(found):
            return True
    return False


def exactly(found: Any) -> Any:
    """Return the condition of an ``_id``."""
    return _operators({"$eq": found}) if isinstance(found, DamagedId) else found


def among(ids: Iterable[Any]) -> Mapping[str, Any]:
    """Return the condition of one of several ``_id``s."""
    listed = list(ids)
    is_damaged = any(isinstance(one, DamagedId) for one in listed)
    return _operators({"$in": listed}) if is_damaged else {"$in": listed}


def after(found: Any, **more: Any) -> Mapping[str, Any]:
    """Return the condition of the ``_id``s after this one. ``more``: other operators, without their ``$``."""
    conditions = {"$gt": found, **{f"${name}": value for name, value in more.items()}}
    return _operators(conditions) if isinstance(found, DamagedId) else conditions


def after_name(name: str) -> Document:
    """Return the condition of the names after this one. Names are ASCII.

    ``name`` may be a text that was not UTF-8, and is not as it is stored. All names that begin as it does
    come before it: this condition passes over damaged ones that begin in the same way.
    """
    begin = name.partition(REPLACED)[0]
    if begin == name:
        return {"$gt": name}
    return {"$gte": begin[:-1] + chr(ord(begin[-1]) + 1)} if begin else {"$in": []}


def in_order(found: Any) -> bytes:
    """Return the key by which the server sorts ``_id``s that are texts."""
    return found.raw[4:] if isinstance(found, DamagedId) else str(found).encode(errors="replace")


def document(elements: Iterable[bytes]) -> bytes:
    """Return the encoded document of encoded elements."""
    content = b"".join(elements)
    return (len(content) + 5).to_bytes(4, "little") + content + b"\0"


def element(kind: int, name: str, raw: bytes) -> bytes:
    return bytes([kind]) + name.encode() + b"\0" + raw


def _operators(conditions: Mapping[str, Any]) -> RawBSONDocument:
    return RawBSONDocument(document(_encoded(name, value) for name, value in conditions.items()))


def _encoded(name: str, value: Any) -> bytes:
    if isinstance(value, DamagedId):
        return element(value.type, name, value.raw)
    if isinstance(value, list):
        return element(_ARRAY, name, document(_encoded(str(at), one) for at, one in enumerate(value)))
    return bson.encode({name: value})[4:-1]

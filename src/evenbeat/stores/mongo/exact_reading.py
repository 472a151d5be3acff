"""Reads documents, and those that the driver can't decode one by one, without their damaged values. Pure but
for the cursor.

The driver decodes the documents of a reply together: one that it can't decode would fail the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import bson
from bson.codec_options import CodecOptions
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection

from evenbeat.stores.mongo.damaged_ids import DamagedId, document, element, has_doubtful
from evenbeat.stores.mongo.location import Document

OpenCursor: TypeAlias = Callable[[Collection[Any]], Any]
"""Sends a query to a collection, and returns the cursor."""

_RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)
_ARRAY, _DOCUMENT = 0x04, 0x03
# The sizes of values by their types. Other types begin with a length, or are two texts that end with a NUL.
_FIXED = {0x01: 8, 0x06: 0, 0x07: 12, 0x08: 1, 0x09: 8, 0x0A: 0, 0x10: 4, 0x11: 8, 0x12: 8, 0x13: 16}
_FIXED |= {0x7F: 0, 0xFF: 0}
# What comes besides the length itself: documents, arrays and code with a scope count it in; binary data has a
# byte for its subtype; a pointer has an ObjectId.
_BESIDES = {0x02: 4, 0x03: 0, 0x04: 0, 0x05: 5, 0x0C: 16, 0x0D: 4, 0x0E: 4, 0x0F: 0}


class _Element(NamedTuple):
    type: int
    name: str
    raw: bytes


def read(collection: Collection[Document], open_cursor: OpenCursor, *, are_inside: bool) -> list[Document]:
    """Return the documents of a query. If one of them can't be decoded, or an ``_id`` may differ from the one
    that is stored, send the query again and decode each document alone.

    ``are_inside``: the documents are inside of arrays, in the documents of the reply.
    """
    try:
        with open_cursor(collection) as cursor:
            found: list[Document] = list(cursor)
        if are_inside:
            found = [one for whole in found for some in whole.values() if type(some) is list for one in some]
        if not has_doubtful(found):
            return found
    except BSONError:
        pass
    with open_cursor(collection.with_options(codec_options=_RAW)) as cursor:
        raws = [bytes(whole.raw) for whole in cursor]
    if are_inside:
        arrays = (part.raw for raw in raws for part in _elements(raw) if part.type == _ARRAY)
        raws = [part.raw for array in arrays for part in _elements(array) if part.type == _DOCUMENT]
    return [_read_alone(raw, collection.codec_options) for raw in raws]


def _read_alone(raw: bytes, options: CodecOptions[Any]) -> Document:
    """Decode a document without the values that can't be decoded. The ``_id`` is a DamagedId if the driver
    can't write it as it is stored."""
    found: Document = {}
    for part in _elements(raw):
        if part.name == "_id":
            found["_id"] = _exact_id(part)
            continue
        try:
            found |= bson.decode(document([element(*part)]), options)
        except BSONError:
            continue
    return found


def _exact_id(part: _Element) -> Any:
    whole = document([element(*part)])
    try:
        found = bson.decode(whole)
        if bson.encode(found) == whole:
            return found["_id"]
    except (BSONError, ValueError, OverflowError):
        pass
    return DamagedId.of(part.type, part.raw)


def _elements(raw: bytes) -> Iterator[_Element]:
    at = 4
    while at < len(raw) - 1:
        end = raw.index(b"\0", at)
        kind, name, start = raw[at], raw[at + 1 : end].decode(errors="replace"), end + 1
        if kind in _FIXED:
            at = start + _FIXED[kind]
        elif kind in _BESIDES:
            at = start + int.from_bytes(raw[start : start + 4], "little") + _BESIDES[kind]
        else:  # a regular expression and its options
            at = raw.index(b"\0", raw.index(b"\0", start) + 1) + 1
        yield _Element(kind, name, raw[start:at])

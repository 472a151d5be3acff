"""Decodes locked documents as the user's collection does. Pure."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import bson
from bson.codec_options import CodecOptions
from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.errors import BSONError, InvalidBSON
from bson.raw_bson import RawBSONDocument

from evenbeat.core.instants import FIRST, LAST, Instant, from_ms
from evenbeat.documents import paths
from evenbeat.documents.base import Fields, Found
from evenbeat.documents.mongo.collection import PLAIN, STRICT

_STRICT_PLAIN = STRICT.with_options(document_class=dict)


def readable_id(document: RawBSONDocument) -> Any:
    """Return the ``_id`` of a document that was read with ``STRICT``. Raise BSONError if a filter with this
    value would not find the document."""
    found = document["_id"]
    if isinstance(found, RawBSONDocument):
        # It is decoded only here. Handlers get it decoded, and their changes are written with that value.
        bson.decode(found.raw, _STRICT_PLAIN)
    elif isinstance(found, DBRef):
        raise InvalidBSON("a DBPointer, which the driver reads as a DBRef and writes as a document")
    return found


class Reader:
    """Makes ``Found`` of a raw document."""

    def __init__(self, fields: Fields, theirs: CodecOptions[Any]) -> None:
        self._fields = fields
        self._theirs = theirs

    def found(self, id_: Any, document: RawBSONDocument, seen: Instant, until: Instant) -> Found:
        # A time before Python's first year counts as the first instant.
        due, fields = max(seen, FIRST), self._fields
        try:
            data = self._decoded(document.raw, seen)
            return Found(
                id=data["_id"],
                sleep_until=due,
                locked_until=until,
                interval=paths.get(document, fields.interval),
                repeat_until=_moment(paths.get(document, fields.repeat_until)),
                auto_remove=paths.get(document, fields.auto_remove),
                data=data,
            )
        except Exception as error:  # a type decoder of the user's may raise anything
            data = self._salvaged(id_, document.raw, seen)
            return Found(data["_id"], due, until, data=data, trouble=str(error))

    def _salvaged(self, id_: Any, raw: bytes | memoryview, seen: Instant) -> dict[str, Any]:
        try:
            data: dict[str, Any] = bson.decode(raw, PLAIN)
        except BSONError:  # for example binary data of a wrong length: the whole document can't be decoded
            data = {"_id": id_}
        paths.put(data, self._fields.sleep_until, DatetimeMS(seen))
        return data

    def _decoded(self, raw: bytes | memoryview, seen: Instant) -> Any:
        """Return the document as the user's collection would have returned it before the lock."""
        document = bson.decode(raw, self._theirs)
        if isinstance(document, MutableMapping):
            paths.put(document, self._fields.sleep_until, self._date(seen))
            return document
        plain = bson.decode(raw, PLAIN)
        paths.put(plain, self._fields.sleep_until, DatetimeMS(seen))
        return bson.decode(bson.encode(plain), self._theirs)

    def _date(self, instant: Instant) -> Any:
        """Return a date with a time zone or without, as the user's collection does."""
        date = DatetimeMS(instant)
        if not FIRST <= instant <= LAST:
            return date
        return bson.decode(bson.encode({"date": date}), self._theirs)["date"]


def _moment(value: Any) -> Any:
    """Return the datetime nearest to a date; any other value as it is."""
    return from_ms(min(max(int(value), FIRST), LAST)) if isinstance(value, DatetimeMS) else value

"""JSON texts of payloads, results and records."""

from __future__ import annotations

from functools import lru_cache
from math import isfinite
from typing import Any, TypeVar

import msgspec

from evenbeat.core.checks import check_payload
from evenbeat.core.json_depth import TOO_DEEP, decode
from evenbeat.core.records import EARLIER_ERROR, EARLIER_KEPT, AttemptRecord, CatchUp, Execution
from evenbeat.errors import InvalidValue, shown

_encoder = msgspec.json.Encoder()
_attempts = msgspec.json.Decoder(tuple[AttemptRecord, ...])
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def to_json(value: Any, field: str = "payload") -> str:
    """Return a value as JSON text. Refuse a value that JSON can't express, or would change."""
    try:
        plain = msgspec.to_builtins(value)
        _check_plain(plain, field)
        text = _encoder.encode(plain).decode()
    except InvalidValue:
        raise
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        reason = TOO_DEEP if isinstance(error, RecursionError) else f"not JSON: {error}"
        raise InvalidValue(f"{field} is {reason}", field=field, value=shown(type(value).__name__)) from None
    return check_payload(text, field)


def _check_plain(value: Any, field: str) -> None:
    """Refuse values that the encoder would change: it writes NaN and infinity as null, and merges equal keys.

    This takes 0.4 us for a payload of two fields.
    """
    left = [value]
    while left:
        item = left.pop()
        kind = type(item)
        if kind is dict:
            if not all(type(key) is str for key in item):
                _check_keys(item, field)
            left += item.values()
        elif kind is list or kind is tuple:
            left += item
        elif kind is float and not isfinite(item):
            raise InvalidValue(
                f"{field} contains {item}, which JSON can't express",
                field=field,
                value=item,
                hint="write None or a text instead",
            )


def _check_keys(item: dict[Any, Any], field: str) -> None:
    """Refuse keys that JSON can't express, and keys that are equal as JSON texts."""
    written = msgspec.json.decode(_encoder.encode(dict.fromkeys(item)))
    for key in item:
        if isinstance(key, float) and not isfinite(key):
            raise InvalidValue(
                f"{field} has the key {key}, which JSON can't express",
                field=field,
                value=key,
                hint="use texts as keys",
            )
    if len(written) < len(item):
        twice = sorted(key for key in written if sum(str(other) == key for other in item) > 1)
        raise InvalidValue(
            f"{field} has keys that are equal in JSON: {shown(twice[0] if twice else item)}",
            field=field,
            value=twice[0] if twice else None,
            hint="use texts as keys",
        )


def from_json(text: str) -> Any:
    """Return the value of a JSON text. ``msgspec.DecodeError`` if it is not one that ``to_json`` writes."""
    return decode(text)


def read_definition(text: str) -> dict[str, Any]:
    """Return the declared fields of a schedule from the JSON text that ``changes.definition`` wrote."""
    try:
        fields: dict[str, Any] = {"after": "", "template": ""}
        fields |= msgspec.json.decode(text, type=dict[str, Any])
        fields["payload"] = encode(fields["payload"])
        fields["catch_up"] = msgspec.convert(fields["catch_up"], CatchUp)
        fields["execution"] = msgspec.convert(fields["execution"], Execution)
    except (msgspec.MsgspecError, UnicodeError, KeyError, RecursionError) as error:
        raise InvalidValue(
            f"the declared definition can't be read: {error}",
            field="declared",
            value=text,
            hint="declare it again, or update it",
        ) from None
    return fields


def encode(record: Any) -> str:
    """Return a record as JSON text, for stores that keep records whole."""
    return _encoder.encode(record).decode()


def with_attempt(earlier: str | None, attempt: AttemptRecord) -> str:
    """Return the JSON text of a run's earlier attempts with one more; keep only the newest."""
    if attempt.error is not None:
        attempt = msgspec.structs.replace(attempt, error=attempt.error[:EARLIER_ERROR])
    kept = (*read_attempts(earlier), attempt)[-EARLIER_KEPT:]
    return _encoder.encode(kept).decode()


def read_attempts(earlier: str | None) -> tuple[AttemptRecord, ...]:
    """Return the attempts of such a text; none if it can't be read, since they are only shown to people."""
    try:
        return () if earlier is None else _attempts.decode(earlier)
    except (msgspec.MsgspecError, UnicodeError):
        return ()


# Cached: a million rows have only a handful of different policies.
@lru_cache(maxsize=1024)
def encode_policy(policy: CatchUp | Execution) -> str:
    return _encoder.encode(policy).decode()


@lru_cache(maxsize=1024)
def decode_policy(text: str, kind: type[_Struct]) -> _Struct:
    return msgspec.json.decode(text, type=kind)

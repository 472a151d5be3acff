"""The payload of a run on the command line: a JSON object."""

from __future__ import annotations

import json
from typing import Any

import click


def _read(ctx: click.Context, param: click.Parameter, value: str | None) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        payload = json.loads(value, parse_constant=_refuse_constant)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not JSON: {error}", ctx, param) from None
    if not isinstance(payload, dict):
        example = '{"team": "ops"}'
        raise click.BadParameter(f"{value!r} is not an object of named arguments: {example}", ctx, param)
    return payload


def _refuse_constant(word: str) -> None:
    """Refuse NaN and infinity, which Python's reader takes for numbers."""
    raise ValueError(f"it has no {word}; write null or a text instead")


payload_option = click.option(
    "--payload", metavar="JSON", callback=_read, help='The named arguments: \'{"team": "ops"}\'.'
)

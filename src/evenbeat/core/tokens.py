"""Roles, and tokens as users see them."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias, get_args

import msgspec

Role: TypeAlias = Literal["viewer", "operator", "admin"]
"""``viewer`` reads; ``operator`` also pauses, resumes, runs, retries and cancels; ``admin`` also creates,
changes and deletes schedules, and manages tokens. Payloads and results are masked for viewers."""
ROLES: tuple[Role, ...] = get_args(Role)


def allows(role: Role, needed: Role) -> bool:
    """Return whether a role includes another one."""
    return ROLES.index(role) >= ROLES.index(needed)


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """An access token, without its secret."""

    id: str
    name: str
    """Who or what uses it. Audit entries show it."""
    role: Role
    tenant: str | None
    """The only tenant that it may see and change; None for all tenants."""
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None
    """To the minute."""


class NewToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token that was just created."""

    secret: str
    """The text to send as ``Authorization: Bearer …``. The store keeps only its hash: nobody can read it
    again."""
    token: Token

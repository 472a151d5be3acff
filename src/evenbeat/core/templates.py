"""Templates as users get them back: named sets of options that schedules inherit."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from evenbeat.core.results import RefusedItem


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """A named set of options. ``schedules.list(template=…)`` returns the schedules that inherit them."""

    name: str
    tenant: str
    options: dict[str, Any]
    """The options as users write them: the trigger and durations as text, tags as a list."""
    words: str
    """The trigger in plain English; empty without a trigger."""
    built_in: bool
    """Whether every tenant has it, and nobody can change it."""
    revision: int
    """The number of changes; 0 of a built-in template."""
    created_at: datetime | None
    """None of a built-in template."""
    updated_at: datetime | None


class TemplateEffect(msgspec.Struct, frozen=True, kw_only=True):
    """What a change of a template changes about one schedule: the options that differ."""

    schedule: str
    before: dict[str, Any]
    after: dict[str, Any]


class TemplateChange(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of ``templates.set``."""

    template: Template
    """As it is now; of a dry run, as it would be."""
    schedules: int
    """How many schedules inherit from it."""
    changed: int
    """How many of them were changed; of a dry run, how many would be."""
    refused: tuple[RefusedItem, ...]
    """Schedules that could not be changed, each with the reason; of a dry run, those that would be refused.
    Setting the template again tries again."""
    sample: tuple[TemplateEffect, ...]
    """What changes about the first few of them."""

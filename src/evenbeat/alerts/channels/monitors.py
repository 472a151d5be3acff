"""What channels of monitors share: the name and the id under which a monitor knows a job and its run."""

from __future__ import annotations

import hashlib
import re
import uuid

from evenbeat.core.alerts import Message

LONGEST_SLUG = 50
_NAMESPACE = uuid.UUID("5b1c2f0e-6d0a-5a57-9d8e-0b6f5d2c7a41")
_OTHER = re.compile(r"[^a-z0-9_-]+")
_IS_GOOD = {"opened": False, "escalated": False, "recovered": True, "test": True}


def is_good(message: Message) -> bool:
    """Return whether a message tells a monitor that all is well: a run succeeded, or an incident ended.

    A cancelled run did not do its work, so it counts as a failure.
    """
    return message.outcome == "succeeded" if message.announcement == "run" else _IS_GOOD[message.announcement]


def event_id(message: Message) -> uuid.UUID:
    """Return the id of a run, or of another announcement, as monitors want it: the same at each try."""
    identity = f"run/{message.tenant}/{message.run}" if message.announcement == "run" else message.id
    return uuid.uuid5(_NAMESPACE, identity.encode(errors="replace").decode())


def slug(message: Message) -> str:
    """Return the name of a schedule in the form that monitors take: 1 to 50 of a-z, 0-9, _ and -.

    Two names never have the same slug: one that had to be changed ends with a hash of the name. So does that
    of a task, if a run has no schedule.
    """
    if message.announcement == "test":
        return "evenbeat-test"
    name = message.schedule or f"{message.subject_kind}/{message.subject}"
    if message.tenant not in (None, "default"):
        name = f"{message.tenant}/{name}"
    plain = _OTHER.sub("-", name.lower())
    if plain == name and len(name) <= LONGEST_SLUG and not name.isdigit():
        return name
    mark = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:8]
    return f"{plain[: LONGEST_SLUG - 9].strip('-') or 'job'}-{mark}"

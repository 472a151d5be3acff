"""The store, for commands about one row in quarantine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from evenbeat.cli.failures import Failed
from evenbeat.cli.store_input import opened
from evenbeat.observe.phrases import command_line
from evenbeat.record_errors import QuarantineNotFound, QuarantineRefused

if TYPE_CHECKING:
    from evenbeat.app.scheduler import Scheduler


@contextmanager
def quarantined(store: str | None, tenant: str | None) -> Iterator[Scheduler]:
    """Yield a scheduler; a row that is not in quarantine, or must stay there, ends the command."""
    with opened(store, tenant) as app:
        try:
            yield app
        except QuarantineNotFound as error:
            raise Failed(
                str(error), f"'{command_line('quarantine list', app.tenant)}' shows what is"
            ) from error
        except QuarantineRefused as error:
            raise Failed(str(error)) from error

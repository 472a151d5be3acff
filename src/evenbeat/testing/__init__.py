"""For tests: an app in virtual time, a virtual clock, and the contracts of stores and of document stores."""

from typing import TYPE_CHECKING, Any

from evenbeat.testing.clock import VirtualClock
from evenbeat.testing.journeys import TravelTooLong
from evenbeat.testing.virtual import VirtualScheduler, virtual

if TYPE_CHECKING:
    from evenbeat.testing.contract import StoreContract
    from evenbeat.testing.documents import DocumentsContract, DocumentsUnderTest, StoredDocument

__all__ = [
    "DocumentsContract",
    "DocumentsUnderTest",
    "StoreContract",
    "StoredDocument",
    "TravelTooLong",
    "VirtualClock",
    "VirtualScheduler",
    "virtual",
]

# Imported when they are first asked for: they import pytest.
_CONTRACTS = {
    "StoreContract": "evenbeat.testing.contract",
    "DocumentsContract": "evenbeat.testing.documents",
    "DocumentsUnderTest": "evenbeat.testing.documents",
    "StoredDocument": "evenbeat.testing.documents",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _CONTRACTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_CONTRACTS[name]), name)
    return found

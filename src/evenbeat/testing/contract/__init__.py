"""The contract of stores as tests, for Evenbeat's own stores and for those of third parties.

Subclass it, create the store in ``make``, and run it with pytest::

    class TestMyStore(StoreContract):
        @contextmanager
        def make(self, clock, tmp_path):
            store = MyStore(tmp_path / "my.db", clock=clock)
            yield lambda: store          # called for each store object that a test needs on the same data
            store.close()
"""

from evenbeat.testing.contract.base import Handles
from evenbeat.testing.contract.calendars import CalendarContract
from evenbeat.testing.contract.claiming import ClaimingContract
from evenbeat.testing.contract.dependencies import DependencyContract
from evenbeat.testing.contract.edges import EdgeContract
from evenbeat.testing.contract.firing import FiringContract
from evenbeat.testing.contract.flows import FlowsContract
from evenbeat.testing.contract.history import HistoryContract
from evenbeat.testing.contract.identity import IdentityContract
from evenbeat.testing.contract.limits import LimitContract
from evenbeat.testing.contract.moving import MovingContract
from evenbeat.testing.contract.queues import QueueContract
from evenbeat.testing.contract.records import RecordContract
from evenbeat.testing.contract.refusals import RefusalContract
from evenbeat.testing.contract.retention import RetentionContract
from evenbeat.testing.contract.schedules import ScheduleContract
from evenbeat.testing.contract.settling import SettlingContract
from evenbeat.testing.contract.tenants import TenantContract
from evenbeat.testing.contract.waiting import WaitingContract
from evenbeat.testing.contract.waking import WakingContract

__all__ = ["Handles", "StoreContract"]


class StoreContract(
    ScheduleContract,
    FiringContract,
    RefusalContract,
    CalendarContract,
    WaitingContract,
    DependencyContract,
    ClaimingContract,
    MovingContract,
    SettlingContract,
    FlowsContract,
    IdentityContract,
    HistoryContract,
    RetentionContract,
    LimitContract,
    QueueContract,
    RecordContract,
    TenantContract,
    EdgeContract,
    WakingContract,
):
    """The tests that every store must pass. A subclass defines ``make``."""

    __test__ = False  # subclasses are collected, not this

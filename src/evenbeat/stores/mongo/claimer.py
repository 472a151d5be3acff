"""Chooses between the two ways to claim runs: the plain one, for one tenant without limits, and the one that
considers limits and the turns of tenants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from evenbeat.core.instants import Instant
from evenbeat.errors import RowRefused
from evenbeat.rules.limits import choose
from evenbeat.stores.base import Claim
from evenbeat.stores.mongo import claims, limited_claims, turns
from evenbeat.stores.mongo.claims import ClaimedRuns
from evenbeat.stores.mongo.connections import Connections
from evenbeat.stores.mongo.left_out import SessionWithout
from evenbeat.stores.mongo.limited_claims import LimitedClaim, Survey
from evenbeat.stores.mongo.session import Contended, Duplicate, Session
from evenbeat.stores.refusals import ClaimRefused

# How many times a claim that met others tries again.
_TRIES = 4
# The largest window: a worker under contention claims among up to this many times as many runs as it wants.
_LARGEST_WINDOW = 8


class Claimer:
    """Claims runs, and remembers what the last claim has found."""

    def __init__(self, connections: Connections, now: Callable[[], Instant]) -> None:
        self._connections = connections
        self._now = now
        self._window = 1
        # Whether there are neither limits nor cohorts nor several tenants; the tenant that had queued runs.
        self._is_plain = True
        self._tenant = "default"
        # The priorities that queued runs had.
        self._priorities: Sequence[int] = ()

    def claim(self, wanted: Claim) -> ClaimedRuns:
        due = min(wanted.now, self._now())
        # Most installations have one tenant and no limits: their claims read less.
        claimed = self._claim_plainly(wanted, due) if self._is_plain else None
        return self._claim_in_turn(wanted, due) if claimed is None else claimed

    def _claim_plainly(self, wanted: Claim, due: Instant) -> ClaimedRuns | None:
        """Claim runs of the only tenant; None if there are limits or other tenants, or if the claim holds
        runs already."""
        session = self._session(wanted)
        tenant = self._tenant
        next_due: Instant | None = None
        for tries in range(_TRIES):
            # As in fire_due: an idle worker only reads.
            seen = claims.read_candidates(session, wanted, due, self._window, tenant)
            if not seen.is_plain:
                return None
            next_due = seen.next_due
            if not seen.ids:
                break
            if self._take(wanted, seen.ids, due) != 0:
                return self._held(wanted, [tenant])
            self._connections.step_aside(tries)
        # Nothing is due, or other workers are claiming the due runs.
        return ClaimedRuns((), [], next_due)

    def _claim_in_turn(self, wanted: Claim, due: Instant) -> ClaimedRuns:
        """Claim runs of the tenants in turn, as far as limits admit them."""
        session = self._session(wanted)
        for tries in range(_TRIES):
            seen = self._survey(wanted)
            if not seen.holds and limited_claims.give_cohorts(session, wanted, seen, due):
                seen = self._survey(wanted)
            used = limited_claims.usage(session, wanted, seen, self._now())
            admitted = limited_claims.next_admitted(wanted, seen, used, due)
            if seen.holds or not wanted.limit:
                return self._held(wanted, seen.tenants, admitted=admitted)
            search = turns.Search(due, wanted.turn, turns.unlimited(wanted, seen.limits))
            room = wanted.limit * self._window
            free = turns.candidates(turns.find_in_turn(session, seen.waiting, search, room))
            is_contended = False
            if limited_claims.may_start(wanted, seen, used, due):
                claimed = self._claim_limited(LimitedClaim(wanted, due, self._now(), seen, free))
                if claimed is not None:
                    return claimed
                is_contended, admitted = True, due
            order = [run.id for run in choose(free, room, wanted.turn)]
            order = claims.part_of(order, wanted)
            taken = self._take(wanted, order, due) if order else 0
            if taken == wanted.limit:
                return self._held(wanted, [], order, due)
            if taken != 0 or not (order or is_contended):
                return self._held(wanted, seen.tenants, order, admitted)
            self._connections.step_aside(tries)
        return ClaimedRuns((), [], due)

    def _session(self, wanted: Claim) -> Session:
        return SessionWithout.around(self._connections.session(), wanted.without)

    def _claim_limited(self, claim: LimitedClaim) -> ClaimedRuns | None:
        """Claim limited runs, and others along with them; None if another worker claims limited ones now."""
        try:
            return self._connections.once(
                lambda session, _: limited_claims.claim_limited(
                    SessionWithout.around(session, claim.wanted.without), claim
                ),
                careful=False,
            )
        except (Contended, Duplicate):
            self._connections.contended()
            return None

    def _survey(self, wanted: Claim) -> Survey:
        session = self._session(wanted)
        seen = limited_claims.survey(session, wanted, self._priorities or claims.PRIORITIES)
        if not seen.is_complete:
            seen = limited_claims.survey(session, wanted)
        self._priorities = sorted({one.priority for one in seen.waiting})
        self._is_plain = seen.is_plain
        # Only a plain text: not a DamagedId.
        self._tenant = next((tenant for tenant in seen.tenants if type(tenant) is str), self._tenant)
        return seen

    def _take(self, wanted: Claim, ids: list[str], due: Instant) -> int | None:
        """Try to claim these runs, and return how many the claim has taken; None if that is unknown."""
        session = self._connections.session()
        try:
            taken = claims.take(session, wanted, ids, due, self._now())
        except RowRefused as error:
            # The claim holds the runs before the refused one: repeated with the same token, it finds them.
            session.await_majority()
            raise ClaimRefused(ids, error) from error
        if taken is None:
            self._connections.contended()
        # After a conflict the next claim chooses among more runs, without one among fewer.
        self._window = (
            max(1, self._window // 2) if taken == len(ids) else min(2 * self._window, _LARGEST_WINDOW)
        )
        return taken

    def _held(
        self,
        wanted: Claim,
        tenants: Sequence[Any],
        order: Sequence[str] = (),
        admitted: Instant | None = None,
    ) -> ClaimedRuns:
        """Read the runs that the claim holds. ``admitted``: when limits admit another run."""
        session = self._session(wanted)
        found = claims.held(session, wanted, tenants, order)
        session.announce("committed")
        moments = [moment for moment in (found.next_due, admitted) if moment is not None]
        return found._replace(next_due=min(moments, default=None))

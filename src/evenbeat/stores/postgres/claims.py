"""Claims runs."""

from __future__ import annotations

from evenbeat.stores.base import Claim, Claimed
from evenbeat.stores.postgres import claim_statements as sql
from evenbeat.stores.postgres import limited_claims
from evenbeat.stores.postgres.encoding import marked, unmarked_at
from evenbeat.stores.postgres.free_claims import ClaimResult, committed, free_runs, started
from evenbeat.stores.postgres.outlook import Groups, Guess, Outlook, outlook_statement, scope
from evenbeat.stores.postgres.runs import FREE_TEXT, read_rows
from evenbeat.stores.postgres.session import Statement, Transaction
from evenbeat.stores.rows import readable_runs


def claim(transaction: Transaction, wanted: Claim, guess: Guess | None, clock: int | None) -> ClaimResult:
    """Claim runs.

    The first round trip reads and locks what the guess names, before the due priorities are known. So a
    claim without limits takes two round trips: one reads and locks, one writes.
    """
    token = {"worker": marked(wanted.worker), "token": marked(wanted.token)}
    known: list[Statement] = [(sql.LOCK_CLAIM, token), outlook_statement(wanted, clock)]
    of_claim = scope(wanted, clock)
    guessed: list[Statement] = []
    if guess is not None:
        if guess.limits is None:
            guessed = of_claim.claimable(guess.priority, guess.tenant, wanted.limit)
        else:
            guessed = limited_claims.survey_statements(wanted, guess.limits, clock)
    _, (row,), *of_guess = transaction.together("select claimable", [*known, *guessed])
    outlook = Outlook(row)
    due = min(wanted.now, transaction.now)
    if outlook.is_repetition:
        # The worker repeats a claim whose reply was lost. The commit releases the rows locked above.
        (held,) = transaction.commit("select claimed", [(sql.SELECT_CLAIMED, token)])
        runs = tuple(readable_runs(unmarked_at(held, FREE_TEXT)))
        return ClaimResult(Claimed(runs, outlook.next_claim(due)))
    if outlook.is_limited(wanted):
        is_surveyed = guess is not None and guess.limits is outlook.limits
        return limited_claims.claim(transaction, wanted, outlook, clock, of_guess if is_surveyed else None)
    if guess is not None and guess.limits is not None:
        guess = None
    chosen = free_runs(transaction, wanted, of_claim, outlook.groups, guess, of_guess)
    runs_read, to_quarantine = read_rows(chosen)
    taken, statements = started(transaction, wanted, runs_read)
    # No limit concerns the claim, and none can be set before it is committed.
    *_, ((found,),) = committed(transaction, taken, [*statements, of_claim.groups_statement])
    coming = Groups(found)
    return ClaimResult(Claimed(tuple(taken), coming.next_due), coming.guess(due), to_quarantine)

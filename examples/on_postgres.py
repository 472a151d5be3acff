"""Two nodes on PostgreSQL. One of them is killed in the middle of a job, and the other one takes over.

    EVENBEAT_STORE=postgresql://localhost/postgres python examples/on_postgres.py

Or by hand, in two terminals, and kill one of them:

    EVENBEAT_STORE=postgresql://localhost/postgres python examples/on_postgres.py node
    … python examples/on_postgres.py job       a job to kill one of them in the middle of
    … python examples/on_postgres.py end       delete the schedule

Everything is in the schema "evenbeat"; another one is named by ?schema=… in the URL. Afterwards, look at
it with psql: SELECT id, state, attempt, worker FROM evenbeat.runs;
"""

from __future__ import annotations

import os

import takeover

if __name__ == "__main__":
    takeover.main(os.environ.get("EVENBEAT_STORE", "postgresql://localhost/postgres"), __file__)

"""Two nodes on Redis or Valkey. One of them is killed in the middle of a job, and the other one takes over.

    EVENBEAT_STORE=redis://localhost:6379/0 python examples/on_valkey.py

Or by hand, in two terminals, and kill one of them:

    EVENBEAT_STORE=redis://localhost:6379/0 python examples/on_valkey.py node
    … python examples/on_valkey.py job       a job to kill one of them in the middle of
    … python examples/on_valkey.py end       delete the schedule

Every key begins with {evenbeat}; another prefix is named by ?prefix=… in the URL. Afterwards, look at it
with redis-cli: HGETALL {evenbeat}:schedules:heartbeat
"""

from __future__ import annotations

import os

import takeover

if __name__ == "__main__":
    takeover.main(os.environ.get("EVENBEAT_STORE", "redis://localhost:6379/0"), __file__)

"""Two nodes on MongoDB. One of them is killed in the middle of a job, and the other one takes over.

    EVENBEAT_STORE=mongodb://localhost:27017/evenbeat python examples/on_mongo.py

Or by hand, in two terminals, and kill one of them:

    EVENBEAT_STORE=mongodb://localhost:27017/evenbeat python examples/on_mongo.py node
    … python examples/on_mongo.py job       a job to kill one of them in the middle of
    … python examples/on_mongo.py end       delete the schedule

A replica set, of one node at least; the database is the path of the URL. Afterwards, look at it with
mongosh: db.runs.find({}, {state: 1, attempt: 1, worker: 1})
"""

from __future__ import annotations

import os

import takeover

if __name__ == "__main__":
    takeover.main(os.environ.get("EVENBEAT_STORE", "mongodb://localhost:27017/evenbeat"), __file__)

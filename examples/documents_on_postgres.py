"""Invoices in a PostgreSQL table as jobs: three processes send them, one is killed, and none is lost.

    EVENBEAT_STORE=postgresql://localhost/postgres python examples/documents_on_postgres.py

The example creates the table, and drops it at its end.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psycopg

from evenbeat.documents import Document, PostgresDocuments, Processor

URL = os.environ.get("EVENBEAT_STORE", "postgresql://localhost/postgres")
COUNT = 300


def send(invoice: Document) -> None:
    time.sleep(0.01)  # sending takes a moment
    if invoice["customer"] == 13 and not invoice["tries"]:
        invoice.update(tries=1)
        invoice.reschedule("1s")  # the printer is out of paper: try again in a second
        return
    # Written in the same step as the result of the job: both, or neither.
    invoice.update(sent_by=os.getpid())


processor = Processor(
    PostgresDocuments(
        URL, "example_invoices", sleep_until="send_at", condition="region = %s", parameters=["eu"]
    ),
    send,
    lock_duration="2s",  # another process takes the invoices of a dead one after this time
    concurrency=4,
)


def main() -> None:
    with psycopg.connect(URL, autocommit=True) as db:
        db.execute("DROP TABLE IF EXISTS example_invoices")
        db.execute(
            "CREATE TABLE example_invoices (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer int,"
            " region text, send_at timestamptz, sent_by int, tries int NOT NULL DEFAULT 0)"
        )
        db.execute("CREATE INDEX ON example_invoices (send_at) WHERE send_at IS NOT NULL")
        insert = (
            "INSERT INTO example_invoices (customer, region, send_at)"
            " SELECT n, %s, now() FROM generate_series(1, %s) n"
        )
        db.execute(insert, ["eu", COUNT])
        db.execute(insert, ["us", 5])  # not jobs: they do not meet the condition

        senders = [subprocess.Popen([sys.executable, __file__, "sender"]) for _ in range(3)]
        done = 0
        while done < COUNT:
            time.sleep(0.2)
            row = db.execute("SELECT count(*) FROM example_invoices WHERE send_at IS NULL").fetchone()
            assert row is not None
            if not done and row[0]:
                senders[0].kill()
                print(f"killed {senders[0].pid} in the middle of its work")
            if row[0] > done:
                print(f"{row[0]} of {COUNT} sent")
            done = row[0]
        for sender in senders:
            sender.terminate()
            sender.wait()

        for sent_by, count in db.execute(
            "SELECT sent_by, count(*) FROM example_invoices WHERE region = 'eu' GROUP BY 1 ORDER BY 1"
        ):
            print(f"process {sent_by} sent {count}")
        left = db.execute(
            "SELECT region, count(*) FROM example_invoices WHERE send_at IS NOT NULL GROUP BY 1"
        )
        assert left.fetchall() == [("us", 5)]
        db.execute("DROP TABLE example_invoices")


if __name__ == "__main__":
    if sys.argv[1:] == ["sender"]:
        processor.run()
    else:
        main()

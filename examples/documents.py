"""Reminders in an SQLite table as jobs: once, deferred, every second for a while, and once with auto_remove.

python examples/documents.py
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from evenbeat.documents import Document, Processor, SqliteDocuments


def remind(reminder: Document) -> None:
    now = datetime.now(UTC)
    late = (now - reminder.sleep_until) / timedelta(milliseconds=1)
    print(f"{now:%H:%M:%S}  {reminder['text']:<22}  {late:,.0f} ms late")


def main(folder: Path) -> None:
    db = sqlite3.connect(folder / "reminders.db")
    db.execute(
        "CREATE TABLE reminders (id INTEGER PRIMARY KEY, text TEXT,"
        " sleep_until TEXT, interval TEXT, repeat_until TEXT, auto_remove INT)"
    )
    now = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
    rows = [
        ("once", now, None, None, 0),
        ("in two seconds", now + timedelta(seconds=2), None, None, 0),
        ("every second, 3 s long", now, "* * * * * *", now + timedelta(seconds=3), 0),
        ("once, and then deleted", now, None, None, 1),
        ("never: no date", None, None, None, 0),
        ("at half past twenty-five", now, "30 25 * * *", None, 0),
    ]
    with db:
        # Times are texts as Python and SQLite write them: 2026-11-15 12:00:00, in UTC.
        db.executemany(
            "INSERT INTO reminders (text, sleep_until, interval, repeat_until, auto_remove)"
            " VALUES (?, ?, ?, ?, ?)",
            [
                (text, due and str(due), interval, end and str(end), gone)
                for text, due, interval, end, gone in rows
            ],
        )

    processor = Processor(
        SqliteDocuments(folder / "reminders.db", "reminders"),
        remind,
        on_error=lambda error, reminder: print(f"          {reminder['text'] if reminder else ''}: {error}"),
        concurrency=4,
    )
    with processor:
        time.sleep(4.5)

    print("\nthe table afterwards:")
    left = db.execute("SELECT text, sleep_until FROM reminders").fetchall()
    for text, due in left:
        print(f"  {text:<26} {'done' if due is None else f'held: {due}'}")
    assert [text for text, due in left if due is None] == [
        "once",
        "in two seconds",
        "every second, 3 s long",
        "never: no date",
    ]
    assert "once, and then deleted" not in dict(left)
    db.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as there:
        main(Path(there))

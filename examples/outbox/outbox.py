"""A transactional outbox.

`python outbox.py order DB CUSTOMER ITEM` takes an order, `python outbox.py relay DB` sends jobs.
"""

from __future__ import annotations

import json
import sqlite3
import sys

from logqueue import Client, NewRecord

QUEUE = "orders"
BATCH_MAX = 500
WEEK_MS = 7 * 24 * 3600 * 1000

SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer TEXT, item TEXT);
CREATE TABLE IF NOT EXISTS outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT, batch INTEGER);
"""


def open_database(path: str) -> sqlite3.Connection:
    """The shop's database, with its tables."""
    database = sqlite3.connect(path)
    database.executescript(SCHEMA)
    return database


def place_order(database: sqlite3.Connection, customer: str, item: str) -> int:
    """Take an order and note its job, both or neither."""
    with database:
        order = database.execute(
            "INSERT INTO orders (customer, item) VALUES (?, ?)", (customer, item)
        ).lastrowid
        assert order is not None
        job = json.dumps({"order": order, "item": item})
        database.execute("INSERT INTO outbox (job) VALUES (?)", (job,))
    return order


def next_batch(database: sqlite3.Connection) -> int | None:
    """The batch to send next: one that was begun, else a new one of what waits.

    Once made, a batch never changes: the same key must always mean the same records.
    """
    with database:
        (begun,) = database.execute("SELECT min(batch) FROM outbox").fetchone()
        if begun is not None:
            return int(begun)
        (first,) = database.execute("SELECT min(id) FROM outbox").fetchone()
        if first is None:
            return None
        database.execute(
            "UPDATE outbox SET batch = ? WHERE id IN (SELECT id FROM outbox ORDER BY id LIMIT ?)",
            (first, BATCH_MAX),
        )
        return int(first)


def send(database: sqlite3.Connection, client: Client, batch: int) -> int:
    """Append a batch under its key; appended again, it is stored no second time."""
    rows = database.execute("SELECT job FROM outbox WHERE batch = ? ORDER BY id", (batch,))
    jobs = [NewRecord(json.loads(job), meta={"batch": batch}) for (job,) in rows]
    return client.append(QUEUE, jobs, key=f"outbox-{batch}").count


def forget(database: sqlite3.Connection, batch: int) -> None:
    """Delete a batch that was sent."""
    with database:
        database.execute("DELETE FROM outbox WHERE batch = ?", (batch,))


def relay(database: sqlite3.Connection, client: Client) -> int:
    """Send all that waits; returns how many jobs that were."""
    client.put_topic(QUEUE, type="queue", durable=True, idempotency_window_ms=WEEK_MS)
    sent = 0
    while (batch := next_batch(database)) is not None:
        sent += send(database, client, batch)
        forget(database, batch)
    return sent


def main(arguments: list[str]) -> None:
    """Run one of the two commands."""
    database = open_database(arguments[1])
    if arguments[0] == "order":
        print(f"order {place_order(database, arguments[2], arguments[3])}")
    else:
        with Client() as client:
            print(f"sent {relay(database, client)} jobs")
    database.close()


if __name__ == "__main__":
    main(sys.argv[1:])

"""Orders in three steps: charge, ship, notify; each begins in the transaction that ends the last.

`python orders.py place COUNT` takes orders, `python orders.py check COUNT` looks at what was done.
"""

from __future__ import annotations

import sqlite3
import sys

from logqueue import App, Retry, current_job

STEPS = ("charge", "ship", "notify")
BOOK = "orders.db"

app = App()
for step in STEPS:
    app.queue(f"orders.{step}", durability="fsync")
quickly = Retry(max_attempts=20)


@app.task(queue="orders.charge", retry=quickly)
def charge(order: int) -> None:
    """Take the money; the parcel is next."""
    write_down(order, "charge")
    current_job().done(then=[ship.job(order)])


@app.task(queue="orders.ship", retry=quickly)
def ship(order: int) -> None:
    """Send the parcel; the customer is told next."""
    write_down(order, "ship")
    current_job().done(then=[notify.job(order)])


@app.task(queue="orders.notify", retry=quickly)
def notify(order: int) -> None:
    """Tell the customer."""
    write_down(order, "notify")


def open_book() -> sqlite3.Connection:
    """What stands for the bank, the carrier and the mail: it knows each order's step by a key."""
    book = sqlite3.connect(BOOK, timeout=30)
    book.execute("CREATE TABLE IF NOT EXISTS done (number INT, step TEXT, UNIQUE (number, step))")
    return book


def write_down(order: int, step: str) -> None:
    """Do a step of an order. A job may be delivered again, so doing it twice must do nothing."""
    with open_book() as book:
        book.execute("INSERT OR IGNORE INTO done VALUES (?, ?)", (order, step))


def place(count: int) -> int:
    """Take so many orders."""
    app.send_many(charge.message(number) for number in range(1, count + 1))
    print(f"placed {count} orders")
    return 0


def check(count: int) -> int:
    """Say what was done; 0 when all of it was."""
    found = dict(open_book().execute("SELECT step, count(*) FROM done GROUP BY step"))
    for step in STEPS:
        print(f"{step:<8}{found.get(step, 0):>6} of {count}")
    return 0 if [*found.values()] == [count] * len(STEPS) else 1


if __name__ == "__main__":
    action, number = sys.argv[1], int(sys.argv[2])
    sys.exit(check(number) if action == "check" else place(number))

"""How fast the Python client appends from an iterable, one call for all.

Owns: the row client-append. Records are made as they are taken, as a program would; server and
client share the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Any

from bench.load import LoadFailed
from bench.rows import Row, Target
from bench.session import CpuWatch, Session
from logqueue.client import Client

TOPIC = "bench.client"


def client_append(session: Session) -> list[Row]:
    """Append many records with one call of the blocking client."""
    count = session.scale.client_records
    row = Row(
        "client-append",
        f"Client.append of {count:,} JSON records from an iterable",
        "records/s",
        Target(150_000, at_most=False),
    )
    for _ in range(session.scale.repeats):
        with session.server() as server, Client(f"http://{server.address}") as client:
            client.put_topic(TOPIC)
            watch, began = CpuWatch(server), perf_counter()
            result = client.append(TOPIC, _records(count))
            rate = count / (perf_counter() - began)
            row.notes.append(watch.note())
            held = client.topic(TOPIC).count
        if (result.count, held) != (count, count):
            raise LoadFailed(f"{count} records appended, {result.count} said, {held} there")
        row.values.append(rate)
        session.tell(f"  {row.name}: {rate:,.0f} {row.unit} ({row.notes[-1]})")
    return [row]


def _records(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield {
            "n": number,
            "type": "transcode",
            "src": "s3://uploads/clip.mov",
            "preset": "h264-1080p",
        }

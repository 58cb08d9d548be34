"""How fast records are read back: whole pages, and looks at the head.

Owns: the rows diff-1000 and diff-head.
"""

from __future__ import annotations

import uvloop

from bench.load import LoadFailed, Script, connect, fill, queue_request, read_reply, request
from bench.loops import Tally, steady
from bench.rows import Reading, Row, Target
from bench.session import Session
from logqueue.demo.server import DemoServer

TOPIC = "bench.read"
PAGE = 1000
PER_REQUEST = 100


def diff_1000(session: Session) -> list[Row]:
    """Whole pages over 4 connections, again and again over the same warm records."""
    row = Row(
        "diff-1000",
        f"diff, limit {PAGE}, warm, 4 connections",
        "records/s",
        Target(1_000_000, at_most=False),
    )
    records = session.scale.read_records
    for _ in range(session.scale.repeats):
        with session.server() as server:
            reading = uvloop.run(_pages(server, records, session))
        row.add(reading)
        session.tell(f"  {row.name}: {reading.rate:,.0f} {row.unit} ({reading.note})")
    return [row]


def diff_head(session: Session) -> list[Row]:
    """Looks at the head, where there is nothing new, over 32 connections."""
    row = Row(
        "diff-head",
        "diff, limit 1 at head, 32 connections",
        "calls/s",
        Target(20_000, at_most=False),
    )
    for _ in range(session.scale.repeats):
        with session.server() as server:
            reading = uvloop.run(_head(server, session))
        row.add(reading)
        session.tell(f"  {row.name}: {reading.rate:,.0f} {row.unit} ({reading.note})")
    return [row]


def diff_request(from_seq: int, limit: int) -> bytes:
    """Read up to `limit` records behind a cursor."""
    body = b'{"from_seq":%d,"limit":%d}' % (from_seq, limit)
    return request("POST", f"/v0/topics/{TOPIC}/diff", body)


def pages_script(records: int, tally: Tally) -> Script:
    """One connection over the pages of the topic, from its start again and again."""
    at = 0
    while not tally.stopped:
        expected = min(at + PAGE, records)
        body = yield diff_request(at, PAGE), read_reply
        if body.find(b'],"next_from_seq":%d,' % expected) < 0:
            raise LoadFailed(f"a page behind {at} ends with {body[-300:]!r}")
        if body.count(b'{"$seq":') != expected - at:
            raise LoadFailed(f"a page behind {at} has not all its records")
        tally.add(expected - at)
        at = expected % records


def head_script(head: int, tally: Tally) -> Script:
    """One connection looking at the head, where there is nothing new."""
    content = diff_request(head, 1)
    nothing = b'"records":[],"next_from_seq":%d,' % head
    while not tally.stopped:
        body = yield content, read_reply
        if nothing not in body:
            raise LoadFailed(f"a look at the head was answered with {body[:200]!r}")
        tally.add(1)


async def _pages(server: DemoServer, records: int, session: Session) -> Reading:
    made = await connect(server.address, 4)
    await made[0].call(queue_request(TOPIC))
    await fill(server.address, TOPIC, records, PER_REQUEST, 4)
    tally = Tally()
    loops = [one.run(pages_script(records, tally)) for one in made]
    reading = await steady(server, session, tally, loops)
    for one in made:
        one.close()
    return reading


async def _head(server: DemoServer, session: Session) -> Reading:
    made = await connect(server.address, 32)
    await made[0].call(queue_request(TOPIC))
    await fill(server.address, TOPIC, 1000, PER_REQUEST, 1)
    tally = Tally()
    loops = [one.run(head_script(1000, tally)) for one in made]
    reading = await steady(server, session, tally, loops)
    for one in made:
        one.close()
    return reading

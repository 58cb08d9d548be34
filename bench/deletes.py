"""What a delete by tag costs when a few of very many records have the tag.

Owns: the rows of the delete by tag: records that stand together and records that are scattered.
The topic is of class `disk`: no delete waits for a sync, so that what is measured is the search.
"""

from __future__ import annotations

from random import Random

import msgspec

from bench.load import LoadFailed, LoneConnection, expect_count, job, request
from bench.rows import Row, Target
from bench.session import Session

TOPIC = "bench.tags"
PER_REQUEST = 100
OTHER_TAGS = 1000
SHARES = (10_000, 1_000, 100)
"""One record in so many has the tag; all sizes are there at once."""

TARGET_MS = 1.0
TARGET_US_PER_RECORD = 1.0


class Deleted(msgspec.Struct):
    """Reply to a delete."""

    deleted: int


_decode = msgspec.json.Decoder(Deleted).decode


def delete_tag(session: Session) -> list[Row]:
    """Exact tags among the large backlog, none of them used in any other record."""
    records = session.scale.backlog_jobs
    sizes = [max(records // share, 1) for share in SHARES]
    rows: dict[str, Row] = {}
    for kind in ("together", "scattered"):
        for share, size in zip(SHARES, sizes, strict=True):
            bound = TARGET_MS + size * TARGET_US_PER_RECORD / 1000
            rows[f"{kind}-{share}"] = Row(
                f"delete-tag-{kind}-{share}",
                f"delete by tag of {size:,} of {records:,} records, {kind}",
                "ms",
                Target(bound, at_most=True),
            )
    for number in range(session.scale.repeats):
        tags = _tags(records, sizes, Random(number))
        with session.server() as server:
            connection = LoneConnection(server.address)
            try:
                _fill(connection, tags)
                for name, row in rows.items():
                    _measure(session, connection, row, name, tags.count(name))
            finally:
                connection.close()
    return [*rows.values()]


def _tags(records: int, sizes: list[int], rng: Random) -> list[str]:
    """The tag of each record."""
    tags = [f"other-{n % OTHER_TAGS}" for n in range(records)]
    at = records // 4
    for share, size in zip(SHARES, sizes, strict=True):
        tags[at : at + size] = [f"together-{share}"] * size
        at += size
    left = [n for n in range(records) if tags[n].startswith("other")]
    for share, size in zip(SHARES, sizes, strict=True):
        for n in rng.sample(left, size):
            tags[n] = f"scattered-{share}"
    return tags


def _fill(connection: LoneConnection, tags: list[str]) -> None:
    connection.call(request("PUT", f"/v0/topics/{TOPIC}", b'{"type":"log","durability":"disk"}'))
    for start in range(0, len(tags), PER_REQUEST):
        records = b",".join(
            b'{"data":%s,"tag":"%s"}' % (job(start + n), tag.encode())
            for n, tag in enumerate(tags[start : start + PER_REQUEST])
        )
        body = b'{"records":[' + records + b"]}"
        reply = connection.call(request("POST", f"/v0/topics/{TOPIC}?return_seqs=false", body))[1]
        expect_count(reply, PER_REQUEST)


def _measure(session: Session, connection: LoneConnection, row: Row, tag: str, count: int) -> None:
    body = msgspec.json.encode({"match": tag})
    took, reply = connection.call(request("POST", f"/v0/topics/{TOPIC}/delete", body))
    deleted = _decode(reply).deleted
    if deleted != count:
        raise LoadFailed(f"{count} records have the tag {tag}, {deleted} were deleted")
    row.values.append(took * 1000)
    row.notes.append(f"{took * 1e6 / count:.2f} us per removed record")
    session.tell(f"  {row.name}: {took * 1000:.3f} ms ({row.notes[-1]})")

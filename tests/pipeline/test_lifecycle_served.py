"""What became of jobs, against what the server that kept them says itself."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from logqueue.client import Client, NewRecord
from logqueue.pipeline.engines.duckdb.input import LocalInput
from logqueue.pipeline.engines.duckdb.lifecycle import run_lifecycle
from logqueue.pipeline.lifecycle import tables
from logqueue.pipeline.reading.place import InputPlace
from logqueue.shapes import Record
from logqueue.testing import ServerProcess
from tests.pipeline.histories import table_rows

QUEUES = ("orders", "parked")


def live(client: Client) -> None:
    """Workers take, keep, finish, give back and give up jobs; operators come by."""
    client.put_topic(
        "orders", type="queue", archive="orders.done", dead_letter="orders.dead", max_deliveries=2
    )
    client.put_topic("parked", type="queue", max_deliveries=1, on_exhausted="hold")
    client.put_topic("plain", type="log")
    chance = random.Random(7)
    held: dict[tuple[str, str], list[int]] = {}
    client.append("plain", [{"n": 1}], create=True)
    for queue in QUEUES:
        later = [NewRecord({"later": n}, tag="slow", delay_ms=3_600_000) for n in range(3)]
        client.append(queue, [*({"n": n} for n in range(40)), *later], create=True)
    for _ in range(120):
        queue, node = chance.choice(QUEUES), chance.choice(("ant", "bee"))
        mine = held.setdefault((queue, node), [])
        hand = chance.choice(("claim", "claim", "ack", "nack", "back", "extend", "reject", "go"))
        some = [mine.pop() for _ in range(min(len(mine), 2))]
        if hand == "claim":
            mine.extend(some)
            claimed = client.claim(queue, node=node, max=3, lease_ms=600_000).jobs
            mine.extend(job.seq for job in claimed)
        elif not some:
            continue
        elif hand == "ack":
            client.ack(queue, some, node=node)
        elif hand in ("nack", "back"):
            client.nack(queue, some, node=node, error="no luck", count=hand == "nack")
        elif hand == "extend":
            client.extend(queue, some, lease_ms=700_000, node=node)
            mine.extend(some)
        elif hand == "reject":
            client.reject(queue, some, node=node, error="never")
        else:
            client.cancel(queue, some[0], force=True)
            mine.extend(some[1:])
    # One lease runs out, which the log does not say: whoever waits for a job gets it then.
    client.put_topic("short", type="queue")
    client.append("short", [{"n": 1}], create=True)
    assert client.claim("short", node="ant", lease_ms=100).jobs
    assert client.claim("short", node="bee", lease_ms=600_000, wait_ms=20_000).jobs


def test_jobs_are_as_the_server_says_they_are(tmp_path: Path) -> None:
    folder, other = str(tmp_path / "tables"), str(tmp_path / "other")
    with ServerProcess(tmp_path / "data") as server, Client(server.url) as client:
        live(client)
        views = {(q, job.seq): job for q in (*QUEUES, "short") for job in client.jobs(q)}
        done = [r.meta for r in client.read("orders.done") if isinstance(r, Record)]
        dead = [r.meta for r in client.read("orders.dead") if isinstance(r, Record)]
        counters = {queue: client.topic(queue).queue for queue in QUEUES}
        run_lifecycle(LocalInput(InputPlace(url=server.url)), other)
    summary = run_lifecycle(LocalInput(InputPlace(path=str(tmp_path / "data"))), folder)
    assert summary["topics"] == ["orders", "parked", "short"]
    jobs = {(row["topic"], row["seq"]): row for row in table_rows(folder, tables.JOBS)}
    for kind in (tables.JOBS, tables.ATTEMPTS):
        assert table_rows(other, kind) == table_rows(folder, kind)
    for place, view in views.items():
        assert (jobs[place]["state"], jobs[place]["deliveries"]) == (view.state, view.deliveries)
        assert jobs[place]["appended_at"] == view.ts
    ended: list[dict[str, Any]] = [meta for meta in done if isinstance(meta, dict)]
    assert len(ended) > 8
    for meta in ended:
        row = jobs["orders", int(meta["$archived_src_seq"])]
        assert (row["state"], str(row["deliveries"])) == (meta["$outcome"], meta["$deliveries"])
        times = (str(row["appended_at"]), str(row["finished_at"]))
        assert times == (meta["$enqueued_at"], meta["$finished_at"])
    assert dead
    for letter in dead:
        assert isinstance(letter, dict)
        row = jobs["orders", int(letter["$dead_letter_src_seq"])]
        assert row["state"] == "dead_lettered"
        # What is told with a reject stands in the dead letter, not in an event.
        assert row["last_error"] in (None, "no luck")
    for queue, counted in counters.items():
        assert counted is not None
        states = [row["state"] for place, row in jobs.items() if place[0] == queue]
        told = (states.count("acked"), states.count("held"), states.count("dead_lettered"))
        assert told == (counted.acked, counted.held, counted.dead_lettered)
    assert jobs["short", 1]["variant"] == "claimed>expired>claimed"

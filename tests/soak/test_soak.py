"""A server that is used hard and long ends as small as it was: memory and file descriptors.

LOGQUEUE_SOAK_S says for how many seconds (`make soak`: ten minutes; the default is a short version
that shows a leak of a few KiB per round). Every round makes and deletes topics, routers, streams of
all kinds, idempotency keys and jobs, uses several API keys, and hangs up politely and rudely.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from tests.http.api import Api, numbered
from tests.http.expect import ok, plain_ok
from tests.http.process import ServerProcess
from tests.http.rawhttp import Connection, head
from tests.http.ws import Socket

SOAK_S = float(os.environ.get("LOGQUEUE_SOAK_S", "8"))
WARM_UP_SHARE = 0.55
"""Of ten minutes it is longer than a watch session lives after its last stream, so that by then as
many go as come."""
GROWTH_BYTES_MAX = 12 << 20
KEYS = ("first", "second", "third")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server with several keys and small segments, so that tidying has its share."""
    settings = {
        "API_KEYS": ",".join(KEYS),
        "SEGMENT_MAX_BYTES": str(1 << 20),
        "MAX_WATCH_SESSIONS": "100000",
    }
    process = ServerProcess(tmp_path / "data", settings=settings, probe_key=KEYS[0])
    yield process.start()
    process.stop()


def rss_bytes(server: ServerProcess) -> int:
    """Resident memory of the server."""
    for line in Path(f"/proc/{server.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError("the process has no memory")


def descriptors(server: ServerProcess) -> Counter[str]:
    """The server's file descriptors by kind: sockets, files and the rest."""
    kinds: Counter[str] = Counter()
    for fd in Path(f"/proc/{server.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            kinds["socket" if os.readlink(fd).startswith("socket:") else "other"] += 1
    return kinds


def work_through(server: ServerProcess, number: int) -> None:
    """One round of everything, with nothing left behind."""
    key = KEYS[number % len(KEYS)]
    queue, log, copies = f"q{number}", f"l{number}", f"c{number}"
    with Api(server.base_url, key=key) as api:
        api.make_queue(queue, durability="disk", max_deliveries=1, dead_letter=log)
        ok(api.put(log, cap_records=50, ttl_ms=60_000), 201)
        ok(api.put_router(f"r{number}", source=log, dest=copies), 201)
        for n in range(5):
            ok(api.write(queue, numbered(40), idempotency_key=f"k{n}"))
            ok(api.write(log, [{"data": "x" * 500, "tag": f"t{n}-{number}"}] * 20))
        _hand_out(api, queue)
        _stream(server, api, queue, log, key, rudely=bool(number % 2))
        ok(api.delete(log, match="t1*"))
        for topic in (queue, log, copies):
            ok(api.delete_topic(topic))


def _hand_out(api: Api, queue: str) -> None:
    for _ in range(2):
        jobs = api.claimed(queue, "w", max=50)
        seqs = [job["$seq"] for job in jobs]
        ok(api.ack(queue, seqs[:20]))
        ok(api.nack(queue, seqs[20:40], delay_ms=5))
        ok(api.extend(queue, seqs[40:]))


def _stream(
    server: ServerProcess, api: Api, queue: str, log: str, key: str, *, rudely: bool
) -> None:
    streams = [api.work(queue, node=f"s{n}", max=3) for n in range(3)]
    streams += [api.watch(log, queue) for _ in range(5)]
    for stream in streams:
        stream.next_event()
    with Socket(server.address, key=key) as socket:
        socket.send({"op": "subscribe", "topic": log})
        socket.send({"op": "publish", "topic": log, "records": numbered(3)})
    half_sent = Connection(server.address)
    half_sent.send(head("POST", f"/v0/topics/{queue}", {"content-length": "100"}) + b'{"rec')
    half_sent.reset()
    for stream in streams:
        if rudely:
            stream.reset()
        else:
            stream.close()


def settled(server: ServerProcess, sockets_max: int) -> Counter[str]:
    """The descriptors, once connections that were closed are gone (they get ten seconds)."""
    deadline = time.monotonic() + 10
    while (found := descriptors(server))["socket"] > sockets_max and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def test_a_long_life_leaves_nothing_behind(server: ServerProcess) -> None:
    rounds = count()
    idle = descriptors(server)
    began = time.monotonic()
    while time.monotonic() - began < SOAK_S * WARM_UP_SHARE:
        work_through(server, next(rounds))
    memory = rss_bytes(server)
    while time.monotonic() - began < SOAK_S:
        work_through(server, next(rounds))
    done = next(rounds)
    left = settled(server, idle["socket"])
    assert left["socket"] <= idle["socket"], f"sockets after {done} rounds: {left}, idle {idle}"
    # A log that has just rolled, or is being tidied, has a file or two more.
    assert left["other"] <= idle["other"] + 4, f"files after {done} rounds: {left}, idle {idle}"
    grown = rss_bytes(server) - memory
    assert grown < GROWTH_BYTES_MAX, f"{grown >> 10} KiB more after {done} rounds"
    with Api(server.base_url, key=KEYS[0]) as api:
        metrics = plain_ok(api.send("GET", "/v0/metrics", headers={"accept": "application/json"}))
        assert metrics["sse_connections"] == 0 and metrics["topics"] == 0
        assert metrics["routers"] == 0 and metrics["records_live"] == 0

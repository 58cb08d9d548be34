"""The live feed as clients follow it, history, workers of all queues."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest

from logqueue.client import LiveStats, UnexpectedReply
from logqueue.errors import Forbidden
from logqueue.testing import MemoryServer
from tests.client.either import Opened, event_stream

SERVER = {
    "version": "1", "started_at": 5, "phase": "ready", "role": "none", "health": "ok",
    "health_text": "all is well", "connections": 1, "topics": 1, "records": 0, "bytes": 0,
    "memory_bytes": None, "disk_free_bytes": None, "append_per_s": 0.0, "claim_per_s": 0.0,
    "ack_per_s": 0.0, "sync_p99_ms": None, "replica": None,
}  # fmt: skip
QUEUE = {
    "type": "queue", "durability": "disk", "head_seq": 0, "count": 0, "bytes": 0, "paused": False,
    "rates": {"appended": 0.0}, "ready": 0,
}  # fmt: skip


def event(name: str, **members: Any) -> bytes:
    return f"event: {name}\nid: 1\ndata: {json.dumps(members)}\n\n".encode()


def full(**topics: Any) -> bytes:
    return event(
        "full", at=10, key=None, server=SERVER, topics=topics, attention=[], truncated=False
    )


def test_frames_add_up(opened: Opened) -> None:
    """A change says what differs; a name in `gone` and in `topics` is another topic; a break is
    followed by all there is."""
    worse = {"severity": "bad", "topic": "q", "code": "held", "text": "q: bad", "since": 1}
    streams = iter(
        [
            full(q=QUEUE, a={**QUEUE, "type": "log"})
            + b": hb\n\n"
            + event(
                "change", at=11, server={"records": 2}, topics={"q": {"ready": 2, "count": 2}},
                gone=[], attention=[worse],
            )
            + event(
                "change", at=12, server={}, topics={"q": QUEUE, "b": QUEUE}, gone=["q", "a"]
            )
            + event("newer", at=13),
            full(b=QUEUE),
        ]
    )  # fmt: skip

    def serve(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/v0/stats/stream"
        return event_stream(next(streams))

    client = opened(transport=httpx.MockTransport(serve))
    with closing(client.stats_stream()) as stream:
        seen: list[LiveStats] = [next(stream) for _ in range(4)]
    assert [live.at for live in seen] == [10, 11, 12, 10]
    assert [sorted(live.topics) for live in seen] == [["a", "q"], ["a", "q"], ["b", "q"], ["b"]]
    assert [live.topics["q"].ready for live in seen[:3]] == [0, 2, 0]
    assert seen[0].topics["q"].rates.appended == 0.0
    assert [live.server.records for live in seen] == [0, 2, 2, 0]
    assert [sorted(live.changed) for live in seen] == [["a", "q"], ["q"], ["b", "q"], ["b"]]
    assert [sorted(live.gone) for live in seen] == [[], [], ["a"], ["q"]]
    assert [len(live.attention) for live in seen] == [0, 1, 1, 0]
    assert list(seen[2].topics) == ["b", "q"]


@pytest.mark.parametrize("wrong", [{"q": 1}, {"q": {"type": "queue"}}, [1]])
def test_a_feed_that_no_server_sends(opened: Opened, wrong: Any) -> None:
    sent = event("full", at=1, key=None, server=SERVER, topics=wrong, attention=[])
    client = opened(transport=httpx.MockTransport(lambda request: event_stream(sent)))
    with pytest.raises(UnexpectedReply), closing(client.stats_stream()) as stream:
        next(stream)


def test_a_key_that_may_not_read(opened: Opened) -> None:
    body = {"error": {"code": "forbidden", "message": "this key lacks the scope read"}}
    client = opened(transport=httpx.MockTransport(lambda request: httpx.Response(403, json=body)))
    with pytest.raises(Forbidden), closing(client.stats_stream()) as stream:
        next(stream)


@pytest.fixture
def memory() -> Iterator[MemoryServer]:
    with MemoryServer() as server:
        yield server


def test_with_a_server(memory: MemoryServer) -> None:
    client = memory.client
    client.append("q", [1, 2, 3], config={"type": "queue"})
    (job,) = client.claim("q", max=1, node="w").jobs
    with closing(client.stats_stream()) as stream:
        live = next(stream)
    assert (live.topics["q"].ready, live.topics["q"].in_flight) == (2, 1)
    assert live.topics["q"].recent is not None
    history = client.topic_history("q", window="24h")
    assert (history.step_ms, len(history.series["appended"])) == (60_000, 1440)
    assert history.start % 60_000 == 0
    (worker,) = client.all_workers(topic="q", jobs=5).workers
    assert (worker.node, worker.state, worker.jobs[0].seq) == ("w", "working", job.seq)
    assert client.all_workers(node="other").workers == []

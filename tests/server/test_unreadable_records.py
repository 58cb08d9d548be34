"""What callers see of a record that the disk does not give: an error for that record alone."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from logqueue.api import record_texts
from logqueue.server.handlers import topics
from logqueue.server.storage import payload_store
from logqueue.testing import core as testing_core
from tests.server.memory import Memory, claimed, pushed, seqs

BAD = 5


def text(number: int) -> str:
    """Data of one record, large enough to leave memory."""
    return f"{number:04}" * 300


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    """Twenty jobs in sealed segments, one of which the disk has damaged."""
    monkeypatch.setattr(testing_core, "SEGMENT_BYTES", 4096 + 3000)
    monkeypatch.setattr(payload_store, "CACHE_BYTES_MAX", 3000)
    memory = Memory()
    memory.queue(durability="fsync")
    memory.call("PUT", "topics/z", {"durability": "fsync"})
    for number in range(1, 21):
        memory.append(text(number))
    memory.append("behind it in the alphabet", topic="z")
    memory.wait(5)
    # The first request after that finds the server's housekeeping due.
    memory.state()
    wanted = text(BAD).encode()
    fs = memory.core._fs
    place = next((path, at) for path, c in fs.contents().items() if (at := c.find(wanted)) > 0)
    fs.open(place[0], writable=True).pwrite(b"?", place[1])
    yield memory
    memory.close()


def test_a_diff_ends_before_it_and_names_it(server: Memory) -> None:
    page = server.call("POST", "topics/q/diff", {"from_seq": 0})
    assert seqs(page["records"]) == [1, 2, 3, 4] and page["next_from_seq"] == 4
    exchange = server.begin("POST", "topics/q/diff", {"from_seq": 4})
    error = msgspec.json.decode(exchange.take())["error"]
    assert exchange.status == 500 and error["code"] == "internal"
    assert error["detail"]["reason"] == "storage_unreadable"
    assert (error["detail"]["topic"], error["detail"]["seq"]) == ("q", BAD)
    page = server.call("POST", "topics/q/diff", {"from_seq": BAD})
    assert seqs(page["records"]) == [*range(6, 21)]


def test_a_large_diff_ends_before_it_as_well(
    server: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "DIFF_BYTES_DEFAULT", 3000)
    monkeypatch.setattr(record_texts, "PART_BYTES", 2000)
    large = {"from_seq": 0, "max_batch_bytes": 1 << 20}
    page = server.call("POST", "topics/q/diff", large)
    assert seqs(page["records"]) == [1, 2, 3, 4] and page["next_from_seq"] == 4
    assert server.begin("POST", "topics/q/diff", {**large, "from_seq": 4}).status == 500
    page = server.call("POST", "topics/q/diff", {**large, "from_seq": BAD})
    assert seqs(page["records"]) == [*range(6, 21)] and page["caught_up"]


def test_claims_and_work_streams_pass_it_by(server: Memory) -> None:
    assert seqs(server.take(max=4)) == [1, 2, 3, 4]
    waiting = server.claim(max=3, wait_ms=1000)
    server.wait(1)
    assert seqs(claimed(waiting)) == [6, 7]
    stream = server.work(jobs_max=2)
    assert seqs(pushed(stream)) == [8, 9]
    assert server.state()["held"] == 1
    server.settle("ack", 6, 7)
    assert server.begin("GET", f"topics/q/jobs/{BAD}").status == 500
    assert server.begin("GET", "topics/q/jobs/6").status == 404


def test_a_watch_ends_with_the_error_after_all_before_it(server: Memory) -> None:
    session = server.call("POST", "watch", {"topics": {"q": {"from_seq": 0}, "z": {"from_seq": 0}}})
    stream = server.begin("GET", f"watch/{session['wid']}")
    server.wait(1)
    sent = stream.take()
    assert b'"$seq":4' in sent and b'"$seq":6' not in sent
    assert b"event: error" in sent and b"record 5 of topic 'q'" in sent
    assert stream.is_over

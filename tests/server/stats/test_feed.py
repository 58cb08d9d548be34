"""The live feed and the history of a server in memory, under a clock that moves only here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from logqueue.server.stats import feed as feeds
from logqueue.testing.core import Exchange
from tests.server.memory import Memory


@pytest.fixture
def server() -> Iterator[Memory]:
    memory = Memory()
    yield memory
    memory.close()


class Viewer:
    """Takes frames in as a client does."""

    def __init__(self, exchange: Exchange) -> None:
        assert exchange.status == 200
        self.exchange = exchange
        self.events: list[str] = []
        self.topics: dict[str, dict[str, Any]] = {}
        self.server: dict[str, Any] = {}
        self.attention: list[dict[str, Any]] = []
        self.last: dict[str, Any] = {}

    def read(self) -> list[str]:
        """The events that have come since the last call."""
        came = []
        for block in self.exchange.take().decode().split("\n\n"):
            lines = dict(line.split(": ", 1) for line in block.split("\n") if line)
            if "event" in lines:
                came.append(lines["event"])
                self.take(lines["event"], msgspec.json.decode(lines["data"]))
        self.events += came
        return came

    def take(self, event: str, data: dict[str, Any]) -> None:
        self.last = data
        if event == "error":
            return
        if event == "full":
            self.topics, self.server = {}, {}
        for name in data.get("gone", ()):
            del self.topics[name]
        for name, members in data["topics"].items():
            self.topics.setdefault(name, {}).update(members)
        self.server |= data["server"]
        self.attention = data.get("attention", self.attention)


def view(server: Memory) -> Viewer:
    viewer = Viewer(server.begin("GET", "stats/stream"))
    assert viewer.read() == ["full"]
    return viewer


def agree(server: Memory, viewer: Viewer) -> None:
    """What a viewer has is what the API says."""
    listed = server.call("GET", "topics?page_size=1000")["topics"]
    assert {entry["topic"] for entry in listed} == set(viewer.topics)
    for entry in listed:
        shown = viewer.topics[entry["topic"]]
        for name in ("type", "head_seq", "count", "bytes"):
            assert shown[name] == entry[name], (entry["topic"], name)
        for name in ("ready", "in_flight", "delayed", "held"):
            if entry["type"] == "queue":
                assert shown[name] == entry["queue"][name], (entry["topic"], name)
    assert viewer.server["topics"] == len(listed)
    assert viewer.server["records"] == sum(entry["count"] for entry in listed)


def test_a_full_frame_then_what_changes(server: Memory) -> None:
    server.queue("q", dead_letter="q.dead")
    server.append(1, 2, 3)
    viewer = view(server)
    agree(server, viewer)
    assert viewer.last["key"] is None
    assert viewer.topics["q"]["dead"] == 0
    server.append(4)
    server.take(max=2)
    assert viewer.read() == []
    server.wait(1.1)
    assert viewer.read() == ["change"]
    agree(server, viewer)
    assert set(viewer.last["topics"]) == {"q"}
    assert "dead" not in viewer.last["topics"]["q"]
    assert viewer.topics["q"]["workers"] == 1
    assert viewer.topics["q"]["rates"]["claimed"] == 0.2


def test_nothing_is_said_when_nothing_changes(server: Memory) -> None:
    server.queue("q")
    viewer = view(server)
    server.wait(5)
    viewer.read()
    server.wait(60)
    if viewer.read():
        # Those of the machine.
        assert {*viewer.last["server"]} <= {"memory_bytes", "disk_free_bytes"}
        assert not viewer.last["topics"]
    made = server.core._runtime.stats.feed.frames_made
    server.core.hang_up(viewer.exchange)
    server.wait(60)
    assert server.core._runtime.stats.feed.frames_made - made <= 1


def test_rates_end_ten_seconds_later(server: Memory) -> None:
    server.queue("q")
    viewer = view(server)
    server.append(*range(20))
    server.wait(2)
    viewer.read()
    assert viewer.topics["q"]["rates"]["appended"] == 2.0
    assert viewer.server["append_per_s"] > 0
    server.wait(12)
    viewer.read()
    assert viewer.topics["q"]["rates"]["appended"] == 0.0
    assert viewer.server["append_per_s"] == 0
    later = view(server)
    recent = later.topics["q"]["recent"]
    assert (sum(recent["in"]), sum(recent["out"]), len(recent["in"])) == (20, 0, 60)


def test_time_alone_changes_a_queue(server: Memory) -> None:
    """A delay that ends, and a lease that expires, are seen without any call."""
    server.queue("q", lease_ms=5000)
    server.append("late", delay_ms=3000)
    server.append("now")
    server.take(max=5)
    viewer = view(server)
    assert (viewer.topics["q"]["delayed"], viewer.topics["q"]["in_flight"]) == (1, 1)
    server.wait(4.1)
    viewer.read()
    assert (viewer.topics["q"]["ready"], viewer.topics["q"]["delayed"]) == (1, 0)
    server.wait(3)
    viewer.read()
    assert (viewer.topics["q"]["ready"], viewer.topics["q"]["in_flight"]) == (2, 0)
    assert viewer.topics["q"]["rates"]["expired"] == 0.1
    agree(server, viewer)


def test_a_topic_that_is_deleted_and_recreated_is_another_one(server: Memory) -> None:
    server.queue("q")
    server.append(1, 2, 3)
    server.queue("other")
    viewer = view(server)
    server.call("DELETE", "topics/q")
    server.call("PUT", "topics/q", {})
    server.append(1, topic="q")
    server.wait(1.1)
    viewer.read()
    assert viewer.last["gone"] == ["q"]
    assert viewer.topics["q"]["type"] == "log"
    assert "ready" not in viewer.topics["q"]
    agree(server, viewer)
    server.call("DELETE", "topics/q")
    server.wait(1.1)
    viewer.read()
    agree(server, viewer)
    history = server.call("GET", "topics/other/history")["series"]
    assert not any(history["appended"][-10:])


def test_a_log_that_becomes_a_queue(server: Memory) -> None:
    server.call("PUT", "topics/t", {})
    viewer = view(server)
    server.queue("t")
    server.wait(1.1)
    viewer.read()
    assert viewer.topics["t"]["ready"] == 0
    agree(server, viewer)


def test_copies_and_dead_letters_are_counted_where_they_arrive(server: Memory) -> None:
    server.queue("q", dead_letter="dead", max_deliveries=1)
    server.call("PUT", "routers/r", {"source": "q", "dest": "copy"})
    viewer = view(server)
    server.append(1, 2)
    server.take(max=1)
    server.settle("reject", 1)
    server.take(max=1)
    server.settle("nack", 2)
    server.wait(1.1)
    viewer.read()
    agree(server, viewer)
    assert viewer.topics["copy"]["rates"] == {"appended": 0.2}
    assert viewer.topics["dead"]["rates"] == {"appended": 0.1}
    assert viewer.topics["q"]["rates"]["dead"] == 0.1
    assert viewer.topics["q"]["rates"]["nacked"] == 0.1
    assert viewer.topics["q"]["dead"] == 1
    assert [item["code"] for item in viewer.attention] == ["dead_letters"]
    assert viewer.server["health"] == "attention"


def test_attention_says_since_when_only_where_that_is_known(server: Memory) -> None:
    """What the first viewer finds may be hours old; what begins under its eyes is not."""
    server.queue("q", max_deliveries=1, on_exhausted="hold")
    server.queue("later", max_deliveries=1, on_exhausted="hold")
    for queue in ("q", "later"):
        server.call("POST", f"topics/{queue}", {"records": [{"data": 1}]})
    fail(server, "q")
    viewer = view(server)
    assert [(item["topic"], item["since"]) for item in viewer.attention] == [("q", None)]
    fail(server, "later")
    server.wait(1.1)
    viewer.read()
    since = {item["topic"]: item["since"] for item in viewer.attention}
    assert since == {"q": None, "later": viewer.last["at"]}


def fail(server: Memory, queue: str) -> None:
    """Have a worker claim the job of a queue, fail, and ask for more."""
    server.call("POST", f"topics/{queue}/claim", {"node": "w"})
    server.call("POST", f"topics/{queue}/nack", {"node": "w", "seqs": [1]})
    server.call("POST", f"topics/{queue}/claim", {"node": "w"})


def test_attention_comes_and_goes(server: Memory) -> None:
    server.queue("payments")
    server.append(1, topic="payments")
    viewer = view(server)
    server.wait(62)
    viewer.read()
    (item,) = viewer.attention
    assert (item["code"], item["severity"]) == ("no_worker", "warn")
    server.wait(14 * 60)
    viewer.read()
    assert viewer.attention[0]["text"].startswith("payments: oldest job waits 15 min, no worker")
    assert viewer.server["health"] == "bad"
    assert viewer.server["health_text"] == viewer.attention[0]["text"]
    server.take(topic="payments", max=5)
    server.wait(1.1)
    viewer.read()
    assert viewer.attention == []
    assert viewer.server["health"] == "ok"


def test_why_claims_get_nothing(server: Memory) -> None:
    server.queue("q", claim_rate={"per_s": 0.5, "burst": 1})
    server.append(1, 2)
    server.take(max=1)
    viewer = view(server)
    assert viewer.topics["q"]["held_back"] == "rate_limited"
    assert viewer.topics["q"]["rate_limited"] is True
    server.wait(3)
    viewer.read()
    assert viewer.topics["q"]["held_back"] is None
    server.call("POST", "topics/q/pause")
    server.wait(1.1)
    viewer.read()
    assert viewer.topics["q"]["paused"] is True
    assert view(server).topics["q"]["held_back"] == "paused"


def test_workers_are_counted_as_long_as_they_are_there(server: Memory) -> None:
    server.queue("q", lease_ms=600_000)
    server.append(1)
    server.take("holding")
    server.work("streaming")
    server.claim("waiting", wait_ms=30_000)
    viewer = view(server)
    assert viewer.topics["q"]["workers"] == 3
    server.wait(120)
    viewer.read()
    assert viewer.topics["q"]["workers"] == 2


def test_a_slow_viewer_gets_a_full_frame(server: Memory) -> None:
    """It takes nothing for a while: nothing piles up for it."""
    server.queue("q")
    viewer = view(server)
    stats = server.core._runtime.stats
    (group,) = stats.feed._groups.values()
    (slow,) = group.viewers
    offered = []
    for n in range(3):
        slow.offer([b"event: change\nid: %d\ndata: {}\n\n" % n])
        offered.append((slow.wants_full, slow._pending))
    assert [wants for wants, _ in offered] == [False, True, True]
    assert offered[-1][1] is None
    server.append(1)
    server.wait(1.1)
    assert viewer.read()[0] == "full"
    agree(server, viewer)


def test_more_topics_than_a_feed_shows(server: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "TOPICS_MAX", 3)
    for n in range(3):
        server.queue(f"q{n}")
    viewer = view(server)
    assert viewer.last["truncated"] is False
    server.queue("q3")
    server.wait(1.1)
    viewer.read()
    assert sorted(viewer.topics) == ["q0", "q1", "q2"]
    assert viewer.server["topics"] == 4
    server.call("DELETE", "topics/q0")
    server.wait(1.1)
    server.queue("q4")
    server.wait(1.1)
    viewer.read()
    assert sorted(viewer.topics) == ["q1", "q2", "q4"]
    later = view(server)
    assert (sorted(later.topics), later.last["truncated"]) == (["q1", "q2", "q4"], True)


def test_the_stream_says_why_it_ends(server: Memory) -> None:
    viewer = view(server)
    server.core.restart(kill=False)
    assert viewer.read() == ["error"]
    assert viewer.last["code"] == "server_shutting_down"
    assert viewer.exchange.is_over


# -- history -------------------------------------------------------------------------------------


def test_history_by_seconds_and_minutes(server: Memory) -> None:
    server.queue("q")
    server.call("GET", "topics/q/history")
    for _ in range(3):
        server.append(1, 2)
        server.take(max=1)
        server.call("GET", "topics/q/history")
        server.wait(1)
    server.wait(5)
    found = server.call("GET", "topics/q/history")
    assert (found["step_ms"], found["from"] % 1000) == (1000, 0)
    series = found["series"]
    assert {len(values) for values in series.values()} == {600}
    assert [n for n in series["appended"] if n] == [2, 2, 2]
    assert [n for n in series["claimed"] if n] == [1, 1, 1]
    assert series["ready"][-1] == 3
    assert series["in_flight"][-1] == 3
    assert series["oldest_ready_ms"][-1] > series["oldest_ready_ms"][-2] > 0
    assert series["appended"][0] is None
    minutes = server.call("GET", "topics/q/history?window=24h")
    assert (minutes["step_ms"], minutes["from"] % 60_000) == (60_000, 0)
    assert sum(filter(None, minutes["series"]["appended"])) == 6
    assert {len(values) for values in minutes["series"].values()} == {1440}


def test_history_of_a_log_is_what_was_written(server: Memory) -> None:
    server.append(1, 2, topic="log")
    assert sum(filter(None, server.call("GET", "topics/log/history")["series"]["appended"])) == 2
    assert set(server.call("GET", "topics/log/history")["series"]) == {"appended"}


def test_history_begins_again_with_a_recreated_topic(server: Memory) -> None:
    server.queue("q")
    server.append(1)
    server.call("GET", "topics/q/history")
    server.call("DELETE", "topics/q")
    server.queue("q")
    series = server.call("GET", "topics/q/history")["series"]
    assert not any(series["appended"])


@pytest.mark.parametrize("window", ["", "1h", "10M"])
def test_a_window_must_be_one_of_two(server: Memory, window: str) -> None:
    server.queue("q")
    reply = server.begin("GET", f"topics/q/history?window={window}")
    assert reply.status == 400
    assert b"`10m` or `24h`" in reply.take()
    assert server.begin("GET", "topics/nosuch/history").status == 404


def test_queues_that_are_gone_leave_no_times_behind(server: Memory) -> None:
    """Their leases would have lasted for a day."""
    history = server.core._runtime.stats.history
    for n in range(200):
        server.queue("q", lease_ms=86_400_000)
        server.append(n)
        server.take()
        server.call("GET", "topics/q/history")
        server.call("DELETE", "topics/q")
    server.queue("q")
    server.call("GET", "topics/q/history")
    assert len(history._due) <= 66
    assert not history._due_at
    assert len(history._seconds) == 1

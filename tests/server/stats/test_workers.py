"""Workers of all queues: who they are, what they have in hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from logqueue.server.handlers import workers as handler
from tests.server.memory import Memory


@pytest.fixture
def server() -> Iterator[Memory]:
    memory = Memory()
    yield memory
    memory.close()


def crew(server: Memory, query: str = "") -> dict[str, dict[str, Any]]:
    found = server.call("GET", f"workers{query}")
    assert found["count"] >= len(found["workers"])
    return {worker["node"]: worker for worker in found["workers"]}


def test_nodes_over_all_queues(server: Memory) -> None:
    server.queue("a", lease_ms=20_000)
    server.queue("b", lease_ms=10_000)
    server.append(1, 2, 3, topic="a")
    server.append(1, 2, topic="b")
    server.take("w1", "a", max=2)
    server.wait(1)
    server.take("w1", "b")
    server.take("w2", "b")
    server.call("POST", "topics/b/ack", {"node": "w2", "seqs": [2]})
    server.work("w3", topic="b")
    found = crew(server)
    assert list(found) == ["w1", "w2", "w3"]
    w1 = found["w1"]
    assert (w1["state"], w1["in_flight"], w1["claimed"], w1["acked"]) == ("working", 3, 3, 0)
    assert [(q["topic"], q["in_flight"]) for q in w1["queues"]] == [("a", 2), ("b", 1)]
    assert [(job["topic"], job["$seq"], job["lease_left_ms"]) for job in w1["jobs"]] == [
        ("b", 1, 10_000), ("a", 1, 19_000), ("a", 2, 19_000),
    ]  # fmt: skip
    assert w1["jobs"][1]["age_ms"] == 1000
    assert (found["w2"]["state"], found["w2"]["acked"]) == ("idle", 1)
    assert (found["w3"]["state"], found["w3"]["streams"]) == ("idle", 1)


def test_a_worker_that_says_nothing_and_one_that_is_gone(server: Memory) -> None:
    server.queue("q", lease_ms=120_000)
    server.append(1, 2, 3)
    server.take("dead", max=2)
    server.take("brief")
    server.settle("ack", 3, node="brief")
    server.wait(61)
    found = crew(server)
    assert {node: worker["state"] for node, worker in found.items()} == {
        "dead": "silent",
        "brief": "gone",
    }
    server.wait(60)
    found = crew(server)
    assert (found["dead"]["state"], found["dead"]["expired"]) == ("gone", 2)
    assert found["dead"]["jobs"] == []


def test_jobs_in_hand_are_bounded(server: Memory) -> None:
    server.queue("q")
    server.append(*range(30))
    for _ in range(6):
        server.take("w", max=5)
        server.wait(0.5)
    assert [job["$seq"] for job in crew(server)["w"]["jobs"]] == [*range(1, 11)]
    assert len(crew(server, "?jobs=1000")["w"]["jobs"]) == 30
    assert crew(server, "?jobs=0")["w"]["jobs"] == []
    assert crew(server, "?jobs=0")["w"]["in_flight"] == 30


def test_filters(server: Memory) -> None:
    for name in ("a.x", "a.y", "b.z"):
        server.queue(name)
        server.append(1, topic=name)
        server.take(f"w-{name}", name)
    server.call("PUT", "topics/log", {})
    assert set(crew(server, "?prefix=a.")) == {"w-a.x", "w-a.y"}
    assert set(crew(server, "?topic=b.z")) == {"w-b.z"}
    assert set(crew(server, "?node=w-a.x")) == {"w-a.x"}
    assert crew(server, "?topic=nosuch") == crew(server, "?topic=log") == {}


@pytest.mark.parametrize("jobs", ["-1", "x", "1001", "99999999", ""])
def test_a_bad_number_of_jobs(server: Memory, jobs: str) -> None:
    assert server.begin("GET", f"workers?jobs={jobs}").status == 400


def test_leases_that_ended_otherwise_are_not_in_hand(server: Memory) -> None:
    """Extended, nacked, cancelled, purged: what the counters of the queue say is what is held."""
    server.queue("q", lease_ms=5000)
    server.append(*range(10))
    server.take("w", max=8)
    server.settle("extend", 1, 2, lease_ms=50_000)
    server.settle("nack", 3, delay_ms=0)
    server.settle("ack", 4)
    server.call("DELETE", "topics/q/jobs/5?force=true")
    server.call("POST", "topics/q/delete", {"before_seq": 2})
    found = crew(server)["w"]
    assert found["in_flight"] == server.state()["in_flight"]
    assert sorted(job["$seq"] for job in found["jobs"]) == [2, 6, 7, 8]
    listed = server.call("GET", "topics/q/workers")["workers"][0]
    assert {name: found[name] for name in listed if name not in ("node", "last_seen_ts")} == {
        name: value for name, value in listed.items() if name not in ("node", "last_seen_ts")
    }


def test_rates_of_workers(server: Memory) -> None:
    server.queue("q")
    viewer = server.begin("GET", "stats/stream")
    for _ in range(30):
        server.append(1, 2)
        seqs = [job["$seq"] for job in server.take("fast", max=2)]
        server.settle("ack", *seqs, node="fast")
        server.wait(1)
    assert crew(server)["fast"]["acked_per_s"] == pytest.approx(2.0, abs=0.3)
    server.wait(30)
    assert crew(server)["fast"]["acked_per_s"] == 0
    assert viewer.take()


def test_steps_are_bounded(server: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with parts of a few: nothing is lost or counted twice between them."""
    for name in ("LEASES_PER_STEP", "QUEUES_PER_STEP", "NODES_PER_STEP"):
        monkeypatch.setattr(handler, name, 3)
    for queue in range(7):
        server.queue(f"q{queue}")
        server.append(*range(12), topic=f"q{queue}")
        for node in range(3):
            server.take(f"w{node}", f"q{queue}", max=4)
    found = crew(server, "?jobs=1000")
    assert {worker["in_flight"] for worker in found.values()} == {28}
    assert {len(worker["jobs"]) for worker in found.values()} == {28}
    assert {len(worker["queues"]) for worker in found.values()} == {7}

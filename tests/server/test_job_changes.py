"""Changing many jobs by a filter: what each action does, what it leaves alone, and its bounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from logqueue.model import limits
from tests.server.memory import Memory


@pytest.fixture
def memory() -> Iterator[Memory]:
    """A queue with jobs of all states: 1 to 3 in flight, 4 held, 5 delayed, 6 to 9 ready."""
    server = Memory()
    server.queue(on_exhausted="hold", lease_ms=60_000)
    server.append("a", "b", "c", "d", tag="first")
    server.take("w1", max=2)
    server.take("w2", max=2)
    server.settle("reject", 4, node="w2", error="broken pipe")
    server.append("late", delay_ms=600_000)
    server.append("e", "f", "g", "h", tag="second")
    yield server
    server.close()


def change(memory: Memory, action: str, **body: Any) -> dict[str, Any]:
    """Change jobs and wait for it; the operation."""
    filters = {name: body.pop(name) for name in [*body] if name in FILTERS}
    wanted = {"action": action, "filter": filters, "wait": True, **body}
    exchange = memory.begin("POST", "topics/q/jobs/change", wanted)
    memory.wait(0.01)
    assert exchange.status == 200, exchange.take()
    found: dict[str, Any] = msgspec.json.decode(exchange.take())["operation"]
    assert found["state"] == "done", found
    return found


FILTERS = (
    "state", "tag", "key", "node", "min_age_ms", "max_age_ms", "min_deliveries", "text", "seqs",
    "before_seq", "operation",
)  # fmt: skip


def states(memory: Memory) -> dict[int, str]:
    page = memory.call("GET", "topics/q/jobs")
    return {job["$seq"]: job["state"] for job in page["jobs"]}


BEFORE = {
    1: "in_flight", 2: "in_flight", 3: "in_flight", 4: "held", 5: "delayed", 6: "ready",
    7: "ready", 8: "ready", 9: "ready",
}  # fmt: skip


@pytest.mark.parametrize(
    ("action", "body", "changed"),
    [
        ("retry", {}, {4: "ready", 5: "ready"}),
        ("retry", {"state": "held"}, {4: "ready"}),
        ("retry", {"text": "broken"}, {4: "ready"}),
        ("delay", {"delay_ms": 50_000}, dict.fromkeys((6, 7, 8, 9), "delayed")),
        ("delay", {"delay_ms": 50_000, "seqs": [7, 1, 99]}, {7: "delayed"}),
        ("hold", {}, dict.fromkeys((5, 6, 7, 8, 9), "held")),
        ("hold", {"tag": "sec*", "before_seq": 8}, dict.fromkeys((6, 7), "held")),
        ("release", {}, {4: "ready"}),
        ("cancel", {}, dict.fromkeys((4, 5, 6, 7, 8, 9))),
        ("cancel", {"state": ["held", "delayed"]}, {4: None, 5: None}),
        ("cancel", {"force": True, "node": "w1"}, {1: None, 2: None}),
        ("return", {}, dict.fromkeys((1, 2, 3), "ready")),
        ("return", {"node": "w2"}, {3: "ready"}),
        ("hold", {"limit": 2, "state": "ready"}, dict.fromkeys((6, 7), "held")),
    ],
)
def test_an_action_changes_the_selected_jobs(
    memory: Memory, action: str, body: dict[str, Any], changed: dict[int, str | None]
) -> None:
    assert states(memory) == BEFORE
    dry = change(memory, action, **body, dry_run=True)
    assert states(memory) == BEFORE and dry["dry_run"]
    done = change(memory, action, **body)
    after = {seq: state for seq, state in (BEFORE | changed).items() if state is not None}
    assert states(memory) == after
    # A job that is delayed already is delayed again.
    count = len(changed) + (action == "delay" and "seqs" not in body)
    assert dry["changed"] == dry["matched"] == done["changed"] == done["matched"] == count
    assert done["skipped"] == 0 and done["total"] == done["scanned"]
    assert (done["action"], done["topic"]) == (action, "q")


def test_what_is_retried_or_returned_is_claimed_next_and_a_late_ack_is_skipped(
    memory: Memory,
) -> None:
    change(memory, "return", node="w1")
    change(memory, "retry")
    claimed = memory.take("w3", max=9)
    assert [job["$seq"] for job in claimed] == [1, 2, 4, 5, 6, 7, 8, 9]
    deliveries = {job["$seq"]: job["deliveries"] for job in claimed}
    assert deliveries[1] == 2, "a returned lease was a delivery"
    assert deliveries[4] == deliveries[5] == 1, "a hold that ends resets the deliveries"
    assert memory.settle("ack", 1, 2, node="w1")["skipped"] == [1, 2]


def test_a_delay_is_over_in_its_time(memory: Memory) -> None:
    change(memory, "delay", delay_ms=50_000)
    page = memory.call("GET", "topics/q/jobs?state=delayed")
    due = {job["$seq"]: job["not_before"] - job["$ts"] for job in page["jobs"]}
    assert due[5] == due[6] and 50_000 <= due[6] < 51_000
    assert memory.take("w3", max=9) == []
    memory.wait(51)
    assert [job["$seq"] for job in memory.take("w3", max=9)] == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("kill", [False, True])
def test_the_changes_survive_the_end_of_the_server(memory: Memory, kill: bool) -> None:
    change(memory, "delay", delay_ms=3_600_000, seqs=[6, 7])
    change(memory, "hold", seqs=[5, 8])
    change(memory, "retry", seqs=[4])
    before = memory.call("GET", "topics/q/jobs")["jobs"]
    memory.core.restart(kill=kill)
    after = memory.call("GET", "topics/q/jobs")["jobs"]
    for job in (*before, *after):
        # Leases of this queue end with the server.
        for member in ("age_ms", "state" if job["$seq"] < 4 else "", "node", "deadline"):
            job.pop(member, None)
    assert after == before
    assert memory.call("GET", "operations")["operations"] == []


def test_a_hold_is_undone_for_exactly_the_jobs_it_changed(memory: Memory) -> None:
    done = change(memory, "hold", tag="second", before_seq=9)
    assert done["undo"] == {"action": "release", "filter": {"operation": done["id"]}}
    memory.call("POST", "topics/q/release", {"seqs": [6]})
    undone = change(memory, "release", operation=done["id"])
    assert undone["matched"] == undone["changed"] == 2
    assert states(memory) == BEFORE, "4 was held before, and is still"
    again = change(memory, "hold", operation=undone["id"])
    assert [seq for seq, state in states(memory).items() if state == "held"] == [4, 7, 8]
    assert again["undo"]["action"] == "release"
    assert "undo" not in change(memory, "cancel", operation=again["id"])
    assert "undo" not in change(memory, "hold", seqs=[99])
    for identity in ("op_none", "x" * 3000):
        body = {"action": "hold", "filter": {"operation": identity}}
        assert memory.begin("POST", "topics/q/jobs/change", body).status == 404


def test_jobs_of_others_and_of_later_are_left_alone(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a worker claims between selection and change is skipped; what comes later is not
    selected."""
    memory.queue("w")
    memory.append(*range(40), topic="w")
    monkeypatch.setattr(limits, "CHANGED_PER_PASS_MAX", 10)
    body = {"action": "hold", "filter": {}, "rate_per_s": 100}
    started = memory.begin("POST", "topics/w/jobs/change", body)
    assert started.status == 202
    memory.append(*range(5), topic="w")
    assert [job["$seq"] for job in memory.take(topic="w", max=10)] == [*range(11, 21)]
    memory.wait(1)
    (found,) = memory.call("GET", "operations")["operations"]
    assert found["state"] == "done"
    assert (found["matched"], found["changed"], found["skipped"]) == (40, 30, 10)
    assert memory.state("w")["ready"] == 5


def test_many_jobs_take_many_short_steps(memory: Memory) -> None:
    memory.queue("w")
    for _ in range(5):
        memory.append(*range(1000), topic="w")
    engine = memory.dispatcher.engine
    sizes: list[int] = []
    execute = engine.execute

    def counted(command: Any, now: int | None = None) -> Any:
        outcome = execute(command, now)
        sizes.append(len(getattr(outcome.result, "changed", ())))
        return outcome

    vars(engine)["execute"] = counted
    memory.begin("POST", "topics/w/jobs/change", {"action": "hold", "filter": {}})
    memory.begin("POST", "topics/w/jobs/change", {"action": "cancel", "filter": {}})
    memory.wait(1)
    assert sum(sizes) == 2 * 5000
    assert 0 < max(sizes) <= max(limits.CHANGED_PER_PASS_MAX, limits.FILTERED_PER_PASS_MAX)


def test_a_deleted_queue_ends_its_operation(memory: Memory) -> None:
    memory.queue("w")
    memory.append(*range(40), topic="w")
    body = {"action": "hold", "filter": {}, "rate_per_s": 10}
    memory.begin("POST", "topics/w/jobs/change", body)
    memory.call("DELETE", "topics/w")
    memory.wait(1)
    (found,) = memory.call("GET", "operations")["operations"]
    assert found["state"] == "failed" and found["error"]["code"] == "topic_not_found"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"action": "retry"}, "`filter` is missing"),
        ({"action": "eat", "filter": {}}, "action"),
        ({"action": "delay", "filter": {}}, "needs `delay_ms`"),
        ({"action": "delay", "filter": {}, "delay_ms": 1 << 40}, "a year"),
        ({"action": "hold", "filter": {}, "delay_ms": 1}, "for the action"),
        ({"action": "release", "filter": {"state": "ready"}}, "jobs that are held"),
        ({"action": "cancel", "filter": {"state": "in_flight"}}, "force"),
        ({"action": "hold", "filter": {}, "limit": 0}, "at least 1"),
        ({"action": "hold", "filter": {}, "rate_per_s": 0}, "from 1 to"),
        ({"action": "hold", "filter": {"text": "x" * 1025}}, "1024 characters"),
        ({"action": "hold", "filter": {"before_seq": 1 << 64}}, "before_seq"),
        ({"action": "hold", "filter": {"seqs": [*range(10_001)]}}, "10001 seqs"),
    ],
)
def test_bad_bodies_are_refused(memory: Memory, body: dict[str, Any], words: str) -> None:
    exchange = memory.begin("POST", "topics/q/jobs/change", body)
    content = exchange.take()
    assert exchange.status == 400 and words.encode() in content, content
    assert memory.call("GET", "operations")["operations"] == []


def test_only_queues_can_be_changed(memory: Memory) -> None:
    memory.call("PUT", "topics/log", {"type": "log"})
    body = {"action": "hold", "filter": {}}
    assert memory.begin("POST", "topics/log/jobs/change", body).status == 409
    assert memory.begin("POST", "topics/none/jobs/change", body).status == 404

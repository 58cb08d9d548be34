"""Pages of jobs: made in steps, and the same as if made in one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from logqueue.core import commands as cmd
from logqueue.core import job_filter
from logqueue.core.decide import claims
from logqueue.core.job_views import list_jobs
from logqueue.core.topic import Topic
from logqueue.model import limits
from logqueue.server.handlers import job_pages
from tests.core.world import World, wish
from tests.server.memory import Memory


class Steps:
    """How many jobs each step of a page looked at and listed, and what happens behind one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[int, int]] = []
        self.after_first: Callable[[], object] = lambda: None
        monkeypatch.setattr(job_pages, "list_jobs", self._list)
        monkeypatch.setattr(job_pages, "LISTED_PER_STEP", 25)
        monkeypatch.setattr(job_pages, "SCANNED_PER_STEP", 100)
        monkeypatch.setattr(job_filter, "RUN_JOBS_MAX", 50)
        monkeypatch.setattr(limits, "JOBS_SCANNED_MAX", 1000)

    def _list(self, *args: Any, **options: Any) -> Any:
        page = list_jobs(*args, **options)
        self.seen.append((page.scanned, len(page.jobs)))
        if len(self.seen) == 1:
            self.after_first()
        return page


def filled(count: int, size: int = 10) -> Memory:
    memory = Memory()
    memory.queue("q")
    for start in range(0, count, 50):
        records = [
            {"data": "x" * size, "key": f"k{n}", "tag": f"t{n % 2}"}
            for n in range(start, start + 50)
        ]
        memory.call("POST", "topics/q", {"records": records})
    return memory


@pytest.mark.parametrize(
    ("query", "found", "scanned", "following"),
    [
        ("limit=1000", [*range(1, 1001)], 1000, 1000),
        ("limit=60", [*range(1, 61)], 60, 60),
        ("limit=60&tag=t1", [*range(2, 121, 2)], 120, 120),
        ("limit=5&text=k900", [901], 1000, 1000),
        ("limit=5&text=k1100", [], 1000, 1000),
        ("limit=9&text=k1100&after=1000", [1101], 500, None),
        ("limit=1000&after=1400", [*range(1401, 1501)], 100, None),
        ("limit=1000&state=ready&after=1200&data=false", [*range(1201, 1501)], 300, None),
    ],
)
def test_a_page_of_many_steps(
    query: str, found: list[int], scanned: int, following: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    memory = filled(1500)
    try:
        steps = Steps(monkeypatch)
        page = memory.call("GET", f"topics/q/jobs?{query}")
        assert [job["$seq"] for job in page["jobs"]] == found
        assert page["scanned"] == scanned and page.get("next_after") == following
        assert all(looked <= 100 and listed <= 25 for looked, listed in steps.seen)
        assert len(steps.seen) > 1
    finally:
        memory.close()


def test_the_bytes_of_a_page_are_those_of_all_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = filled(200, size=1000)
    try:
        Steps(monkeypatch)
        monkeypatch.setattr(limits, "JOBS_LISTED_BYTES_MAX", 61_000)
        monkeypatch.setattr(list_jobs, "__kwdefaults__", {
            **(list_jobs.__kwdefaults__ or {}), "bytes_max": 61_000,
        })  # fmt: skip
        page = memory.call("GET", "topics/q/jobs?limit=1000")
        assert [job["$seq"] for job in page["jobs"]] == [*range(1, 61)]
        assert page["next_after"] == 60
    finally:
        memory.close()


def test_a_queue_that_changes_between_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = filled(300)
    try:
        steps = Steps(monkeypatch)
        engine = memory.core._dispatcher.engine
        steps.after_first = lambda: engine.execute(cmd.RemoveRecords("q", [*range(26, 51)]))
        page = memory.call("GET", "topics/q/jobs?limit=60")
        assert [job["$seq"] for job in page["jobs"]] == [*range(1, 26), *range(51, 86)]
        steps.seen.clear()
        steps.after_first = lambda: engine.execute(cmd.DropTopic("q", False))
        exchange = memory.begin("GET", "topics/q/jobs?limit=60")
        assert exchange.status == 404 and b"topic_not_found" in exchange.take()
    finally:
        memory.close()


def test_the_oldest_ready_job_is_not_looked_for_behind_very_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.put(durability="ephemeral")
    for _ in range(40):
        world.write("q", *[wish(k, ttl_ms=1000) for k in range(100)])
    world.write("q", "lasting")
    topic = world.engine.queue_now("q")
    looked: list[int] = []
    is_past = Topic.is_past_its_own

    def look(topic: Topic, seq: int, now: int) -> bool:
        looked.append(seq)
        return is_past(topic, seq, now)

    monkeypatch.setattr(Topic, "is_past_its_own", look)
    assert claims.oldest_ready_ms(topic, world.clock.now_ms()) == 0
    assert claims.oldest_ready_ms(topic, world.clock.now_ms() + 5000) == 0
    assert 0 < len(looked) <= limits.READY_SCANNED_MAX
    monkeypatch.setattr(limits, "READY_SCANNED_MAX", 10**6)
    assert claims.oldest_ready_ms(topic, world.clock.now_ms() + 5000) == 5000

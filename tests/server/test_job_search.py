"""The whole life of one job, found in both logs."""

from __future__ import annotations

from typing import Any

import pytest

from logqueue import events as ev
from logqueue.core.job_views import describe_job
from logqueue.segments.job_trail import JobTrail, copied_from
from logqueue.server.storage import job_search
from logqueue.server.storage.job_search import JobSearch, SearchedJob
from tests.core.world import Bounds, World, wish


def search(world: World, seq: int, queue: str = "q") -> tuple[JobTrail, JobSearch]:
    """What both logs say of a job."""
    world.step()
    topic = world.queue(queue)
    job = describe_job(topic, seq)
    names = {number: found.name for number, found in world.state.instances.items()}
    routers = world.state.routers_by_number
    trail = JobTrail(topic.number, seq, queue, names.get, lambda number: routers[number].source)
    through = max(topic.mark_written, topic.mark_durable)
    sought = SearchedJob(topic.number, seq, job.ts if job is not None else 0, through)
    found = JobSearch(world.engine.journal.fs, world.engine.segments, sought, trail)
    for _ in found.steps():
        pass
    return trail, found


def life(world: World, seq: int, queue: str = "q") -> list[dict[str, Any]]:
    """The steps of a job, without the times."""
    trail, _ = search(world, seq, queue)
    job = describe_job(world.queue(queue), seq)
    is_in_flight = job is not None and job.state == "in_flight"
    return [
        {name: value for name, value in step.items() if name not in ("at", "deadline", "lease_id")}
        for step in trail.entries(is_in_flight, world.now)
    ]


def steps(world: World, seq: int, queue: str = "q") -> list[str]:
    """Their names only."""
    return [step["event"] for step in life(world, seq, queue)]


@pytest.fixture
def world() -> World:
    world = World()
    world.put("q", durability="fsync", lease_ms=1000, leases_durable=True)
    return world


def test_a_job_that_is_done(world: World) -> None:
    world.patch(archive="done")
    world.write("q", 1, 2, 3)
    world.take(2, node="a")
    world.nack(2, node="a", error="no", delay_ms=50)
    world.wait(60)
    world.take(1, node="b")
    world.extend(2, node="b", lease_ms=5000)
    world.ack(2, node="b")
    assert life(world, 2) == [
        {"event": "appended"},
        {"event": "claimed", "node": "a"},
        {"event": "nack", "node": "a", "error": "no", "not_before": world.now - 10},
        {"event": "claimed", "node": "b"},
        {"event": "extended", "node": "b"},
        {"event": "acked", "node": "b", "topic": "done", "seq": 1},
    ]
    written = search(world, 2)[0].written
    assert written is not None and written.data == b"2"


def test_a_lease_that_ran_out_shows_when(world: World) -> None:
    world.write("q", 1)
    world.take(node="a")
    began = world.now
    world.wait(5000)
    assert steps(world, 1) == ["appended", "claimed", "lease_expired"]
    world.take(node="b")
    trail, _ = search(world, 1)
    expired = trail.entries(True, world.now)[2]
    assert expired == {"at": began + 1000, "event": "lease_expired", "node": "a"}


def test_a_dead_letter_and_its_way_back(world: World) -> None:
    world.patch(dead_letter="letters")
    world.write("q", 1, 2)
    world.take(2)
    world.reject(1, 2, error="bad")
    world.redrive(seqs=[2])
    assert life(world, 2)[-1] == {
        "event": "dead_lettered", "node": "w", "reason": "rejected", "topic": "letters", "seq": 2,
        "error": "bad",
    }  # fmt: skip
    assert life(world, 3) == [
        {"event": "appended", "reason": "redriven", "topic": "letters", "seq": 2}
    ]
    assert steps(world, 1)[-1] == "dead_lettered"


@pytest.mark.parametrize(
    ("end", "last"),
    [
        (lambda w: w.cancel(2), "cancelled"),
        (lambda w: w.purge("ready"), "cancelled"),
        (lambda w: w.delete(before=3), "deleted"),
        (lambda w: w.write("q", wish(9, key="k")), "replaced"),
        (lambda w: (w.wait(10_000), w.queue()), "expired"),
    ],
)
def test_each_end_is_a_step(world: World, end: Any, last: str) -> None:
    world.write("q", 1, wish(2, key="k", ttl_ms=5000), 3)
    end(world)
    assert steps(world, 2)[-1] == last


def test_holds_are_told_once(world: World) -> None:
    world.patch(on_exhausted="hold")
    world.write("q", 1, 2)
    world.take(2)
    world.reject(2, error="bad")
    world.let_go(2)
    assert steps(world, 2) == ["appended", "claimed", "held", "released"]


def test_a_routed_job_says_where_it_came_from(world: World) -> None:
    world.put("source", type="log", durability="fsync")
    world.put_router("r", "source", "q")
    world.write("source", 1, 2)
    world.forward()
    assert life(world, 2) == [{"event": "routed", "topic": "source", "seq": 2}]


def test_delays_and_producers_are_told(world: World) -> None:
    world.write("q", wish(1, delay_ms=700))
    assert life(world, 1) == [{"event": "appended", "not_before": world.now + 700}]


def test_what_the_logs_never_had_is_not_made_up(world: World) -> None:
    world.write("q", 1)
    for seq in (0, 2, 128, 2**63):
        trail, _ = search(world, seq)
        assert (trail.written, trail.ended, trail.entries(False, 0)) == (None, "", [])


def test_a_job_among_many_is_found_without_reading_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of all segments, those around its life are read; few frames are decoded."""
    world = World(archive=Bounds())
    world.put("q", durability="fsync", lease_ms=1000, leases_durable=True)
    for _ in range(60):
        world.write("q", *({"n": n} for n in range(70_000, 70_030)))
        world.ack(*world.take(30))
        world.wait(1000)
        world.step()
        world.tidy()
        world.keep()
    segments = world.engine.segments.places("jobs")
    assert len(segments) > 8
    decoded: list[bytes] = []
    decode = ev.decode

    def counted(payload: bytes) -> ev.Transaction:
        decoded.append(payload)
        return decode(payload)

    monkeypatch.setattr(ev, "decode", counted)
    assert steps(world, 900) == ["appended", "claimed", "acked"]
    assert len(decoded) < 60
    # Small numbers are everywhere: there, decoding is what is bounded.
    monkeypatch.setattr(job_search, "DECODED_MAX", 3)
    _, found = search(world, 5)
    assert not found.is_whole


def test_it_goes_over_kills_and_restarts(world: World) -> None:
    world.write("q", 1, 2)
    world.take(1, node="a")
    world.restart()
    world.ack(1, node="a")
    world.kill()
    assert steps(world, 1) == ["appended", "claimed", "acked"]
    assert steps(world, 2) == ["appended"]


@pytest.mark.parametrize(
    ("meta", "found"),
    [
        (b"", None),
        (b"[1]", None),
        (b'{"a":1}', None),
        (b'{"$dead_letter_from":"q","$dead_letter_src_seq":"7"}', ("q", 7)),
        (b'{"$archived_from":"q","$archived_src_seq":"8","x":{}}', ("q", 8)),
        (b'{"$archived_from":1,"$archived_src_seq":"8"}', None),
        (b'{"$archived_from":"q","$archived_src_seq":"x_src_seq"}', None),
    ],
)
def test_a_copy_says_where_it_came_from(meta: bytes, found: tuple[str, int] | None) -> None:
    assert copied_from(meta) == found

"""Batches: jobs that are counted together, and a record that is written once when all are over."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logqueue.core import commands as cmd
from logqueue.core.invariants import check
from logqueue.errors import (
    BatchClosed,
    BatchExists,
    BatchNotEmpty,
    BatchNotFound,
    InvalidRequest,
    LogqueueError,
    NotAQueue,
    Throttled,
)
from logqueue.model import limits
from logqueue.model.job_batch import BatchCallback
from logqueue.model.limits import Quotas
from logqueue.server.storage import compaction
from tests.core.test_chains import step, write
from tests.core.world import World, fall_back, job, pack
from tests.effort import EFFORT


@pytest.fixture
def world() -> World:
    """A queue `a`, and a batch `b` with both callbacks."""
    return with_batch(World())


def with_batch(world: World) -> World:
    """A queue and a batch."""
    world.put("a", lease_ms=1000)
    opened(world, "b")
    return world


def callback(topic: str, data: str = "over") -> BatchCallback:
    """A callback."""
    return BatchCallback(topic, b"{}", pack([job(data, meta={"own": 1})]))


def opened(world: World, name: str, *callbacks: str) -> cmd.BatchResult:
    """Open a batch."""
    done, problem = callbacks or ("done", "problem")
    reply: cmd.BatchResult = world.run(
        cmd.OpenBatch(
            name, callback(done) if done else None, callback(problem) if problem else None
        )
    )
    return reply


def close(world: World, name: str = "b") -> None:
    """Close a batch, and let it end."""
    world.run(cmd.CloseBatch(name))
    world.end_batches()


def put(world: World, *names: str | None, topic: str = "a", **more: Any) -> None:
    """One job for each of these batches."""
    write(world, topic, *[{"data": n, **({"batch": name} if name else {}), **more}
                          for n, name in enumerate(names)])  # fmt: skip


def ack(world: World, *seqs: int, topic: str = "a", **more: Any) -> cmd.SettleResult:
    """Claim everything, and ack some."""
    world.claim(100, topic=topic)
    reply: cmd.SettleResult = world.run(cmd.AckJobs(topic, "w", seqs, **more))
    world.end_batches()
    return reply


def counts(world: World, name: str = "b") -> tuple[int, int, int, int]:
    """Jobs that joined, are done, have failed, are left."""
    batches = world.state.batches
    batch = batches.named(name)
    return batch.joined, batch.done, batches.failed(batch), batches.left.get(name, 0)


def written(world: World) -> dict[str, list[dict[str, Any]]]:
    """The metas of the callbacks that were written."""
    return {name: world.meta(name) for name in ("done", "problem") if name in world.state.topics}


def stamp(joined: int, done: int, failed: int, name: str = "b") -> dict[str, Any]:
    """What the meta of a callback says."""
    return {"own": 1, "$batch": {"batch": name, "joined": joined, "done": done, "failed": failed}}


def test_it_ends_once_all_jobs_are_done(world: World) -> None:
    """And only when it is closed; the callback is written once, through any restart."""
    put(world, "b", None, "b")
    assert counts(world) == (2, 0, 0, 2)
    ack(world, 1, 2, 3)
    assert counts(world) == (2, 2, 0, 0)
    assert written(world) == {}
    close(world)
    for _ in range(3):
        assert written(world) == {"done": [stamp(2, 2, 0)]}
        assert world.queue("done").ready == 1
        assert counts(world) == (2, 2, 0, 0)
        world.kill()
        world.end_batches()
        world.restart()
        world.end_batches()
    check(world.state)


def test_a_closed_batch_ends_with_its_last_job(world: World) -> None:
    put(world, "b", "b")
    close(world)
    ack(world, 1)
    assert written(world) == {}
    ack(world, 2)
    assert written(world) == {"done": [stamp(2, 2, 0)]}


@pytest.mark.parametrize(
    "end",
    ["reject", "cancel", "delete", "purge", "drop", "evict", "ttl", "own_ttl", "replace",
     "dead_letter", "exhaust"],
)  # fmt: skip
def test_every_other_end_counts_as_failed(world: World, end: str) -> None:
    """Whatever it is; leases and holds are no ends."""
    if end in ("dead_letter", "exhaust"):
        world.put("a", lease_ms=1000, dead_letter="letters", max_deliveries=1)
    asked: dict[str, dict[str, Any]] = {"own_ttl": {"ttl_ms": 5}, "replace": {"key": "k"}}
    more = asked.get(end, {})
    put(world, "b", "b" if end != "replace" else None)
    if end in ("own_ttl", "replace"):
        put(world, "b", **more)
    close(world)
    match end:
        case "reject" | "dead_letter":
            world.claim(9, topic="a")
            world.run(cmd.RejectJobs("a", "w", [1]))
        case "exhaust":
            world.claim(topic="a")
            world.wait(1001)
            world.claim(topic="a")
        case "cancel":
            world.run(cmd.CancelJob("a", 1))
        case "delete":
            world.delete("a", before=2)
        case "purge":
            world.purge("ready", topic="a")
        case "drop":
            world.drop("a")
        case "evict":
            world.put("a", cap_records=1)
        case "ttl":
            world.wait(10)
            world.put("a", ttl_ms=1)
        case "own_ttl":
            world.wait(10)
            world.queue("a")
        case "replace":
            put(world, None, key="k")
    world.end_batches()
    joined, done, failed, left = counts(world)
    assert (done, failed > 0) == (0, True) and joined == failed + left
    for seq in world.seqs("a") if "a" in world.state.topics else ():
        world.run(cmd.CancelJob("a", seq, force=True))
    world.end_batches()
    assert written(world) == {"problem": [stamp(joined, 0, joined)]}
    check(world.state)


def test_a_redriven_job_is_not_in_the_batch_again(world: World) -> None:
    world.put("a", lease_ms=1000, dead_letter="letters")
    put(world, "b")
    world.claim(topic="a")
    world.run(cmd.RejectJobs("a", "w", [1]))
    assert world.redrive().redriven == 1
    assert counts(world) == (1, 0, 1, 0)


def test_jobs_may_add_jobs_while_some_are_left(world: World) -> None:
    """Also to a closed batch: by themselves, with their ack, and as steps of their chains."""
    put(world, "b", then=[step("c", 1, batch="b")])
    close(world)
    ack(world, 1)
    assert counts(world) == (2, 1, 0, 1)
    world.claim(topic="c")
    put(world, "b")
    assert counts(world) == (3, 1, 0, 2)
    ack(world, 2)
    append = (cmd.Append("c", *_one("b")),)
    ack(world, 1, topic="c", append=append)
    assert counts(world) == (4, 3, 0, 1)
    ack(world, 2, topic="c")
    assert written(world) == {"done": [stamp(4, 4, 0)]}
    with pytest.raises(BatchClosed):
        put(world, "b")
    check(world.state)


def _one(batch: str) -> tuple[bytes, int]:
    from logqueue.api.bodies.records import append_command, read_append_body

    body = read_append_body(json.dumps({"records": [{"data": 1, "batch": batch}]}).encode())
    command = append_command("c", body, None)
    return command.block, command.count


def test_an_empty_batch_ends_when_it_is_closed(world: World) -> None:
    close(world)
    assert written(world) == {"done": [stamp(0, 0, 0)]}


@pytest.mark.parametrize(
    ("callbacks", "failed", "topics"),
    [
        (("done", ""), True, ["done"]),
        (("", "problem"), True, ["problem"]),
        (("", "problem"), False, []),
        (("", ""), True, []),
    ],
)
def test_which_callback_is_written(
    world: World, callbacks: tuple[str, str], failed: bool, topics: list[str]
) -> None:
    """Without `on_problem`, `on_done` is written whatever became of the jobs."""
    opened(world, "c", *callbacks)
    put(world, "c")
    close(world, "c")
    if failed:
        world.run(cmd.CancelJob("a", 1))
    else:
        ack(world, 1)
    world.end_batches()
    assert sorted(written(world)) == topics
    assert world.state.batches.named("c").ended_at


def test_a_refused_callback_is_tried_again(world: World) -> None:
    """The batch stays, says why, and ends when there is room; once."""
    world.put("done", cap_records=1, discard="reject")
    world.write("done", 0)
    close(world)
    batch = world.state.batches.named("b")
    assert batch.error is not None and batch.error.code == "topic_full" and not batch.ended_at
    world.wait(1000)
    world.end_batches()
    assert not batch.ended_at
    world.delete("done", before=2)
    world.kill()
    world.end_batches()
    assert written(world) == {"done": [stamp(0, 0, 0)]}


def test_opening_again(world: World) -> None:
    """The same is no change; another is refused, and so is the same when it was closed."""
    assert not opened(world, "b").created
    with pytest.raises(BatchExists):
        opened(world, "b", "other", "")
    close(world)
    with pytest.raises(BatchExists):
        opened(world, "b")


def test_deleting(world: World) -> None:
    """Only without jobs; the name is free then."""
    put(world, "b")
    with pytest.raises(BatchNotEmpty):
        world.run(cmd.DropBatch("b"))
    ack(world, 1)
    assert world.run(cmd.DropBatch("b")).deleted
    assert not world.run(cmd.DropBatch("b")).deleted
    with pytest.raises(BatchNotFound):
        world.run(cmd.CloseBatch("b"))
    with pytest.raises(BatchNotFound):
        put(world, "b")
    assert opened(world, "b").created
    assert counts(world) == (0, 0, 0, 0)


def test_bounds() -> None:
    """As many as the server may have; ended ones make room, and are forgotten after a day."""
    world = with_batch(World(quotas=Quotas(batches_max=2)))
    opened(world, "c")
    with pytest.raises(Throttled):
        opened(world, "d")
    close(world, "c")
    assert opened(world, "d").created
    assert world.state.batches.find("c") is None
    close(world, "d")
    world.wait(limits.BATCH_KEPT_MS + 1)
    world.tidy()
    assert [*world.state.batches.by_name] == ["b"]


def test_who_may_not_be_in_one(world: World) -> None:
    """Records of logs, jobs that would be lost at a restart; nothing is written then."""
    world.put("fleeting", durability="ephemeral")
    world.put("log", type="log")
    for topic, refusal in (("log", NotAQueue), ("fleeting", InvalidRequest)):
        with pytest.raises(refusal):
            put(world, "b", topic=topic)
        assert world.records(topic) == []
    with pytest.raises(InvalidRequest):
        opened(world, "a b")


def test_a_keyed_job_brings_its_own_batch(world: World) -> None:
    """What it replaces has failed where it was; in the same batch nothing changes."""
    opened(world, "c")
    put(world, "b", key="k")
    put(world, "b", key="k")
    assert counts(world) == (1, 0, 0, 1)
    put(world, "c", key="k")
    assert (counts(world), counts(world, "c")) == ((1, 0, 1, 0), (1, 0, 0, 1))
    world.run(cmd.EditJob("a", 1, data=b"9"))
    assert counts(world, "c") == (1, 0, 0, 1)
    world.kill()
    assert (counts(world), counts(world, "c")) == ((1, 0, 1, 0), (1, 0, 0, 1))


def test_counts_outlive_the_segments_they_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that are acked after their segment was dropped count, too."""
    monkeypatch.setattr(compaction, "SLACK_BYTES", 0)
    world = with_batch(World())
    put(world, *["b"] * 6)
    ack(world, 1)
    for _ in range(12):
        world.write("log", "x" * 3000)
        world.delete("log", before=99)
        world.tidy()
    assert world.engine.journal.jobs.segments()[0].id > 1
    world.run(cmd.CancelJob("a", 2, force=True))
    ack(world, 3, 4)
    for _ in range(2):
        assert counts(world) == (6, 3, 1, 2)
        world.kill()
    check(world.state)


def test_falling_back_to_a_failed_log(world: World) -> None:
    """The counts are those of what is durable."""
    put(world, "b", "b")
    world.step()
    before = counts(world)
    fall_back(world.engine)
    assert counts(world) == before


# -- against a naive model ------------------------------------------------------------------------

NAMES = ["b", "c"]
ACTS = st.one_of(
    st.tuples(st.just("put"), st.lists(st.sampled_from([None, *NAMES]), min_size=1, max_size=3)),
    st.tuples(st.just("ack"), st.integers(0, 9)),
    st.tuples(st.just("reject"), st.integers(0, 9)),
    st.tuples(st.just("cancel"), st.integers(0, 9)),
    st.tuples(st.just("close"), st.sampled_from(NAMES)),
    st.tuples(st.sampled_from(["kill", "restart", "tidy", "drop", "fall_back"]), st.none()),
)


class NaiveBatches:
    """What batches are, in the plainest terms: a batch and a state for each job ever written."""

    def __init__(self) -> None:
        self.jobs: dict[int, tuple[str | None, str]] = {}
        self.closed: set[str] = set()
        self.ended: dict[str, tuple[int, int]] = {}
        self.first = 1

    def states(self, name: str) -> list[str]:
        """The states of its jobs."""
        return [state for batch, state in self.jobs.values() if batch == name]

    def takes(self, name: str) -> bool:
        """Whether jobs may join."""
        return name not in self.closed or "left" in self.states(name)

    def end(self, seq: int, state: str) -> None:
        """A job ends."""
        batch, before = self.jobs[seq]
        if before == "left":
            self.jobs[seq] = batch, state

    def look(self) -> None:
        """Batches that are over end."""
        for name in self.closed - self.ended.keys():
            states = self.states(name)
            if "left" not in states:
                self.ended[name] = states.count("done"), states.count("failed")


@settings(max_examples=25 * EFFORT, deadline=None)
@given(st.lists(ACTS, max_size=25))
def test_batches_are_what_the_naive_model_says(acts: list[tuple[str, Any]]) -> None:
    """After each step: the counts, and each callback once."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(compaction, "SLACK_BYTES", 0)
        _run(acts)


def _run(acts: list[tuple[str, Any]]) -> None:
    world, model = World(), NaiveBatches()
    world.put("a", lease_ms=1_000_000, leases_durable=True)
    for name in NAMES:
        opened(world, name)
    base = 0
    for act, value in acts:
        base = _act(world, model, act, value, base)
        world.end_batches()
        model.look()
        for name in NAMES:
            states = model.states(name)
            found = [len(states), *(states.count(s) for s in ("done", "failed", "left"))]
            assert counts(world, name) == tuple(found), (act, value)
        made = [meta["$batch"] for metas in written(world).values() for meta in metas]
        ended = {m["batch"]: (m["done"], m["failed"]) for m in made}
        assert ended == model.ended and len(made) == len(ended)
        check(world.state)


def _act(world: World, model: NaiveBatches, act: str, value: Any, base: int) -> int:
    """One step in both; what is added to seqs to tell instances of the topic apart."""
    live = world.seqs("a")
    seq = live[value % len(live)] if live and isinstance(value, int) else 0
    match act:
        case "put":
            if not all(model.takes(name) for name in value if name):
                with pytest.raises(LogqueueError):
                    put(world, *value)
                return base
            put(world, *value)
            for place, name in enumerate(value):
                model.jobs[base + world.topic("a").head - len(value) + 1 + place] = name, "left"
        case "ack" | "reject":
            world.claim(100, topic="a")
            kind = cmd.AckJobs if act == "ack" else cmd.RejectJobs
            if world.run(kind("a", "w", [seq])).settled:
                model.end(base + seq, "done" if act == "ack" else "failed")
        case "cancel":
            if seq and world.run(cmd.CancelJob("a", seq, force=True)).cancelled:
                model.end(base + seq, "failed")
        case "close":
            world.run(cmd.CloseBatch(value))
            model.closed.add(value)
        case "kill":
            world.step()
            world.kill()
        case "restart":
            world.restart()
        case "tidy":
            for _ in range(4):
                world.write("log", "x" * 3000)
                world.delete("log", before=999)
                world.tidy()
        case "fall_back":
            world.step()
            fall_back(world.engine)
        case "drop":
            for one in live:
                model.end(base + one, "failed")
            world.drop("a")
            world.put("a", lease_ms=1_000_000, leases_durable=True)
            return base + 1000
    return base


def test_a_power_cut_leaves_the_end_and_its_callback_or_neither() -> None:
    """At every place of the log."""
    for seed in range(12):
        world = with_batch(World())
        put(world, "b", "b")
        world.run(cmd.CloseBatch("b"))
        world.claim(9, topic="a")
        world.execute(cmd.AckJobs("a", "w", [1, 2]))
        world.batch_ends.step()
        world.cut(Random(seed))
        world.end_batches()
        batch = world.state.batches.named("b")
        made = [meta for metas in written(world).values() for meta in metas]
        assert len(made) == (1 if batch.ended_at else 0)
        assert bool(batch.ended_at) == (counts(world)[3] == 0)

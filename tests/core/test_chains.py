"""Chains: on the ack of a job the next step is written, with the result as its input."""

from __future__ import annotations

import json
from typing import Any

import pytest

from logqueue.api.bodies.records import append_command, read_append_body
from logqueue.core import commands as cmd
from logqueue.core.invariants import check
from logqueue.core.job_views import describe_job
from logqueue.errors import (
    InvalidRequest,
    LogqueueError,
    NotAQueue,
    RecordTooLarge,
    TopicFull,
    TopicNotFound,
)
from logqueue.model.limits import Quotas
from tests.core.world import World


@pytest.fixture
def world() -> World:
    """Queues `a`, `b` and `c`."""
    return queues(World())


def queues(world: World, **config: Any) -> World:
    """The queues."""
    for name in "abc":
        world.put(name, lease_ms=1000, **config)
    return world


def write(world: World, topic: str, *records: dict[str, Any]) -> cmd.AppendResult:
    """Write records as a client does."""
    body = read_append_body(json.dumps({"records": records}).encode())
    reply: cmd.AppendResult = world.run(append_command(topic, body, None))
    return reply


def step(topic: str, data: object = None, **more: Any) -> dict[str, Any]:
    """One step."""
    return {"topic": topic, "record": {"data": data, **more}}


def ack(
    world: World, topic: str, *seqs: int, results: list[bytes] | None = None, **more: Any
) -> cmd.SettleResult:
    """Claim everything, and ack some."""
    world.claim(100, topic=topic)
    command = cmd.AckJobs(topic, "w", seqs, None, results=results, **more)
    reply: cmd.SettleResult = world.run(command)
    return reply


def job(world: World, topic: str, seq: int = 1) -> dict[str, Any]:
    """What a job of a queue says."""
    found = describe_job(world.queue(topic), seq)
    assert found is not None
    told = {name: json.loads(getattr(found, name) or b"null") for name in ("data", "meta")}
    return {**told, **json.loads(found.follow or b"{}")}


def test_each_step_carries_the_rest(world: World) -> None:
    """To its end; results go on as input, through any restart."""
    then = [step("b", {"n": 2}, tag="t", meta={"own": 1}), step("c", 3, meta=[4], delay_ms=5)]
    write(world, "a", {"data": 1, "then": then})
    assert len(job(world, "a")["then"]) == 2
    world.kill()
    assert ack(world, "a", 1, results=[b'{"r":1}']).settled == 1
    world.kill()
    assert job(world, "b") == {
        "data": {"n": 2},
        "meta": {"own": 1, "$input": {"r": 1}},
        "then": [step("c", 3, meta=[4], delay_ms=5)],
    }
    assert ack(world, "b", 1).settled == 1
    assert job(world, "c") == {"data": 3, "meta": {"$meta": [4], "$input": None}}
    assert world.states("c") == {1: "delayed"}
    world.restart()
    world.wait(5)
    assert ack(world, "c", 1).settled == 1
    assert [len(world.records(name)) for name in "abc"] == [0, 0, 0]


def test_jobs_of_one_ack_begin_their_steps_together(world: World) -> None:
    """One write for each topic; jobs without steps just end; the skipped ones begin nothing."""
    write(
        world,
        "a",
        {"data": 1, "then": [step("b", 1)]},
        {"data": 2},
        {"data": 3, "then": [step("c", 3)]},
        {"data": 4, "then": [step("b", 4)]},
    )
    result = ack(world, "a", 1, 2, 3, 4, 9)
    assert (result.settled, result.skipped, result.appended) == (4, [9], None)
    assert [job(world, "b", seq)["data"] for seq in (1, 2)] == [1, 4]
    assert job(world, "c")["data"] == 3
    check(world.state)


def test_a_step_comes_behind_what_the_ack_writes(world: World) -> None:
    """Both are one transaction, also where they go to one topic."""
    write(world, "a", {"data": 1, "then": [step("b", "step")]})
    body = read_append_body(b'{"records":[{"data":"x"},{"data":"y"}]}')
    result = ack(world, "a", 1, append=(append_command("b", body, None),))
    assert result.appended is not None and result.appended[0].first_seq == 1
    assert [json.loads(texts[0]) for _, _, texts in world.records("b")] == ["x", "y", "step"]


@pytest.mark.parametrize(
    ("refusal", "target", "more"),
    [
        (TopicFull, "full", {}),
        (NotAQueue, "log", {"delay_ms": 1}),
        (TopicNotFound, "absent", {}),
        (RecordTooLarge, "b", {"data": "x" * 60_000}),
    ],
)
def test_a_step_that_is_refused_leaves_the_job_leased(
    refusal: type[LogqueueError], target: str, more: dict[str, Any]
) -> None:
    """The ack is refused with it."""
    world = queues(World(quotas=Quotas(auto_create=False)))
    world.put("full", cap_records=1, discard="reject")
    world.write("full", 0)
    world.put("log", type="log")
    write(world, "a", {"data": 1, "then": [{"topic": target, "record": {"data": 1, **more}}]})
    results = [json.dumps("r" * ((1 << 20) - 30_000)).encode()] if target == "b" else None
    with pytest.raises(refusal):
        ack(world, "a", 1, results=results)
    assert world.states("a") == {1: "in_flight"}
    check(world.state)


def test_the_topic_of_a_step_is_created_as_a_queue(world: World) -> None:
    """A log would never hand the step out."""
    write(world, "a", {"data": 1, "then": [step("new", 2, priority=3, group="g")]})
    ack(world, "a", 1)
    assert world.queue("new").ready == 1
    assert world.queue("new").order_of(1) == (3, b'"g"')


def test_a_reject_ends_a_chain_and_a_redrive_goes_on(world: World) -> None:
    """The rest of it goes with the dead letter, and comes back."""
    world.put("a", dead_letter="letters")
    write(world, "a", {"data": 1, "then": [step("b", 2), step("c", 3)]})
    world.claim(topic="a")
    assert world.run(cmd.RejectJobs("a", "w", [1])).settled == 1
    assert world.records("b") == []
    (letter,) = world.meta("letters")
    assert json.loads(letter["$dead_letter_then"]) == [step("b", 2), step("c", 3)]
    assert world.redrive().redriven == 1
    assert job(world, "a", 2)["then"] == [step("b", 2), step("c", 3)]
    ack(world, "a", 2)
    assert job(world, "b")["then"] == [step("c", 3)]


@pytest.mark.parametrize(
    "forged",
    [
        "no JSON",
        "[]",
        "[1]",
        '[{"topic":"a b","record":{"data":1}}]',
        '[{"topic":"b","record":{"data":1,"ttl_ms":-1}}]',
        '[{"topic":"b","record":{"data":1,"delay_ms":99999999999999}}]',
        '[{"topic":"b","record":{"data":1,"max_deliveries":99999999999999999999}}]',
        "[" + ",".join(['{"topic":"b","record":{"data":1}}'] * 33) + "]",
        "[" * 10_000,
    ],
)
def test_a_letter_that_says_anything_else_is_redriven_without_steps(
    world: World, forged: str
) -> None:
    """Metas can be written by anyone."""
    meta = {"$dead_letter_from": "a", "$dead_letter_then": forged}
    write(world, "letters", {"data": 1, "meta": meta})
    assert world.redrive().redriven == 1
    assert "then" not in job(world, "a")
    assert ack(world, "a", 1).settled == 1


def test_edits_and_moves_keep_the_steps(world: World) -> None:
    """A keyed replace brings its own."""
    write(world, "a", {"data": 1, "key": "k", "then": [step("b", 2)]})
    world.run(cmd.EditJob("a", 1, data=b"9"))
    assert job(world, "a")["data"] == 9 and job(world, "a")["then"] == [step("b", 2)]
    for _ in range(30):
        world.write("log", "x" * 3000)
        world.delete("log", before=99)
        world.tidy()
    world.kill()
    assert job(world, "a")["then"] == [step("b", 2)]
    write(world, "a", {"data": 3, "key": "k", "then": [step("c", 4)]})
    assert job(world, "a")["then"] == [step("c", 4)]
    write(world, "a", {"data": 3, "key": "k"})
    assert "then" not in job(world, "a")
    check(world.state)


def test_copies_of_routers_and_archives_begin_nothing(world: World) -> None:
    """The steps belong to the job itself."""
    world.put("a", archive="done")
    world.put("copy")
    world.put_router("r", "a", "copy")
    write(world, "a", {"data": 1, "then": [step("b", 2)]})
    assert world.topic("copy").follow_of(1) == b""
    ack(world, "a", 1)
    assert world.topic("done").follow_of(1) == b""
    assert len(world.records("b")) == 1


def test_large_acks_are_carried_out_in_portions() -> None:
    """As those that leave copies; each job with its own result."""
    world = queues(World(segment_bytes=1 << 24))
    then = [step("b", "x" * 10_000)]
    write(world, "a", *[{"data": n, "then": then} for n in range(300)])
    world.claim(300, topic="a")
    before = world.engine.journal.jobs.written
    results = [str(n).encode() for n in range(300)]
    result: cmd.SettleResult = world.run(
        cmd.AckJobs("a", "w", range(1, 301), None, results=results)
    )
    assert result.settled == 300
    assert world.engine.journal.jobs.written - before == 2
    assert [job(world, "b", seq)["meta"]["$input"] for seq in range(1, 301)] == [*range(300)]
    check(world.state)


@pytest.mark.parametrize(
    "record",
    [
        {"then": [step("b")] * 33},
        {"then": [step("a b")]},
        {"then": [step("b", key="k")]},
        {"then": [step("b", then=[step("c")])]},
        {"then": [step("b", delay_ms=1, not_before=1)]},
        {"then": [step("b", tag="x" * 257)]},
        {"then": [step("b", "x" * 65_536)]},
        {"then": [{"topic": "b"}]},
        {"then": [{"record": {"data": 1}}]},
        {"then": {"topic": "b"}},
        {"batch": ""},
        {"batch": 'a"b'},
        {"then": [step("b", batch="?")]},
    ],
)
def test_what_follows_has_bounds(world: World, record: dict[str, Any]) -> None:
    """400, and nothing is written."""
    with pytest.raises(InvalidRequest):
        write(world, "a", {"data": 1, **record})
    assert world.records("a") == []


def test_only_jobs_are_followed(world: World) -> None:
    """A log refuses it, as it does a key."""
    with pytest.raises(NotAQueue):
        write(world, "log", {"data": 1, "then": [step("b")]})

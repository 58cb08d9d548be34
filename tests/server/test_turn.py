"""What is read in one turn of the event loop is decided together, as if one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logqueue import events as ev
from logqueue.core import commands as cmd
from logqueue.errors import StorageFull
from logqueue.server.engine import turn
from logqueue.testing.core import Exchange
from tests.effort import scaled
from tests.server.memory import Memory, claimed, seqs

Wanted = tuple[str, str, object]

TOPICS = st.sampled_from(["q", "q", "q", "q", "log", "absent"])
NODES = st.sampled_from(["v", "w"])
SEQS = st.lists(st.integers(1, 12), min_size=1, max_size=4)
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "cap_records": st.sampled_from([9, 12]),
        "discard": st.sampled_from(["old", "reject"]),
        "max_in_flight": st.sampled_from([8, 9]),
        "claim_rate": st.just({"per_s": 1, "burst": 8}),
        "retry_backoff": st.just({"kind": "linear", "base_ms": 100, "step_ms": 50}),
        "max_deliveries": st.just(1),
        "dead_letter": st.just("letters"),
        "archive": st.just("archive"),
        "durability": st.sampled_from(["fsync", "disk", "memory", "ephemeral"]),
        "leases_durable": st.booleans(),
    },
)


def posted(verb: str, members: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[Wanted]:
    """A request of one kind."""
    return st.builds(
        lambda topic, body: ("POST", f"topics/{topic}{verb}", body),
        TOPICS,
        st.one_of(members, members, members, members, st.just({"wrong": []})),
    )


def settling(**more: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """The body of a request that settles jobs."""
    return st.fixed_dictionaries({"node": NODES, "seqs": SEQS}, optional=more)


RECORD = st.fixed_dictionaries(
    {"data": st.integers(0, 99)},
    optional={"tag": st.sampled_from(["a", "b"]), "meta": st.just({"m": 1})},
)
KEYED = st.fixed_dictionaries(
    {"data": st.integers(0, 99), "key": st.sampled_from(["x", "y"])},
    optional={"on_conflict": st.sampled_from(["replace", "keep", "reject"])},
)
DELAYED = st.fixed_dictionaries({"data": st.integers(0, 99), "delay_ms": st.just(50)})
RECORDS = st.lists(
    st.one_of(RECORD, RECORD, RECORD, RECORD, KEYED, DELAYED), min_size=1, max_size=3
)
WRITE = st.fixed_dictionaries(
    {"records": RECORDS},
    optional={"node": NODES, "idempotency_key": st.sampled_from(["k", "l"])},
)
CLAIM = st.fixed_dictionaries(
    {"node": NODES},
    optional={"max": st.integers(1, 4), "lease_ms": st.sampled_from([500, 5000])},
)
REQUESTS = st.lists(
    st.one_of(
        posted("", WRITE),
        posted("", WRITE),
        posted("/claim", CLAIM),
        posted("/ack", settling()),
        posted("/nack", settling(delay_ms=st.sampled_from([0, 70]), error=st.just("e"))),
        posted("/reject", settling(error=st.just("e"))),
        posted("/extend", settling(lease_ms=st.sampled_from([500, 5000]))),
    ),
    min_size=2,
    max_size=9,
)


def prepared(config: dict[str, Any]) -> Memory:
    """A server with a queue of eight jobs, six of them leased to two nodes."""
    server = Memory()
    server.queue(lease_ms=1000, **config)
    for name in ("log", "letters", "archive"):
        # How far seqs are promised ahead, where they are not synced, depends on the writes.
        server.call("PUT", f"topics/{name}", {"type": "log", "durability": "fsync"})
    server.append(*range(8))
    server.take("v", max=3)
    server.take("w", max=3)
    return server


def told(exchange: Exchange) -> tuple[int, dict[str, Any]]:
    """The reply without what differs from run to run."""
    assert exchange.is_over
    body: dict[str, Any] = msgspec.json.decode(exchange.take())
    for member in ("performance", "log_id"):
        body.pop(member, None)
    return exchange.status, body


def view(server: Memory) -> list[object]:
    """All that a client can see."""
    found: list[object] = []
    for name in ("q", "log", "absent", "letters", "archive"):
        found.append(told(server.begin("GET", f"topics/{name}?touch=0")))
        found.append(told(server.begin("POST", f"topics/{name}/diff", {"from_seq": 0})))
    found.append(told(server.begin("GET", "topics/q/jobs?page_size=100")))
    found.append(told(server.begin("GET", "topics/q/workers")))
    return found


@settings(
    max_examples=scaled(40, 400),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(config=CONFIGS, wanted=REQUESTS)
def test_a_turn_equals_its_requests_one_by_one(
    config: dict[str, Any], wanted: list[Wanted]
) -> None:
    with closing(prepared(config)) as together, closing(prepared(config)) as one_by_one:
        answers = [told(exchange) for exchange in together.begin_together(*wanted)]
        # What is wrong by itself, or finds no topic, comes first. Requests of one kind on one topic
        # come in their order, behind the first of them.
        paths = [
            path if answers[at][0] not in (400, 404) else ""
            for at, (_, path, _) in enumerate(wanted)
        ]
        order = sorted(
            range(len(wanted)), key=lambda at: bool(paths[at]) * (1 + paths.index(paths[at]))
        )
        for at in order:
            assert answers[at] == told(one_by_one.begin(*wanted[at])), wanted[at]
        assert view(together) == view(one_by_one)
        for server in (together, one_by_one):
            server.wait(0.2)
            server.core.restart(kill=True)
        assert view(together) == view(one_by_one)


# -- what a turn does, counted ---------------------------------------------------------------------


@pytest.fixture
def memory() -> Iterator[Memory]:
    """A server with a queue of three jobs."""
    server = Memory()
    server.queue(durability="fsync")
    server.append(1, 2, 3)
    yield server
    server.close()


def write(data: object = 0, topic: str = "q", **options: Any) -> Wanted:
    """A write of one record."""
    return "POST", f"topics/{topic}", {"records": [{"data": data}], **options}


def claim(node: str = "w", **options: Any) -> Wanted:
    """A claim."""
    return "POST", "topics/q/claim", {"node": node, **options}


def ack(*acked: int, node: str = "w") -> Wanted:
    """An ack."""
    return "POST", "topics/q/ack", {"node": node, "seqs": acked}


def events_of(memory: Memory) -> list[ev.Event]:
    """Events as they are applied from now on."""
    heard: list[ev.Event] = []
    memory.dispatcher.engine.listen(lambda topic, event, changes: heard.append(event))
    return heard


def test_writes_of_a_turn_are_one_event_one_frame_and_one_batch(memory: Memory) -> None:
    jobs = memory.dispatcher.engine.journal.jobs
    frames, syncs, heard = jobs.appended, jobs.stats.syncs, events_of(memory)
    answers = [told(e) for e in memory.begin_together(*[write(n) for n in range(9)])]
    assert [answer["seqs"] for _, answer in answers] == [[4 + n] for n in range(9)]
    assert [answer["head_seq"] for _, answer in answers] == [*range(4, 13)]
    assert (jobs.appended, jobs.stats.syncs) == (frames + 1, syncs + 1)
    assert [type(event).__name__ for event in heard] == ["RecordsAppended"]
    assert len([*memory.dispatcher.engine.state.topic("q").batches]) == 2


def test_claims_and_acks_of_several_nodes_are_one_event_each(memory: Memory) -> None:
    heard = events_of(memory)
    taken = [claimed(e) for e in memory.begin_together(claim("u"), claim("v"), claim("w"))]
    assert [seqs(jobs) for jobs in taken] == [[1], [2], [3]]
    wanted = [ack(1, node="u"), ack(2, node="v"), ack(1, 3), ack(3)]
    answers = [told(e)[1] for e in memory.begin_together(*wanted)]
    assert [(a["acked"], a["skipped"], a["in_flight"]) for a in answers] == [
        (1, [], 2),
        (1, [], 1),
        (1, [1], 0),
        (0, [3], 0),
    ]
    assert [type(event).__name__ for event in heard] == ["JobsClaimed", "JobsAcked"]
    acked = {w["node"]: w["acked"] for w in memory.call("GET", "topics/q/workers")["workers"]}
    assert acked == {"u": 1, "v": 1, "w": 1}


def test_claims_of_a_turn_say_of_each_job_what_it_has_and_no_other(memory: Memory) -> None:
    written: list[dict[str, Any]] = [
        {"data": 1}, {"data": 2, "tag": "a"}, {"data": 3, "meta": {"k": 1}}, {"data": 4},
        {"data": 5, "tag": "b", "meta": {"k": 2}}, {"data": 6},
    ]  # fmt: skip
    memory.take(max=3)
    for part in (written[:3], written[3:5], written[5:]):
        memory.call("POST", "topics/q", {"records": part})
    wanted = [claim("a"), claim("b", max=2), claim("c", max=2), claim("d", max=5), claim("e")]
    found = [claimed(exchange) for exchange in memory.begin_together(*wanted)[:4]]
    assert [len(jobs) for jobs in found] == [1, 2, 2, 1]
    shown = [
        {name.lstrip("$"): job[name] for name in ("data", "$tag", "meta") if name in job}
        for jobs in found
        for job in jobs
    ]
    assert shown == written
    assert [job["$seq"] for jobs in found for job in jobs] == [*range(4, 10)]


def test_one_bad_request_fails_alone(memory: Memory) -> None:
    memory.queue("full", cap_records=2, discard="reject")
    wanted = [
        write(topic="full"),
        ("POST", "topics/full", {"records": []}),
        write(topic="full", idempotency_key="k"),
        write(topic="full"),
        write(topic="full", idempotency_key="k"),
        write(),
    ]
    answers = [told(exchange) for exchange in memory.begin_together(*wanted)]
    assert [status for status, _ in answers] == [200, 400, 200, 422, 200, 200]
    assert answers[3][1]["error"]["code"] == "topic_full"
    assert [answers[at][1]["first_seq"] for at in (0, 2, 4)] == [1, 2, 2]
    assert answers[4][1]["deduped"]


def test_what_is_refused_as_a_whole_is_decided_one_by_one(memory: Memory) -> None:
    journal = memory.dispatcher.engine.journal
    append = journal.append

    def full_for_two(state: Any, events: list[ev.Event], *rest: Any) -> Any:
        if any(isinstance(event, ev.RecordsAppended) and event.count > 1 for event in events):
            raise StorageFull("no room for two")
        return append(state, events, *rest)

    vars(journal)["append"] = full_for_two
    wanted = [write(), ("POST", "topics/q", {"records": [{"data": 1}, {"data": 2}]}), write()]
    answers = [told(exchange) for exchange in memory.begin_together(*wanted)]
    assert [status for status, _ in answers] == [200, 500, 200]
    assert [answers[at][1]["seqs"] for at in (0, 2)] == [[4], [5]]


def test_when_the_disk_fails_every_member_gets_the_error(memory: Memory) -> None:
    memory.core._fs.fail_when(lambda op: OSError(5, "worn out") if op.kind == "sync" else None)
    answers = [told(exchange) for exchange in memory.begin_together(write(), write(), write())]
    assert [status for status, _ in answers] == [500, 500, 500]
    memory.core._fs.fail_when(lambda op: None)
    assert {answer["error"]["detail"]["reason"] for _, answer in answers} == {"storage_read_only"}


def test_claims_of_a_turn_that_find_nothing_wait(memory: Memory) -> None:
    memory.take(max=2)
    exchanges = memory.begin_together(
        claim("v", wait_ms=5000), claim("w", wait_ms=5000), claim("x"), claim("y", wait_ms=3000)
    )
    assert [exchange.is_over for exchange in exchanges] == [True, False, True, False]
    assert seqs(claimed(exchanges[0])) == [3]
    assert claimed(exchanges[2]) == []
    memory.append(4)
    assert seqs(claimed(exchanges[1])) == [4]
    memory.wait(3)
    assert claimed(exchanges[3]) == []


def test_a_claimer_that_hangs_up_in_the_same_turn_gets_nothing(memory: Memory) -> None:
    begun: list[Callable[[], object]] = []
    run = memory.core._run
    vars(memory.core)["_run"] = begun.append
    exchange = memory.begin(*claim(max=3))
    memory.core.hang_up(exchange)
    del vars(memory.core)["_run"]
    begin, hang_up = begun
    run(lambda: (begin(), memory.core._loop.call_soon(hang_up)))
    assert memory.state()["ready"] == 3
    assert [job["deliveries"] for job in memory.take(max=3)] == [1, 1, 1]


def test_an_ack_counts_that_came_in_front_of_the_end_of_its_stream(memory: Memory) -> None:
    stream = memory.work("w", jobs_max=2)
    begun: list[Callable[[], object]] = []
    run = memory.core._run
    vars(memory.core)["_run"] = begun.append
    answer = memory.begin(*ack(1))
    memory.core.hang_up(stream)
    del vars(memory.core)["_run"]
    begin, hang_up = begun
    run(lambda: (begin(), memory.core._loop.call_soon(hang_up)))
    assert told(answer)[1]["acked"] == 1
    assert memory.state() | {"ready": 2, "in_flight": 0} == memory.state()


def test_a_step_decides_a_bounded_number(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "COST_MAX", 8)
    frames = memory.dispatcher.engine.journal.jobs.appended
    answers = [told(e)[1] for e in memory.begin_together(*[write(n) for n in range(10)])]
    assert [answer["first_seq"] for answer in answers] == [*range(4, 14)]
    # Each costs two: itself, and its record.
    assert memory.dispatcher.engine.journal.jobs.appended == frames + 3


class _Behind:
    """An engine whose topic must catch up a few times before."""

    behind: ClassVar[dict[int, None]] = {1: None}
    lagging: ClassVar[dict[int, None]] = {}
    clock = SimpleNamespace(now_ms=lambda: 7)

    def __init__(self, steps: int) -> None:
        self.left = steps

    def is_far_behind(self, topic: str) -> bool:
        return self.left > 0

    def catch_up(self, topic: str) -> None:
        self.left -= 1


@pytest.mark.parametrize(("behind", "turns"), [(0, 2), (3, 5), (99, 7)])
def test_a_topic_that_is_behind_catches_up_first(
    behind: int, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn, "CATCH_UP_STEPS_MAX", 5)

    async def scene() -> list[int]:
        decided: list[int] = []
        passed = 0
        waiting = turn.Turn(
            cast(Any, _Behind(behind)),
            cast(Any, SimpleNamespace(wake_log=lambda: None)),
            asyncio.get_running_loop(),
            lambda entries, now: decided.append(passed),
        )
        assert waiting.add(cmd.AckJobs("q", "w", (1,)), cast(Any, None))
        while not decided:
            passed += 1
            await asyncio.sleep(0)
        return decided

    assert asyncio.run(scene()) == [turns]


def test_other_commands_see_what_was_submitted_before_them(memory: Memory) -> None:
    answers = memory.begin_together(write(), ("POST", "topics/q/purge", {"states": ["ready"]}))
    assert told(answers[0])[1]["first_seq"] == 4
    assert told(answers[1])[1]["purged"] == {"ready": 4}


def test_a_fault_is_an_error_for_its_group_alone(memory: Memory) -> None:
    engine = memory.dispatcher.engine
    execute = engine.execute

    def faulty(command: cmd.Command[Any], now: int) -> Any:
        if isinstance(command, cmd.Cohort) and isinstance(command.members[0], cmd.AckJobs):
            raise RuntimeError("a fault")
        return execute(command, now)

    memory.take(max=2)
    vars(engine)["execute"] = faulty
    answers = [told(e) for e in memory.begin_together(write(), ack(1), ack(2), claim())]
    assert [status for status, _ in answers] == [200, 500, 500, 200]
    del vars(engine)["execute"]
    assert memory.settle("ack", 1, 2)["acked"] == 2


@pytest.mark.parametrize("has_behind", [False, True])
def test_the_log_is_woken_at_the_end_of_the_step_or_behind_the_copies_of_routers(
    has_behind: bool,
) -> None:
    async def scene() -> list[str]:
        done: list[str] = []
        barrier = SimpleNamespace(wakes_soon=False, wake_log=lambda: done.append("woken"))
        engine = _Behind(0)
        vars(engine)["behind"] = {}
        loop = asyncio.get_running_loop()

        def decide(entries: list[turn.Entry], now: int) -> None:
            assert barrier.wakes_soon, "what waits for the log now need not see to its waking"
            done.append("decided")
            loop.call_soon(done.append, "copied or read")
            vars(engine)["behind"] = {1: None} if has_behind else {}

        waiting = turn.Turn(cast(Any, engine), cast(Any, barrier), loop, decide)
        for topic in ("q", "r"):
            waiting.add(cmd.AckJobs(topic, "w", (1,)), cast(Any, None))
        for _ in range(4):
            await asyncio.sleep(0)
        return done

    behind = ["copied or read", "copied or read"]
    expected = [*behind, "woken"] if has_behind else ["woken", *behind]
    assert asyncio.run(scene()) == ["decided", "decided", *expected]

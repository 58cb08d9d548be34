"""The whole core against a naive model of the contract, through restarts, kills and power cuts.

More examples, and others each time, in `make test-all`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from logqueue import events as ev
from logqueue.core import batch, batches
from logqueue.core import commands as cmd
from logqueue.core.invariants import check
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.topic import Topic
from logqueue.errors import LogqueueError
from logqueue.model.config import TopicOptions
from logqueue.model.limits import Quotas
from logqueue.model.tag_predicate import Predicate
from logqueue.server.storage import checkpoint, compaction
from tests.core.comparing import adopt_leases, compare
from tests.core.model import POSTPONED_MS, Lease, Model, Refused
from tests.core.world import World, job, pack
from tests.effort import IS_THOROUGH, scaled
from wal.testing.simfs import SimFileSystem

TOPICS_MAX = 7

FIXED: dict[str, dict[str, Any]] = {
    "fsync": {"type": "queue", "durability": "fsync"},
    "held": {"type": "queue", "durability": "fsync", "leases_durable": True},
    "disk": {"type": "queue", "durability": "disk"},
    "memory": {"type": "queue", "durability": "memory", "leases_durable": True},
    "ephemeral": {"type": "queue", "durability": "ephemeral"},
    "log": {"type": "log", "durability": "fsync"},
    "letters": {"type": "queue", "durability": "memory"},
    "late": {"type": "log"},
}
NAMES = st.sampled_from(["fsync", "held", "disk", "memory", *FIXED])
NODES = st.sampled_from(["v", "w"])
PICKS = st.lists(st.integers(0, 14), min_size=1, max_size=5)
TOKENS = st.sampled_from(["none", "none", "right", "some", "wrong"])
RECORD = st.tuples(
    st.sampled_from([None, "", "a", "ab"]),
    st.sampled_from([None, {}, {"$dead_letter_from": 1, "b": 2}, [1]]),
    st.sampled_from([0, 3, 60, 300]),
)
CONFIG = st.fixed_dictionaries(
    {},
    optional={
        "ttl_ms": st.sampled_from([50, 1000, 5000]),
        "cap_records": st.integers(1, 6),
        "cap_bytes": st.sampled_from([40, 300]),
        "discard": st.sampled_from(["old", "reject"]),
        "lease_ms": st.sampled_from([0, 100, 700, 30_000]),
        "max_deliveries": st.integers(0, 2),
        "dead_letter": st.sampled_from(["letters", "late", "held", "disk"]),
        "idempotency_window_ms": st.sampled_from([0, 500, 10_000]),
        "leases_durable": st.booleans(),
    },
)


class CoreMachine(RuleBasedStateMachine):
    """One world and one model, told the same."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    @initialize(seed=st.integers(0, 2**32 - 1))
    def begin(self, seed: int) -> None:
        self.world = World(SimFileSystem(Random(seed)), quotas=Quotas(topics_max=TOPICS_MAX))
        self.model = Model(TOPICS_MAX)
        self.snapshots: list[tuple[int, Model]] = []
        self.listen()
        for name in [*FIXED][: TOPICS_MAX - 1]:
            self.put(name, {"lease_ms": 700}, 1)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.kill(finish=True)

    # -- keeping in step -------------------------------------------------------------------------

    def listen(self) -> None:
        """Hear of evictions as they are logged: each is a moment at which the world may end."""
        self.world.engine.listen(self.hear)
        self.snap()

    def hear(self, topic: Topic | None, event: ev.Event, _: Sequence[ev.JobChange]) -> None:
        if isinstance(event, ev.RecordsTrimmed):
            assert topic is not None
            self.model.tick(topic.name, self.world.now)
            self.snap()

    def snap(self) -> None:
        """What the model says once the log is as long as it is now."""
        jobs = self.world.engine.journal.jobs
        self.snapshots.append((jobs.appended, self.model.copy()))
        while len(self.snapshots) > 1 and self.snapshots[1][0] <= jobs.durable:
            self.snapshots.pop(0)

    def tell(self, name: str, command: cmd.Command[Any], expected: Callable[[], object]) -> Any:
        """Let both act; the world's reply, or None when both refuse in the same way."""
        now = self.world.now
        try:
            reply: Any = self.world.run(command)
        except LogqueueError as refusal:
            reply = refusal
        self.model.tick(name, now)
        known = self.model.topics.get(name)
        if known is not None and isinstance(command, cmd.ClaimJobs | cmd.AckJobs):
            # Copies must find the room that time has made where they go.
            self.model.tick(known.config.dead_letter or name, now)
        try:
            wanted = expected()
        except Refused as refused:
            assert type(reply).__name__ == str(refused), (reply, refused)
            reply = None
        else:
            assert not isinstance(reply, Exception), (reply, wanted)
            assert wanted is None or wanted == reply, (wanted, reply)
        topic = self.model.topics.get(name)
        if topic is not None:
            topic.shown = topic.head
        self.snap()
        return reply

    @invariant()
    def same(self) -> None:
        if hasattr(self, "world"):
            check(self.world.state)
            compare(self.world.state, self.model, self.world.now)

    # -- commands --------------------------------------------------------------------------------

    @rule(name=NAMES, config=CONFIG, odd=st.integers(0, 15))
    def put(self, name: str, config: dict[str, Any], odd: int) -> None:
        fixed = {"type": "log"} if odd == 0 else FIXED[name]
        resolved = msgspec.convert({**config, **fixed}, TopicOptions).resolved()
        put = cmd.PutTopic(name, resolved)
        self.tell(
            name,
            put,
            lambda: cmd.PutResult(self.model.put(self.world.now, name, resolved), resolved),
        )

    @rule(name=NAMES, if_empty=st.booleans(), really=st.integers(0, 3))
    def drop(self, name: str, if_empty: bool, really: int) -> None:
        if if_empty or not really:
            command = cmd.DropTopic(name, if_empty)
            self.tell(
                name,
                command,
                lambda: cmd.DropResult(self.model.drop(self.world.now, name, if_empty)),
            )

    @rule(
        name=NAMES,
        records=st.lists(RECORD, min_size=1, max_size=4),
        key=st.sampled_from([None, None, "k", "l"]),
        create=st.integers(0, 5),
    )
    def append(self, name: str, records: list[Any], key: str | None, create: int) -> None:
        texts = []
        for tag, meta, pad in records:
            self.number += 1
            texts.append(job([self.number, "x" * pad], tag=tag, meta=meta))
        command = cmd.Append(name, pack(texts), len(texts), key, create > 0)
        self.tell(
            name,
            command,
            lambda: cmd.AppendResult(
                *self.model.append(self.world.now, name, texts, key, create > 0)
            ),
        )

    @rule(
        name=NAMES,
        demands=st.lists(st.integers(1, 4), min_size=1, max_size=3),
        lease_ms=st.sampled_from([None, 100, 20_000]),
        stream=st.sampled_from([0, 0, 5, 6]),
        node=NODES,
    )
    def claim(
        self, name: str, demands: list[int], lease_ms: int | None, stream: int, node: str
    ) -> None:
        nodes = [node, "w", "v"]
        cohort = tuple(
            cmd.Claimer(nodes[i], demand, lease_ms, stream) for i, demand in enumerate(demands)
        )
        plan: list[tuple[list[int], list[int]]] = []

        def expect() -> None:
            topic = self.model.topic(name, queue=True)
            target = topic.config.dead_letter
            if target is not None:
                self.model.tick(target, self.world.now)
            plan.append(self.model.choose(self.world.now, name, sum(demands)))

        reply = self.tell(name, cmd.ClaimJobs(name, cohort), expect)
        if reply is not None:
            chosen, exhausted = plan[0]
            if exhausted:
                self.divert(name, exhausted)
            self.hand_out(name, cohort, chosen, reply)
            self.snapshots.pop()
            self.snap()

    def divert(self, name: str, exhausted: list[int]) -> None:
        """Exhausted jobs go as far as there is room; the rest waits."""
        now, source = self.world.now, self.model.topics[name]
        found = self.world.state.topics[name].queue
        assert found is not None and source.config.dead_letter is not None
        moved = exhausted[: found.dead_lettered - source.dead_lettered]
        copies = [self.letter(name, seq) for seq in exhausted]
        target = self.model.topics.get(source.config.dead_letter)
        if target is None:
            try:
                target = self.model.create(source.config.dead_letter, TopicOptions().resolved())
            except Refused:
                assert not moved
                return
        if len(moved) < len(exhausted):
            fewest = copies[:1] if not moved else copies
            with pytest.raises(Refused):
                target.require_room(len(fewest), sum(len(t[0]) + len(t[3]) for t in fewest))
        else:
            target.require_room(len(copies), sum(len(t[0]) + len(t[3]) for t in copies))
        if moved:
            target.add(now, copies[: len(moved)])
        for seq in exhausted:
            source.reclaim.discard(seq)
            if seq in moved:
                source.remove(seq)
            else:
                source.delayed[seq] = now + POSTPONED_MS
        source.dead_lettered += len(moved)

    def letter(self, name: str, seq: int) -> Any:
        """The copy of a dead letter."""
        topic = self.model.topics[name]
        data, tag, node, meta = topic.records[seq].texts
        given = msgspec.json.decode(meta) if meta else {}
        stamped = given if isinstance(given, dict) else {"$dead_letter_meta": given}
        stamped["$dead_letter_from"] = name
        stamped["$dead_letter_deliveries"] = str(topic.deliveries[seq])
        stamped["$dead_letter_src_seq"] = str(seq)
        stamped["$dead_letter_reason"] = "max_deliveries"
        stamped["$dead_letter_at"] = str(self.world.now)
        return data, tag, node, msgspec.json.encode(stamped)

    def hand_out(
        self, name: str, cohort: tuple[cmd.Claimer, ...], chosen: list[int], reply: cmd.ClaimResult
    ) -> None:
        """One job to each in turn, skipping the satisfied."""
        now, topic = self.world.now, self.model.topics[name]
        shares: list[list[int]] = [[] for _ in cohort]
        queue = list(chosen)
        while queue:
            for claimer, share in zip(cohort, shares, strict=True):
                if queue and len(share) < claimer.jobs_max:
                    share.append(queue.pop(0))
        for claimer, share, jobs in zip(cohort, shares, reply.jobs, strict=True):
            assert [j.seq for j in jobs] == sorted(share)
            deadline = now + (claimer.lease_ms or topic.config.lease_ms)
            for j in jobs:
                record = topic.records[j.seq]
                lease = Lease(claimer.node, j.lease, deadline, claimer.stream)
                assert j.deliveries == self.model.lease(name, j.seq, lease)
                data, tag, _, meta = record.texts
                assert (j.ts, j.data, j.tag, j.meta) == (record.ts, data, tag, meta)
                assert j.deadline == deadline
        assert reply.ready == topic.counters[0]

    def aimed(
        self, name: str, node: str, picks: list[int], kind: str
    ) -> tuple[list[int], list[int | None] | None]:
        """Seqs to settle, mostly held ones, and tokens for them."""
        topic = self.model.topics.get(name)
        leases = topic.leases if topic is not None else {}
        held = sorted(seq for seq, lease in leases.items() if lease.node == node)
        seqs = [held[p % len(held)] if held and p < 11 else p for p in picks]
        if kind == "none":
            return seqs, None
        right = [leases[seq].number if seq in leases else 1 for seq in seqs]
        if kind == "wrong":
            return seqs, [number - 1 for number in right]
        return seqs, [n if kind == "right" or i % 2 else None for i, n in enumerate(right)]

    @rule(
        name=NAMES,
        records=st.lists(RECORD, min_size=1, max_size=4),
        demand=st.integers(1, 3),
        node=NODES,
        stream=st.sampled_from([0, 0, 5]),
    )
    def work(self, name: str, records: list[Any], demand: int, node: str, stream: int) -> None:
        self.append(name, records, None, 1)
        self.claim(name, [demand], None, stream, node)

    @rule(name=NAMES, node=NODES, picks=PICKS)
    def finish(self, name: str, node: str, picks: list[int]) -> None:
        self.claim(name, [len(picks)], None, 0, node)
        self.ack(name, node, picks, "none")

    @rule(name=NAMES, node=NODES, picks=PICKS, kind=TOKENS)
    def ack(self, name: str, node: str, picks: list[int], kind: str) -> None:
        seqs, tokens = self.aimed(name, node, picks, kind)
        now = self.world.now
        self.tell(
            name,
            cmd.AckJobs(name, node, seqs, tokens),
            lambda: cmd.SettleResult(*self.model.ack(now, name, node, seqs, tokens)),
        )

    @rule(
        name=NAMES, node=NODES, picks=PICKS, kind=TOKENS, delay=st.sampled_from([0, 0, 100, 9000])
    )
    def nack(self, name: str, node: str, picks: list[int], kind: str, delay: int) -> None:
        seqs, tokens = self.aimed(name, node, picks, kind)
        now = self.world.now
        self.tell(
            name,
            cmd.NackJobs(name, node, seqs, tokens, delay),
            lambda: cmd.SettleResult(*self.model.nack(now, name, node, seqs, tokens, delay)),
        )

    @rule(name=NAMES, node=NODES, picks=PICKS, kind=TOKENS, ms=st.sampled_from([100, 5000]))
    def extend(self, name: str, node: str, picks: list[int], kind: str, ms: int) -> None:
        seqs, tokens = self.aimed(name, node, picks, kind)
        now = self.world.now
        self.tell(
            name,
            cmd.ExtendLeases(name, node, seqs, ms, tokens),
            lambda: cmd.ExtendResult(*self.model.extend(now, name, node, seqs, tokens, ms)),
        )

    @rule(name=NAMES, stream=st.sampled_from([5, 6]))
    def release(self, name: str, stream: int) -> None:
        command = cmd.ReleaseStream(name, stream)
        self.tell(name, command, lambda: cmd.Done(self.model.release(self.world.now, name, stream)))

    @rule(
        name=NAMES,
        before=st.one_of(st.none(), st.integers(0, 20)),
        tag=st.sampled_from([None, "", "a", "a*", "*"]),
    )
    def delete(self, name: str, before: int | None, tag: str | None) -> None:
        match = None if tag is None else Predicate.parse(tag)
        self.tell(
            name,
            cmd.DeleteRecords(name, before, match),
            lambda: cmd.RemoveResult(*self.model.delete(self.world.now, name, before, tag)),
        )

    # -- time, the log, the end of a life --------------------------------------------------------

    @rule(ms=st.sampled_from([1, 49, 50, 51, 100, 101, 700, 1000, 20_000, 10**8]))
    def wait(self, ms: int) -> None:
        self.world.wait(ms)

    @rule(name=NAMES)
    def look(self, name: str) -> None:
        if name in self.model.topics:
            topic = self.world.topic(name)
            self.model.tick(name, self.world.now)
            wanted = self.model.topics[name]
            if isinstance(topic, QueueTopic):
                assert (topic.ready, topic.queue.leased) == wanted.counters
            self.snap()

    @rule(name=NAMES, late_ms=st.integers(-1, 1))
    def come_due(self, name: str, late_ms: int) -> None:
        """Look around the very moment at which a lease, a delay or a record runs out."""
        topic = self.model.topics.get(name)
        if topic is not None:
            moments = [lease.deadline for lease in topic.leases.values()]
            moments += topic.delayed.values()
            if topic.config.ttl_ms:
                moments += [r.ts + topic.config.ttl_ms for r in topic.records.values()]
            later = [m for m in moments if m + late_ms >= self.world.now]
            if later:
                self.world.wait(min(later) + late_ms - self.world.now)
                self.look(name)

    @rule()
    def step(self) -> None:
        self.world.step()
        self.snap()

    @rule()
    def tidy(self) -> None:
        self.world.tidy()
        self.snap()

    @rule()
    def restart(self) -> None:
        self.world.wait(1)
        self.world.restart()
        self.come_back(self.model, clean=True, leases=True)

    @rule(finish=st.booleans())
    def kill(self, finish: bool) -> None:
        if finish:
            self.world.step()
        jobs = self.world.engine.journal.jobs
        floor, complete = jobs.written, jobs.written == jobs.appended
        self.world.wait(1)
        self.world.kill()
        self.come_back(self.survivor(floor), leases=complete and finish)

    @rule(seed=st.integers(0, 2**16))
    def cut(self, seed: int) -> None:
        floor = self.world.engine.journal.jobs.durable
        self.world.wait(1)
        self.world.cut(Random(seed))
        self.come_back(self.survivor(floor))

    def survivor(self, floor: int) -> Model:
        """The model as of the last frame that is left: nothing promised may be missing."""
        last = self.world.engine.journal.jobs.appended
        assert last >= floor, "a promised frame is lost"
        return [model for number, model in self.snapshots if number <= last][-1].copy()

    def come_back(self, model: Model, *, clean: bool = False, leases: bool = False) -> None:
        """A new life: what the classes allow to be lost is taken from the world, within bounds."""
        before, self.model, state = self.model, model, self.world.state
        model.last_lease = before.last_lease
        model.forget_ephemeral()
        for name, topic in model.topics.items():
            found, durability = state.topics[name], topic.config.durability
            earlier = before.topics.get(name)
            if earlier is not None and earlier.instance == topic.instance and not clean:
                if durability == "disk":
                    assert found.head >= earlier.shown, f"{name}: shown seqs may come twice"
                    topic.head = found.head
                elif durability == "ephemeral":
                    assert found.head <= topic.head
                    topic.head, topic.removed_to = found.head, 0
            if isinstance(found, QueueTopic):
                if durability == "ephemeral":
                    topic.dead_lettered = found.queue.dead_lettered
                    topic.finished = Counter(found.queue.finished)
                self.come_back_to_leases(name, exact=leases)
        self.snapshots = []
        self.listen()

    def come_back_to_leases(self, name: str, *, exact: bool) -> None:
        topic = self.model.topics[name]
        if topic.config.durability == "ephemeral":
            self.model.forget_leases(name)
        elif exact:
            topic.tick_leases(self.world.now)
            for seq in [s for s in topic.leases if s not in topic.records]:
                del topic.leases[seq], topic.deliveries[seq]
            if not topic.config.leases_durable:
                topic.reclaim.update(topic.leases)
                topic.leases = {}
        else:
            adopt_leases(self.model, self.world.state, name)


@pytest.fixture(autouse=True)
def eager_tidying(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few bytes of garbage be worth a rewrite, and a few batches be worth joining."""
    monkeypatch.setattr(batches, "JOINED_AT_ONCE", 2)
    monkeypatch.setattr(batch, "THINNED_FROM", 4)
    monkeypatch.setattr(compaction, "SLACK_BYTES", 0)
    monkeypatch.setattr(compaction, "LEASES_BYTES_MAX", 2000)
    monkeypatch.setattr(checkpoint, "TOPICS_PER_PART", 2)
    monkeypatch.setattr(checkpoint, "JOBS_PER_PART", 2)
    monkeypatch.setattr(compaction, "TOPICS_PER_STEP", 2)
    monkeypatch.setattr(compaction, "FREED_PER_STEP", 2)


class TestCore(CoreMachine.TestCase):  # type: ignore[misc,valid-type]
    """Runs the machine."""

    settings = settings(
        max_examples=scaled(45, 440),
        stateful_step_count=50,
        deadline=None,
        derandomize=not IS_THOROUGH,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )

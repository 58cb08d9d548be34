"""Everything that can become of a job, against a naive model, through restarts and kills."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from logqueue.core import batch, batches
from logqueue.core import commands as cmd
from logqueue.core.decide.dispatch import decide
from logqueue.core.decide.why import Why, WorkersSeen, explain
from logqueue.core.invariants import check
from logqueue.core.job_views import JobSummary, list_jobs
from logqueue.core.queue_topic import QueueTopic
from logqueue.errors import JobInFlight, KeyConflict, NotFound
from logqueue.events.block import write_string
from logqueue.server.storage import compaction
from tests.core.lifecycle_model import LifecycleModel
from tests.core.world import Wish, World, wish
from tests.effort import IS_THOROUGH, scaled
from wal.testing.simfs import SimFileSystem

RECORD = st.fixed_dictionaries(
    {},
    optional={
        "key": st.sampled_from("klm"),
        "on_conflict": st.sampled_from(["replace", "replace", "keep", "reject"]),
        "unique": st.sampled_from([0, 1, 1, 2]),
        "delay_ms": st.sampled_from([50, 400]),
        "not_before": st.sampled_from([5, 1_000_200]),
        "ttl_ms": st.sampled_from([60, 900]),
        "max_deliveries": st.integers(1, 2),
    },
)
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "ttl_ms": st.sampled_from([0, 0, 300]),
        "max_deliveries": st.integers(0, 2),
        "on_exhausted": st.sampled_from([None, "drop", "hold"]),
        "dead_letter": st.sampled_from([None, "letters"]),
        "on_expire": st.sampled_from(["drop", "dead_letter"]),
        "archive": st.sampled_from([None, "done", "done"]),
        "retry_backoff": st.sampled_from(
            [None, {"kind": "linear", "base_ms": 40, "step_ms": 25, "max_ms": 10**6}]
        ),
        "paused": st.sampled_from([False, False, False, True]),
        "max_in_flight": st.sampled_from([0, 0, 3]),
        "cap_records": st.sampled_from([0, 0, 0, 4]),
        "leases_durable": st.booleans(),
    },
)
CLAIMABLE = frozenset(("ready", "behind", "ready_no_worker"))
NODES = st.sampled_from(["v", "w"])
PICKS = st.lists(st.integers(0, 14), min_size=1, max_size=4)


class LifecycleMachine(RuleBasedStateMachine):
    """One world and one model, told the same."""

    model_of: type[LifecycleModel] = LifecycleModel
    own_config: Mapping[str, Any] = {}

    @initialize(durable=st.booleans(), seed=st.integers(0, 2**32 - 1))
    def begin(self, durable: bool, seed: int) -> None:
        self.number = 0
        self.world = World(SimFileSystem(Random(seed)))
        self.world.put("letters", type="log", durability="fsync")
        self.world.put("done", type="log", durability="fsync")
        self.world.put("noise", durability="fsync")
        put = self.world.put(
            durability="fsync", leases_durable=durable, lease_ms=200, **self.own_config
        )
        self.model = self.model_of(put.config)

    def tick(self) -> None:
        self.world.topic("q")
        self.model.tick(self.world.now)

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "world"):
            return
        world, model, now = self.world, self.model, self.world.now
        self.tick()
        check(world.state)
        topic = world.queue("q")
        found = {j.seq: j for j in list_jobs(topic, limit=10**6).jobs}
        assert found.keys() == model.jobs.keys()
        for seq, job in found.items():
            wanted = model.jobs[seq]
            assert (job.state, job.data) == (wanted.state(now), wanted.wish.texts[0]), (job, wanted)
            assert (job.deliveries, job.error) == (wanted.deliveries, wanted.error), seq
            assert job.updated_at == (wanted.written_at if wanted.written_at > job.ts else 0) or (
                wanted.written_at == job.ts == job.updated_at
            )
            if job.state == "delayed":
                assert job.not_before == wanted.ready_at, seq
            if wanted.lease is not None:
                assert (job.node, job.deadline) == wanted.lease[:2], seq
        assert self.claimable() == {
            seq for seq, job in found.items() if self.why(topic, job).code in CLAIMABLE
        }
        assert topic.head == model.head
        assert world.finished() == {k: v for k, v in model.finished.items() if v}
        letters = Counter((t[0], m["$dead_letter_reason"]) for t, m in self.copies("letters"))
        assert letters == Counter((e.wish.texts[0], e.reason) for e in model.letters)
        assert Counter((t[0], m["$outcome"]) for t, m in self.copies("done")) == model.archive

    def copies(self, name: str) -> list[tuple[Any, dict[str, str]]]:
        records = self.world.records(name)
        return [(texts, msgspec.json.decode(texts[3])) for _, _, texts in records]

    # -- commands --------------------------------------------------------------------------------

    @rule(records=st.lists(RECORD, min_size=1, max_size=4))
    def write(self, records: list[dict[str, Any]]) -> None:
        self.write_records(records)

    def write_records(self, records: list[dict[str, Any]]) -> None:
        wishes: list[Wish] = []
        for record in records:
            self.number += 1
            if "delay_ms" in record:
                record.pop("not_before", None)
            wishes.append(wish(self.number, **record))
        self.tick()
        now = self.world.now
        fates = self.model.write(now, wishes)
        if fates is None:
            with pytest.raises(KeyConflict):
                self.world.write("q", *wishes)
        else:
            reply = self.world.write("q", *wishes)
            assert reply.results is None or [*reply.results] == fates
            assert reply.created_count == sum(fate == "created" for _, fate in fates)
        self.model.settle(now)

    def why(self, topic: QueueTopic, job: JobSummary) -> Why:
        """What the server says of a job."""
        return explain(self.world.state, topic, job, self.world.now, WorkersSeen(0, 0, 0))

    def claimable(self) -> set[int]:
        """What a claim of all would get now; it is decided, and not carried out."""
        wanted = cmd.ClaimJobs("q", (cmd.Claimer("c", 10**6),))
        events = decide(self.world.state, wanted, self.world.now).events
        changes = [c for event in events for c in event.job_changes() if c.kind == "claimed"]
        return {seq for change in changes for seq in change.seqs}

    @rule(wanted=st.integers(1, 4), node=NODES, stream=st.sampled_from([0, 0, 5]))
    def claim(self, wanted: int, node: str, stream: int) -> None:
        self.tick()
        now = self.world.now
        chosen = self.model.claim(now, wanted, (node, now + 200, stream))
        assert self.world.take(wanted, node=node, stream=stream) == chosen

    def aim(self, node: str, picks: list[int]) -> tuple[list[int], list[int]]:
        """Seqs, mostly held ones; and those of them that count."""
        self.tick()
        held = self.model.mine(node, [*self.model.jobs, *self.model.orphans])
        seqs = [held[p % len(held)] if held and p < 12 else p for p in picks]
        return seqs, self.model.mine(node, seqs)

    @rule(node=NODES, picks=PICKS)
    def ack(self, node: str, picks: list[int]) -> None:
        seqs, mine = self.aim(node, picks)
        assert self.world.ack(*seqs, node=node)[0] == len(mine)
        self.model.ack(mine)

    @rule(
        node=NODES,
        picks=PICKS,
        delay=st.sampled_from([None, 0, 70]),
        error=st.sampled_from([None, "a", "b"]),
        count=st.booleans(),
    )
    def nack(
        self, node: str, picks: list[int], delay: int | None, error: str | None, count: bool
    ) -> None:
        seqs, mine = self.aim(node, picks)
        reply = self.world.nack(*seqs, node=node, delay_ms=delay, error=error, count=count)
        assert reply[0] == len(mine)
        self.model.give_back(self.world.now, mine, delay, error, count)
        self.model.settle(self.world.now)

    @rule(node=NODES, picks=PICKS, error=st.sampled_from([None, "a"]))
    def reject(self, node: str, picks: list[int], error: str | None) -> None:
        seqs, mine = self.aim(node, picks)
        assert self.world.reject(*seqs, node=node, error=error)[0] == len(mine)
        self.model.reject(mine, error)

    @rule()
    def disconnect(self) -> None:
        self.tick()
        self.world.release(5)
        model = self.model
        seqs = [s for s, j in model.jobs.items() if j.lease is not None and j.lease[2] == 5]
        seqs += [seq for seq, lease in model.orphans.items() if lease[2] == 5]
        model.give_back(self.world.now, seqs, 0, None, True)
        model.settle(self.world.now)

    @rule(pick=st.integers(0, 14), force=st.booleans())
    def cancel(self, pick: int, force: bool) -> None:
        self.tick()
        seqs = sorted(self.model.jobs)
        seq = seqs[pick % len(seqs)] if seqs and pick < 12 else pick
        job = self.model.jobs.get(seq)
        reply = self.world.cancel(seq, force=force)
        assert reply.state == (None if job is None else job.state(self.world.now))
        assert reply.cancelled == (job is not None and (force or job.lease is None))
        if reply.cancelled:
            self.model.end(seq, "cancelled")

    @rule(pick=st.integers(0, 14), retry=st.booleans(), value=st.integers(0, 9))
    def edit(self, pick: int, retry: bool, value: int) -> None:
        self.tick()
        seqs = sorted(self.model.jobs)
        seq = seqs[pick % len(seqs)] if seqs and pick < 12 else pick
        data = b'{"edited":%d}' % value
        expected = self.model.edit(self.world.now, seq, (data, b"", b"", b'{"m":1}'), retry)
        command = cmd.EditJob("q", seq, data, b"", b'{"m":1}', retry)
        try:
            assert self.world.run(command).state == expected
        except (NotFound, JobInFlight, KeyConflict) as refusal:
            assert type(refusal).__name__ == expected
        self.model.settle(self.world.now)

    @rule(key=st.sampled_from("klm"))
    def cancel_key(self, key: str) -> None:
        self.tick()
        job = self.model.waiting(key)
        reply: cmd.CancelResult = self.world.run(cmd.CancelKey("q", write_string(key)))
        assert reply.seq == (0 if job is None else job.seq)
        if job is not None:
            self.model.end(job.seq, "cancelled")

    @rule(
        states=st.sets(
            st.sampled_from(["ready", "delayed", "in_flight", "held"]), min_size=1, max_size=2
        ),
        really=st.integers(0, 3),
    )
    def purge(self, states: set[cmd.JobState], really: int) -> None:
        if really:
            return
        self.tick()
        counts = self.world.purge(*states)
        now = self.world.now
        gone = [(s, j.state(now)) for s, j in self.model.jobs.items() if j.state(now) in states]
        for seq, _ in gone:
            self.model.end(seq, "cancelled")
        assert {k: v for k, v in counts.items() if v} == Counter(state for _, state in gone)

    @rule(picks=PICKS)
    def let_go(self, picks: list[int]) -> None:
        self.tick()
        held = [seq for seq, job in self.model.jobs.items() if job.held]
        seqs = [held[p % len(held)] if held else p for p in picks]
        assert self.world.let_go(*seqs).released == len(self.model.release(seqs))
        self.model.settle(self.world.now)

    @rule(
        action=st.sampled_from(["retry", "delay", "hold", "release", "cancel", "return"]),
        picks=st.lists(st.integers(0, 14), min_size=1, max_size=6),
        delay=st.sampled_from([0, 60, 500]),
        states=st.sets(
            st.sampled_from(["ready", "delayed", "in_flight", "held"]), min_size=1, max_size=4
        ),
    )
    def change(
        self, action: cmd.JobAction, picks: list[int], delay: int, states: set[cmd.JobState]
    ) -> None:
        self.tick()
        now = self.world.now
        live = sorted(self.model.jobs)
        seqs = sorted({live[p % len(live)] if live and p < 12 else p for p in picks})
        found = states & cmd.APPLIES_TO[action]
        changed = self.world.change(action, *seqs, states=found, delay_ms=delay)
        assert changed == self.model.change(now, action, seqs, found, delay)
        self.model.settle(now)

    @rule(limit=st.integers(1, 4))
    def redrive(self, limit: int) -> None:
        self.tick()
        reply = self.world.redrive(limit=limit)
        assert reply.redriven == self.model.redrive(self.world.now, limit)
        assert reply.remaining == len(self.model.letters)

    @rule(changes=CHANGES)
    def configure(self, changes: dict[str, Any]) -> None:
        self.configure_queue(changes)

    def configure_queue(self, changes: dict[str, Any]) -> None:
        self.tick()
        config = self.model.config
        target = changes.get("dead_letter", config.dead_letter)
        if target is None and changes.get("on_expire", config.on_expire) == "dead_letter":
            changes["on_expire"] = "drop"
        self.model.config = self.world.patch(**changes)
        self.model.evict()
        self.model.settle(self.world.now)

    # -- time, the log, the end of a life --------------------------------------------------------

    @rule(ms=st.sampled_from([0, 1, 50, 60, 61, 200, 201, 400, 900]))
    def wait(self, ms: int) -> None:
        self.world.wait(ms)

    @rule()
    def tidy(self) -> None:
        for _ in range(12):
            self.world.write("noise", "x" * 400)
        self.world.delete("noise", before=10**9)
        self.world.step()
        self.world.tidy()

    @rule(orderly=st.booleans())
    def come_back(self, orderly: bool) -> None:
        self.tick()
        self.world.step()
        if orderly:
            self.world.restart()
        else:
            self.world.kill()
        self.model.restart()


@pytest.fixture(autouse=True)
def eager_tidying(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few bytes of garbage be worth a rewrite, and a few batches be worth joining."""
    monkeypatch.setattr(batches, "JOINED_AT_ONCE", 2)
    monkeypatch.setattr(batch, "THINNED_FROM", 4)
    monkeypatch.setattr(compaction, "SLACK_BYTES", 0)
    monkeypatch.setattr(compaction, "LEASES_BYTES_MAX", 2000)


class TestLifecycle(LifecycleMachine.TestCase):  # type: ignore[misc,valid-type]
    """Runs the machine."""

    settings = settings(
        max_examples=scaled(35, 300),
        stateful_step_count=50,
        deadline=None,
        derandomize=not IS_THOROUGH,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )

"""Topics that change their durability, in every direction, with an end at every moment.

Whatever a topic is later: a seq that was shown under `disk` or `fsync` is never given to something
else, and what was promised under `fsync` stays. Seqs may start again only where every class since
the last change says so. Batches, staged epochs and routers write to the topics.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import permutations
from random import Random

import pytest

from logqueue.core import commands as cmd
from logqueue.core.invariants import check
from logqueue.core.job_views import list_jobs
from logqueue.server.engine.pending import Executed
from logqueue.server.storage import compaction
from tests.clock import ManualClock
from tests.core.world import START_MS, World, job, pack
from tests.effort import scaled
from wal.testing.simfs import SimCrash, SimFileSystem

CLASSES = ("ephemeral", "memory", "disk", "fsync")
LASTING = ("disk", "fsync")
LIVES = 4
TURNS = 14
OPERATIONS_MAX = 40


@pytest.fixture(autouse=True)
def eager_tidying(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few hundred bytes of garbage be worth a rewrite."""
    monkeypatch.setattr(compaction, "SLACK_BYTES", 500)
    monkeypatch.setattr(compaction, "LEASES_BYTES_MAX", 3000)


class Known:
    """What clients know of one topic.

    Attributes:
        durability: As answered; None while a change was not answered.
        given: What was shown under each seq, while its class kept seqs for ever.
        head: No seq up to here may be given again.
        kept: Seqs that must still be there: shown under `fsync`, or logged before a change.
    """

    def __init__(self) -> None:
        self.durability: str | None = "disk"
        self.given: dict[int, int] = {}
        self.head = 0
        self.kept: set[int] = set()


class Changing:
    """Two topics with a router between them, which are of another class now and then."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.world = World(SimFileSystem(Random(seed)), clock=ManualClock(START_MS))
        self.number = 0
        self.epoch = 0
        self.known = {name: Known() for name in ("a", "b", "copies")}
        for name in self.known:
            self.world.put(name, durability="disk", lease_ms=400)
        self.world.put_router("r", "a", "copies")

    def turn(self) -> None:
        """One command, and now and then tidying."""
        rng, world = self.rng, self.world
        world.wait(rng.choice((0, 1, 100)))
        step = rng.choice((self.write, self.write, self.change, self.change, self.commit))
        step(rng.choice([*self.known]))
        world.forward()
        world.step()
        self.look()
        if rng.random() < 0.3:
            world.tidy()

    def look(self) -> None:
        """Somebody reads all there is; a read waits for its promise."""
        world = self.world
        for name, known in self.known.items():
            topic = world.state.topics[name]
            world.hold(Executed(cmd.Done(0), topic.mark_written, topic.mark_durable))
            live = self.data(name)
            if known.durability in LASTING:
                for seq, number in live.items():
                    assert known.given.setdefault(seq, number) == number, f"{name}: {seq} twice"
                known.head = max(known.head, topic.head)
            if known.durability == "fsync":
                known.kept |= {seq for seq in live if self.segment_of(name, seq)}

    def data(self, name: str) -> dict[int, int]:
        """All live records."""
        return {seq: int(data) for seq, data in self.world.data(name).items()}

    def write(self, name: str) -> None:
        """A few records."""
        count = self.rng.randrange(1, 4)
        numbers = range(self.number + 1, self.number + count + 1)
        self.number += count
        reply = self.world.write(name, *numbers)
        known = self.known[name]
        if known.durability in LASTING:
            for seq, number in enumerate(numbers, reply.first_seq):
                assert known.given.setdefault(seq, number) == number, f"{name}: {seq} twice"
                assert seq > known.head or seq in known.given, f"{name}: {seq} again"
            known.head = max(known.head, reply.first_seq + count - 1)

    def change(self, name: str) -> None:
        """Another class. What was shown until then stays shown, unless nothing lasts from now on:
        a change is synced."""
        known = self.known[name]
        wanted = self.rng.choice(CLASSES)
        head = self.world.state.topics[name].head
        live = self.data(name)
        before, known.durability = known.durability, None
        self.world.patch(name, durability=wanted)
        known.durability = wanted
        known.head = max(known.head, head)
        if before in ("memory", "disk"):
            # The sync of the change is one of all that was written before it.
            on_disk = {s for s in live if self.segment_of(name, s)}
            known.kept |= on_disk
            known.given |= {s: live[s] for s in on_disk if s not in known.given}

    def segment_of(self, name: str, seq: int) -> int:
        """Where a record is logged; 0 when it is not."""
        batch = self.world.state.topics[name].batch_of(seq)
        return batch.segment if batch is not None else 0

    def commit(self, name: str) -> None:
        """An epoch of two chunks; the class may change between staging and commit."""
        self.epoch += 1
        parts = []
        for partition in range(2):
            self.number += 1
            attempt = f"n{self.number}"
            block = pack([job(self.number)])
            self.world.run(cmd.StageChunk("p", self.epoch, name, partition, attempt, 0, block, 1))
            parts.append(cmd.StagedAttempt(partition, attempt, 1, 1))
            if self.rng.random() < 0.3:
                self.change(name)
        self.world.run(cmd.CommitEpoch("p", self.epoch, tuple(parts)))

    def live(self) -> None:
        """A life that ends somehow, and what the next one finds."""
        rng, world = self.rng, self.world
        ending = rng.choice(("cut", "kill", "restart"))
        if ending != "restart":
            world.fs.crash_after(rng.randrange(OPERATIONS_MAX))
        with suppress(SimCrash):
            for _ in range(TURNS):
                self.turn()
        if ending == "restart":
            world.restart()
        else:
            seed = Random(rng.getrandbits(32))
            world.fs = world.fs.crash_clone(seed) if ending == "cut" else world.fs.kill_clone()
            world.engine = world._open()
        check(world.state)
        producer = world.state.producers.get("p")
        committed = producer.committed if producer is not None else None
        self.epoch = committed.number if committed is not None else 0
        for name, known in self.known.items():
            topic = world.state.topics[name]
            live = self.data(name)
            assert topic.head >= known.head, f"{name}: seqs went back after {ending}"
            missing = known.kept - live.keys()
            assert not missing, f"{name}: {missing} were promised"
            for seq, number in live.items():
                assert known.given.get(seq, number) == number, f"{name}: {seq} is another one"
            known.durability = topic.config.durability


@pytest.mark.parametrize("seed", range(scaled(24, 1500)))
def test_classes_change_in_every_direction(seed: int) -> None:
    changing = Changing(seed)
    for _ in range(LIVES):
        changing.live()


@pytest.mark.parametrize(("before", "after"), [*permutations(CLASSES, 2)])
@pytest.mark.parametrize("ending", ["kill", "cut"])
def test_seqs_that_a_start_stepped_over_stay_given(before: str, after: str, ending: str) -> None:
    world = World()
    world.put(type="log", durability=before)
    world.write("q", 1, 2, 3)
    for turn in range(3):
        world.kill()
        head = world.topic("q").head
        world.patch("q", durability=(after, before, after)[turn])
        world.cut(Random(turn)) if ending == "cut" else world.kill()
        assert world.topic("q").head >= head, "seqs went back"
        first = world.write("q", "next").first_seq
        assert first > head


def test_a_floor_that_no_record_tells_of_outlives_a_change() -> None:
    world = World()
    world.put(type="log", durability="fsync", cap_records=3)
    world.write("q", 1, 2, 3)
    world.patch("q", durability="ephemeral")
    world.write("q", 4, 5)
    world.patch("q", durability="fsync")
    assert world.seqs() == [3, 4, 5]
    world.kill()
    assert world.seqs() == [3], "what was evicted is back, or what was kept is not"
    assert world.write("q", 6).first_seq == 6


def test_seqs_reserved_before_an_orderly_stop_are_let_go_of_for_good() -> None:
    world = World()
    world.put(type="log", durability="disk")
    world.put("other", type="log", durability="fsync")
    world.write("q", 1, 2, 3)
    world.restart()
    world.write("other", 1)
    world.kill()
    assert world.topic("q").head == 3, "nothing was promised since, so nothing is stepped over"
    world.write("q", 4)
    world.kill()
    stepped = world.topic("q").head
    assert stepped > 4
    for _ in range(40):
        world.write("other", "x" * 400)
        world.delete("other", before=world.topic("other").head + 1)
    world.tidy()
    world.kill()
    assert world.topic("q").head >= stepped, "seqs went back"


@pytest.mark.parametrize("ending", ["kill", "stop"])
@pytest.mark.parametrize("back", [None, "fsync"])
def test_what_becomes_of_logged_jobs_while_a_queue_is_ephemeral_is_logged(
    back: str | None, ending: str
) -> None:
    world = World()
    world.put(durability="fsync", leases_durable=True, lease_ms=60_000)
    world.fill(4)
    assert world.take(3) == [1, 2, 3]
    world.patch("q", durability="ephemeral")
    world.write("q", "in memory only")
    world.nack(1, error="no luck")
    world.ack(2)
    world.take(1, node="v")
    world.nack(1, node="v", delay_ms=5_000)
    assert world.take(2, node="v") == [4, 5]
    if back is not None:
        world.patch("q", durability=back)
    world.step()
    world.kill() if ending == "kill" else world.restart()
    found = list_jobs(world.queue("q"), limit=9).jobs
    jobs = {job.seq: (job.state, job.deliveries) for job in found}
    assert jobs == {1: ("delayed", 2), 3: ("in_flight", 1), 4: ("in_flight", 1)}
    assert world.ack(4, node="v") == (1, [])
    first = world.write("q", "next").first_seq
    assert first >= 5
    assert world.take(1) == [first], "a lease of a record that was lost is taken for this one's"


def test_no_switch_of_class_brings_a_lease_back_that_a_start_has_ended() -> None:
    world = World()
    world.put(durability="fsync", leases_durable=True, lease_ms=60_000)
    world.fill(1)
    assert world.take(1) == [1]
    world.patch("q", durability="ephemeral", leases_durable=False)
    world.kill()
    assert world.states() == {1: "ready"}
    world.patch("q", durability="fsync", leases_durable=True)
    world.kill()
    assert world.states() == {1: "ready"}

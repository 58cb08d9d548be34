"""Crash sweep over priorities, groups, chains, follow-ups, batches and unique keys: the server is
stopped at every operation of the disk, and every transaction has happened as a whole or not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, Literal, NamedTuple

import pytest

from logqueue.api.bodies.records import append_command, read_append_body
from logqueue.core import commands as cmd
from logqueue.core.invariants import check
from logqueue.core.job_status import job_status
from logqueue.core.job_views import list_jobs
from logqueue.server.storage import compaction
from logqueue.server.storage.journal import Journal
from tests.clock import ManualClock
from tests.core.following import Follower
from tests.core.test_job_batches import opened, stamp
from tests.core.world import START_MS, World
from tests.effort import EFFORT, swept
from tests.portrait import portrait
from tests.sim.test_following import assert_same, picture
from wal import Log
from wal.testing.simfs import SimCrash, SimFileSystem

TURNS = 36
SEEDS = range(1, 1 + 2 * EFFORT)
MODES = {"fair": "fair", "fifo": "fifo"}
KEYS = {"r": "running", "s": "running", "k": "kept"}
BATCHES = ("b0", "b1", "b2")


@pytest.fixture(autouse=True)
def eager_tidying(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few hundred bytes of garbage be worth a rewrite."""
    monkeypatch.setattr(compaction, "SLACK_BYTES", 500)
    monkeypatch.setattr(compaction, "LEASES_BYTES_MAX", 3000)


class Job(NamedTuple):
    """A job as its writer and its worker know it.

    Attributes:
        then: The topics of the steps behind it.
        seq: Known from its end on.
        input: The result of the step before, as JSON; None for a job that is no step.
    """

    topic: str
    batch: str | None = None
    key: str | None = None
    then: tuple[str, ...] = ()
    place: Literal["live", "done", "dead", "cancelled"] = "live"
    seq: int = 0
    result: bytes = b""
    input: bytes | None = None

    def record(self, name: str, rng: Random) -> dict[str, Any]:
        """What a client writes. The name of a step is that of its job, and its number."""
        record: dict[str, Any] = {"data": name, "priority": rng.choice((0, 0, 3, 9))}
        # A key stays in its group: a job that is replaced keeps its place in the order.
        group = self.key or rng.choice(("x", "x", "y", None))
        record |= {"group": group} if group else {}
        if rng.random() < 0.2:
            record["delay_ms"] = 60
        if self.batch is not None:
            record["batch"] = self.batch
        if self.key is not None:
            record |= {"key": self.key, "unique": KEYS[self.key]}
        steps = [
            Job(topic, self.batch).record(f"{name}.{number}", rng)
            for number, topic in enumerate(self.then, 1)
        ]
        if steps:
            targets = zip(self.then, steps, strict=True)
            record["then"] = [{"topic": topic, "record": step} for topic, step in targets]
        return record


class Facts(NamedTuple):
    """What is promised at one moment: all jobs ever written, and for each batch if it is closed."""

    jobs: dict[str, Job]
    batches: dict[str, bool]

    def live(self, topic: str) -> dict[str, Job]:
        """Jobs that have not ended."""
        return {n: j for n, j in self.jobs.items() if (j.topic, j.place) == (topic, "live")}

    def counts(self, batch: str) -> tuple[int, int, int, int]:
        """Jobs that joined, are done, have failed, are left."""
        places = [job.place for job in self.jobs.values() if job.batch == batch]
        done, left = places.count("done"), places.count("live")
        return len(places), done, len(places) - done - left, left

    def picture(self) -> dict[str, Any]:
        """What is to be found."""
        found: dict[str, Any] = {topic: sorted(self.live(topic)) for topic in MODES}
        found["letters"] = sorted(n for n, job in self.jobs.items() if job.place == "dead")
        found["batches"] = {b: (*self.counts(b), closed) for b, closed in self.batches.items()}
        return found


def names_in(world: World, topic: str) -> dict[int, str]:
    """The names of the live records of a topic."""
    return {seq: json.loads(data) for seq, data in world.data(topic).items()}


def found_in(world: World) -> dict[str, Any]:
    """What `Facts.picture` is of."""
    batches = world.state.batches
    found: dict[str, Any] = {
        topic: sorted(names_in(world, topic).values()) for topic in (*MODES, "letters")
    }
    found["batches"] = {
        name: (b.joined, b.done, batches.failed(b), batches.left.get(name, 0), b.closed_at > 0)
        for name, b in batches.by_name.items()
    }
    return found


class Life:
    """Commands from a seed, and what they have promised.

    Attributes:
        facts: What was answered.
        after: What will be, if the call without an answer has happened.
    """

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.durable = bool(seed % 2)
        self.number = self.turns = 0
        self.facts = Facts({}, {})
        self.after = self.facts

    # -- what happens ----------------------------------------------------------------------------

    def begin(self, world: World) -> None:
        """Create all topics; what is there already stays."""
        for topic in ("done", "problem"):
            world.put(topic, durability="fsync")
        world.put("letters", type="log", durability="fsync")
        for topic, mode in MODES.items():
            world.put(
                topic, durability="fsync", leases_durable=self.durable, lease_ms=400,
                dead_letter="letters", groups={"mode": mode}, results={"keep_ms": 10**9},
            )  # fmt: skip

    def run(self, world: World) -> None:
        """What is left of it, to its end."""
        self.begin(world)
        while self.turns < TURNS:
            self.turns += 1
            self.turn(world)

    def turn(self, world: World) -> None:
        """One command, and now and then time or tidying."""
        rng = self.rng
        world.wait(rng.choice((0, 1, 30, 250)))
        steps: list[tuple[int, Callable[[World, str], object]]] = [
            (7, self.write),
            (2, lambda w, topic: w.take(2, topic=topic)),
            (9, self.work),
            (2, self.ack),
            (1, lambda w, topic: w.nack(*self.some(w, topic), topic=topic, delay_ms=30)),
            (2, self.reject),
            (1, self.cancel),
            (2, self.open_or_close),
        ]
        step = rng.choices([s for _, s in steps], [w for w, _ in steps])[0]
        step(world, rng.choice([*MODES]))
        self.look(world)
        if rng.random() < 0.5:
            world.step()
        if rng.random() < 0.1:
            world.tidy()

    def do(self, world: World, command: cmd.Command[Any], jobs: dict[str, Job]) -> Any:
        """Execute a command that changes some jobs."""
        return self.promise(world, command, Facts(self.facts.jobs | jobs, self.facts.batches))

    def promise(self, world: World, command: cmd.Command[Any], after: Facts) -> Any:
        """Execute a command; what it is to bring is promised with its reply."""
        self.after = after
        reply = world.run(command)
        self.facts = after
        return reply

    def some(self, world: World, topic: str, state: str = "in_flight", most: int = 3) -> list[int]:
        """Jobs in a state."""
        found = [seq for seq, is_state in world.states(topic).items() if is_state == state]
        self.rng.shuffle(found)
        return found[:most]

    def named(self) -> str:
        """A name of its own."""
        self.number += 1
        return str(self.number)

    def append(self, topic: str, jobs: dict[str, Job], on_conflict: str = "keep") -> cmd.Append:
        """The write of some jobs."""
        records = [job.record(name, self.rng) for name, job in jobs.items()]
        for record in records:
            if "key" in record:
                record["on_conflict"] = on_conflict
        return append_command(
            topic, read_append_body(json.dumps({"records": records}).encode()), None
        )

    def write(self, world: World, topic: str) -> None:
        """A few jobs with all that they may have; not all of their keys are free."""
        rng = self.rng
        keys = rng.sample([*KEYS, None, None], k=rng.randrange(1, 3))
        open_ones = [name for name, closed in self.facts.batches.items() if not closed]
        jobs = {
            self.named(): Job(
                topic, rng.choice((None, *open_ones)), key,
                tuple(rng.choices([*MODES], k=rng.choice((0, 0, 1, 2)))),
            )
            for key in keys
        }  # fmt: skip
        on_conflict = rng.choice(("keep", "replace"))
        expected, after = self.expected(world, topic, jobs, on_conflict)
        reply = self.promise(world, self.append(topic, jobs, on_conflict), after)
        fates = [fate for _, fate in reply.results or ()] or ["created"] * len(jobs)
        assert fates == expected

    def expected(
        self, world: World, topic: str, jobs: dict[str, Job], on_conflict: str
    ) -> tuple[list[str], Facts]:
        """What becomes of each job of a write, and what is promised then."""
        seq_of = {name: seq for seq, name in names_in(world, topic).items()}
        states, after, fates = world.states(topic), dict(self.facts.jobs), []
        for name, job in jobs.items():
            holder = self.holder(topic, job.key)
            if holder is None or (holder not in seq_of and on_conflict == "replace"):
                fates.append("created")
            elif on_conflict == "replace" and states[seq_of[holder]] != "in_flight":
                fates.append("replaced")
                replaced = after.pop(holder)
                if replaced.batch not in (None, job.batch):
                    # It has failed in that batch; in its own nothing changes.
                    after[holder] = replaced._replace(place="cancelled", key=None)
            else:
                fates.append("kept")
                continue
            after[name] = job
        return fates, Facts(after, self.facts.batches)

    def holder(self, topic: str, key: str | None) -> str | None:
        """The job that has a key."""
        if key is None:
            return None
        ends = ("live", "done", "dead") if KEYS[key] == "kept" else ("live",)
        jobs = self.facts.jobs
        last = next((n for n in reversed(jobs) if jobs[n][:3:2] == (topic, key)), None)
        return last if last is not None and jobs[last].place in ends else None

    def work(self, world: World, topic: str) -> None:
        """Some jobs are claimed, and those in flight acked."""
        world.take(self.rng.randrange(1, 6), topic=topic)
        self.ack(world, topic)

    def ack(self, world: World, topic: str) -> None:
        """Some jobs end with results, their steps begin, and perhaps more is written."""
        rng = self.rng
        seqs = self.some(world, topic)
        names = names_in(world, topic)
        results = [rng.choice((b"", b'{"of":"%s"}' % names[seq].encode())) for seq in seqs]
        jobs: dict[str, Job] = {}
        for seq, result in zip(seqs, results, strict=True):
            job = self.facts.jobs[names[seq]]
            jobs[names[seq]] = job._replace(place="done", seq=seq, result=result)
            if job.then:
                jobs[self.step_of(names[seq])] = Job(
                    job.then[0], job.batch, then=job.then[1:], input=result or b"null"
                )
        writes: list[cmd.Append] = []
        if seqs and rng.random() < 0.5:
            batch = self.facts.jobs[names[seqs[0]]].batch
            for target in rng.sample([*MODES], k=rng.randrange(1, 3)):
                follow_ups = {self.named(): Job(target, batch) for _ in range(rng.randrange(1, 3))}
                writes.append(self.append(target, follow_ups))
                jobs |= follow_ups
        command = cmd.AckJobs(topic, "w", seqs, results=results, append=tuple(writes))
        reply = self.do(world, command, jobs)
        assert (reply.settled, reply.skipped) == (len(seqs), [])

    @staticmethod
    def step_of(name: str) -> str:
        """The name of the step after a job: 7, 7.1, 7.2."""
        first, _, number = name.partition(".")
        return f"{first}.{int(number or 0) + 1}"

    def reject(self, world: World, topic: str) -> None:
        """A job is given up."""
        for seq in self.some(world, topic, most=1):
            name = names_in(world, topic)[seq]
            dead = self.facts.jobs[name]._replace(place="dead", seq=seq)
            self.do(world, cmd.RejectJobs(topic, "w", [seq]), {name: dead})

    def cancel(self, world: World, topic: str) -> None:
        """A job that waits is cancelled."""
        for seq in self.some(world, topic, "ready", 1):
            name = names_in(world, topic)[seq]
            gone = self.facts.jobs[name]._replace(place="cancelled", seq=seq)
            self.do(world, cmd.CancelJob(topic, seq), {name: gone})

    def open_or_close(self, world: World, _: str) -> None:
        """A batch is opened, or closed."""
        batches = self.facts.batches
        for name in BATCHES:
            if batches.get(name):
                continue
            after = Facts(self.facts.jobs, batches | {name: name in batches})
            self.after = after
            if name in batches:
                world.run(cmd.CloseBatch(name))
            else:
                opened(world, name, "done", "problem")
            self.facts = after
            return

    def finish(self, world: World) -> None:
        """Everything is worked off and every batch is closed."""
        while any(self.facts.live(topic) for topic in MODES):
            world.wait(500)
            for topic in MODES:
                world.take(100, topic=topic)
                self.look(world)
                while world.queue(topic).queue.leased:
                    self.ack(world, topic)
        while not all(self.facts.batches.get(name) for name in BATCHES):
            self.open_or_close(world, "")
        world.end_batches()
        world.step()

    # -- what is to be found ---------------------------------------------------------------------

    def look(self, world: World) -> None:
        """Batches that are over end; a job of a fifo group is in flight when it is the first."""
        world.end_batches()
        firsts: dict[bytes, int] = {}
        for job in sorted(list_jobs(world.queue("fifo"), limit=1000).jobs, key=lambda j: j.seq):
            first = firsts.setdefault(job.group, job.seq)
            assert not job.group or job.state != "in_flight" or job.seq == first, job

    def check(self, world: World) -> None:
        """What was promised is there, and the call without an answer has happened, or not."""
        if not MODES.keys() <= world.state.topics.keys():
            assert not self.facts.jobs
            return
        found = found_in(world)
        if found != self.facts.picture():
            assert found == self.after.picture()
            self.facts = self.after
        self.after = self.facts
        self._check_ends(world)
        self._check_callbacks(world)
        self.look(world)

    def _check_ends(self, world: World) -> None:
        outcomes = {"done": "acked", "dead": "dead_lettered", "cancelled": "cancelled"}
        inputs: dict[str, Any] = {}
        for topic in MODES:
            for _, _, texts in world.records(topic):
                meta = json.loads(texts[3] or b"{}")
                inputs[json.loads(texts[0])] = meta.get("$input", "none")
        for name, job in self.facts.jobs.items():
            if job.place == "live":
                assert inputs[name] == ("none" if job.input is None else json.loads(job.input))
            elif job.seq:
                status = job_status(world.queue(job.topic), job.seq, world.now)
                assert status is not None and status.ended is not None, name
                assert (status.ended.outcome, status.ended.result) == (
                    outcomes[job.place],
                    job.result,
                ), name

    def _check_callbacks(self, world: World) -> None:
        metas = {topic: [m["$batch"] for m in world.meta(topic)] for topic in ("done", "problem")}
        written = Counter(meta["batch"] for found in metas.values() for meta in found)
        for name, closed in self.facts.batches.items():
            joined, done, failed, left = self.facts.counts(name)
            has_ended = world.state.batches.named(name).ended_at > 0
            assert written[name] == has_ended, name
            if has_ended:
                assert closed and not left
                wanted = stamp(joined, done, failed, name)["$batch"]
                assert wanted in metas["problem" if failed else "done"]


def life(fs: SimFileSystem, seed: int, clock: ManualClock) -> Life:
    """A whole life of a server, which may end early."""
    story = Life(seed)
    with suppress(SimCrash):
        world = World(fs, clock=clock)
        story.run(world)
        story.check(world)
    return story


def survive(disk: SimFileSystem, story: Life, clock: ManualClock) -> None:
    """What was promised is there, also the next time; then everything comes to its end."""
    world = World(disk, clock=clock)
    check(world.state)
    story.check(world)
    world.step()
    first = portrait(world.state)
    world.kill()
    if story.durable:
        assert portrait(world.state) == first, "recovering twice gives two states"
    story.run(world)
    story.finish(world)
    story.check(world)
    world.kill()
    story.check(world)
    check(world.state)
    assert not any(world.seqs(topic) for topic in MODES)
    assert all(batch.ended_at for batch in world.state.batches.by_name.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_power_cut_at_every_operation(seed: int) -> None:
    whole = SimFileSystem(Random(seed))
    life(whole, seed, ManualClock(START_MS))
    for stop in swept(0, whole.ops, offset=17 * seed, every=40):
        fs = SimFileSystem(Random(seed))
        fs.crash_after(stop)
        clock = ManualClock(START_MS)
        story = life(fs, seed, clock)
        try:
            survive(fs.crash_clone(Random(stop)), story, clock)
        except BaseException:
            print(f"seed {seed}, crash after operation {stop} of {whole.ops}")
            raise


def handed_out(fs: SimFileSystem, clock: ManualClock) -> list[list[int]]:
    """What a server on these files hands out, one job at a time, until groups hold the rest."""
    world = World(fs, clock=clock)
    check(world.state)
    return [[seq for _ in range(60) for seq in world.take(topic=topic)] for topic in MODES]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_standby_has_the_same_batches_results_and_orders(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All along, and the server that it becomes goes on in the same order."""
    story, rng = Life(seed), Random(seed)
    clock = ManualClock(START_MS)
    world = World(SimFileSystem(Random(seed)), clock=clock)
    story.begin(world)
    world.step()
    standby = Follower(world, rng)
    drop_before = Journal.drop_segments

    def staged(journal: Journal, log: Log, segment: int) -> None:
        standby.stage()
        drop_before(journal, log, segment)

    monkeypatch.setattr(Journal, "drop_segments", staged)
    for turn in range(TURNS):
        story.turn(world)
        standby.follow(rng.randrange(1, 9))
        check(standby.state)
        if rng.random() < 0.1:
            # The next life of the writer.
            standby.stage()
            world.kill()
        if turn % 12 == 11:
            world.step()
            standby.follow()
            standby.release()
            assert_same(picture(standby.state, world.now), picture(world.state, world.now))
    assert handed_out(standby.fs.kill_clone(), clock) == handed_out(world.fs.kill_clone(), clock)

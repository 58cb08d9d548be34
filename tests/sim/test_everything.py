"""All features at once on one small server, through crashes at any moment.

Two queues that feed and evict into the same archive, dead letters that are redriven, routers from
all of these, epochs into both queues, keys, delays, holds, times to live, changes of config, and
tidying in steps between everything else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Any

import msgspec
import pytest

from logqueue.api.record_texts import RecordTexts, shown
from logqueue.core import commands as cmd
from logqueue.core.invariants import check
from logqueue.core.staging import ChunkId
from logqueue.server.storage import compaction
from tests.clock import ManualClock
from tests.core.world import START_MS, Wish, World, pack, wish
from tests.effort import scaled
from tests.portrait import portrait
from wal.testing.simfs import SimCrash, SimFileSystem

LIVES = 8
TURNS = 35
OPERATIONS_MAX = 90
FOUND = (20, 1010, 1020, 5109)
"""Seeds that once failed."""
SEEDS = (*range(1, 1 + scaled(4, 32)), *FOUND)

KEYS = "abc"
QUEUES = ("q", "r")
PLACES = (*QUEUES, "letters", "done")
COPIES = {"copies": "done", "again": "copies", "echo": "letters", "lasting": "kept"}
BACKOFF = {"kind": "exponential", "base_ms": 20, "max_ms": 300, "jitter": 0.5}
CHANGES: tuple[dict[str, Any], ...] = (
    {"on_exhausted": "hold"},
    {"on_exhausted": "drop"},
    {"on_exhausted": None},
    {"dead_letter": None, "on_expire": "drop"},
    {"dead_letter": "letters"},
    {"on_expire": "drop"},
    {"dead_letter": "letters", "on_expire": "dead_letter"},
    {"leases_durable": False},
    {"leases_durable": True},
    {"retry_backoff": BACKOFF},
    {"retry_backoff": None},
    {"max_in_flight": 3},
    {"max_in_flight": 0},
    {"cap_records": 6},
    {"cap_records": 30},
    {"ttl_ms": 900},
    {"ttl_ms": 0},
)


@pytest.fixture(autouse=True)
def eager_tidying(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few hundred bytes of garbage be worth a rewrite."""
    monkeypatch.setattr(compaction, "SLACK_BYTES", 500)
    monkeypatch.setattr(compaction, "LEASES_BYTES_MAX", 3000)


def numbers(world: World, name: str) -> list[int]:
    """What the live records of a topic carry, as it lies there."""
    topic = world.state.topics[name]
    return [int(texts[0]) for batch in topic.batches for _, _, texts in batch.records()]


class Everything:
    """Commands from a seed, and what clients know.

    Attributes:
        promised: Contents that must be in one place of `PLACES`.
        unsure: Contents of which a call without an answer may have decided otherwise.
        done: Contents whose ack was answered.
        acked_copies, done_copies: Of `again`, what was to be acked, and what was.
        seen: By topic of `COPIES`, what was there with its promise kept.
        epoch: Number, parts and contents of the epoch that is being written.
    """

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.world = World(SimFileSystem(Random(seed)), clock=ManualClock(START_MS))
        self.number = 0
        self.promised: set[int] = set()
        self.unsure: set[int] = set()
        self.done: set[int] = set()
        self.acked_copies: set[int] = set()
        self.done_copies: set[int] = set()
        self.keyed: dict[int, str | None] = {}
        self.seen: dict[str, set[int]] = {name: set() for name in COPIES}
        self.texts = RecordTexts()
        self.tidying: Iterator[object] = iter(())
        self.epoch: tuple[int, tuple[cmd.StagedAttempt, ...], list[int]] = (0, (), [])
        self.begin()

    def begin(self) -> None:
        """Create all topics and routers."""
        world = self.world
        for name in ("letters", "done"):
            world.put(name, type="log", durability="fsync")
        for name in QUEUES:
            world.put(
                name, durability="fsync", leases_durable=name == "q", lease_ms=400,
                max_deliveries=2, dead_letter="letters", archive="done", cap_records=30,
            )  # fmt: skip
        world.put("kept", type="log", durability="ephemeral", cap_records=20)
        world.put(
            "brief", durability="ephemeral", archive="kept", cap_records=5, dead_letter="kept"
        )
        world.put("passing", durability="fsync", archive="kept", cap_records=3)
        for name, source in COPIES.items():
            world.put(name, type="log" if name == "echo" else "queue", durability="fsync")
            world.put_router(name, source, name)

    # -- what happens ----------------------------------------------------------------------------

    def turn(self) -> None:
        """One command, and now and then time, tidying, routers."""
        rng, world = self.rng, self.world
        world.wait(rng.choice((0, 1, 30, 200)))
        steps: list[tuple[int, Callable[[str], object]]] = [
            (9, self.write),
            (8, self.claim),
            (5, self.ack),
            (3, self.nack),
            (2, lambda q: world.reject(*self.some(q, "in_flight"), topic=q)),
            (2, lambda q: world.redrive(limit=3, to=rng.choice((None, None, *QUEUES)))),
            (2, lambda q: world.patch(q, **rng.choice(CHANGES))),
            (2, lambda q: world.let_go(*self.some(q, "held"), topic=q)),
            (3, self.change),
            (1, lambda q: world.purge(rng.choice(("delayed", "held", "ready")), topic=q)),
            (1, lambda q: world.delete(q, match=f"t{rng.randrange(3)}")),
            (1, lambda q: world.cancel((self.some(q, "in_flight") or [1])[0], force=True, topic=q)),
            (1, lambda q: world.release(7, q)),
            (3, lambda _: self.go_on_with_epoch()),
            (2, lambda _: self.pass_on()),
            (2, lambda _: self.finish_copies()),
            (2, self.read),
        ]
        step = rng.choices([s for _, s in steps], [w for w, _ in steps])[0]
        step(rng.choice(QUEUES))
        if rng.random() < 0.5:
            world.step()
        if rng.random() < 0.3:
            world.engine.forward(rng.randrange(1, 5))
        if rng.random() < 0.3:
            self.tidy_on()
        if rng.random() < 0.1:
            check(world.state)

    def tidy_on(self) -> None:
        """Some steps of tidying; others get their turn in between."""
        for _ in range(self.rng.choice((1, 5, 200))):
            self.world.step()
            if next(self.tidying, "over") == "over":
                self.tidying = self.world.engine.tidy()
                return

    def some(self, name: str, state: str) -> list[int]:
        """Jobs in a state."""
        found = [seq for seq, is_state in self.world.states(name).items() if is_state == state]
        self.rng.shuffle(found)
        return found[:3]

    def change(self, name: str) -> None:
        """An operator changes some jobs."""
        actions: list[cmd.JobAction] = ["retry", "delay", "hold", "release", "return"]
        action = self.rng.choice(actions)
        seqs = [seq for state in ("ready", "delayed", "held") for seq in self.some(name, state)]
        if action == "return":
            seqs = self.some(name, "in_flight")
        self.world.change(action, *seqs, delay_ms=self.rng.choice((0, 90)), topic=name)

    def wishes(self) -> list[Wish]:
        """A few records with columns of their own."""
        rng = self.rng
        wishes: list[Wish] = []
        for _ in range(rng.randrange(1, 4)):
            self.number += 1
            self.keyed[self.number] = key = rng.choice(KEYS) if rng.random() < 0.5 else None
            wishes.append(
                wish(
                    self.number,
                    key=key,
                    tag=rng.choice((None, f"t{rng.randrange(3)}")),
                    delay_ms=rng.choice((0, 0, 300)),
                    ttl_ms=rng.choice((0, 0, 500)),
                    max_deliveries=rng.choice((0, 0, 1)),
                    meta={"pad": "x" * rng.choice((0, 100))},
                )
            )
        return wishes

    def write(self, name: str) -> None:
        """A batch, perhaps with keys, perhaps with more than there is room for."""
        wishes = self.wishes()
        first = self.number - len(wishes) + 1
        keys = {w.key for w in wishes} - {None}
        rivals = {n for n in self.promised if self.keyed[n] in keys}
        self.unsure |= {*rivals, *range(first, self.number + 1)}
        content = {seq: int(data) for seq, data in self.world.data(name).items()}
        reply = self.world.write(name, *wishes)
        fates = reply.results or [(reply.first_seq + i, "created") for i in range(len(wishes))]
        for number, (seq, fate) in enumerate(fates, first):
            if fate == "replaced":
                self.promised.remove(content[seq])
            content[seq] = number
            self.promised.add(number)
        self.unsure = set()

    def claim(self, name: str) -> None:
        """Claim; what was done never comes again."""
        rng = self.rng
        jobs = self.world.claim(
            rng.randrange(1, 5),
            topic=name,
            stream=rng.choice((0, 7)),
            lease_ms=rng.choice((50, None)),
        )
        for job in jobs:
            assert int(job.data) not in self.done, f"{name}: {job.data!r} after its ack"

    def ack(self, name: str) -> None:
        """Some jobs are done."""
        seqs = self.some(name, "in_flight")
        content = self.world.data(name)
        _, skipped = self.world.ack(*seqs, topic=name)
        self.done |= {int(content[seq]) for seq in seqs if seq not in skipped}

    def nack(self, name: str) -> None:
        """Some jobs come back."""
        rng = self.rng
        self.world.nack(
            *self.some(name, "in_flight"), topic=name, delay_ms=rng.choice((0, 100, None)),
            error=rng.choice((None, "no")), count=rng.random() < 0.8,
        )  # fmt: skip

    def go_on_with_epoch(self) -> None:
        """Stage an epoch into both queues, or commit it. A crash repeats the commit."""
        number, parts, contents = self.epoch
        if not parts:
            for partition, name in enumerate(QUEUES):
                wishes = [record._replace(key=None) for record in self.wishes()]
                contents = [*contents, *range(self.number - len(wishes) + 1, self.number + 1)]
                block = pack(wishes)
                attempt = f"a{self.number}"
                self.world.run(
                    cmd.StageChunk("p", number, name, partition, attempt, 0, block, len(wishes))
                )
                parts = (*parts, cmd.StagedAttempt(partition, attempt, 1, len(wishes)))
            self.epoch = (number, parts, contents)
            return
        if self.rng.random() < 0.2:
            # Its records never come, whatever ends the server meanwhile.
            self.world.run(cmd.AbortEpoch("p", number))
            self.epoch = (number, (), [])
            return
        self.unsure |= set(contents)
        self.world.run(cmd.CommitEpoch("p", number, parts))
        self.promised |= set(contents)
        self.unsure = set()
        self.epoch = (number + 1, (), [])

    def stage_anew(self) -> None:
        """Chunks are promised with the commit: a power cut may have taken some that wait for it."""
        number, parts, _ = self.epoch
        producer = self.world.state.producers.get("p")
        committed = producer.committed if producer is not None else None
        if committed is None or committed.number < number:
            chunks = producer.chunks(number) if producer is not None else {}
            if any(ChunkId(part.partition, part.attempt, 0) not in chunks for part in parts):
                self.epoch = (number, (), [])

    def pass_on(self) -> None:
        """Jobs that are not counted, into an archive that is never logged and what copies it."""
        world = self.world
        for name in ("brief", "passing"):
            self.number += 1
            world.write(name, wish(self.number, key=self.rng.choice((None, "k"))))
            world.ack(*[job.seq for job in world.claim(2, topic=name)], topic=name)

    def finish_copies(self) -> None:
        """Copies in a queue are done."""
        for job in self.world.claim(9, topic="again"):
            assert int(job.data) not in self.done_copies, f"again: {job.data!r} after its ack"
            self.acked_copies.add(int(job.data))
            self.world.ack(job.seq, topic="again")
            self.done_copies.add(int(job.data))

    def read(self, name: str) -> None:
        """Readers see what is there; copies that were seen stay."""
        world = self.world
        for reader in (name, "done"):
            topic = world.topic(reader)
            runs = [(b, *run) for b in topic.batches for run in b.stretches(0, b.count)]
            text = self.texts.join(topic.number, runs, shown(tags=True, meta=True)) if runs else b""
            read = {r["$seq"]: r["data"] for r in msgspec.json.decode(b"[" + text + b"]")}
            there = {s: int(t[0]) for batch in topic.batches for s, _, t in batch.records()}
            assert read == there
        world.forward()
        world.step()
        for copies in COPIES:
            self.seen[copies] = set(numbers(world, copies))

    # -- ends of a life --------------------------------------------------------------------------

    def live(self) -> None:
        """A life that ends somehow, and the next one's beginning."""
        rng, world = self.rng, self.world
        ending = rng.choice(("cut", "kill", "quiet", "restart"))
        if ending in ("cut", "kill"):
            world.fs.crash_after(rng.randrange(OPERATIONS_MAX))
        with suppress(SimCrash):
            for _ in range(TURNS):
                self.turn()
        self.tidying = iter(())
        self.texts = RecordTexts()
        if ending == "cut":
            world.fs = world.fs.crash_clone(Random(rng.getrandbits(32)))
        elif ending == "kill":
            world.fs = world.fs.kill_clone()
        else:
            self.end_well(ending)
            return
        again = world.fs.kill_clone()
        world.engine = world._open()
        self.stage_anew()
        second = World(again, clock=world.clock)
        assert portrait(second.state) == portrait(world.state), "recovering twice gives two states"

    def end_well(self, ending: str) -> None:
        """All is written before the end: the next life is this one."""
        world = self.world
        for name in QUEUES:
            if not world.state.topics[name].config.leases_durable:
                # A restart would do the same.
                held = [s for s, state in world.states(name).items() if state == "in_flight"]
                world.nack(*held, topic=name, count=False)
        before = self.picture()
        world.step()
        if ending == "restart":
            world.restart()
        else:
            world.kill()
        after = self.picture()
        for name, facts in before.items():
            for fact, value in facts.items():
                assert after[name][fact] == value, f"{name}: {fact} after {ending}"

    def picture(self) -> dict[str, dict[str, Any]]:
        """What the log must keep of the topics it keeps."""
        world = self.world
        for _ in range(3):
            world.forward()
            for name in world.state.topics:
                world.topic(name)
        picture: dict[str, dict[str, Any]] = portrait(world.state)
        del picture["kept"], picture["brief"], picture["router lasting"]
        for name, facts in picture.items():
            if not facts.get("attributes"):
                facts.pop("attributes", None)
            # Orphans are forgotten, and with them the only entry a job may have.
            queue = facts.pop("queue", None)
            if queue is not None:
                facts["finished"] = (queue["finished"], queue["dead_lettered"])
                facts["held"] = {s: j for s, j in queue["jobs"].items() if j[0] == "held"}
                if world.state.topics[name].config.leases_durable:
                    facts["jobs"] = queue["jobs"], queue["errors"]
        return picture

    def check(self) -> None:
        """Each content is in one place, and every copy where it was."""
        world = self.world
        check(world.state)
        if self.epoch[1]:
            self.unsure |= set(self.epoch[2])
        found = Counter(number for name in PLACES for number in numbers(world, name))
        assert all(times == 1 for times in found.values()), found
        assert self.promised - self.unsure <= found.keys(), "what was promised is lost"
        assert found.keys() <= self.promised | self.unsure, "what was replaced is back"
        self.promised, self.unsure = set(found), set()
        for name in QUEUES:
            assert not self.done & set(numbers(world, name)), f"{name}: done jobs are back"
        self.check_archive()
        for name, seen in self.seen.items():
            there = set(numbers(world, name)) | self.acked_copies
            assert seen <= there, f"{name}: copies that were seen are gone"
        world.forward()
        for name in ("copies", "again"):
            data = numbers(world, name)
            gone = self.acked_copies if name == "again" else set()
            originals = numbers(world, "done")
            assert len(set(data)) == len(data), f"{name}: a copy twice"
            assert data == [number for number in originals if number in set(data)], name
            assert set(originals) - set(data) <= gone, f"{name}: originals without a copy"
        assert set(numbers(world, "letters")) <= set(numbers(world, "echo"))

    def check_archive(self) -> None:
        """The archive has a copy of each job that was finished, and nothing else."""
        state = self.world.state
        finished = Counter[tuple[str, str]]()
        for name in QUEUES:
            queue = state.queue(name).queue
            finished.update({(name, outcome): n for outcome, n in queue.finished.items() if n})
        copies = Counter[tuple[str, str]]()
        for batch in state.topics["done"].batches:
            for _, _, texts in batch.records():
                meta = msgspec.json.decode(texts[3])
                copies[meta["$archived_from"], meta["$outcome"]] += 1
        assert copies == finished


@pytest.mark.parametrize("seed", SEEDS)
def test_every_content_is_in_one_place(seed: int) -> None:
    story = Everything(seed)
    for _ in range(LIVES):
        story.live()
        story.check()
    assert story.world.engine.journal.jobs.segments()[0].id > 1, "no segment was ever dropped"

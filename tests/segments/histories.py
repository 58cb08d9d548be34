"""Random lives of a server's core, with every segment kept that it ever dropped.

Owns: what happens at random, what the live state said of each record when it came and of each job
as it went, and the segments as an archive would have them. Must not know: how segments are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Any

import msgspec
import pytest

from logqueue import events as ev
from logqueue.core import commands as cmd
from logqueue.core import record_times
from logqueue.core.apply import dispatch as applying
from logqueue.core.batch import Batch
from logqueue.core.topic import Topic
from logqueue.errors import LogqueueError
from logqueue.events.block import KEY, BlockView, Texts, read_string
from logqueue.segments.catalog import SegmentFile
from logqueue.segments.index import IndexBuilder, SegmentIndex
from logqueue.segments.known import KnownTopics
from logqueue.server.engine import engine
from logqueue.server.storage import checkpoint, compaction
from tests.core.world import World, job, pack, wish
from wal import Log
from wal.segment import read_whole

QUEUES = ("q", "letters")
LOGS = ("a", "b", "c", "attic")
TAGS = ("eu", "us", 'with "quotes"', "back\\slash", "größe", "\u2028\x01")

Row = tuple[int, Texts, str | None, int]
"""Time, texts, key and due time of a record."""


def row_of(batch: Batch, index: int) -> Row:
    """A record as it is in memory."""
    view = BlockView(batch.block)
    ts = batch.ts_at(index)
    key = view.text(KEY, index)
    return (
        ts,
        view.texts(index),
        read_string(key) if key else None,
        record_times.due_at(view, index, ts),
    )


class History:
    """One random life.

    Attributes:
        came: Each record, by topic instance and seq, as it was when it was appended.
        told: Events in the order they were applied, without those of replays.
        segments: All segments of each log so far, by id.
    """

    def __init__(self, seed: int, *, topics_per_part: int = 1000) -> None:
        self.rng = Random(seed)
        self.came: dict[tuple[int, int], Row] = {}
        self.told: list[ev.Event] = []
        self.segments: dict[str, dict[int, bytes]] = {"jobs": {}, "leases": {}}
        self.is_replaying = False
        self.epoch = 0
        self._topics_per_part = topics_per_part

    def live(self, steps: int) -> World:
        """Live through as many steps at random."""
        with self._watched():
            self.is_replaying = True
            world = World(segment_bytes=4096 + 4800)
            self.is_replaying = False
            self._begin(world)
            for number in range(steps):
                with suppress(LogqueueError):
                    self._act(world, number)
                world.forward()
                world.step()
                self._keep_segments(world)
                if self.rng.random() < 0.25:
                    world.tidy()
                if self.rng.random() < 0.03:
                    self._end_a_life(world)
            world.step()
            self._keep_segments(world)
        return world

    def _end_a_life(self, world: World) -> None:
        world.step()
        self._keep_segments(world)
        self.is_replaying = True
        if self.rng.random() < 0.5:
            world.restart()
        else:
            world.kill()
        self.is_replaying = False

    def _keep_segments(self, world: World) -> None:
        journal = world.engine.journal
        for log in (journal.jobs, journal.leases):
            self._keep(log)

    def _keep(self, log: Log) -> None:
        kept = self.segments[log.directory.rpartition("/")[2]]
        for info in log.segments():
            kept[info.id] = read_whole(log._fs, info.path)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Note what comes into topics, and what is applied."""
        with pytest.MonkeyPatch.context() as patch:
            insert, apply = Topic.insert, applying.apply

            def noted_insert(topic: Topic, batch: Batch, size: int, **options: Any) -> None:
                if not self.is_replaying and batch.segment:
                    for index in range(batch.count):
                        at = topic.number, batch.seq_at(index)
                        self.came.setdefault(at, row_of(batch, index))
                insert(topic, batch, size, **options)

            def noted_apply(state: Any, event: ev.Event, segment: int = 0, **how: bool) -> None:
                self.told.append(event)
                apply(state, event, segment, **how)

            drop = Log.drop_before

            def noted_drop(log: Log, segment: int) -> int:
                self._keep(log)
                return drop(log, segment)

            patch.setattr(Log, "drop_before", noted_drop)
            patch.setattr(Topic, "insert", noted_insert)
            patch.setattr(engine, "apply", noted_apply)
            patch.setattr(compaction, "SLACK_BYTES", 20_000)
            patch.setattr(compaction, "LEASES_BYTES_MAX", 3000)
            patch.setattr(compaction, "MOVED_RECORDS_MAX", 5)
            patch.setattr(checkpoint, "TOPICS_PER_PART", self._topics_per_part)
            yield

    # -- what happens ----------------------------------------------------------------------------

    def _begin(self, world: World) -> None:
        world.put("letters", type="queue", durability="fsync", leases_durable=True)
        self._put_queue(world)
        for name in LOGS:
            world.put(name, type="log", durability="fsync")
        world.put_router("ab", "a", "b")
        world.put_router("bc", "b", "c", preserve_tag=False, guarantee="exactly_once")
        world.put_router("qd", "q", "d", filter=self.rng.choice(TAGS))

    def _put_queue(self, world: World) -> None:
        world.put(
            "q",
            durability="fsync",
            leases_durable=True,
            lease_ms=100_000,
            max_deliveries=self.rng.choice([0, 2]),
            dead_letter="letters",
            archive=self.rng.choice([None, "attic"]),
            on_exhausted=self.rng.choice(["dead_letter", "hold"]),
            cap_records=self.rng.choice([0, 12]),
        )

    def _records(self, count: int, *, is_queue: bool) -> list[Any]:
        rng = self.rng
        found: list[Any] = []
        for _ in range(count):
            texts: dict[str, Any] = {
                "tag": rng.choice([None, *TAGS]),
                "node": rng.choice([None, "n1", "nöd"]),
                "meta": rng.choice([None, {"m": "ü"}, {"$router": 1}]),
            }
            data = "é" * rng.randrange(90)
            if is_queue and rng.random() < 0.5:
                options: dict[str, Any] = {
                    "key": rng.choice([None, "k1", "k2", 'k"3']),
                    "delay_ms": rng.choice([0, 0, 7000]),
                    "not_before": rng.choice([0, 0, 2_000_000]),
                    "ttl_ms": rng.choice([0, 0, 20_000]),
                }
                found.append(wish(data, **options, **texts))
            else:
                found.append(job(data, **texts))
        return found

    def _act(self, world: World, number: int) -> None:
        rng = self.rng
        kind = rng.randrange(17)
        if kind < 5:
            topic = rng.choice(["q", "q", "a", "a", "b"])
            count = rng.choice([1, 1, 2, 7])
            records = self._records(count, is_queue=topic == "q")
            world.write(topic, *records, key=f"k{number}" if kind == 0 else None)
        elif kind == 5:
            world.claim(rng.randrange(1, 5))
        elif kind in (6, 7, 8):
            self._settle(world, kind)
        elif kind == 9:
            world.delete(rng.choice(["q", "a", "b"]), match=rng.choice(TAGS))
        elif kind == 10 and rng.random() < 0.4:
            name = rng.choice(["q", "a", "c"])
            world.drop(name)
            self._put_queue(world) if name == "q" else world.put(
                name, type="log", durability="fsync"
            )
        elif kind == 11:
            self._put_queue(world)
        elif kind == 12:
            world.patch("a", cap_records=rng.choice([0, 3]))
        elif kind == 13:
            self._epoch(world)
        elif kind == 14:
            world.redrive("letters", limit=2)
        elif kind == 15:
            source, dest = rng.choice([("a", "b"), ("b", "c")])
            name = source + dest
            if rng.random() < 0.5:
                world.drop_router(name)
            world.put_router(name, source, dest, preserve_node=rng.random() < 0.5)
        else:
            world.wait(rng.choice([1, 5000, 120_000]))
        if number % 5 == 3:
            self._change(world, Random(number))

    def _settle(self, world: World, kind: int) -> None:
        queue = world.queue("q").queue
        held = [seq for seq, one in queue.jobs.items() if one.grant]
        if kind == 6:
            world.ack(*held[:2])
        elif kind == 7:
            delay = self.rng.choice([0, 3000])
            world.nack(*held[-2:], delay_ms=delay, error="bad", count=self.rng.random() < 0.7)
        elif self.rng.random() < 0.5:
            world.reject(*held[:1], error="no")
        elif held:
            world.extend(*held, lease_ms=self.rng.choice([1, 50_000]))

    def _change(self, world: World, rng: Random) -> None:
        """An operator changes some jobs."""
        states = world.states("q")
        actions: list[cmd.JobAction] = ["retry", "delay", "hold", "release", "return"]
        some = rng.sample(sorted(states), min(len(states), 4))
        world.change(rng.choice(actions), *some, delay_ms=rng.choice([0, 4000]))

    def _epoch(self, world: World) -> None:
        """Stage an epoch in chunks, perhaps with much between them, and perhaps commit it."""
        parts: list[list[Any]] = []
        for partition in range(self.rng.choice([1, 2])):
            rows = 0
            chunks = self.rng.choice([1, 2])
            for number in range(chunks):
                topic = self.rng.choice(["a", "b", "a", "q"])
                records = self._records(self.rng.choice([1, 3]), is_queue=False)
                command = cmd.StageChunk(
                    "p", self.epoch, topic, partition, f"t{len(self.told)}", number,
                    pack(records), len(records),
                )  # fmt: skip
                rows += len(records)
                attempt = command.attempt if number == 0 else parts[-1][1]
                world.run(msgspec.structs.replace(command, attempt=attempt))
                if number == 0:
                    parts.append([partition, attempt, chunks, 0])
                parts[-1][3] = rows
                if self.rng.random() < 0.5:
                    world.write("a", *self._records(9, is_queue=False))
                    self._keep_segments(world)
                    world.tidy()
        named = tuple(cmd.StagedAttempt(*part) for part in parts)
        world.run(cmd.CommitEpoch("p", self.epoch, named))
        self.epoch += 1


def indexes_of(
    segments: dict[int, bytes], log: Any = "jobs", log_id: str | None = None
) -> list[SegmentIndex]:
    """The indexes of some segments, each seeded with what those before it tell."""
    known = KnownTopics()
    found = []
    for segment in sorted(segments):
        data = segments[segment]
        builder = IndexBuilder(data[:4096], log, log_id=log_id, known=known)
        builder.feed(data[4096:])
        found.append(builder.index())
        known.add(found[-1].learned, found[-1].routers)
    return found


__all__ = ["History", "Row", "SegmentFile", "indexes_of", "row_of"]

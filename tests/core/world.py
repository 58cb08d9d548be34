"""A whole core on a simulated disk under a manual clock, driven by short sentences.

Owns: the engine of one life, and how a life ends (stop, kill, power cut). Every reply is held back
until the log has reached what it was computed from, as the server does it. Must not know: what
replies should say.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import closing
from itertools import islice
from random import Random
from typing import Any, NamedTuple

import msgspec

from logqueue.core import commands as cmd
from logqueue.core.batch import Record
from logqueue.core.invariants import check
from logqueue.core.job_views import list_jobs
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.errors import StorageReadOnly
from logqueue.events import block as blocks
from logqueue.model.config import RouterOptions, TopicOptions
from logqueue.model.limits import Quotas
from logqueue.model.schedule import ScheduleOptions
from logqueue.model.tag_predicate import Predicate
from logqueue.server.engine.batch_ends import BatchEnds
from logqueue.server.engine.engine import Engine
from logqueue.server.engine.firing import Firing
from logqueue.server.engine.pending import Executed
from logqueue.server.engine.portions import has_portions, portions
from logqueue.server.runtime import open_core
from logqueue.server.settings import Settings
from logqueue.server.storage.archive import LogArchive
from logqueue.server.storage.segment_store import SegmentPlace, SegmentScan
from tests.clock import ManualClock
from wal.testing.simfs import SimFileSystem

START_MS = 1_000_000
SEGMENT_BYTES = 4096 + 2400

_encoder = msgspec.json.Encoder()


def job(
    data: object, *, tag: str | None = None, node: str | None = None, meta: object = None
) -> blocks.Texts:
    """One record as JSON fragments."""
    return (
        _encoder.encode(data),
        b"" if tag is None else _encoder.encode(tag),
        b"" if node is None else _encoder.encode(node),
        b"" if meta is None else _encoder.encode(meta),
    )


class Wish(NamedTuple):
    """A record with columns of its own."""

    texts: blocks.Texts
    key: str | None = None
    on_conflict: cmd.OnConflict = "replace"
    delay_ms: int = 0
    not_before: int = 0
    ttl_ms: int = 0
    max_deliveries: int = 0
    priority: int = 0
    group: str | None = None
    unique: int = 0


def wish(
    data: object,
    *,
    key: str | None = None,
    on_conflict: cmd.OnConflict = "replace",
    delay_ms: int = 0,
    not_before: int = 0,
    ttl_ms: int = 0,
    max_deliveries: int = 0,
    priority: int = 0,
    group: str | None = None,
    unique: int = 0,
    **texts: Any,
) -> Wish:
    """A record with columns of its own, besides what `job` takes."""
    own = (delay_ms, not_before, ttl_ms, max_deliveries, priority, group, unique)
    return Wish(job(data, **texts), key, on_conflict, *own)


def pack(records: Sequence[blocks.Texts | Wish]) -> bytes:
    """The block of some records."""
    wishes = [r if isinstance(r, Wish) else Wish(r) for r in records]
    columns = [[w.texts[c] for w in wishes] for c in range(len(blocks.TEXT_COLUMNS))]
    columns.append([b"" if w.key is None else blocks.write_string(w.key) for w in wishes])
    columns.append([b"" if w.group is None else blocks.write_string(w.group) for w in wishes])
    numbers = {
        blocks.DELAY: [w.delay_ms for w in wishes],
        blocks.NOT_BEFORE: [w.not_before for w in wishes],
        blocks.TTL: [w.ttl_ms for w in wishes],
        blocks.MAX_DELIVERIES: [w.max_deliveries for w in wishes],
        blocks.PRIORITY: [w.priority for w in wishes],
        blocks.UNIQUE: [w.unique for w in wishes],
    }
    return blocks.pack(
        [column if c == 0 or any(column) else None for c, column in enumerate(columns)],
        numbers={column: values for column, values in numbers.items() if any(values)},
    )


def keyed(records: Sequence[blocks.Texts | Wish]) -> tuple[cmd.Keyed, ...]:
    """What the keyed records among some ask for."""
    return tuple(
        cmd.Keyed(index, blocks.write_string(record.key), record.on_conflict)
        for index, record in enumerate(records)
        if isinstance(record, Wish) and record.key is not None
    )


def fall_back(engine: Engine) -> None:
    """Go back to what a failed log still stands for, with no command in between."""
    with closing(engine.rebuild_durable()) as retreat:
        for work in retreat:
            work()


class Bounds(NamedTuple):
    """What an archive keeps; 0 for no bound."""

    max_age_ms: int = 0
    max_bytes: int = 0


class World:
    """One server's core, from its first life to its last."""

    def __init__(
        self,
        fs: SimFileSystem | None = None,
        *,
        quotas: Quotas | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        clock: ManualClock | None = None,
        archive: Bounds | None = None,
        set_damage_aside: bool = False,
    ) -> None:
        self.set_damage_aside = set_damage_aside
        self.bounds = archive
        self.fs = fs or SimFileSystem(Random(0))
        self.clock = clock or ManualClock(START_MS)
        self.quotas = quotas
        self.segment_bytes = segment_bytes
        self.engine = self._open()

    def _open(self) -> Engine:
        bounds, quotas = self.bounds or Bounds(), self.quotas or Quotas()
        self.core = open_core(
            Settings(
                data_dir="data",
                segment_max_bytes=self.segment_bytes,
                archive_dir=None if self.bounds is None else "archive",
                archive_max_age_ms=bounds.max_age_ms,
                archive_max_bytes=bounds.max_bytes,
                max_topics=quotas.topics_max,
                max_total_bytes=quotas.total_bytes_max,
                max_routers=quotas.routers_max,
                auto_create=quotas.auto_create,
                max_producers=quotas.producers_max,
                max_schedules=quotas.schedules_max,
                max_batches=quotas.batches_max,
            ),
            self.clock,
            fs=self.fs,
            set_damage_aside=self.set_damage_aside,
            # The same identities each time.
            random_bytes=lambda log, length: Random(log).randbytes(length),
        )
        self.firing = Firing(self.core.engine)
        self.batch_ends = BatchEnds(self.core.engine)
        return self.core.engine

    # -- facts -----------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The live state."""
        return self.engine.state

    @property
    def now(self) -> int:
        """The clock."""
        return self.clock.now_ms()

    def topic(self, name: str) -> Topic:
        """A topic as of now."""
        return self.engine.topic_now(name)

    def queue(self, name: str = "q") -> QueueTopic:
        """A queue as of now."""
        return self.engine.queue_now(name)

    def counters(self, name: str = "q") -> tuple[int, int, int]:
        """(ready, in flight, dead-lettered) as of now."""
        topic = self.queue(name)
        return topic.ready, topic.queue.leased, topic.queue.dead_lettered

    def records(self, name: str = "q") -> list[Record]:
        """All live records."""
        return [record for batch in self.topic(name).batches for record in batch.records()]

    def seqs(self, name: str = "q") -> list[int]:
        """Seqs of all live records."""
        return [seq for seq, _, _ in self.records(name)]

    # -- commands --------------------------------------------------------------------------------

    def run(self, command: cmd.Command[Any]) -> Any:
        """Execute a command; the reply comes when its promise holds."""
        outcome = self.execute(command)
        self.hold(outcome)
        return outcome.result

    def execute(self, command: cmd.Command[Any]) -> Executed[Any]:
        """Execute a command, all of its portions one after the other."""
        if not has_portions(self.engine, command):
            return self.engine.execute(command)
        steps = portions(self.engine, command)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                whole: Executed[Any] = end.value
                return whole

    def hold(self, outcome: Executed[Any]) -> None:
        """Step the log until a reply may leave.

        Raises:
            StorageReadOnly: The log failed before that.
        """
        log = self.engine.journal.jobs
        while log.durable < outcome.durable or log.written < outcome.written:
            if log.failure is not None:
                raise StorageReadOnly.because(log.failure)
            assert log.step(), "a promise that no pending write keeps"

    def step(self) -> None:
        """Let both logs write all they have."""
        while self.engine.journal.jobs.step():
            pass
        self.engine.journal.flush_leases()

    def hand_over(self) -> None:
        """Let the jobs log write all it has, as a round does before its sync; `step` syncs it."""
        log = self.engine.journal.jobs
        with log._lock:
            batches = log._committer._take()
        log._committer._round(batches, sync=False)
        log.sync()

    def wait(self, ms: int) -> None:
        """Let time pass."""
        self.clock.advance(ms)

    def put(self, topic: str = "q", **config: Any) -> cmd.PutResult:
        """Create or configure a topic; a queue unless said otherwise."""
        config.setdefault("type", "queue")
        resolved = msgspec.convert(config, TopicOptions).resolved()
        reply: cmd.PutResult = self.run(cmd.PutTopic(topic, resolved))
        return reply

    def drop(self, topic: str = "q", *, if_empty: bool = False) -> bool:
        """Delete a topic."""
        reply: cmd.DropResult = self.run(cmd.DropTopic(topic, if_empty))
        return reply.deleted

    def write(self, topic: str, *data: object, **options: Any) -> cmd.AppendResult:
        """Append one batch. Data that is a `job` already goes in as it is."""
        records = [d if isinstance(d, tuple) else job(d) for d in data]
        append = cmd.Append(topic, pack(records), len(records), keyed=keyed(records), **options)
        reply: cmd.AppendResult = self.run(append)
        return reply

    def fill(self, count: int, topic: str = "q") -> None:
        """Append `count` records as one batch."""
        self.write(topic, *range(1, count + 1))

    def claim(
        self,
        jobs_max: int = 1,
        *,
        node: str = "w",
        lease_ms: int | None = None,
        stream: int = 0,
        topic: str = "q",
    ) -> list[cmd.ClaimedJob]:
        """Claim for one worker."""
        claimer = cmd.Claimer(node, jobs_max, lease_ms, stream)
        reply: cmd.ClaimResult = self.run(cmd.ClaimJobs(topic, (claimer,)))
        return [*reply.jobs[0]]

    def take(self, jobs_max: int = 1, **options: Any) -> list[int]:
        """Claim, and look at the seqs only."""
        return [j.seq for j in self.claim(jobs_max, **options)]

    def share(self, *demands: int, topic: str = "q") -> list[list[int]]:
        """One pass over a cohort; the seqs that each party got."""
        cohort = tuple(cmd.Claimer(f"w{i}", demand) for i, demand in enumerate(demands))
        reply: cmd.ClaimResult = self.run(cmd.ClaimJobs(topic, cohort))
        return [[j.seq for j in jobs] for jobs in reply.jobs]

    def ack(
        self,
        *seqs: int,
        node: str = "w",
        tokens: Sequence[int | None] | None = None,
        topic: str = "q",
        results: Sequence[bytes] | None = None,
    ) -> tuple[int, list[int]]:
        """Complete jobs: how many counted, and which were skipped."""
        reply: cmd.SettleResult = self.run(
            cmd.AckJobs(topic, node, [*seqs], tokens, results=results)
        )
        return reply.settled, reply.skipped

    def nack(
        self,
        *seqs: int,
        node: str = "w",
        delay_ms: int | None = 0,
        tokens: Sequence[int | None] | None = None,
        topic: str = "q",
        error: str | None = None,
        count: bool = True,
    ) -> tuple[int, list[int]]:
        """Give jobs back: how many counted, and which were skipped."""
        reply: cmd.SettleResult = self.run(
            cmd.NackJobs(topic, node, [*seqs], tokens, delay_ms, error, count)
        )
        return reply.settled, reply.skipped

    def extend(
        self,
        *seqs: int,
        lease_ms: int,
        node: str = "w",
        tokens: Sequence[int | None] | None = None,
        topic: str = "q",
    ) -> tuple[list[int], list[int], int]:
        """Set deadlines: which counted, which were skipped, the deadline."""
        reply: cmd.ExtendResult = self.run(cmd.ExtendLeases(topic, node, [*seqs], lease_ms, tokens))
        return reply.seqs, reply.skipped, reply.deadline

    def release(self, stream: int, topic: str = "q") -> int:
        """A work connection is gone."""
        reply: cmd.Done = self.run(cmd.ReleaseStream(topic, stream))
        return reply.total

    def delete(self, topic: str = "q", *, before: int | None = None, match: object = None) -> int:
        """Delete records."""
        predicate = None if match is None else Predicate.parse(match)
        reply: cmd.RemoveResult = self.run(cmd.DeleteRecords(topic, before, predicate))
        return reply.deleted

    def put_router(
        self, name: str, source: str, dest: str, *, create_dest: bool = True, **options: Any
    ) -> bool:
        """Create or configure a router; whether it is new."""
        if "filter" in options:
            options["filter"] = Predicate.parse(options["filter"])
        command = cmd.PutRouter(name, source, dest, RouterOptions(**options), create_dest)
        reply: cmd.RouterPutResult = self.run(command)
        return reply.created

    def drop_router(self, name: str) -> bool:
        """Delete a router."""
        reply: cmd.RouterDropResult = self.run(cmd.DropRouter(name))
        return reply.deleted

    def forward(self) -> None:
        """Let every router copy all it can."""
        self.engine.retry_stalled()
        while self.engine.behind:
            self.engine.forward()

    def schedule(self, name: str, topic: str = "q", **wanted: Any) -> cmd.SchedulePutResult:
        """Create or configure a schedule; of one record that says its name unless told."""
        record = wanted.pop("record", None) or wish(name)
        flags = {flag: wanted.pop(flag) for flag in ("paused", "if_absent") if flag in wanted}
        keyed_as = record.on_conflict if record.key is not None else ""
        options = ScheduleOptions(
            topic, record.texts[0], pack([record]), on_conflict=keyed_as, **wanted
        )
        reply: cmd.SchedulePutResult = self.run(cmd.PutSchedule(name, options, **flags))
        return reply

    def fire(self) -> None:
        """Let every schedule that is due fire."""
        while (look := self.firing.next_look()) is not None and look <= self.now:
            self.firing.step()

    def end_batches(self) -> None:
        """End every batch that is due."""
        while (look := self.batch_ends.next_look()) is not None and look <= self.now:
            self.batch_ends.step()

    def values(self, name: str = "q") -> list[Any]:
        """What the live records of a topic carry."""
        return [msgspec.json.decode(texts[0]) for _, _, texts in self.records(name)]

    def patch(self, topic: str = "q", **changes: Any) -> TopicOptions:
        """Change some fields of a config."""
        reply: cmd.PutResult = self.run(cmd.PatchTopic(topic, changes))
        return reply.config

    def pause(self, paused: bool = True, topic: str = "q") -> None:
        """Pause a queue, or resume it."""
        self.run(cmd.SetPaused(topic, paused))

    def reject(
        self, *seqs: int, node: str = "w", error: str | None = None, topic: str = "q"
    ) -> tuple[int, list[int]]:
        """Give jobs up: how many counted, and which were skipped."""
        reply: cmd.SettleResult = self.run(cmd.RejectJobs(topic, node, [*seqs], None, error))
        return reply.settled, reply.skipped

    def cancel(self, seq: int, *, force: bool = False, topic: str = "q") -> cmd.CancelResult:
        """Remove one job."""
        reply: cmd.CancelResult = self.run(cmd.CancelJob(topic, seq, force))
        return reply

    def purge(self, *states: cmd.JobState, topic: str = "q") -> dict[cmd.JobState, int]:
        """Remove jobs in some states."""
        reply: cmd.PurgeResult = self.run(cmd.Purge(topic, frozenset(states)))
        return reply.counts

    def let_go(self, *seqs: int, topic: str = "q") -> cmd.ReleaseResult:
        """Release held jobs."""
        reply: cmd.ReleaseResult = self.run(cmd.Release(topic, seqs))
        return reply

    def change(
        self,
        action: cmd.JobAction,
        *seqs: int,
        states: Collection[cmd.JobState] | None = None,
        delay_ms: int = 0,
        topic: str = "q",
    ) -> list[int]:
        """Change jobs as an operator; those that were changed."""
        found = cmd.APPLIES_TO[action] if states is None else frozenset(states)
        wanted = cmd.ChangeJobs(topic, action, sorted(seqs), found, delay_ms)
        return [*self.run(wanted).changed]

    def redrive(self, topic: str = "letters", **options: Any) -> cmd.RedriveResult:
        """Move dead letters back."""
        reply: cmd.RedriveResult = self.run(cmd.Redrive(topic, **options))
        return reply

    def states(self, name: str = "q") -> dict[int, cmd.JobState]:
        """The state of every live job as of now."""
        topic = self.queue(name)
        return {job.seq: job.state for job in list_jobs(topic, limit=10**6).jobs}

    def data(self, name: str = "q") -> dict[int, bytes]:
        """The data of every live record."""
        return {seq: texts[0] for seq, _, texts in self.records(name)}

    def meta(self, name: str) -> list[dict[str, Any]]:
        """The metas of all live records."""
        return [msgspec.json.decode(texts[3]) for _, _, texts in self.records(name)]

    def finished(self, name: str = "q") -> dict[str, int]:
        """Jobs that came to an end, by outcome."""
        queue = self.queue(name).queue
        return {outcome: jobs for outcome, jobs in queue.finished.items() if jobs}

    def tidy(self) -> None:
        """Give disk space back."""
        for _ in self.engine.tidy():
            self.step()
        self.write_heads()

    def write_heads(self) -> None:
        """Move data of sealed segments out of memory, and write their heads files."""
        for steps in (self.engine.journal.offload(), self.engine.journal.write_heads()):
            for _ in steps:
                pass

    @property
    def archive(self) -> LogArchive:
        """The log archive, which there must be."""
        archive = self.engine.segments.archive
        assert archive is not None
        return archive

    def keep(self, steps_max: int | None = None) -> None:
        """Bring the archive up to date, or as far as some steps go."""
        archiver = self.core.archiver
        assert archiver is not None
        for _ in islice(archiver.steps(self.now), steps_max):
            pass

    def look(self, place: SegmentPlace) -> SegmentScan:
        """What is in a segment, as far as it is durable."""
        steps = self.engine.segments.scan(place, self.engine.journal.jobs.durable)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found: SegmentScan = end.value
                return found

    # -- ends of a life --------------------------------------------------------------------------

    def restart(self) -> None:
        """An orderly end, and a new life."""
        self.engine.shut_down()
        self.engine = self._open()
        check(self.state)

    def kill(self) -> None:
        """The process dies with everything it had handed over; a new life."""
        self.fs = self.fs.kill_clone()
        self.engine = self._open()
        check(self.state)

    def cut(self, rng: Random) -> None:
        """The power fails; a new life on what the disk kept."""
        self.fs = self.fs.crash_clone(rng)
        self.engine = self._open()
        check(self.state)

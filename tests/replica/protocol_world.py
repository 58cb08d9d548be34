"""A replica with several servers, a collector and readers, and everything that can go wrong.

Owns: what the actors do, what may befall them, and what must hold. Must not know: which rule of the
protocol a test has switched off.

Every call of the store is a place where an actor may be killed, sleep for minutes, or let others go
on. An item counts as acknowledged when its writer has seen its frame committed (sync mode).
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from random import Random
from typing import NamedTuple

import msgspec

from logqueue.replica.chain import LOGS, ChainEnd, chain_start, extended
from logqueue.replica.chunk import Chunk, LogName, decode_chunk
from logqueue.replica.collecting import collect
from logqueue.replica.manifest import (
    MANIFEST_KEY,
    ReplicaManifest,
    WriterInfo,
    decode_manifest,
    segment_key,
)
from logqueue.replica.memory_store import MemoryStore
from logqueue.replica.object_store import ObjectChanged, ObjectExists, StoreUnavailable
from logqueue.replica.reading import ReadVoid, ReplicaMissing, ReplicaReader
from logqueue.replica.takeover import TakeoverLost, create_replica, take_over
from logqueue.replica.writing import ReplicaWriter, WriterFenced
from logqueue.segments.history import HistoryBounds
from logqueue.testing.simulated_store import (
    Moment,
    SimulatedObjects,
    SimulatedStore,
    StoreCall,
    StoreFaults,
)
from tests.replica.scheduling import Scheduler
from tests.replica.small_logs import (
    Diverged,
    SegmentGone,
    SmallLogs,
    items_of,
    make_frame,
    split_frames,
)

LOG_ID, LEASES_ID = "aa" * 16, "bb" * 16


class Weather(NamedTuple):
    """How likely what befalls an actor is, per call of the store or step; from 0.0 to 1.0.

    Attributes:
        stall: That a writer sleeps for `stall_s` seconds before it creates a chunk.
        hesitate: That a candidate does so before its takeover chunk.
        tidier: That a writer has a thread beside the one that ships.
        keep_ms: How far back moments are kept; one of these.
        bounds: What else is kept; None for nothing.
        calls: After how many calls of the store a history comes to its end.
    """

    crash: float = 0.005
    nap: float = 0.02
    naps_s: tuple[float, ...] = (1, 10, 100)
    burn: float = 0.5
    partition: float = 0.01
    clone: float = 0.0
    stall: float = 0.0
    hesitate: float = 0.0
    stall_s: float = 200
    tidier: float = 0.0
    keep_ms: tuple[int, ...] = (0, 4000)
    bounds: HistoryBounds | None = None
    calls: int = 260
    faults: StoreFaults = StoreFaults(
        lost_before=0.03, lost_after=0.03, repeated=0.01, late=0.02, throttled=0.02, page=3
    )


FAIR = Weather()
BESIDE = Weather(tidier=0.8)
SLEEPY = Weather(nap=0.06, naps_s=(5, 50, 200), crash=0.002)
SOUND = Weather(crash=0.0, nap=0.0, calls=500, partition=0.0, faults=StoreFaults())
STALLED = SOUND._replace(stall=0.1)
HESITANT = SOUND._replace(hesitate=0.5, stall_s=20, calls=700)
FORGETFUL = SOUND._replace(keep_ms=(1000,))
# The replica is the archive: segments that no moment needs stay while there are few of them.
HOARDING = BESIDE._replace(keep_ms=(1000,), bounds=HistoryBounds(max_bytes=20_000))
# A twin that sleeps until its next number is collected is not noticed: no epoch separates the two.
TWINS = Weather(clone=0.05, crash=0.002, nap=0.04, naps_s=(1, 5))
WEATHERS = (FAIR, SLEEPY, BESIDE, TWINS, STALLED, HESITANT, FORGETFUL, BESIDE, HOARDING)


class Crash(BaseException):
    """The process of an actor is killed."""


class Violated(Exception):
    """Something that must hold does not."""


class WatchedStore(MemoryStore):
    """The objects, and the truth about the chain: what every number was created as first.

    Attributes:
        chain: Where the true chain ends.
        truth: Every frame of the true chain.
        owners: Id of the writer of each chunk.
        violations: What went wrong.
        collected: Objects that were deleted.
    """

    def __init__(self) -> None:
        super().__init__("sim://replica", lambda: 0)
        self.chain = ChainEnd()
        self.truth: dict[LogName, dict[int, bytes]] = {log: {} for log in LOGS}
        self.owners: dict[int, str] = {}
        self.violations: list[str] = []
        self._digests: dict[int, str] = {}
        self._manifest: ReplicaManifest | None = None
        self._manifests: set[bytes] = set()
        self.collected = 0

    def create(self, key: str, data: bytes) -> str:
        version = super().create(key, data)
        if key.startswith("chunks/"):
            self._note_chunk(int(key[7:]), data)
        elif key == MANIFEST_KEY:
            self._note_manifest(data)
        return version

    def replace(self, key: str, data: bytes, version: str) -> str:
        made = super().replace(key, data, version)
        self._note_manifest(data)
        return made

    def put(self, key: str, data: bytes) -> None:
        super().put(key, data)
        if key.startswith("chunks/"):
            self._note_chunk(int(key[7:]), data)
        elif key == MANIFEST_KEY:
            self._note_manifest(data)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.collected += key in self._objects
            super().delete((key,))

    def _note_chunk(self, number: int, data: bytes) -> None:
        chunk = decode_chunk(data, number)
        if number <= self.chain.number:
            # Collected by now; who is late here may only repeat what was there, or claim in vain.
            if chunk.digest != self._digests[number] and chunk.header.kind != "takeover":
                self.violations.append(f"chunk {number} exists twice, with different frames")
            return
        try:
            self.chain = extended(self.chain, chunk)
        except Exception as error:
            self.violations.append(f"chunk {number}: {error}")
            return
        self._digests[number] = chunk.digest
        self.owners[number] = chunk.header.writer
        for run, part in zip(chunk.header.runs, chunk.data, strict=True):
            for frame_number, frame in enumerate(split_frames(part), run.first):
                known = self.truth[run.log].setdefault(frame_number, frame)
                if known != frame:
                    self.violations.append(f"frame {frame_number} was committed twice")

    def _note_manifest(self, data: bytes) -> None:
        new, old = decode_manifest(data), self._manifest
        if data in self._manifests:
            self.violations.append("two versions of the manifest have the same bytes")
        self._manifests.add(data)
        self._manifest = new
        ids = {log: [e.id for e in new.segments if e.log == log] for log in LOGS}
        problems = [
            new.garbage_before > new.start_chunk,
            any(found != [*range(found[0], found[-1] + 1)] for found in ids.values() if found),
            any(segment_key(e.log, e.id) not in self._objects for e in new.segments),
            any(
                self.truth[e.log].get(e.last) is None or e.last > self.chain.frame(e.log)
                for e in new.segments
            ),
        ]
        if old is not None:
            problems += [
                new.epoch < old.epoch,
                new.start_chunk < old.start_chunk,
                new.garbage_before < old.garbage_before,
                any(new.kept_from.get(log, 0) < kept for log, kept in old.kept_from.items()),
                new.reaches_back_to < old.reaches_back_to,
            ]
        if any(problems):
            self.violations.append(f"a manifest that must not be: {problems}")

    @property
    def manifest_writer(self) -> str:
        """Whom the manifest names."""
        return self._manifest.writer.id if self._manifest is not None else ""

    def digest(self) -> str:
        """Of everything."""
        found = hashlib.sha256()
        for key in sorted(self._objects):
            found.update(key.encode() + self._objects[key].data)
        return found.hexdigest()


class World:
    """One history. Attributes are shared by the actors."""

    def __init__(self, seed: int, weather: Weather, servers: int, others: bool) -> None:
        self.rng = Random(seed)
        self.seed = seed
        self.weather = weather
        self.scheduler = Scheduler(self.rng)
        self.store = WatchedStore()
        self.shared = SimulatedObjects(self.store)
        self.acked: set[int] = set()
        self.items = 0
        self.calls = 0
        self.has_clones = False
        self.candidates: set[str] = set()
        self.takeovers = 0
        self.restores = 0
        self.fenced = 0
        for number in range(servers):
            server = Server(self, f"s{number}")
            self.scheduler.add(server.name, server.run)
        if others and not weather.clone:
            self.scheduler.add("collector", Collector(self).run)
        if others:
            self.scheduler.add("reader", Restorer(self).run)

    @property
    def is_over(self) -> bool:
        """Whether actors should come to an end."""
        return self.calls > self.weather.calls or bool(self.store.violations)

    def way(self, caller: str) -> SimulatedStore:
        """One actor's way to the store."""

        def on_call(call: StoreCall, moment: Moment) -> None:
            weather, rng = self.weather, self.rng
            self.calls += 1
            chance = rng.random()
            if self.calls > 1500:
                raise Crash
            if chance < weather.crash:
                raise Crash
            if chance < weather.crash + weather.nap:
                self.scheduler.pause(rng.choice(weather.naps_s))
            elif moment == "before":
                stall = 0.0
                if call.method == "create" and call.key.startswith("chunks/"):
                    is_candidate = caller in self.candidates
                    stall = weather.hesitate if is_candidate else weather.stall
                is_stalled = stall and rng.random() < stall
                self.scheduler.pause(weather.stall_s if is_stalled else rng.random() / 10)
            if chance > 1 - weather.partition:
                way.is_cut_off = True
            elif way.is_cut_off and chance < 0.3:
                way.is_cut_off = False

        way = SimulatedStore(
            self.shared, caller=caller, seed=self.seed, faults=self.weather.faults, on_call=on_call
        )
        return way

    def run(self) -> World:
        """Live through it, and check what is left."""
        self.scheduler.run()
        for failure in self.scheduler.failures:
            raise Violated(f"seed {self.seed}: {failure!r}") from failure
        if self.store.violations:
            raise Violated(f"seed {self.seed}: {self.store.violations[0]}")
        self._check_the_end()
        return self

    def _check_the_end(self) -> None:
        with suppress(ReplicaMissing):
            restored = restored_from(ReplicaReader(self.store, tries=1))
            self.check(restored, self.store.chain.number, self.acked, is_end=True)
            return
        if self.acked:
            raise Violated(f"seed {self.seed}: there is no replica, but acknowledged items")

    def check(self, logs: SmallLogs, chunk: int, acked: set[int], *, is_end: bool) -> None:
        """Compare what was restored with the truth.

        Args:
            logs: What was restored.
            chunk: Number of the last chunk when that began.
            acked: What was acknowledged then.
            is_end: Whether nothing has been added since.
        """
        assert logs.end is not None
        found = {item for frame in logs.frames("jobs").values() for item in items_of(frame)}
        for log in LOGS:
            for number, frame in logs.frames(log).items():
                if self.store.truth[log].get(number) != frame:
                    raise Violated(f"seed {self.seed}: {log} frame {number} is not of the chain")
        if logs.end.number < chunk or (is_end and logs.end.number != chunk):
            raise Violated(
                f"seed {self.seed}: restored up to chunk {logs.end.number}, the chain had {chunk}"
            )
        if acked - found:
            raise Violated(f"seed {self.seed}: lost acknowledged items {sorted(acked - found)}")


def restored_from(reader: ReplicaReader, into: SmallLogs | None = None) -> SmallLogs:
    """Logs made of a replica."""
    logs = into or SmallLogs()
    logs.wipe()
    manifest = reader.manifest().manifest
    needed = [e for e in manifest.segments if e.id >= manifest.kept_from.get(e.log, 0)]
    for entry, data in reader.segments(needed):
        logs.take_segment(entry.log, data)
    logs.kept = {**manifest.kept_from}
    logs.begins_at = {**manifest.kept_from}
    end = chain_start(manifest)
    for chunk in reader.chunks(end.number + 1, end.digest):
        end = extended(end, chunk)
        logs.take_chunk(chunk)
    logs.end = end
    return logs


class Server:
    """A server: it follows, takes over, writes, is killed, begins again."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.rng = world.rng
        self.logs = SmallLogs()
        self.way = world.way(name)
        self.lives = 0
        self.is_clone = False
        # The writer of the present life.
        self.writer: ReplicaWriter | None = None
        self.has_tidier = self.is_tidying = False

    def run(self) -> None:
        world = self.world
        while not world.is_over:
            self.lives += 1
            try:
                writer = self._become_writer()
                if writer is not None:
                    self._write(writer)
            except Crash:
                self._die()
            except (StoreUnavailable, TakeoverLost, ReadVoid, ObjectExists, Diverged):
                pass
            except WriterFenced:
                world.fenced += 1
            finally:
                self.writer = None
            if self.is_clone:
                return
            world.scheduler.pause(self.rng.choice((0.1, 2, 20)))

    def _die(self) -> None:
        if self.rng.random() < self.world.weather.burn:
            self.logs.wipe()
        elif self.rng.random() < 0.3 and not self.logs.kept:
            # Frames that were not synced; but what a compaction has written again was.
            self.logs.cut_to_chain()
        self.logs.kept = {}

    # -- becoming the writer ---------------------------------------------------------------------

    def _become_writer(self) -> ReplicaWriter | None:
        """Follow for a while, then take over."""
        reader = ReplicaReader(self.way, tries=1)
        me = WriterInfo(f"{self.name}-{self.lives}", f"http://{self.name}")
        try:
            self._follow(reader)
            while self.rng.random() < 0.5:
                self.world.scheduler.pause(self.rng.choice((0.5, 5, 50)))
                if self.world.is_over:
                    return None
                self._follow(reader)
        except ReplicaMissing:
            create_replica(self.way, LOG_ID, LEASES_ID, me)
            self._follow(reader)
        logs = self.logs
        self.world.candidates.add(self.name)
        try:
            takeover = take_over(self.way, me, logs.end, self._receive)
        finally:
            self.world.candidates.discard(self.name)
        logs.end = takeover.end
        self.world.takeovers += 1
        return ReplicaWriter(
            self.way,
            logs,
            takeover,
            clock_ms=lambda: int(self.world.scheduler.now * 1000),
            monotonic=self._monotonic,
            keep_ms=self.rng.choice(self.world.weather.keep_ms),
            history=self.world.weather.bounds,
            chunk_bytes_max=self.rng.choice((30, 200)),
            readers_s=1e6 if self.world.weather.clone else self.rng.choice((0.0, 0.0, 3.0)),
        )

    def _monotonic(self) -> float:
        return self.world.scheduler.now

    def _follow(self, reader: ReplicaReader) -> None:
        end = self.logs.end
        try:
            if end is None:
                restored_from(reader, self.logs)
            else:
                self._receive([*reader.chunks(end.number + 1, end.digest)], None)
        except ReadVoid:
            self.logs.wipe()
            raise
        except BaseException:
            if end is None:
                self.logs.wipe()
            raise

    def _receive(self, chunks: Sequence[Chunk], end: ChainEnd | None) -> None:
        logs = self.logs
        for chunk in chunks:
            assert logs.end is not None
            try:
                logs.take_chunk(chunk)
            except Diverged:
                # What is here and was not committed is discarded.
                logs.wipe()
                raise
            logs.end = extended(logs.end, chunk)

    # -- writing ---------------------------------------------------------------------------------

    def _write(self, writer: ReplicaWriter) -> None:
        world, rng = self.world, self.rng
        self.writer = writer
        self.has_tidier = world.weather.tidier > 0 and rng.random() < world.weather.tidier
        if self.has_tidier:
            world.scheduler.add(f"{self.name}.tidy", lambda: self._tidy(writer))
        while not world.is_over:
            try:
                if self._act(writer, rng.random()):
                    return
            except StoreUnavailable:
                world.scheduler.pause(rng.choice((0.1, 1)))
            except WriterFenced:
                self._require_other(writer)
                raise
            finally:
                self._confirm(writer)

    def _tidy(self, writer: ReplicaWriter) -> None:
        """The thread beside the one that ships; it may be in a call when the process is killed,
        and what it has sent takes effect later."""
        with suppress(Crash, WriterFenced):
            while self.writer is writer and not self.world.is_over:
                self.world.scheduler.pause(self.rng.choice((0.1, 1, 3)))
                with suppress(StoreUnavailable, SegmentGone):
                    if self.writer is writer:
                        self.is_tidying = True
                        try:
                            writer.tidy()
                        finally:
                            self.is_tidying = False

    def _require_other(self, writer: ReplicaWriter) -> None:
        behind = [o for n, o in self.world.store.owners.items() if n > writer.end.number]
        others = {*behind, self.world.store.manifest_writer} - {writer.writer.id}
        if not others and not self.world.has_clones:
            raise Violated(f"{writer.writer.id} is fenced, and there is no other writer")

    def _confirm(self, writer: ReplicaWriter) -> None:
        """Acknowledge what is committed."""
        logs = self.logs
        committed = writer.committed["jobs"]
        for number in [n for n in logs.unconfirmed if n <= committed]:
            self.world.acked.update(logs.unconfirmed.pop(number))
        logs.end = writer.end

    def _act(self, writer: ReplicaWriter, chance: float) -> bool:
        """One step. Returns whether the writer has ended."""
        world, rng, logs = self.world, self.rng, self.logs
        author = writer.writer.id + ("'" if self.is_clone else "")
        if chance < 0.3:
            for _ in range(rng.randrange(1, 4)):
                if rng.random() < 0.25:
                    logs.roll("jobs")
                world.items += 1
                number = logs.append("jobs", make_frame(author, [world.items]))
                logs.unconfirmed[number] = [world.items]
        elif chance < 0.38:
            if rng.random() < 0.4:
                logs.roll("leases")
            logs.append("leases", make_frame(author, [world.items]))
        elif chance < 0.7:
            writer.ship()
        elif chance < 0.85:
            while not self.has_tidier and writer.tidy() and rng.random() < 0.8:
                pass
        elif chance < 0.9:
            writer.renew()
        elif chance < 0.94:
            self._compact(writer, author)
        elif chance < 0.945:
            self.writer = None
            while self.is_tidying:
                world.scheduler.pause(0.1)
            writer.hand_over()
            return True
        elif chance < 0.95 and world.weather.clone and not world.has_clones:
            self._clone(writer)
        else:
            world.scheduler.pause(rng.choice((0.1, 1, 3)))
        return False

    def _compact(self, writer: ReplicaWriter, author: str) -> None:
        segments = self.logs.logs["jobs"]
        ids = [segment.id for segment in segments[1:]]
        if ids and self.rng.random() < 0.7:
            self.logs.compact(author, self.rng.choice(ids))
        kept = self.logs.kept.get("jobs", 0)
        self.logs.drop_before("jobs", min(kept, writer.may_drop_before("jobs")))

    def _clone(self, writer: ReplicaWriter) -> None:
        """A snapshot of the machine goes on beside it."""
        world = self.world
        world.has_clones = True
        twin = Server(world, self.name + "'")
        twin.is_clone = True
        twin.logs = self.logs.copy()
        other = copy.copy(writer)
        other._store = other._reader.store = twin.way
        other._source = twin.logs
        other._upkeep = copy.copy(writer._upkeep)
        other._upkeep._store, other._upkeep._source = twin.way, twin.logs
        other._upkeep.facts = {**writer._upkeep.facts}
        other._upkeep._starts = writer._upkeep._starts.copy()
        other._upkeep._garbage = writer._upkeep._garbage.copy()
        other._upkeep._uploads = [*writer._upkeep._uploads]
        other._upkeep._sweep = other._upkeep._keeping = None
        other._reader = ReplicaReader(twin.way, tries=1)

        def live() -> None:
            with suppress(Crash, WriterFenced, StoreUnavailable):
                twin._write(other)

        world.scheduler.add(twin.name, live)


class Collector:
    """Runs `logqueue replica gc` now and then."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.way = world.way("collector")

    def run(self) -> None:
        while not self.world.is_over:
            self.world.scheduler.pause(self.world.rng.choice((1, 5, 20)))
            with suppress(Crash, StoreUnavailable, ObjectChanged, ReplicaMissing):
                now, keep_ms = self.world.scheduler.now, max(self.world.weather.keep_ms)
                collect(self.way, now=int(now * 1000), keep_ms=keep_ms)


class Restorer:
    """Restores what is there, and looks whether it is the truth."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.way = world.way("reader")

    def run(self) -> None:
        world = self.world
        while not world.is_over:
            world.scheduler.pause(world.rng.choice((0.1, 3, 10)))
            began, acked = world.store.chain.number, {*world.acked}
            with suppress(Crash, StoreUnavailable, ReadVoid, ReplicaMissing):
                logs = restored_from(ReplicaReader(self.way, tries=1))
                world.check(logs, began, acked, is_end=False)
                world.restores += 1


def history(seed: int, weather: Weather | None = None) -> World:
    """Live through the history of a seed."""
    rng = Random(f"shape/{seed}")
    chosen = weather or WEATHERS[seed % len(WEATHERS)]
    return World(seed, chosen, rng.randrange(1, 4), rng.random() < 0.7).run()


def outline(world: World) -> bytes:
    """What two runs of a history must agree on."""
    return msgspec.json.encode(
        [
            world.store.digest(),
            world.calls,
            sorted(world.acked),
            world.scheduler.now,
            world.takeovers,
            world.restores,
            world.fenced,
        ]
    )

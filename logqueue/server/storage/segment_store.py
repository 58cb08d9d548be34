"""The one owner of segments: those of both logs and those in the archive, and what is in each.

Owns: which file holds a segment, whether it may be dropped, reading it piece by piece, going
on with one that has grown, and what was found out lately. `places`, `path_of` and `may_drop_before`
may be called from anywhere; all else works in steps that read files, in one thread. Must not know:
asyncio, HTTP, what the journal writes.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from logqueue.replica.writing import ReplicaWriter
from logqueue.segments.index import SUFFIX as INDEX_SUFFIX
from logqueue.segments.index import (
    VERSION,
    IndexBuilder,
    IndexDamaged,
    LogName,
    SegmentDamaged,
    SegmentIndex,
    decode_index,
)
from logqueue.segments.known import KnownTopics
from logqueue.segments.self_contained import is_self_contained
from logqueue.server.storage.archive import LogArchive
from wal import (
    FRAME_FIELDS,
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    HEADER_BYTES,
    File,
    FileSystem,
    Log,
    frame_bytes,
)

LOG_NAMES: tuple[LogName, ...] = ("jobs", "leases")
STEP_BYTES = 64 << 10
REMEMBERED_MAX = 2048

logger = logging.getLogger("logqueue.segments")


class SegmentPlace(NamedTuple):
    """Where one segment is.

    Attributes:
        bytes: In use; of a segment that grows, as far as frames were given out.
        last: Number of the last frame; 0 when only the archive has it.
        is_sealed: Whether its file never changes again.
        is_archived: Whether the archive has it.
        has_index: Whether there is an index file beside it.
    """

    log: LogName
    id: int
    path: str
    bytes: int
    last: int
    is_sealed: bool
    is_archived: bool = False
    has_index: bool = False

    @property
    def name(self) -> str:
        """What callers name it."""
        return f"{self.log}-{self.id}"


class HistoryFigures(NamedTuple):
    """What there is in the archive.

    Attributes:
        segments: How many.
        bytes: Of them.
        arrived: Segments that came into it since the start.
        failures: Tries that failed since then.
        is_failing: Whether the last one did.
    """

    segments: int = 0
    bytes: int = 0
    arrived: int = 0
    failures: int = 0
    is_failing: bool = False


@dataclass(frozen=True, slots=True)
class SegmentScan:
    """What a look at a segment has found.

    Attributes:
        index: Of the segment up to where it was asked for, or up to the damage.
        damage: What is wrong with the bytes behind; None when nothing is.
    """

    index: SegmentIndex
    damage: str | None = None


Scanning = Generator[None, None, SegmentScan]


class SegmentStore:
    """All segments of a server.

    Attributes:
        archive: Keeps the segments that the logs drop; None when the server has no archive.
        replica: Says which of them the replica has; None when the server has none.
        archives_in_replica: Whether the archive is the history of the replica, not a directory.
    """

    def __init__(
        self,
        fs: FileSystem,
        logs: Mapping[LogName, Log],
        archive: LogArchive | None = None,
        replica: ReplicaWriter | None = None,
        *,
        archives_in_replica: bool = False,
    ) -> None:
        self.archive = archive
        self.replica = replica
        self.archives_in_replica = archives_in_replica
        self._fs = fs
        self._logs = logs
        self._whole: OrderedDict[tuple[str, int], SegmentScan] = OrderedDict()
        self._growing: dict[tuple[str, int], IndexBuilder] = {}
        # What the jobs log tells of topics. The leases log names none.
        self._known = KnownTopics()
        # The same up to one segment, that one included.
        self._past: tuple[int, KnownTopics] = (0, KnownTopics())

    @property
    def log_id(self) -> str:
        """Identity of the jobs log, in hex."""
        return self._logs["jobs"].identity.hex()

    def places(self, log: LogName) -> list[SegmentPlace]:
        """The segments of a log as of now, oldest first; the last one is active."""
        archived = self.archive.segments(log) if self.archive is not None else {}
        infos = self._logs[log].segments()
        here = {
            info.id: SegmentPlace(
                log, info.id, info.path, info.bytes, info.last, successor.header_durable
            )
            for info, successor in pairwise(infos)
        }
        active = infos[-1]
        here[active.id] = SegmentPlace(
            log, active.id, active.path, active.bytes, active.last, False
        )
        for id, kept in archived.items():
            place = here.get(id) or SegmentPlace(log, id, kept.path, kept.bytes, 0, True)
            here[id] = place._replace(is_archived=True, has_index=kept.has_index)
        if self.archives_in_replica and self.replica is not None:
            before = self.replica.may_drop_before(log)
            for id in [id for id in here if id < before]:
                here[id] = here[id]._replace(is_archived=True)
        return [here[id] for id in sorted(here)]

    def path_of(self, place: SegmentPlace) -> str:
        """Where a segment is by now: what the log has dropped may be in the archive."""
        archive = self.archive
        kept = archive.segments(place.log).get(place.id) if archive is not None else None
        return kept.path if kept is not None else place.path

    def may_drop_before(self, log: LogName, id: int) -> bool:
        """Whether the archive and the replica, as far as there are any, have all segments of a log
        below this id durably."""
        in_archive = self.archive is None or self.archive.holds_before(log, id)
        return in_archive and (self.replica is None or id <= self.replica.may_drop_before(log))

    def history(self) -> HistoryFigures | None:
        """What there is in the archive; None when the server has none."""
        archive, replica = self.archive, self.replica
        if self.archives_in_replica and replica is not None:
            listed, size = replica.listed
            failures = replica.stats.failures
            # Whether the store is away is said of the replica.
            return HistoryFigures(listed, size, replica.upkeep_stats.segments, failures)
        if archive is None:
            return None
        return HistoryFigures(
            archive.count,
            archive.bytes_total,
            archive.archived,
            archive.failures,
            archive.is_failing,
        )

    def is_settled(self, log: LogName, id: int) -> bool:
        """Whether every later writer of this log has a sealed segment as it is here."""
        return self.replica is None or id < self.replica.committed_segment(log)

    def close(self) -> None:
        """Release the archive. No step may be under way."""
        if self.archive is not None:
            self.archive.close()

    def numbers_of(self, names: Collection[str]) -> list[int]:
        """The topic instances of some names, as far as the jobs log was looked at."""
        return [number for number, facts in self._known.topics.items() if facts.name in names]

    # -- scanning --------------------------------------------------------------------------------

    def scan(
        self, place: SegmentPlace, through: int = 0, known: KnownTopics | None = None
    ) -> Scanning:
        """Find out what is in a segment.

        Args:
            place: Where it is.
            through: Of a segment that grows, the last frame that may be shown: whatever the
                caller knows to be durable.
            known: What those before it tell, for callers who know; they are looked at if need be.

        Returns:
            What is in it; of a growing one, up to `through` at least.

        Raises:
            OSError: It cannot be read; it may have been dropped.
        """
        key = place.log, place.id
        found = self._whole.get(key)
        if found is not None:
            self._whole.move_to_end(key)
            return found
        if place.has_index:
            index = self._read_index(place)
            yield
            if index is not None:
                return self._remember(key, SegmentScan(index))
        file = self._fs.open(self.path_of(place))
        try:
            damage: str | None = None
            try:
                builder = self._growing.get(key)
                if builder is None:
                    fresh = yield from self._begin(place, file, known)
                    # Another caller may have started it meanwhile.
                    builder = self._growing.setdefault(key, fresh)
            except SegmentDamaged as error:
                return self._remember(key, SegmentScan(self._nothing(place), error.problem))
            try:
                yield from _read_on(builder, file, place, through)
            except SegmentDamaged as error:
                damage = error.problem
        finally:
            file.close()
        if place.log == "leases":
            builder.known.add(self._known.topics.values(), ())
        index = builder.index()
        if place.is_sealed:
            is_short = index.bytes < place.bytes
        else:
            is_short = index.last_frame < min(through, place.last)
        if damage is None and is_short:
            damage = builder.problem or "zeros where a frame is expected"
        found = SegmentScan(index, damage)
        if place.is_sealed or damage is not None:
            # What was taken for damage must not be fed to the builder twice.
            self._growing.pop(key, None)
            return self._remember(key, found)
        self._learn(found)
        return found

    def learn_topics(self) -> Generator[None, None, None]:
        """Find out what the jobs log tells of topics, as far as it is durable.

        Raises:
            OSError: A segment cannot be read.
        """
        jobs = self._logs["jobs"]
        for place in self.places("jobs"):
            # One that was dropped meanwhile has nothing that those behind it do not tell.
            with suppress(FileNotFoundError):
                yield from self.scan(place, jobs.durable)

    def forget_all_but(self, log: LogName, ids: Iterable[int]) -> None:
        """Forget what was found out about dropped segments."""
        there = set(ids)
        for memory in (self._whole, self._growing):
            for key in [key for key in memory if key[0] == log and key[1] not in there]:
                del memory[key]

    # -- internals -------------------------------------------------------------------------------

    def _begin(
        self, place: SegmentPlace, file: File, known: KnownTopics | None = None
    ) -> Generator[None, None, IndexBuilder]:
        if known is None and place.log == "jobs" and not is_self_contained(file):
            known = yield from self._known_before(place)
        return IndexBuilder(
            file.pread(HEADER_BYTES, 0),
            place.log,
            log_id=self.log_id,
            known=known,
            path=place.path,
        )

    def _known_before(self, place: SegmentPlace) -> Generator[None, None, KnownTopics]:
        """What the jobs log tells of topics and routers before a segment."""
        # A caller meanwhile starts at the first segment.
        (last, known), self._past = self._past, (0, KnownTopics())
        if last >= place.id:
            last, known = 0, KnownTopics()
        for earlier in self.places("jobs"):
            if last < earlier.id < place.id:
                with suppress(FileNotFoundError):
                    found = yield from self.scan(earlier, self._logs["jobs"].durable, known)
                    known.add(found.index.learned, found.index.routers)
                last = earlier.id
        self._past = last, known
        return known

    def _nothing(self, place: SegmentPlace) -> SegmentIndex:
        """The index of a segment of which not even the header can be read."""
        identity = self._logs[place.log].identity.hex()
        return SegmentIndex(
            VERSION, place.log, self.log_id, identity, place.id, 0, 0, 0, 0, 0, 0, 0, 0
        )

    def _remember(self, key: tuple[str, int], found: SegmentScan) -> SegmentScan:
        self._whole[key] = found
        if len(self._whole) > REMEMBERED_MAX:
            self._whole.popitem(last=False)
        self._learn(found)
        return found

    def _learn(self, found: SegmentScan) -> None:
        if found.index.log == "jobs":
            self._known.add(found.index.learned, found.index.routers)

    def _read_index(self, place: SegmentPlace) -> SegmentIndex | None:
        path = self.path_of(place) + INDEX_SUFFIX
        try:
            file = self._fs.open(path)
            try:
                index = decode_index(file.pread(file.size(), 0))
            finally:
                file.close()
            identity = self._logs[place.log].identity.hex()
            found = index.log, index.log_id, index.identity, index.segment, index.bytes
            if found == (place.log, self.log_id, identity, place.id, place.bytes):
                return index
            problem = (
                f"it is of {index.log}-{index.segment} with {index.bytes} bytes, the segment is "
                f"{place.name} with {place.bytes}"
            )
        except (OSError, IndexDamaged) as error:
            problem = str(error)
        logger.warning("rebuilding the index %s: %s", path, problem)
        if self.archive is not None:
            self.archive.distrust_index(place.log, place.id)
        return None


def _read_on(
    builder: IndexBuilder, file: File, place: SegmentPlace, through: int
) -> Generator[None, None, None]:
    """Feed a builder what it has not seen of a segment.

    Raises:
        SegmentDamaged: A frame says what it cannot. Others that are not frames just end it.
    """
    wanted = STEP_BYTES
    while True:
        asked = min(wanted, place.bytes - builder.bytes) if place.is_sealed else wanted
        data = file.pread(asked, builder.bytes) if asked > 0 else b""
        has_more = len(data) == wanted
        if not place.is_sealed:
            data = data[: _end_of(data, through)]
        if not data:
            return
        if builder.feed(data):
            wanted = STEP_BYTES
            yield
        elif has_more:
            # A frame that is larger than what was read.
            wanted *= 4
        else:
            return


def _end_of(data: bytes, through: int) -> int:
    """Where the first frame behind a number begins; the end of the data when there is none."""
    offset = 0
    while offset + FRAME_HEADER_BYTES <= len(data):
        magic, length, number, _ = FRAME_FIELDS.unpack_from(data, offset)
        if magic != FRAME_MAGIC or number > through:
            return offset
        offset += frame_bytes(length)
    return len(data)

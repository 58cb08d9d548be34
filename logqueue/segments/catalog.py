"""Which segments of both logs there are in some directories, and their bytes.

Owns: data directories, archives and copies of either, alone or together, and what they have beside
a replica; one read of a place that a server may be writing to. Takes no lock and changes nothing.
Must not know: what is read of them, stores.

A directory holds `jobs/` and `leases/` with segment files `00000000000000000007.wal`; beside a file
there may be its index, `00000000000000000007.wal.idx`. A data directory and its archive are of one
log and are read as one: where both have a segment, the sealed one counts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import msgspec

from logqueue.segments.index import (
    SUFFIX,
    IndexBuilder,
    IndexDamaged,
    LogName,
    SegmentDamaged,
    SegmentIndex,
    decode_index,
    encode_index,
)
from logqueue.segments.known import KnownTopics
from logqueue.segments.plan import topics_of
from wal import HEADER_BYTES, End, HeaderState, decode_header, frames_behind, salt_of

LOGS: tuple[LogName, ...] = ("jobs", "leases")

_NAME = re.compile(r"(\d{20})\.wal", re.ASCII)
_ENDING_BYTES = 4 << 10
_TRIES = 3
"""How often a directory is looked at again when a segment went away meanwhile."""


class CatalogError(ValueError):
    """Directories that hold no log, or not one log."""


class SegmentFile(msgspec.Struct):
    """A segment that is at hand.

    Attributes:
        log: Which log it is of.
        segment: Its id.
        path: Of the file.
        is_sealed: Whether nothing more will come; the last one of a data directory is not.
        index: What it holds.
    """

    log: LogName
    segment: int
    path: str
    is_sealed: bool
    index: SegmentIndex


class IndexCache:
    """Indexes of sealed segments in places that are not writable."""

    def __init__(self, directory: str | Path | None = None) -> None:
        """Keep them in a directory.

        Args:
            directory: Made when something is kept; None for `logqueue/segments` in the user's
                cache directory.
        """
        if directory is None:
            home = os.environ.get("XDG_CACHE_HOME") or os.path.join(
                os.path.expanduser("~"), ".cache"
            )
            directory = Path(home) / "logqueue" / "segments"
        self._directory = Path(directory)

    def find(
        self, log: LogName, identity: str, segment: int, size: int, ending: int
    ) -> SegmentIndex | None:
        """The index of a segment file of this size with this ending, if it was kept."""
        try:
            index = decode_index(self._path(log, identity, segment, size, ending).read_bytes())
        except (OSError, IndexDamaged):
            return None
        return index if (index.identity, index.segment) == (identity, segment) else None

    def keep(self, index: SegmentIndex, size: int, ending: int) -> None:
        """Store an index; where that fails it is rebuilt next time."""
        path = self._path(index.log, index.identity, index.segment, size, ending)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_suffix(f".{os.getpid()}")
            draft.write_bytes(encode_index(index))
            draft.replace(path)
        except OSError:
            return

    def _path(self, log: LogName, identity: str, segment: int, size: int, ending: int) -> Path:
        return self._directory / identity / f"{log}-{segment}-{size}-{ending:08x}{SUFFIX}"


class Catalog(NamedTuple):
    """The segments of both logs.

    Attributes:
        identity: Of the jobs log in hex; of the leases log when there is no jobs log.
        jobs, leases: Segments, ascending.
    """

    identity: str
    jobs: list[SegmentFile]
    leases: list[SegmentFile]

    @property
    def known(self) -> KnownTopics:
        """All topics and routers that the segments tell of."""
        return topics_of(self.jobs_indexes)

    @property
    def jobs_indexes(self) -> list[SegmentIndex]:
        """What `plan_records` asks for."""
        return [file.index for file in self.jobs]

    @property
    def leases_indexes(self) -> list[SegmentIndex]:
        """What `plan_events` asks for, besides those of the jobs log."""
        return [file.index for file in self.leases]

    def file(self, log: LogName, segment: int) -> SegmentFile:
        """A segment by its id.

        Raises:
            CatalogError: It is not at hand.
        """
        for file in self.jobs if log == "jobs" else self.leases:
            if file.segment == segment:
                return file
        raise CatalogError(f"segment {segment} of the {log} log is not at hand")

    def gaps(self, log: LogName) -> list[tuple[int, int]]:
        """Ids of segments that are missing between others, first and last of each gap."""
        ids = [file.segment for file in (self.jobs if log == "jobs" else self.leases)]
        return [(low + 1, high - 1) for low, high in pairwise(ids) if high > low + 1]


def merged(catalogs: Sequence[Catalog]) -> Catalog:
    """What several places have of one log. A segment that several have counts where it is sealed,
    and else where it has the most bytes.

    Args:
        catalogs: At least one.

    Raises:
        CatalogError: They are of different logs.
    """
    found: dict[LogName, dict[int, SegmentFile]] = {"jobs": {}, "leases": {}}
    firsts: dict[LogName, SegmentFile] = {}
    for catalog in catalogs:
        for file in (*catalog.jobs, *catalog.leases):
            first = firsts.setdefault(file.log, file)
            if first.index.identity != file.index.identity:
                raise _different(first.path, first.index.identity, file.path, file.index.identity)
            other = found[file.log].get(file.segment)
            if other is None or _rank(file) > _rank(other):
                found[file.log][file.segment] = file
    jobs, leases = (_in_order(found[log]) for log in LOGS)
    return Catalog(catalogs[0].identity, jobs, leases)


def _rank(file: SegmentFile) -> tuple[bool, int]:
    return file.is_sealed, file.index.bytes


def _in_order(files: Mapping[int, SegmentFile]) -> list[SegmentFile]:
    """Ascending; all but the newest are sealed."""
    newest = max(files, default=0)
    return [
        msgspec.structs.replace(file, is_sealed=file.is_sealed or id < newest)
        for id, file in sorted(files.items())
    ]


def _different(one: str, identity: str, other: str, other_identity: str) -> CatalogError:
    return CatalogError(
        f"{one} and {other} are of different logs ({identity} and {other_identity}); read one log "
        "at a time"
    )


def read_segment(path: str | Path, length: int | None = None) -> bytes:
    """The bytes of a segment file.

    Args:
        path: Of the file.
        length: As many at most; None for all.

    Raises:
        SegmentDamaged: There are fewer.
    """
    with open(path, "rb") as file:
        data = file.read() if length is None else file.read(length)
    if length is not None and len(data) < length:
        raise SegmentDamaged(str(path), len(data), f"the file ends before byte {length}")
    return data


def open_catalog(directories: Sequence[str | Path], *, cache: IndexCache | None = None) -> Catalog:
    """Look at some directories that hold one log together.

    Args:
        directories: Data directories, archives, copies of them; or directories of one log alone.
        cache: Where indexes are kept that had to be made; None for the user's cache directory.

    Raises:
        CatalogError: They hold no log, or different ones.
        SegmentDamaged: A segment is damaged elsewhere than at the end of the last one.
    """
    cache = cache or IndexCache()
    for left in reversed(range(_TRIES)):
        try:
            return _Opening(directories, cache).catalog()
        except FileNotFoundError:
            # The server has dropped a segment meanwhile; with an archive it is there by now.
            if not left:
                raise
    raise AssertionError("the last try has returned or raised")


class _Listing(NamedTuple):
    """A segment file as it was found. `is_last`: no later one in its directory has a header."""

    log: LogName
    segment: int
    path: Path
    identity: str
    is_last: bool


class _Opening:
    """One look at some directories."""

    def __init__(self, directories: Sequence[str | Path], cache: IndexCache) -> None:
        self._cache = cache
        self._found: dict[LogName, dict[int, list[_Listing]]] = {"jobs": {}, "leases": {}}
        identities: dict[LogName, _Listing] = {}
        for directory in directories:
            for found in _segments_in(Path(directory)):
                first = identities.setdefault(found.log, found)
                if first.identity != found.identity:
                    raise _different(
                        str(first.path), first.identity, str(found.path), found.identity
                    )
                self._found[found.log].setdefault(found.segment, []).append(found)
        if not identities:
            names = ", ".join(str(directory) for directory in directories) or "no directory"
            raise CatalogError(
                f"{names}: there is no log; give a data directory or an archive, which holds "
                "`jobs/` with files like 00000000000000000001.wal"
            )
        self._identity = identities.get("jobs", identities.get("leases", first)).identity

    def catalog(self) -> Catalog:
        """All that was found."""
        known = KnownTopics()
        jobs = self._files("jobs", known)
        return Catalog(self._identity, jobs, self._files("leases", known))

    def _files(self, log: LogName, known: KnownTopics) -> list[SegmentFile]:
        files = []
        for segment in sorted(self._found[log]):
            copies = self._found[log][segment]
            is_sealed = self._is_sealed(log, segment)
            file = None
            for copy in sorted(copies, key=lambda found: found.is_last):
                index = self._index(copy, is_sealed, known)
                if file is None or index.bytes > file.index.bytes:
                    file = SegmentFile(log, segment, str(copy.path), is_sealed, index)
                if file.index.bytes and not copy.is_last:
                    break
            assert file is not None
            files.append(file)
            if log == "jobs":
                known.add(file.index.learned, file.index.routers)
        return files

    def _is_sealed(self, log: LogName, segment: int) -> bool:
        """Whether a later segment was started, or an archive has it."""
        if any(not found.is_last for found in self._found[log][segment]):
            return True
        if max(self._found[log]) > segment:
            return True
        return any(index_path(f.path).exists() for f in self._found[log][segment])

    def _index(self, found: _Listing, is_sealed: bool, known: KnownTopics) -> SegmentIndex:
        size = found.path.stat().st_size
        for index in self._ready(found, is_sealed, size):
            if (index.log, index.identity) == (found.log, found.identity) and (
                index.segment == found.segment and index.bytes <= size
            ):
                return index
        index = scan(
            found.path, found.log, log_id=self._identity, known=known, may_be_torn=not is_sealed
        )
        if is_sealed:
            self._cache.keep(index, size, _ending(found.path, size))
        return index

    def _ready(self, found: _Listing, is_sealed: bool, size: int) -> Iterator[SegmentIndex]:
        with suppress(OSError, IndexDamaged):
            yield decode_index(index_path(found.path).read_bytes())
        if is_sealed:
            ending = _ending(found.path, size)
            kept = self._cache.find(found.log, found.identity, found.segment, size, ending)
            if kept is not None:
                yield kept


def _ending(path: Path, size: int) -> int:
    """Tells a file from one of its size that was written after a backup was restored."""
    with open(path, "rb") as file:
        file.seek(max(size - _ENDING_BYTES, 0))
        return crc32(file.read(_ENDING_BYTES))


def index_path(path: str | Path) -> Path:
    """The path of the index beside a segment file."""
    return Path(f"{path}{SUFFIX}")


def _segments_in(directory: Path) -> Iterator[_Listing]:
    """The segment files of both logs in a directory, ascending."""
    places: list[tuple[LogName, Path]] = [(log, directory / log) for log in LOGS]
    if not any(place.is_dir() for _, place in places):
        if not directory.is_dir():
            raise CatalogError(f"{directory} is not a directory")
        places = [("leases" if directory.name == "leases" else "jobs", directory)]
    for log, place in places:
        yield from _segments_of(log, place)


def _segments_of(log: LogName, place: Path) -> Iterator[_Listing]:
    if not place.is_dir():
        return
    names = sorted(name for name in os.listdir(place) if _NAME.fullmatch(name))
    started: list[tuple[Path, int, str]] = []
    for name in names:
        path = place / name
        with open(path, "rb") as file:
            state, header = decode_header(file.read(HEADER_BYTES))
        if header is None and name == names[-1] and state is not HeaderState.FOREIGN:
            # Created, and nothing written yet.
            continue
        if header is None:
            raise SegmentDamaged(str(path), 0, f"its segment header is {state.value}")
        if header.id != int(name[:20]):
            raise SegmentDamaged(str(path), 16, f"it says that it is segment {header.id}")
        started.append((path, header.id, header.identity.hex()))
    for path, segment, identity in started:
        is_last = segment == started[-1][1] and not index_path(path).exists()
        yield _Listing(log, segment, path, identity, is_last)


def scan(
    path: str | Path,
    log: LogName,
    *,
    log_id: str | None = None,
    known: KnownTopics | None = None,
    may_be_torn: bool = False,
) -> SegmentIndex:
    """Make the index of a segment file.

    Args:
        path: Of the file.
        log: Which log it is of.
        log_id: Identity of the jobs log in hex; may be left out for a jobs log.
        known: What earlier segments say of topics and routers.
        may_be_torn: Whether it may end in bytes that are not a whole frame, since nothing says that
            they were ever promised.

    Raises:
        SegmentDamaged: It is damaged.
    """
    data = read_segment(path)
    builder = IndexBuilder(data[:HEADER_BYTES], log, log_id=log_id, known=known, path=str(path))
    builder.feed(data[HEADER_BYTES:])
    if builder.end is End.BAD:
        header = builder.header
        salt = salt_of(header.identity, header.id)
        number = builder.index().last_frame + 1
        behind, watermark = frames_behind(data, builder.bytes, salt, number)
        if not may_be_torn or (behind and watermark >= number):
            raise SegmentDamaged(str(path), builder.bytes, f"frame {number}: {builder.problem}")
    return builder.index()

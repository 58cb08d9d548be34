"""What to do with a directory of segments: keep, discard, cut or refuse.

Owns the facts gathered about each segment, the decision table over them, and the repair. Must not
know threads, appends or the Log.

The table rests on the order of writes (docs/wal-format.md): the header of a segment is synced after
everything in the segment before it, and before any frame in it. So unsynced bytes exist only at the
end of the last segment that has a header, and a segment without one never held a frame.
The note HEAD (head.py) adds how far the log is known to have come.
Whatever does not fit that picture is damage to something once promised, and is refused with
nothing changed. A test walks every combination of facts and finds exactly one row for each.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple
from zlib import crc32

from wal.errors import WalCorrupt
from wal.files import File, FileSystem
from wal.format import (
    HEADER_BYTES,
    End,
    Frame,
    HeaderState,
    SegmentHeader,
    ShortSegment,
    Walk,
    decode_header,
    frames_behind,
    is_zero,
    salt_of,
)
from wal.head import Head, read_head
from wal.segment import read_whole, segment_ids, segment_path

ADVICE: Final = (
    "nothing was changed. Restore the directory from a copy, or open it once with the option "
    "that sets damage aside to go on with all frames that are whole"
)


class Position(Enum):
    """The position of a segment. One with a header counts as started, any other does not."""

    ONLY = "only"
    FIRST = "first, a started one follows"
    MIDDLE = "middle, a started one follows"
    LAST = "last"
    BEFORE_UNBEGUN = "followed only by segments not started"


class RecoveryOutcome(Enum):
    """What is done with a segment."""

    KEEP = "keep"
    DISCARD = "discard"
    CUT = "cut"
    REFUSE = "refuse"


class Facts(NamedTuple):
    """All that the decision may depend on.

    Attributes:
        position: its position among the others.
        anchored: the number its first frame would have is known without its header, since it is
            not the oldest or its id is 1.
        header: what its first page holds.
        body: there is no header, yet there are bytes other than zero behind its page.
        joined: id and first number follow on from the segment before. Of the oldest: no segment
            before it is needed.
        end: how the walk over its frames ended; CLEAN when there is no header to walk with.
        behind: whole frames follow a BAD end.
        proven: of a segment at the end: one of them, or the note of the log, says that there must
            be more than the good frames; without a header, that it had been started.
        same_boot: nothing unsynced was lost since the log was last opened.
    """

    position: Position
    anchored: bool
    header: HeaderState
    body: bool
    joined: bool
    end: End
    behind: bool
    proven: bool
    same_boot: bool


class RecoveryCase(NamedTuple):
    """One case: the facts it asks for (None: any), the outcome, the reason as text."""

    label: str
    wants: dict[str, frozenset[object]]
    outcome: RecoveryOutcome
    reason: str


def _row(label: str, outcome: RecoveryOutcome, reason: str, **wants: object) -> RecoveryCase:
    sets = {
        name: frozenset(want) if isinstance(want, tuple) else frozenset({want})
        for name, want in wants.items()
    }
    assert set(sets) <= set(Facts._fields)
    return RecoveryCase(label, sets, outcome, reason)


_TAIL: Final = (Position.ONLY, Position.LAST, Position.BEFORE_UNBEGUN)
_INNER: Final = (Position.FIRST, Position.MIDDLE)
_NO_HEADER: Final = (HeaderState.ABSENT, HeaderState.TORN)
_WHOLE: Final = (End.CLEAN, End.ZEROS)
_OK: Final = HeaderState.OK

TABLE: Final[tuple[RecoveryCase, ...]] = (
    _row("H1 foreign", RecoveryOutcome.REFUSE,
         "the segment is of another log, another place or another version of the format",
         header=HeaderState.FOREIGN),
    _row("H2 headless body", RecoveryOutcome.REFUSE,
         "there is data but no segment header, and a header is synced before any data",
         header=_NO_HEADER, body=True),
    _row("H3 headless inner", RecoveryOutcome.REFUSE,
         "there is no segment header, though a later segment was started",
         header=_NO_HEADER, body=False, position=_INNER),
    _row("H4 headless oldest", RecoveryOutcome.REFUSE,
         "there is no segment header, so the next frame number is unknown",
         header=_NO_HEADER, body=False, position=_TAIL, anchored=False),
    _row("H5 unbegun", RecoveryOutcome.DISCARD,
         "a crash came between the creation of the segment and its header",
         header=_NO_HEADER, body=False, position=_TAIL, anchored=True, proven=False),
    _row("H6 headless begun", RecoveryOutcome.REFUSE,
         "the log had started this segment, but its header is missing",
         header=_NO_HEADER, body=False, position=_TAIL, anchored=True, proven=True),
    _row("J1 gap", RecoveryOutcome.REFUSE,
         "the segment does not follow on from the one before: frames or a file are missing",
         header=_OK, joined=False),
    _row("K1 whole inner", RecoveryOutcome.KEEP, "every frame is whole",
         header=_OK, joined=True, end=_WHOLE, position=_INNER),
    _row("K2 whole", RecoveryOutcome.KEEP, "every frame is whole",
         header=_OK, joined=True, end=_WHOLE, position=_TAIL, proven=False),
    _row("S1 short", RecoveryOutcome.REFUSE,
         "the log ends too early: frames behind this place had been promised",
         header=_OK, joined=True, end=_WHOLE, position=_TAIL, proven=True),
    _row("N1 misnumbered", RecoveryOutcome.REFUSE, "frame numbers do not follow",
         header=_OK, joined=True, end=End.MISNUMBERED),
    _row("D1 damaged inner", RecoveryOutcome.REFUSE,
         "the segment was synced to its end, since a later segment was started",
         header=_OK, joined=True, end=End.BAD, position=_INNER),
    _row("D2 damaged synced", RecoveryOutcome.REFUSE,
         "a later frame, or the note of the log, shows that this one had been promised",
         header=_OK, joined=True, end=End.BAD, position=_TAIL, proven=True),
    _row("D3 damaged written", RecoveryOutcome.REFUSE,
         "whole frames follow, and the machine ran on since they were written",
         header=_OK, joined=True, end=End.BAD, position=_TAIL, behind=True, proven=False,
         same_boot=True),
    _row("T1 torn out of order", RecoveryOutcome.CUT, "unsynced frames reached the disk in part",
         header=_OK, joined=True, end=End.BAD, position=_TAIL, behind=True, proven=False,
         same_boot=False),
    _row("T2 torn", RecoveryOutcome.CUT, "the last write did not reach the disk whole",
         header=_OK, joined=True, end=End.BAD, position=_TAIL, behind=False, proven=False),
)  # fmt: skip


def decide(facts: Facts) -> RecoveryCase:
    """The one row that answers these facts."""
    rows = [row for row in TABLE if matches(row, facts)]
    assert len(rows) == 1, f"{len(rows)} rows for {facts}"
    return rows[0]


def matches(row: RecoveryCase, facts: Facts) -> bool:
    """Whether every fact the row asks for is as it asks."""
    return all(getattr(facts, name) in wanted for name, wanted in row.wants.items())


@dataclass(slots=True)
class SegmentFinding:
    """One segment, examined.

    Attributes:
        offset: end of its good frames, in bytes.
        last: number of its last good frame, or of the frame before it.
        size: of the file, preallocation included.
        detail: what was wrong at `offset`.
        lost: there is no such file.
        synced: highest number that its good frames know to have been synced.
    """

    id: int
    path: str
    size: int
    header: SegmentHeader | None
    facts: Facts
    row: RecoveryCase
    offset: int
    last: int
    detail: str
    lost: bool
    synced: int

    @property
    def outcome(self) -> RecoveryOutcome:
        """What is done with it."""
        return self.row.outcome

    def error(self) -> WalCorrupt:
        """The refusal, worded for the operator."""
        assert self.outcome is RecoveryOutcome.REFUSE
        if self.lost:
            return WalCorrupt(self.path, None, f"the file is missing: {self.row.reason}; {ADVICE}")
        detail = f" ({self.detail})" if self.detail else ""
        return WalCorrupt(self.path, self.offset, f"{self.row.reason}{detail}; {ADVICE}")


def ran_on(note: str, boot: str) -> bool:
    """Whether the machine ran on since the lock's note, "pid boot", was left."""
    return bool(boot) and note.rpartition(" ")[2] == boot


class _Page(NamedTuple):
    """The first look at a segment: enough to know which ones were started.

    Attributes:
        lost: there is no file, though there must be one.
    """

    id: int
    state: HeaderState
    header: SegmentHeader | None
    lost: bool = False


def _first_pass(fs: FileSystem, directory: str, head: Head | None) -> list[_Page]:
    pages: list[_Page] = []
    identity = head.identity if head else None
    there = set(segment_ids(fs, directory))
    needed = set(range(head.oldest, head.newest + 1)) if head else set[int]()
    for id in sorted(there | needed):
        if id not in there:
            pages.append(_Page(id, HeaderState.ABSENT, None, lost=True))
            continue
        file = fs.open(segment_path(directory, id))
        try:
            state, header = decode_header(file.pread(HEADER_BYTES, 0))
        finally:
            file.close()
        if header is not None:
            identity = identity or header.identity
            if header.id != id or header.identity != identity:
                state, header = HeaderState.FOREIGN, None
        pages.append(_Page(id, state, header))
    return pages


def _position(index: int, pages: list[_Page]) -> Position:
    unbegun = (HeaderState.ABSENT, HeaderState.TORN)
    if len(pages) == 1:
        return Position.ONLY
    if index == len(pages) - 1:
        return Position.LAST
    if all(page.state in unbegun for page in pages[index + 1 :]):
        return Position.BEFORE_UNBEGUN
    return Position.FIRST if index == 0 else Position.MIDDLE


def survey(
    fs: FileSystem, directory: str, *, same_boot: bool, frame_bytes_max: int
) -> Iterator[SegmentFinding]:
    """Examine every segment, oldest first, and those that are missing. Reads only; continues behind
    damage.

    Args:
        fs: the file system.
        directory: of the log.
        same_boot: whether the machine ran on since the log was last opened.
        frame_bytes_max: bound on payloads, in bytes.

    Raises:
        WalCorrupt: the note of the log cannot be read.
    """
    head = read_head(fs, directory)
    yield from LogSurvey(
        fs, directory, head, same_boot=same_boot, frame_bytes_max=frame_bytes_max
    ).run()


ReadShort = Callable[[SegmentHeader, str, int], ShortSegment | None]
"""Finds the short form of a sealed segment by its header, its path and the size of its file. None
when there is none, or when it is not certainly that of this very file."""


class LogSurvey:
    """Examines the segments of a log, oldest first, each read once. Reads only.

    Attributes:
        findings: of the segments examined by now.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        head: Head | None,
        *,
        same_boot: bool,
        frame_bytes_max: int,
        read_short: ReadShort | None = None,
    ) -> None:
        """Looks at the first page of each segment. Arguments as of `survey`; `head` is its note."""
        self.findings: list[SegmentFinding] = []
        self._fs = fs
        self._directory = directory
        self._same_boot = same_boot
        self._frame_bytes_max = frame_bytes_max
        self._read_short = read_short
        self._pages = _first_pass(fs, directory, head)
        self._promised = head.promised(same_boot=same_boot) if head else 0
        self._newest = head.newest if head else 0

    @property
    def identity(self) -> bytes | None:
        """Of the log, as its first header says; None when no segment has one."""
        return next((page.header.identity for page in self._pages if page.header), None)

    def run(self) -> Iterator[SegmentFinding]:
        """Examine every segment; continues behind damage."""
        self.findings.clear()
        for index, page in enumerate(self._pages):
            data = self._read(page)
            walk = self._walk(page, data)
            walked = walk.run() if walk is not None else None
            yield self._judge(index, data, walked, len(data))

    def frames(self, progress: Callable[[int, int], None] | None = None) -> Iterator[Frame]:
        """The frames of every segment while it is examined. Stops at the first damage.

        A sealed segment of which there is a short form is not read, and counts as sound.

        Args:
            progress: called after each segment with bytes done and bytes in all.

        Raises:
            WalCorrupt: a file is missing, or else damaged.
        """
        self.findings.clear()
        if any(page.lost for page in self._pages):
            # A missing file is reported before any damage.
            require_sound([*self.run()])
        sizes = [0 if page.lost else self._size(page) for page in self._pages]
        done = 0
        for index, page in enumerate(self._pages):
            short = self._short(index, sizes[index])
            if short is not None:
                yield from short
                require_sound([self._judge(index, b"", short, sizes[index])])
            else:
                data = self._read(page)
                walk = self._walk(page, data)
                if walk is not None and self._is_joined(page):
                    yield from walk
                elif walk is not None:
                    walk.run()
                require_sound([self._judge(index, data, walk, len(data))])
            done += sizes[index]
            if progress is not None:
                progress(done, max(sum(sizes), 1))

    def _short(self, index: int, size: int) -> ShortSegment | None:
        page = self._pages[index]
        if self._read_short is None or page.header is None or not self._is_joined(page):
            return None
        if _position(index, self._pages) not in _INNER:
            return None
        return self._read_short(page.header, self._path(page), size)

    def _path(self, page: _Page) -> str:
        return segment_path(self._directory, page.id)

    def _read(self, page: _Page) -> bytes:
        return b"" if page.lost else read_whole(self._fs, self._path(page))

    def _size(self, page: _Page) -> int:
        file = self._fs.open(self._path(page))
        try:
            return file.size()
        finally:
            file.close()

    def _walk(self, page: _Page, data: bytes) -> Walk | None:
        if page.header is None:
            return None
        salt = salt_of(page.header.identity, page.id)
        return Walk(data, salt, page.header.first, page.id, self._frame_bytes_max)

    def _is_joined(self, page: _Page) -> bool:
        before = self.findings[-1] if self.findings else None
        if before is None:
            return True
        if before.id + 1 != page.id:
            return False
        return page.header is None or before.last + 1 == page.header.first

    def _judge(
        self, index: int, data: bytes, walk: Walk | ShortSegment | None, size: int
    ) -> SegmentFinding:
        """The finding about a segment, whose frames were all walked over."""
        page = self._pages[index]
        before = self.findings[-1] if self.findings else None
        joined = self._is_joined(page)
        end, offset, detail = End.CLEAN, 0, ""
        behind, watermark = False, 0
        synced = 0
        last = before.last if before else 0
        position = _position(index, self._pages)
        proven = page.header is None and page.id <= self._newest
        if page.header is not None:
            assert walk is not None
            end, offset, last = walk.end, walk.offset, walk.number - 1
            synced = walk.watermark
            if not joined:
                assert before is not None
                offset = 0
                detail = f"it begins with frame {page.header.first} after {before.last}"
            elif end in (End.BAD, End.MISNUMBERED):
                detail = f"frame {last + 1}: {walk.problem}"
                salt = salt_of(page.header.identity, page.id)
                behind, watermark = frames_behind(data, offset, salt, last + 1)
            proven = watermark > last
            if position in _TAIL and self._promised > last:
                proven = True
                detail = detail or _shortfall(last, self._promised, self._pages[index + 1 :])
        facts = Facts(
            position=position,
            anchored=before is not None or page.id == 1,
            header=page.state,
            body=page.header is None and not is_zero(data[HEADER_BYTES:]),
            joined=joined,
            end=end,
            behind=behind,
            proven=proven,
            same_boot=self._same_boot,
        )
        finding = SegmentFinding(
            page.id,
            self._path(page),
            size,
            page.header,
            facts,
            decide(facts),
            offset,
            last,
            detail,
            page.lost,
            synced,
        )
        self.findings.append(finding)
        return finding


def _shortfall(last: int, promised: int, behind: list[_Page]) -> str:
    lost = ", ".join(str(page.id) for page in behind if page.lost)
    missing = f", and the files of segments {lost} are missing" if lost else ""
    return f"the last whole frame is {last}, {promised} was promised{missing}"


def require_sound(findings: list[SegmentFinding]) -> None:
    """Raises WalCorrupt for the first file that is missing, or else damaged."""
    refused = [finding for finding in findings if finding.outcome is RecoveryOutcome.REFUSE]
    for finding in sorted(refused, key=lambda finding: not finding.lost):
        raise finding.error()


def repair(fs: FileSystem, directory: str, findings: list[SegmentFinding]) -> None:
    """Discard and cut what a crash left. Each step leaves a state that the next open repairs to the
    same result."""
    # Newest first, so that the ids on disk follow on at every moment.
    for finding in reversed(findings):
        if finding.outcome is RecoveryOutcome.DISCARD:
            fs.remove(finding.path)
            fs.sync_dir(directory)
    for finding in findings:
        if finding.outcome is RecoveryOutcome.CUT:
            _cut(fs, directory, finding)


def _cut(fs: FileSystem, directory: str, finding: SegmentFinding) -> None:
    """Copy the bytes from `offset` on to a side file, durably, then cut them off."""
    file = fs.open(finding.path, writable=True)
    try:
        tail = file.pread(finding.size - finding.offset, finding.offset).rstrip(b"\0")
        # Named by content: an interrupted cut, done again, fills the same file, and a later
        # torn tail at the same place does not overwrite this one.
        aside = f"{finding.path}.torn-{finding.offset}-{crc32(tail):08x}"
        assert os.path.dirname(aside) == os.path.dirname(finding.path)
        if tail:
            write_new(fs.create(aside), tail)
            fs.sync_dir(directory)
        file.truncate(finding.offset)
        file.sync()
    finally:
        file.close()


def write_new(file: File, data: bytes) -> None:
    """Fill a file that was just created, durably, and close it."""
    try:
        file.pwrite(data, 0)
        file.sync()
    finally:
        file.close()

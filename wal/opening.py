"""Opening a log in two steps: examine all of it, then change what must be changed.

Owns the order of the changes, and how the log's state is known before the first of them. Must not
know appends, or what damage means (recovery.py). A caller that has more to find out, or more logs
to look at, does so between the two steps; a refusal changes nothing.
"""

import os
from collections.abc import Callable, Iterator
from typing import Final

from wal.errors import WalCorrupt
from wal.files import DirectoryLock, File, FileSystem
from wal.format import (
    FRAME_FIELDS,
    HEADER_BYTES,
    IDENTITY_BYTES,
    Frame,
    SegmentHeader,
    frame_bytes,
)
from wal.head import Head, HeadFile, head_path, read_head
from wal.recovery import (
    ADVICE,
    LogSurvey,
    ReadShort,
    RecoveryOutcome,
    SegmentFinding,
    ran_on,
    repair,
    require_sound,
)
from wal.salvage import Loss, Mend, Plan, plan
from wal.segment import LogSegment, read_whole, segment_path

_REWRITE_BYTES: Final = 1 << 20


class Opening:
    """What an open has found, and what it is about to change.

    A log is examined while its frames are read for the first time, so that each segment is read
    once; or at once, when its owner does not ask for frames or sets damage aside.

    Attributes:
        segments: what the log continues with, once it is examined; the last one takes no frames
            before `carry_out`.
        losses: what is abandoned, as the operator asked.
        head: the note of the log as it was found; None when there is none.
        identity: of the log.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        lock: DirectoryLock,
        *,
        frame_bytes_max: int,
        set_damage_aside: bool,
        lost_payload: bytes,
        random_bytes: Callable[[int], bytes],
        read_short: ReadShort | None,
    ) -> None:
        """Look at the first page of each segment. Reads only.

        Raises:
            WalCorrupt: the note of the log cannot be read.
        """
        self._fs = fs
        self._directory = directory
        self._lock = lock
        self._lost_payload = lost_payload
        self._random_bytes = random_bytes
        self._boot = fs.boot_id()
        self._last_boot = lock.note().rpartition(" ")[2]
        self._same_boot = ran_on(lock.note(), self._boot)
        self._frame_bytes_max = frame_bytes_max
        self._sets_damage_aside = set_damage_aside
        self._plan: Plan | None = None
        self._mends: dict[int, Mend] = {}
        self._is_new = False
        self.segments: list[LogSegment] = []
        self.head, self.losses = _head(fs, directory, set_damage_aside)
        self._survey = LogSurvey(
            fs,
            directory,
            self.head,
            same_boot=self._same_boot,
            frame_bytes_max=frame_bytes_max,
            read_short=read_short,
        )
        self.identity = self._survey.identity or b""
        if set_damage_aside or not self.identity:
            self.examine()
            self.identity = self.segments[-1].header.identity
        assert len(self.identity) == IDENTITY_BYTES

    @property
    def is_examined(self) -> bool:
        """Whether all is known that a repair must know."""
        return bool(self.segments)

    def examine(self) -> None:
        """Examine the log without its frames. Reads only.

        Raises:
            WalCorrupt: it must not be repaired.
        """
        findings = [*self._survey.run()]
        damaged = any(finding.outcome is RecoveryOutcome.REFUSE for finding in findings)
        if damaged and self._sets_damage_aside:
            self._set_aside(findings)
        else:
            require_sound(findings)
        self._settle()

    def frames(self, progress: Callable[[int, int], None] | None = None) -> Iterator[Frame]:
        """Examine the log while its frames are read; they count only when all were read.

        Args:
            progress: called after each segment with bytes done and bytes in all.

        Raises:
            WalCorrupt: it must not be repaired.
        """
        yield from self._survey.frames(progress)
        self._settle()

    def _set_aside(self, findings: list[SegmentFinding]) -> None:
        """Plan how the log continues without the damaged parts."""
        head = self.head
        self._plan = plan(
            self._fs,
            self._directory,
            findings,
            head,
            lost_payload_bytes=len(self._lost_payload),
            frame_bytes_max=self._frame_bytes_max,
            promised=head.promised(same_boot=self._same_boot) if head else 0,
        )
        self._mends = {mend.header.id: mend for mend in self._plan.mends}
        self.losses = [*self.losses, *self._plan.losses]

    def _settle(self) -> None:
        """All segments are examined: determine which ones the log keeps."""
        if self._plan is not None:
            self.segments = [
                LogSegment.recovered(mend.header, mend.path, None, mend.last, mend.end)
                for mend in self._plan.mends
            ]
        else:
            findings = self._survey.findings
            self.segments = [_recovered(finding) for finding in findings if _stays(finding)]
        self._is_new = not self.segments
        if self._is_new:
            header = SegmentHeader(1, 1, self._random_bytes(IDENTITY_BYTES))
            self.segments = [LogSegment(header, segment_path(self._directory, 1), None)]

    def read_whole(self, segment: LogSegment) -> bytes:
        """The bytes of a segment as it will be."""
        mend = self._mends.get(segment.id)
        if mend is not None and mend.changes:
            return mend.data(self._fs, self._lost_payload)
        return b"" if self._is_new else read_whole(self._fs, segment.path)

    def carry_out(self) -> HeadFile:
        """Bring the directory into order; the last segment is open for appends then.

        Raises:
            OSError: as the file system does. The next open finds the same as this one, or better.
        """
        fs, directory = self._fs, self._directory
        # From now on the note names this process, but it tells of this boot only when recovery is
        # done: an interrupted recovery must judge by the same facts when it is repeated.
        self._lock.set_note(f"{os.getpid()} {self._last_boot}")
        if self._plan is not None:
            self._plan.carry_out(fs, directory, self._lost_payload)
        mended = {mend.path for mend in self._mends.values() if mend.changes}
        repair(fs, directory, [one for one in self._survey.findings if one.path not in mended])
        active = self.segments[-1]
        if self._is_new:
            _begin(fs, active)
        else:
            file = fs.open(active.path, writable=True)
            active.take(file)
            # A killed process leaves frames and names that were never synced. They count as
            # durable only after this.
            _rewrite(file, active, self._synced())
            active.sync()
            fs.sync_dir(directory)
        head = HeadFile.take(fs, directory, self._next_head())
        self._lock.set_note(f"{os.getpid()} {self._boot}")
        return head

    def _next_head(self) -> Head:
        old, active = self.head, self.segments[-1]
        oldest = self.segments[0].id
        if old is not None and old.identity == active.header.identity:
            oldest = max(oldest, old.oldest)
        starts = old.starts + 1 if old else 1
        last = active.last
        return Head(active.header.identity, starts, oldest, active.id, last, last)

    def _synced(self) -> int:
        """The highest frame number of which an earlier life knew that it was synced."""
        known = self.head.durable if self.head else 0
        return max([known, *(finding.synced for finding in self._survey.findings)])


def _head(fs: FileSystem, directory: str, set_damage_aside: bool) -> tuple[Head | None, list[Loss]]:
    try:
        return read_head(fs, directory), []
    except WalCorrupt as error:
        if not set_damage_aside:
            raise WalCorrupt(error.file, error.offset, f"{error.reason}; {ADVICE}") from error
        path = head_path(directory)
        return None, [Loss(path, "", 0, 0, 1, 0, error.reason)]


def _stays(finding: SegmentFinding) -> bool:
    return finding.outcome in (RecoveryOutcome.KEEP, RecoveryOutcome.CUT)


def _recovered(finding: SegmentFinding) -> LogSegment:
    assert finding.header is not None
    return LogSegment.recovered(finding.header, finding.path, None, finding.last, finding.offset)


def _begin(fs: FileSystem, segment: LogSegment) -> None:
    segment.take(fs.create(segment.path))
    try:
        segment.begin()
    except BaseException:
        segment.close()
        # The rest is a segment without a header, as after a crash.
        raise
    segment.allocated = HEADER_BYTES


def _rewrite(file: File, segment: LogSegment, synced: int) -> None:
    """Write again what was perhaps never synced, so that the sync that follows takes it along.

    A sync that failed leaves pages that read well and count as clean, though the disk does not
    have them. No later sync writes them unless they are written to.
    """
    if synced >= max(segment.last, segment.first):
        return
    offset = 0
    if synced >= segment.first:
        # The header is synced before any frame.
        data = file.pread(segment.end, 0)
        offset = HEADER_BYTES
        for _ in range(segment.first, synced + 1):
            offset += frame_bytes(FRAME_FIELDS.unpack_from(data, offset)[1])
    while offset < segment.end:
        part = file.pread(min(_REWRITE_BYTES, segment.end - offset), offset)
        file.pwrite(part, offset)
        offset += len(part)

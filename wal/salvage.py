"""What is still whole in a damaged log, and how it continues with that: the last resort.

Owns the search for whole frames behind damage, the plan that keeps them, and carrying it out. Must
not know when a log counts as damaged (recovery.py decides that), threads, or what payloads say.

Frames are known by number, salt and checksum, so they need no header before them. Where some are
lost between two that are whole, frames with the owner's `lost_payload` take their numbers: ids and
numbers follow on as in any other log, and only readers of the payloads see the gap.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple
from zlib import crc32

from wal.files import CANNOT_LINK, FileSystem
from wal.format import (
    FRAME_ALIGN,
    FRAME_CHECKED_BYTES,
    FRAME_CHECKS,
    FRAME_FIELDS,
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    FRAME_MAGIC_BYTES,
    HEADER_BYTES,
    IDENTITY_BYTES,
    SegmentHeader,
    encode_frame,
    encode_header,
    frame_bytes,
    is_zero,
    salt_of,
)
from wal.head import Head
from wal.recovery import RecoveryOutcome, SegmentFinding, write_new
from wal.segment import read_whole, segment_path

_IDENTITY_AT: Final = 32
_DRAFT: Final = ".mended"


@dataclass(slots=True, frozen=True)
class Loss:
    """Frames that were lost when damage was set aside.

    Attributes:
        path: the segment file that held them.
        aside: where its bytes are now, as they were found; "" when there was no file.
        offset: where in that file the damage begins, in bytes.
        bytes: how many bytes were lost there.
        first_lost, last_lost: numbers of the frames; the last is below the first when none was
            lost, and 0 when their number is unknown.
        reason: what was wrong.
    """

    path: str
    aside: str
    offset: int
    bytes: int
    first_lost: int
    last_lost: int
    reason: str

    @property
    def frames(self) -> int:
        """How many were lost, as far as that is known."""
        return max(self.last_lost - self.first_lost + 1, 0)

    def __str__(self) -> str:
        if self.frames:
            what = f"frames {self.first_lost} to {self.last_lost} ({self.frames} in all)"
        elif self.last_lost:
            what = "no frame"
        else:
            what = "an unknown number of frames"
        kept = f"; its bytes are kept in {self.aside}" if self.aside else ""
        return f"{self.path}: lost {what} at byte {self.offset}: {self.reason}{kept}"


class Run(NamedTuple):
    """Whole frames, one behind the other: where they are in the file, and their numbers."""

    offset: int
    stop: int
    first: int
    last: int


@dataclass(slots=True)
class Mend:
    """One segment of the repaired log.

    Attributes:
        parts: runs of the old file, and between them the first and last number of lost frames.
        aside: what the old file will be called; "" when there is none, or it stays as it is.
        changes: whether the file must be rewritten.
    """

    header: SegmentHeader
    path: str
    aside: str
    changes: bool
    parts: list[Run | tuple[int, int]] = field(default_factory=list)
    last: int = 0
    end: int = HEADER_BYTES

    def data(self, fs: FileSystem, lost_payload: bytes) -> bytes:
        """The bytes of the new file."""
        old = read_whole(fs, self.path) if any(type(part) is Run for part in self.parts) else b""
        salt = salt_of(self.header.identity, self.header.id)
        pieces = [encode_header(self.header)]
        for part in self.parts:
            if isinstance(part, Run):
                pieces.append(old[part.offset : part.stop])
            else:
                first, last = part
                pieces += [encode_frame(lost_payload, n, 0, salt) for n in range(first, last + 1)]
        return b"".join(pieces)


@dataclass(slots=True)
class Plan:
    """What to do with a damaged log.

    Attributes:
        mends: all segments it keeps, oldest first; none when it starts over.
        put_away: files that go, with their new names.
        losses: what is lost.
    """

    mends: list[Mend]
    put_away: list[tuple[str, str]]
    losses: list[Loss]

    def carry_out(self, fs: FileSystem, directory: str, lost_payload: bytes) -> None:
        """Change the files. May be interrupted and planned again at any moment."""
        for mend in self.mends:
            if not mend.changes:
                continue
            draft = mend.path + _DRAFT
            write_new(fs.create(draft), mend.data(fs, lost_payload))
            if mend.aside:
                _second_name(fs, mend.path, mend.aside)
            fs.sync_dir(directory)
            # The old file has its other name durably before this one is taken from it.
            fs.rename(draft, mend.path)
            fs.sync_dir(directory)
        for path, aside in reversed(self.put_away):
            fs.rename(path, aside)
            fs.sync_dir(directory)


def _second_name(fs: FileSystem, path: str, aside: str) -> None:
    try:
        fs.link(path, aside)
    except FileExistsError:
        pass  # named by its content: an earlier try came this far
    except OSError as error:
        if error.errno not in CANNOT_LINK:
            raise
        write_new(fs.create(aside), read_whole(fs, path))


@dataclass(slots=True)
class _SearchedSegment:
    """One segment, searched."""

    id: int
    path: str
    data_size: int
    aside: str
    reason: str
    first: int
    runs: list[Run]
    ends_badly: bool = False

    @property
    def begins(self) -> int:
        """Number of the first frame that is known to belong here; 0 when nothing is."""
        return self.first or (self.runs[0].first if self.runs else 0)


def plan(
    fs: FileSystem,
    directory: str,
    findings: list[SegmentFinding],
    head: Head | None,
    *,
    lost_payload_bytes: int,
    frame_bytes_max: int,
    promised: int,
) -> Plan:
    """Plan how a log continues with everything in it that is whole. Reads only.

    Args:
        fs: the file system.
        directory: of the log.
        findings: what a survey found; DISCARD and CUT are left to the ordinary repair.
        head: the note of the log, if it can be read.
        lost_payload_bytes: length of the payload that replaces a lost frame.
        frame_bytes_max: bound on payloads, in bytes.
        promised: number of the last frame that should be there, as far as is known.
    """
    identity = _identity(fs, findings, head)
    found = [_search(fs, finding, identity, frame_bytes_max) for finding in _begun(findings)]
    found = _with_gaps(directory, found)
    losses: list[Loss] = []
    mends: list[Mend] = []
    put_away: list[tuple[str, str]] = []
    if identity is None or all(not one.begins for one in found):
        for one in found:
            losses.append(Loss(one.path, one.aside, 0, one.data_size, 1, 0, one.reason))
            if one.data_size:
                put_away.append((one.path, one.aside))
        return Plan([], put_away, losses)
    while not found[-1].begins:
        # Nothing behind it needs its place.
        one = found.pop()
        if one.data_size:
            put_away.insert(0, (one.path, one.aside))
        known = [run.last + 1 for other in found for run in other.runs]
        first = max([1, *known, *(other.first for other in found)])
        last = first - 1
        nearest = found[-1]
        if nearest.begins:
            last = promised if promised >= first else 0
        losses.insert(0, Loss(one.path, one.aside, 0, one.data_size, first, last, one.reason))
    expected = next(one.begins for one in found if one.begins)
    for index, one in enumerate(found):
        following = next((other.begins for other in found[index + 1 :] if other.begins), 0)
        unknown = not one.begins and not mends
        mend = _mend(one, identity, expected, following, losses, lost_payload_bytes)
        if unknown:
            losses.append(Loss(one.path, one.aside, 0, one.data_size, expected, 0, one.reason))
        mends.append(mend)
        expected = mend.last + 1
    if promised >= expected and not any(loss.last_lost >= promised for loss in losses):
        path, end = mends[-1].path, mends[-1].end
        why = found[-1].reason or "the log ends too early"
        losses.append(Loss(path, mends[-1].aside, end, 0, expected, promised, why))
    return Plan(mends, put_away, losses)


def _begun(findings: list[SegmentFinding]) -> list[SegmentFinding]:
    return [finding for finding in findings if finding.outcome is not RecoveryOutcome.DISCARD]


def _identity(fs: FileSystem, findings: list[SegmentFinding], head: Head | None) -> bytes | None:
    """The identity of the log: as its note, most of its headers or, failing these, frames say."""
    if head is not None:
        return head.identity
    for finding in findings:
        if finding.header is not None:
            return finding.header.identity
    for finding in findings:
        if not finding.lost:
            data = read_whole(fs, finding.path)
            identity = data[_IDENTITY_AT : _IDENTITY_AT + IDENTITY_BYTES]
            if len(identity) == IDENTITY_BYTES and search(
                data, salt_of(identity, finding.id), len(data)
            ):
                return identity
    return None


def _search(
    fs: FileSystem, finding: SegmentFinding, identity: bytes | None, frame_bytes_max: int
) -> _SearchedSegment:
    data = b"" if finding.lost else read_whole(fs, finding.path)
    if finding.outcome is RecoveryOutcome.CUT:
        data = data[: finding.offset]
    runs: list[Run] = []
    if identity is not None:
        runs = search(data, salt_of(identity, finding.id), frame_bytes_max)
    header = finding.header
    refused = finding.outcome is RecoveryOutcome.REFUSE
    return _SearchedSegment(
        finding.id,
        finding.path,
        0 if finding.lost else finding.size,
        "" if finding.lost else f"{finding.path}.damaged-{crc32(data):08x}",
        finding.error().reason.partition("; ")[0] if refused else "",
        header.first if header is not None and header.identity == identity else 0,
        runs,
        not is_zero(data[runs[-1].stop if runs else HEADER_BYTES :]),
    )


def _with_gaps(directory: str, found: list[_SearchedSegment]) -> list[_SearchedSegment]:
    """The same, with an entry for each segment that is missing between two others."""
    whole: list[_SearchedSegment] = []
    for one in found:
        # From a stray file at the end nothing follows on.
        if whole and one.begins:
            for id in range(whole[-1].id + 1, one.id):
                path = segment_path(directory, id)
                whole.append(_SearchedSegment(id, path, 0, "", "the file is missing", 0, []))
        whole.append(one)
    return whole


def search(data: bytes, salt: int, frame_bytes_max: int) -> list[Run]:
    """Runs of whole frames in a segment, in ascending order of their numbers."""
    runs: list[Run] = []
    offset, last, size = HEADER_BYTES, 0, len(data)
    while offset + FRAME_HEADER_BYTES <= size:
        magic, length, number, watermark = FRAME_FIELDS.unpack_from(data, offset)
        check_all, check = FRAME_CHECKS.unpack_from(data, offset + FRAME_CHECKED_BYTES)
        fields = data[offset : offset + FRAME_CHECKED_BYTES]
        stop = offset + frame_bytes(length)
        if (
            magic != FRAME_MAGIC
            or crc32(fields, salt) != check
            or length > frame_bytes_max
            or stop > size
        ):
            offset = _next_magic(data, offset + 1)
            continue
        # The header is good, so its length is, and nothing inside the frame is one of ours.
        whole = crc32(data[offset + FRAME_HEADER_BYTES : stop], check) == check_all
        if whole and number > last and watermark < number:
            if runs and runs[-1].stop == offset and runs[-1].last + 1 == number:
                runs[-1] = runs[-1]._replace(stop=stop, last=number)
            else:
                runs.append(Run(offset, stop, number, number))
            last = number
        offset = stop
    return runs


def _next_magic(data: bytes, start: int) -> int:
    """Where the next frame may begin; the end of the data when none can."""
    offset = data.find(FRAME_MAGIC_BYTES, start)
    while offset != -1 and offset % FRAME_ALIGN:
        offset = data.find(FRAME_MAGIC_BYTES, offset + 1)
    return len(data) if offset == -1 else offset


def _mend(
    one: _SearchedSegment,
    identity: bytes,
    expected: int,
    following: int,
    losses: list[Loss],
    lost_payload_bytes: int,
) -> Mend:
    """One segment of the repaired log, from frame `expected` to the one before `following` (0: to
    the last that is whole)."""
    header = SegmentHeader(one.id, expected, identity)
    # A good segment may have been refused for what is wrong with the one before it.
    changes = one.first != expected or one.ends_badly
    mend = Mend(header, one.path, one.aside, changes)
    number, at = expected, HEADER_BYTES

    def lose(before: int, stop: int) -> None:
        nonlocal number
        if number < before:
            reason = "it holds no whole frame" if one.data_size else "the file is missing"
            losses.append(
                Loss(one.path, one.aside, at, max(stop - at, 0), number, before - 1, reason)
            )
            mend.parts.append((number, before - 1))
            mend.end += (before - number) * frame_bytes(lost_payload_bytes)
            mend.changes = True
            number = before

    for run in one.runs:
        if run.last < number or (following and run.first >= following):
            continue  # of another place or another time
        lose(run.first, run.offset)
        if run.first < number or (following and run.last >= following):
            mend.changes = True
            continue
        mend.parts.append(run)
        mend.end += run.stop - run.offset
        number, at = run.last + 1, run.stop
    if following:
        lose(following, one.data_size)
    mend.last = number - 1
    if mend.changes and not any(loss.path == one.path for loss in losses):
        reason = one.reason or "it is not what it should be"
        losses.append(Loss(one.path, one.aside, 0, 0, number, number - 1, reason))
    if not mend.changes:
        mend.aside = ""
    return mend

"""How far back a replica reaches: what earlier moments need, and which segments may go.

Owns: marks, and what follows from them; by the manifest alone. Must not know: who changes it and
when (upkeep.py, collecting.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from logqueue.replica.chain import LOGS
from logqueue.replica.chunk import LogName
from logqueue.replica.manifest import KeepMark, ReplicaManifest, SegmentEntry
from logqueue.segments.history import HistoryBounds, is_known_time

MARKS_MAX = 32
"""About how many moments are known with what they need."""


def newest_listed(manifest: ReplicaManifest) -> dict[LogName, int]:
    """Id of the last segment of each log that is listed."""
    return {entry.log: entry.id for entry in manifest.segments}


def marked(manifest: ReplicaManifest, now: int, keep_ms: int, frame: int = 0) -> ReplicaManifest:
    """With what the present moment needs, if the marks are to have another one.

    Args:
        manifest: The present one.
        now: The clock, ms since the epoch.
        keep_ms: How far back any moment can be restored, in ms.
        frame: Number of the last frame of the jobs log that is committed.
    """
    marks = manifest.marks
    needed = marks[-1].kept_from if marks else {}
    if manifest.kept_from == needed:
        return manifest
    # Also while a clock that was ahead is behind the last mark: their order is their meaning.
    if marks and now < marks[-1].at + keep_ms // MARKS_MAX:
        return manifest
    mark = KeepMark(now, manifest.kept_from, frame)
    return msgspec.structs.replace(manifest, marks=(*marks, mark))


def retired(
    manifest: ReplicaManifest, now: int, keep_ms: int, history: HistoryBounds | None = None
) -> ReplicaManifest:
    """Without the segments that no moment needs that is kept, as far as they are not kept as
    history.

    Args:
        manifest: The present one.
        now: The clock, ms since the epoch.
        keep_ms: How far back any moment can be restored, in ms.
        history: What else is kept; None for nothing.
    """
    past = [mark for mark in manifest.marks if mark.at <= now - keep_ms]
    if not past:
        return manifest
    # The newest of each log says where the next one begins, so it stays.
    newest = newest_listed(manifest)
    needless = [
        entry
        for entry in manifest.segments
        if entry.id < min(past[-1].kept_from.get(entry.log, 0), newest[entry.log])
    ]
    total = sum(entry.bytes for entry in manifest.segments)
    gone = _too_much(needless, total, history, now)
    marks = manifest.marks[len(past) - 1 :]
    if history is not None:
        marks = (*_still_true(_thinned(past[:-1]), gone, newest), *marks)
    if not gone:
        return msgspec.structs.replace(manifest, marks=marks)
    return msgspec.structs.replace(
        manifest,
        segments=tuple(e for e in manifest.segments if (e.log, e.id) not in gone),
        marks=marks,
        reaches_back_to=max(manifest.reaches_back_to, marks[0].at),
    )


def _too_much(
    needless: Sequence[SegmentEntry], total: int, bounds: HistoryBounds | None, now: int
) -> frozenset[tuple[LogName, int]]:
    """Those of the segments that no moment needs that go now, the oldest first."""
    rest = {log: deque(entry for entry in needless if entry.log == log) for log in LOGS}
    gone: set[tuple[LogName, int]] = set()
    while any(rest.values()):
        oldest = [(_ended_at(entries, now), log) for log, entries in rest.items() if entries]
        at, log = min(oldest)
        if bounds is not None and not bounds.are_exceeded(at, total, now):
            break
        entry = rest[log].popleft()
        total -= entry.bytes
        gone.add((log, entry.id))
    return frozenset(gone)


def _ended_at(entries: Iterable[SegmentEntry], now: int) -> int:
    """When the first of some segments ended, as far as that is known: it is not younger than those
    that came after it."""
    return next((entry.at for entry in entries if is_known_time(entry.at, now)), now)


def _still_true(
    marks: Iterable[KeepMark],
    gone: Collection[tuple[LogName, int]],
    newest: Mapping[LogName, int],
) -> list[KeepMark]:
    """The marks whose moments need none of the segments that go."""
    return [
        mark
        for mark in marks
        if all(id < min(mark.kept_from.get(log, 0), newest[log]) for log, id in gone)
    ]


def _thinned(marks: Sequence[KeepMark]) -> Sequence[KeepMark]:
    """Fewer marks of long ago: a moment may need what the mark before says, which is more."""
    return marks if len(marks) <= 2 * MARKS_MAX else marks[::2]

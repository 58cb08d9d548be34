"""What is available of each topic at one moment, and which parts of a range are lost.

Owns: the description that planning uses, its weights, the messages about losses. Must not know:
pyspark, where the data is, how it is read.

What counts as a loss. The log is complete for a seq while an available segment shows what became of
it: the record is there, or the seq was never given to a record. Before a segment is dropped, its
live records are written again, so live records are always available; jobs that had ended are kept
only in a log archive. So the seqs of dropped segments are *gaps*: some still have a record, for the
others it is unknown. A reader loses something

- if a range that it is about to read has gaps, unless they were gaps already when it first saw the
  topic (a batch from `earliest`, a new stream: there was no reader to lose them);
- if the topic was deleted or created again between two reads, and more than it has read may have
  been in the instance that is gone; or if the log is another one;
- if the log ends before the place where the reader already was (restored from an older backup).

Seqs that were never given to a record (reserved before a crash, skipped by a router) have no row,
and that is not a loss.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from logqueue.errors import quoted
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.reading.offsets import DataLossError
from logqueue.segments import ranges as rg

logger = logging.getLogger("logqueue.spark")


class Piece(NamedTuple):
    """Neighbouring seqs of a topic, and about what they weigh.

    Attributes:
        first, last: The seqs.
        rows: Records among them, at most.
        bytes: Of these.
    """

    first: int
    last: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class AvailableRange:
    """What is available of one topic.

    Attributes:
        log: Its `log_id`.
        next: One after its highest seq.
        pieces: Where its records are, ascending, not overlapping.
        gaps: Seqs of dropped segments; unless there is a record, what became of them is unknown.
        is_paged: Whether only live records can be read.
        first: Where reading from the earliest begins: the first live record when it is paged.
        is_queue: Whether its records are jobs.
        is_dropped: Whether it was deleted; what it held is read as long as the log has it.
        is_head_certain: False when segments are missing behind the last one that tells of it: more
            may have been appended there.
        before: Earlier instances of the same name, oldest first, where they were asked for, too.
    """

    name: str
    log: str
    next: int
    pieces: Sequence[Piece] = ()
    gaps: rg.Ranges = field(default_factory=list)
    is_paged: bool = False
    first: int = 1
    is_queue: bool = False
    is_dropped: bool = False
    is_head_certain: bool = True
    before: Sequence[AvailableRange] = ()

    def instance(self, log: str) -> AvailableRange | None:
        """The instance with this `log_id`: itself, one before it, or None."""
        return next((found for found in (self, *self.before) if found.log == log), None)

    def after(self, log: str) -> AvailableRange:
        """The instance that follows another one; itself when that one is unknown."""
        logs = [older.log for older in self.before]
        at = logs.index(log) + 1 if log in logs else len(logs)
        return (*self.before, self)[at]

    def is_until(self, log: str, aim: str) -> bool:
        """Whether an instance is another one, or comes before it."""
        logs = [*(older.log for older in self.before), self.log]
        if log not in logs or aim not in logs:
            return log == aim
        return logs.index(log) <= logs.index(aim)

    @property
    def complete_from(self) -> int:
        """The first seq after the last gap."""
        return self.gaps[-1][1] + 1 if self.gaps else self.first

    def rows(self, first: int, end: int) -> int:
        """Rows from `first` up to `end`, that one not included, at most."""
        return sum(_rows(piece, first, end) for piece in self.pieces)

    def bytes(self, first: int, end: int) -> int:
        """About the bytes of the same."""
        return sum(_bytes(piece, first, end) for piece in self.pieces)

    def after_rows(self, first: int, end: int, rows: int) -> int:
        """The furthest place up to `end` that leaves at most so many rows behind it."""
        return self._after(first, end, rows, in_bytes=False)

    def after_bytes(self, first: int, end: int, size: int) -> int:
        """The same for bytes."""
        return self._after(first, end, size, in_bytes=True)

    def _after(self, first: int, end: int, bound: int, *, in_bytes: bool) -> int:
        weigh = _bytes if in_bytes else _rows
        for piece in self.pieces:
            weight = weigh(piece, first, end)
            if weight <= bound:
                bound -= weight
                continue
            begin = max(first, piece.first)
            seqs = min(end, piece.last + 1) - begin
            # Where rows are sparse, their place in the piece is unknown.
            fits = bound * seqs // weight if in_bytes else bound
            return begin + fits
        return end


def _part(piece: Piece, first: int, end: int) -> int:
    return max(0, min(end, piece.last + 1) - max(first, piece.first))


def _rows(piece: Piece, first: int, end: int) -> int:
    return min(piece.rows, _part(piece, first, end))


def _bytes(piece: Piece, first: int, end: int) -> int:
    part, whole = _part(piece, first, end), piece.last - piece.first + 1
    return piece.bytes if part == whole else -(-piece.bytes * part // whole)


@dataclass(frozen=True, slots=True)
class AvailableEvents:
    """What is available of the job events of a log.

    Attributes:
        log: Its identity.
        next: One after the highest order whose events are certain to be complete.
        pieces: As of seqs, of orders.
        gaps: Orders whose events may be gone with a dropped segment.
        queues: Numbers of the queues that are asked for; None when that is unknown.
        known: Numbers of all queues that the log tells of.
    """

    log: str
    next: int
    pieces: Sequence[Piece] = ()
    gaps: rg.Ranges = field(default_factory=list)
    queues: rg.Ranges | None = None
    known: rg.Ranges = field(default_factory=list)

    @property
    def complete_from(self) -> int:
        """The first order after the last gap."""
        return self.gaps[-1][1] + 1 if self.gaps else 0


class Range(NamedTuple):
    """Seqs of one topic to be read: from `first` up to `end`, that one not included. With lease
    events the topic is "" and these are orders, of some queues or of all (None)."""

    topic: str
    log: str
    first: int
    end: int
    queues: tuple[tuple[int, int], ...] | None = None


class LossPolicy:
    """What to do about lost data: fail, or log a warning and continue."""

    def __init__(self, fail: bool) -> None:
        self.fail = fail

    def report(self, what: str) -> None:
        """Report a loss.

        Raises:
            DataLossError: Losses are not accepted.
        """
        if self.fail:
            raise DataLossError(
                f"{what}. Set failOnDataLoss=false (--fail-on-data-loss false) to continue without "
                "it; a log archive (LOGQUEUE_ARCHIVE_DIR) would have kept it"
            )
        logger.warning("%s; continuing without it (failOnDataLoss=false)", what)

    def of_range(self, range: Range, gaps: rg.Ranges, known: int = 0) -> None:
        """Report the gaps in a range.

        Args:
            gaps: Of the topic.
            known: What is missing below this was so when the reader first came.

        Raises:
            DataLossError: Something is, and losses are not accepted.
        """
        begin = max(range.first, known)
        for first, last in rg.cut(gaps, begin, range.end - 1) if begin < range.end else []:
            what = f"seqs {first} to {last} of topic {quoted(range.topic)}"
            if not range.topic:
                what = f"job events of orders {first} to {last}"
            self.report(f"{what} are gone: the log has dropped their segments")


def require_topics(
    names: Sequence[str], available: Mapping[str, AvailableRange], where: str
) -> None:
    """Refuse a batch over topics that are not there.

    Raises:
        PipelineError: Names them.
    """
    absent = [name for name in names if name not in available]
    if absent:
        raise PipelineError(
            f"there is no topic {', '.join(map(repr, absent))} in {where}: check the spelling, "
            "or read all topics with topicPattern=.*"
        )

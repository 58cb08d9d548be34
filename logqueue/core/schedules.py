"""The schedules of a server: what each has done, and which is due next.

Owns: the two indexes, by name and by time; which of its firings a schedule makes after a gap.
Must not know: commands, events, when anyone looks.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import NamedTuple

from sortedcontainers import SortedDict, SortedList

from logqueue.errors import LogqueueError, ScheduleNotFound
from logqueue.firing_times import next_time
from logqueue.model.schedule import FiringResult, ScheduleOptions

MISSED_AFTER_MS = 60_000
"""How late the server may notice a firing of a schedule that makes up for none."""
MISSED_COUNTED_MAX = 50
"""Firings of a cron text that are counted one by one when they are passed over."""
CRON_STEP_MS = 1000
"""Times of a cron text are whole seconds."""
SCHEDULE_BYTES = 120
"""What a checkpoint takes for a schedule beside its texts."""
RETRY_MS_MIN = 1000
RETRY_MS_MAX = 60_000


class ScheduleState:
    """The state of one schedule.

    Attributes:
        next_at: The time of the next firing, ms since the epoch; 0 for none.
        due_at: When that comes, which jitter may make later; 0 for none.
        fired: Firings that wrote a job, or gave one new content.
        skipped: Firings that a job with the key has kept from doing so.
        missed: Firings that were passed over; see `catch_up`.
        last_scheduled_for, last_fired_at: The last firing's time, and when it came; 0 before.
        last_seq, last_result: What came of it.
        failed: Tries in this life of the server that were refused. Not replayed, and neither are
            the next three.
        failures: Of them, those since the last firing.
        error: Why the last was refused; None when it was not.
        retry_at: When a refused firing is tried again; 0 for none.
    """

    __slots__ = (
        "created_at", "due_at", "error", "failed", "failures", "fired", "last_fired_at",
        "last_result", "last_scheduled_for", "last_seq", "missed", "name", "next_at", "options",
        "paused", "retry_at", "skipped",
    )  # fmt: skip

    def __init__(self, name: str, options: ScheduleOptions, created_at: int) -> None:
        self.name = name
        self.options = options
        self.created_at = created_at
        self.paused = False
        self.next_at = self.due_at = self.retry_at = 0
        self.fired = self.skipped = self.missed = 0
        self.last_scheduled_for = self.last_fired_at = self.last_seq = 0
        self.last_result: FiringResult | None = None
        self.failed = self.failures = 0
        self.error: LogqueueError | None = None

    def snapshot(self) -> ScheduleState:
        """The same as it is now; it does not change with this one."""
        return copy(self)

    def due_of(self, scheduled_for: int) -> int:
        """When the firing of a time comes."""
        return scheduled_for + self.options.jitter(self.name, scheduled_for)


def following(options: ScheduleOptions, known: int, after: int) -> int:
    """The first time of a schedule after another.

    Args:
        options: Of the schedule.
        known: One of its times, which the others of `every_ms` are counted from.
        after: Ms since the epoch.

    Returns:
        Ms since the epoch; 0 for none.
    """
    if options.every_ms:
        steps = max((after - known) // options.every_ms + 1, 1)
        return known + steps * options.every_ms
    return next_time(options.cron, options.timezone, after) or 0


def times_from(options: ScheduleOptions, first: int) -> Iterator[int]:
    """The times of a schedule from one of them on, ascending."""
    at = first
    while at:
        yield at
        at = following(options, at, at)


def _latest(options: ScheduleOptions, known: int, until: int) -> int:
    """The last time of a schedule up to another, which is not before one of its times."""
    if options.every_ms:
        return known + (until - known) // options.every_ms * options.every_ms
    # Whether a next time is up to `until` is known of `low`, and is known not to be of `high`.
    low, high = known, until
    while high - low >= CRON_STEP_MS:
        middle = (low + high) // 2
        found = following(options, known, middle)
        if found and found <= until:
            low = found
        else:
            high = middle
    return low


def _count(options: ScheduleOptions, first: int, last: int) -> int:
    """How many times of a schedule there are from one up to another, without that; of a cron text
    `MISSED_COUNTED_MAX` at most."""
    if options.every_ms:
        return (last - first) // options.every_ms
    for count, at in enumerate(times_from(options, first)):
        if at >= last or count == MISSED_COUNTED_MAX:
            return count
    return 0


class Due(NamedTuple):
    """What a schedule does now.

    Attributes:
        scheduled_for: The time of the firing it makes; 0 when it makes none.
        missed: Firings that are passed over.
        next_at: The time of the next; 0 for none.
    """

    scheduled_for: int
    missed: int
    next_at: int


def due_now(schedule: ScheduleState, now: int, noticed: int) -> Due | None:
    """What a schedule does at a time, one firing at most; None when nothing is due.

    Args:
        schedule: Read only.
        now: The clock.
        noticed: When the server looked and found firings due, of which this is one.
    """
    if not schedule.next_at or schedule.paused or schedule.due_of(schedule.next_at) > now:
        return None
    options, first = schedule.options, schedule.next_at
    next_at = following(options, first, first)
    if options.catch_up == "all":
        return Due(first, 0, next_at)
    last = _latest(options, first, now) if 0 < next_at <= now else first
    if schedule.due_of(last) > now:
        # It comes later; those before it that are surely due count.
        last = max(_latest(options, first, max(now - options.jitter_ms, first)), first)
    missed = 0
    if last != first:
        missed, next_at = _count(options, first, last), following(options, last, last)
    was_tried = schedule.failures > 0 and last == first
    is_late = noticed - schedule.due_of(last) > MISSED_AFTER_MS
    if options.catch_up == "none" and is_late and not was_tried:
        return Due(0, missed + 1, next_at)
    return Due(last, missed, next_at)


class Schedules:
    """All schedules.

    Attributes:
        by_name: In name order.
        refused: How many wait to try a refused firing again.
        bytes: About how much a checkpoint takes for all of them.
    """

    __slots__ = ("_by_time", "by_name", "bytes", "refused")

    def __init__(self) -> None:
        self.by_name: SortedDict[str, ScheduleState] = SortedDict()
        self._by_time: SortedList[tuple[int, str]] = SortedList()
        self.refused = self.bytes = 0

    def __len__(self) -> int:
        return len(self.by_name)

    def find(self, name: str) -> ScheduleState | None:
        """A schedule by name."""
        found: ScheduleState | None = self.by_name.get(name)
        return found

    def named(self, name: str) -> ScheduleState:
        """A schedule by name.

        Raises:
            ScheduleNotFound: There is none.
        """
        found = self.find(name)
        if found is None:
            raise ScheduleNotFound.named(name)
        return found

    def add(self, schedule: ScheduleState) -> None:
        """Take in a new schedule; `move` says when it is due."""
        self.by_name[schedule.name] = schedule
        self.bytes += _size(schedule)

    def configure(
        self, schedule: ScheduleState, options: ScheduleOptions, next_at: int, *, paused: bool
    ) -> None:
        """A schedule has these options, and fires next at this time."""
        self.move(schedule, 0)
        self.bytes -= _size(schedule)
        schedule.options = options
        schedule.paused = paused
        self.bytes += _size(schedule)
        self.move(schedule, next_at)

    def remove(self, name: str) -> None:
        """Remove a schedule, if there is one."""
        schedule = self.by_name.pop(name, None)
        if schedule is not None:
            self._by_time.discard((_turn(schedule), name))
            self.refused -= schedule.retry_at > 0
            self.bytes -= _size(schedule)

    def move(self, schedule: ScheduleState, next_at: int) -> None:
        """A schedule fires next at this time; 0 for never."""
        self._by_time.discard((_turn(schedule), schedule.name))
        self.refused -= schedule.retry_at > 0
        schedule.next_at = next_at
        schedule.due_at = schedule.due_of(next_at) if next_at else 0
        schedule.retry_at = 0
        if next_at and not schedule.paused:
            self._by_time.add((schedule.due_at, schedule.name))

    def put_off(self, schedule: ScheduleState, now: int, error: LogqueueError) -> None:
        """A firing was refused: it is tried again after a while."""
        self._by_time.discard((_turn(schedule), schedule.name))
        wait = min(RETRY_MS_MIN << min(schedule.failures, 10), RETRY_MS_MAX)
        schedule.failed += 1
        schedule.failures += 1
        schedule.error = error
        self.refused += schedule.retry_at == 0
        schedule.retry_at = now + wait
        self._by_time.add((_turn(schedule), schedule.name))

    def first(self) -> tuple[int, str] | None:
        """When the next schedule is due, and which; None when none is."""
        return self._by_time[0] if self._by_time else None

    def measured(self) -> int:
        """`bytes`, as counted from all schedules."""
        return sum(map(_size, self.by_name.values()))

    def has_turn(self, schedule: ScheduleState) -> bool:
        """Whether a schedule is known by its time."""
        return (_turn(schedule), schedule.name) in self._by_time

    def waiting(self) -> int:
        """How many are to fire."""
        return len(self._by_time)


def _size(schedule: ScheduleState) -> int:
    options = schedule.options
    texts = len(options.record) + len(options.block) + len(options.cron) + len(schedule.name)
    return SCHEDULE_BYTES + texts


def _turn(schedule: ScheduleState) -> int:
    return max(schedule.due_at, schedule.retry_at)

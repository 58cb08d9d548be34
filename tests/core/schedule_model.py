"""Schedules, told naively: every time of a schedule is looked at, one after the other.

Owns: which firings come of which times, as docs/protocol.md says it. Must not know: indexes, logs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

Firing = tuple[str, int]
"""A schedule's name and the time of a firing."""


@dataclass
class ModelSchedule:
    """One schedule.

    Attributes:
        is_time: Whether a time, ms since the epoch, is one of its times. Times are whole seconds.
        next_at: Its next time, 0 while it has none.
    """

    topic: str
    is_time: Callable[[int], bool]
    catch_up: str
    jitter: Callable[[int], int]
    paused: bool = False
    next_at: int = 0
    fired: int = 0
    missed: int = 0
    failures: int = 0
    retry_at: int = 0

    def after(self, at: int) -> int:
        """The first time behind another."""
        at = at // 1000 * 1000 + 1000
        while not self.is_time(at):
            at += 1000
        return at

    def due(self, now: int) -> list[int]:
        """The times from the next on that have come, with their jitter."""
        found = []
        at = self.next_at
        while at <= now:
            if at + self.jitter(at) <= now:
                found.append(at)
            at = self.after(at)
        return found


@dataclass
class ScheduleModel:
    """A server's schedules, and what is in its topics."""

    schedules: dict[str, ModelSchedule] = field(default_factory=dict)
    topics: dict[str, list[Firing]] = field(default_factory=dict)

    def resume(self, name: str, now: int) -> None:
        """What passed during the pause is not made up for."""
        schedule = self.schedules[name]
        if schedule.paused and schedule.next_at <= now:
            schedule.next_at = schedule.after(now)
        schedule.paused = False
        schedule.failures = schedule.retry_at = 0

    def restart(self) -> None:
        """Refused tries are forgotten."""
        for schedule in self.schedules.values():
            schedule.failures = schedule.retry_at = 0

    def fire(self, now: int) -> None:
        """All that is due."""
        for name, schedule in self.schedules.items():
            while self._fire(name, schedule, now):
                pass

    def _fire(self, name: str, schedule: ModelSchedule, now: int) -> bool:
        first = schedule.next_at
        if schedule.paused or now < max(first + schedule.jitter(first), schedule.retry_at):
            return False
        if schedule.catch_up == "all":
            chosen, behind = first, 0
        else:
            chosen, behind = self._chosen(schedule, now)
        is_late = now - (chosen + schedule.jitter(chosen)) > 60_000
        was_tried = schedule.failures > 0 and chosen == first
        if schedule.catch_up == "none" and is_late and not was_tried:
            schedule.missed += behind + 1
        elif schedule.topic in self.topics:
            self.topics[schedule.topic].append((name, chosen))
            schedule.fired += 1
            schedule.missed += behind
        else:
            schedule.retry_at = now + min(1000 * 2**schedule.failures, 60_000)
            schedule.failures += 1
            return False
        schedule.failures = schedule.retry_at = 0
        schedule.next_at = schedule.after(chosen)
        return True

    def _chosen(self, schedule: ModelSchedule, now: int) -> tuple[int, int]:
        """The last time that is due, and how many are before it."""
        chosen = schedule.due(now)[-1]
        behind = 0
        at = schedule.next_at
        while at < chosen:
            behind += 1
            at = schedule.after(at)
        return chosen, behind

"""Applying the events of schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from logqueue import events as ev
from logqueue.core.schedules import ScheduleState
from logqueue.core.state import State


def _schedule_set(state: State, event: ev.ScheduleSet, segment: int) -> None:
    schedules = state.schedules
    schedule = schedules.find(event.name)
    if schedule is None:
        schedule = ScheduleState(event.name, event.options, event.at)
        schedules.add(schedule)
    schedule.error = None
    schedule.failures = 0
    schedules.configure(schedule, event.options, event.next_at, paused=event.paused)


def _schedule_removed(state: State, event: ev.ScheduleRemoved, segment: int) -> None:
    state.schedules.remove(event.name)


def _schedule_fired(state: State, event: ev.ScheduleFired, segment: int) -> None:
    schedule = state.schedules.find(event.name)
    if schedule is None:
        return
    if event.result in ("created", "replaced"):
        schedule.fired += 1
    else:
        schedule.skipped += 1
    schedule.missed += event.missed
    schedule.last_scheduled_for = event.scheduled_for
    schedule.last_fired_at = event.at
    schedule.last_seq = event.seq
    schedule.last_result = event.result
    schedule.error = None
    schedule.failures = 0
    if event.next_at != schedule.next_at or schedule.retry_at:
        state.schedules.move(schedule, event.next_at)


def _schedule_advanced(state: State, event: ev.ScheduleAdvanced, segment: int) -> None:
    schedule = state.schedules.find(event.name)
    if schedule is not None:
        schedule.missed += event.missed
        schedule.failures = 0
        state.schedules.move(schedule, event.next_at)


def restate(state: State, kept: Iterable[ev.ScheduleSnapshot]) -> None:
    """Take in schedules as a checkpoint has them."""
    for one in kept:
        schedule = state.schedules.find(one.name)
        if schedule is None:
            schedule = ScheduleState(one.name, one.options, one.created_at)
            state.schedules.add(schedule)
        schedule.fired, schedule.skipped, schedule.missed = one.fired, one.skipped, one.missed
        schedule.last_scheduled_for = one.last_scheduled_for
        schedule.last_fired_at = one.last_fired_at
        schedule.last_seq, schedule.last_result = one.last_seq, one.last_result
        state.schedules.configure(schedule, one.options, one.next_at, paused=one.paused)


APPLY: dict[type[ev.Event], Callable[[State, Any, int], None]] = {
    ev.ScheduleSet: _schedule_set,
    ev.ScheduleRemoved: _schedule_removed,
    ev.ScheduleFired: _schedule_fired,
    ev.ScheduleAdvanced: _schedule_advanced,
}

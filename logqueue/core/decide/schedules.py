"""Deciding about schedules: what they are, and what a firing writes. Changes nothing.

Owns: that a firing is one decision: what it writes, and when the schedule fires next. Must not
know: what wakes the server, how a write is decided.
"""

from __future__ import annotations

import msgspec

from logqueue import events as ev
from logqueue.core import commands as cmd
from logqueue.core.decide.decision import AfterApply, Decision
from logqueue.core.decide.topics import append, require_queue_for
from logqueue.core.schedules import ScheduleState, due_now, following
from logqueue.core.state import State
from logqueue.errors import KeyConflict, Throttled
from logqueue.events import block as blocks
from logqueue.model.schedule import FiringResult, ScheduleOptions, require_schedule_name

_encoder = msgspec.json.Encoder()


def put_schedule(
    state: State, command: cmd.PutSchedule, now: int
) -> Decision[cmd.SchedulePutResult]:
    """Create a schedule, or replace its options; the same again changes nothing."""
    name, options = command.schedule, command.options
    require_schedule_name(name)
    known = state.schedules.find(name)
    if command.if_absent and known is not None:
        differs = _differing(known, command)
        return _after(state, name, [], differs=differs)
    topic = state.topic(options.topic)
    require_queue_for(topic, options.block, _keyed(options))
    if known is None:
        schedules_max = state.quotas.schedules_max
        if schedules_max and len(state.schedules) >= schedules_max:
            raise Throttled(
                f"the server already has its maximum of {schedules_max} schedules; delete one "
                "first",
                {"limit": "max_schedules", "max": schedules_max},
            )
        next_at = _first_time(options, now)
        created = ev.ScheduleSet(now, 0, name, options, command.paused or False, next_at)
        return _after(state, name, [created], created=True)
    paused = known.paused if command.paused is None else command.paused
    if (options, paused) == (known.options, known.paused):
        return _after(state, name, [])
    return _after(state, name, [_changed(known, options, paused, now)])


def _after(
    state: State,
    name: str,
    events: list[ev.Event],
    *,
    created: bool = False,
    differs: tuple[str, ...] = (),
) -> Decision[cmd.SchedulePutResult]:
    def read() -> cmd.SchedulePutResult:
        return cmd.SchedulePutResult(created, state.schedules.named(name).snapshot(), differs)

    return Decision(events, AfterApply(read))


def _differing(known: ScheduleState, command: cmd.PutSchedule) -> tuple[str, ...]:
    """Options that a schedule has otherwise; whether it is paused is not one."""
    fields = ("topic", "cron", "every_ms", "timezone", "jitter_ms", "catch_up")
    found = [f for f in fields if getattr(known.options, f) != getattr(command.options, f)]
    if not known.options.cron and not command.options.cron and "timezone" in found:
        found.remove("timezone")
    if _meaning(known.options.record) != _meaning(command.options.record):
        found.append("record")
    return tuple(found)


def _meaning(record: bytes) -> object:
    return msgspec.json.decode(record)


def _changed(
    known: ScheduleState, options: ScheduleOptions, paused: bool, now: int
) -> ev.ScheduleSet:
    """Times that did not change go on; those that passed during a pause are not made up for."""
    next_at = known.next_at
    if options.times != known.options.times:
        next_at = _first_time(options, max(now, known.last_scheduled_for))
    elif known.paused and not paused and next_at and next_at <= now:
        next_at = following(options, next_at, now)
    return ev.ScheduleSet(now, 0, known.name, options, paused, next_at)


def _first_time(options: ScheduleOptions, now: int) -> int:
    return following(options, now, now)


def set_schedule_paused(
    state: State, command: cmd.PauseSchedule, now: int
) -> Decision[cmd.SchedulePutResult]:
    """Pause a schedule, or resume it.

    Raises:
        ScheduleNotFound: There is none.
    """
    known = state.schedules.named(command.schedule)
    if known.paused == command.paused:
        return _after(state, known.name, [])
    changed = _changed(known, known.options, command.paused, now)
    return _after(state, known.name, [changed])


def drop_schedule(
    state: State, command: cmd.DropSchedule, now: int
) -> Decision[cmd.ScheduleDropResult]:
    """Delete a schedule. Deleting what is not there is fine."""
    if state.schedules.find(command.schedule) is None:
        return Decision([], cmd.ScheduleDropResult(False))
    removed = ev.ScheduleRemoved(now, 0, command.schedule)
    return Decision([removed], cmd.ScheduleDropResult(True))


def run_schedule(state: State, command: cmd.RunSchedule, now: int) -> Decision[cmd.FiringOutcome]:
    """Write the record of a schedule now, whether it is paused or not; its times do not change.

    Raises:
        ScheduleNotFound: There is none.
        LogqueueError: The topic refused the record.
    """
    schedule = state.schedules.named(command.schedule)
    events, result, seq = _write(state, schedule, now, now)
    fired = _fired(state, schedule, now, now, schedule.next_at, seq, result)
    return Decision([*events, fired], cmd.FiringOutcome(now, seq, result))


def fire(state: State, command: cmd.FireSchedule, now: int) -> Decision[cmd.FiringOutcome]:
    """Let a schedule do what is due, one firing at most.

    Raises:
        LogqueueError: The topic refused the record: the firing stays due.
    """
    schedule = state.schedules.find(command.schedule)
    due = due_now(schedule, now, command.noticed) if schedule is not None else None
    if schedule is None or due is None:
        return Decision([], cmd.FiringOutcome(0, 0))
    if not due.scheduled_for:
        advanced = ev.ScheduleAdvanced(now, 0, schedule.name, due.next_at, due.missed)
        return Decision([advanced], cmd.FiringOutcome(0, 0, None, due.missed))
    events, result, seq = _write(state, schedule, due.scheduled_for, now)
    fired = _fired(state, schedule, now, due.scheduled_for, due.next_at, seq, result, due.missed)
    outcome = cmd.FiringOutcome(due.scheduled_for, seq, result, due.missed)
    return Decision([*events, fired], outcome)


def _fired(
    state: State,
    schedule: ScheduleState,
    now: int,
    scheduled_for: int,
    next_at: int,
    seq: int,
    result: FiringResult,
    missed: int = 0,
) -> ev.ScheduleFired:
    number = state.topic(schedule.options.topic).number
    name = schedule.name
    return ev.ScheduleFired(now, number, name, scheduled_for, next_at, seq, result, missed)


def _write(
    state: State, schedule: ScheduleState, scheduled_for: int, now: int
) -> tuple[list[ev.Event], FiringResult, int]:
    """The events of what a firing writes, what becomes of it, and its seq."""
    options = schedule.options
    block = blocks.with_meta(options.block, _stamped(schedule, scheduled_for))
    command = cmd.Append(options.topic, block, 1, None, False, keyed=_keyed(options))
    try:
        decision = append(state, command, now)
    except KeyConflict as conflict:
        # The firing has done what it was to do about a job with its key.
        return [], "rejected", int((conflict.detail or {}).get("seq", 0))
    result = decision.settle()
    found: FiringResult = result.results[0][1] if result.results else "created"
    return decision.events, found, result.first_seq


def _stamped(schedule: ScheduleState, scheduled_for: int) -> bytes:
    """The meta of the record, with the schedule and the time of the firing."""
    meta = blocks.BlockView(schedule.options.block).text(blocks.META, 0)
    stamp = b'"schedule":%b,"scheduled_for":%d}' % (_encoder.encode(schedule.name), scheduled_for)
    return b"%b,%b" % (meta[:-1], stamp) if len(meta) > len(b"{}") else b"{%b" % stamp


def _keyed(options: ScheduleOptions) -> tuple[cmd.Keyed, ...]:
    if not options.on_conflict:
        return ()
    key = blocks.BlockView(options.block).text(blocks.KEY, 0)
    return (cmd.Keyed(0, key, options.on_conflict),)

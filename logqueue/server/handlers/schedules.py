"""Handlers of the schedule routes: configure, look, list, pause, run, delete."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

import msgspec

from logqueue.api.bodies.jobs import read_number
from logqueue.api.bodies.schedules import schedule_command
from logqueue.api.paging import names_from, page_size, read_cursor, write_cursor
from logqueue.core import commands as cmd
from logqueue.core.schedules import ScheduleState, times_from
from logqueue.core.topic import Topic
from logqueue.errors import Forbidden, InvalidRequest
from logqueue.firing_times import next_time, require_cron, require_zone
from logqueue.model import limits
from logqueue.model.schedule import ScheduleOptions
from logqueue.server.engine.engine import Engine
from logqueue.server.engine.pending import Spent
from logqueue.server.handlers.appends import require_follow_allowed
from logqueue.server.handlers.members import reply_with, show_members
from logqueue.server.http.requests import HttpRequest, PendingReply, Reply
from logqueue.server.http.routing import serves
from logqueue.server.service import Service

_OUTSIDE = "this key may not access topics outside its prefixes"


class ScheduleRoutes:
    """The schedules of the API."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @serves("put_schedule")
    def put(self, request: HttpRequest) -> PendingReply:
        """`PUT /v0/schedules/:schedule`: create, replace the options, or only compare."""
        dispatcher = self._service.require_serving()
        engine = dispatcher.engine
        known = engine.state.schedules.find(request.name)
        if known is not None:
            _require_topic_allowed(request, known.options.topic)
        if_absent = request.flag("if_absent", False)
        command = schedule_command(request.name, request.body, request.ignore, if_absent=if_absent)
        require_follow_allowed(request.key, command.options.block)
        if not request.allows(command.options.topic):
            raise Forbidden(_OUTSIDE, {"topic": command.options.topic})
        return dispatcher.submit(command, _put, (request, command, _shown(request)))

    @serves("get_schedule")
    def get(self, request: HttpRequest) -> PendingReply:
        """`GET /v0/schedules/:schedule`: options, what it has done, next firings."""
        dispatcher = self._service.require_serving()
        engine = dispatcher.engine
        dispatcher.turn.run()
        schedule = engine.state.schedules.named(request.name)
        _require_topic_allowed(request, schedule.options.topic)
        written, durable = _marks(engine, [schedule])
        members = _members(schedule, _shown(request))
        return dispatcher.hold(members, written, durable, show_members, request)

    @serves("list_schedules")
    def list(self, request: HttpRequest) -> PendingReply:
        """`GET /v0/schedules`: a page of schedules in name order."""
        dispatcher = self._service.require_serving()
        engine = dispatcher.engine
        query = request.query
        size = page_size(query.get("page_size"))
        after = read_cursor(query.get("cursor"))
        schedules = engine.state.schedules
        names = names_from(schedules.by_name, query.get("prefix", ""), after, request.key)
        visible = (
            schedule
            for name in names
            if (schedule := schedules.named(name))
            and request.allows(schedule.options.topic)
            and query.get("topic", schedule.options.topic) == schedule.options.topic
        )
        found = [*islice(visible, size + 1)]
        page: dict[str, Any] = {"schedules": [_entry(schedule) for schedule in found[:size]]}
        if len(found) > size:
            page["next_cursor"] = write_cursor(found[size - 1].name)
        written, durable = _marks(engine, found)
        return dispatcher.hold(page, written, durable, show_members, request)

    @serves("delete_schedule")
    def drop(self, request: HttpRequest) -> PendingReply:
        """`DELETE /v0/schedules/:schedule`: delete the schedule, keep its jobs."""
        dispatcher = self._service.require_serving()
        schedule = dispatcher.engine.state.schedules.find(request.name)
        if schedule is not None:
            _require_topic_allowed(request, schedule.options.topic)
        return dispatcher.submit(cmd.DropSchedule(request.name), _dropped, request)

    @serves("pause_schedule")
    def pause(self, request: HttpRequest) -> PendingReply:
        """`POST /v0/schedules/:schedule/pause`: no firing from now on."""
        return self._set_paused(request, True)

    @serves("resume_schedule")
    def resume(self, request: HttpRequest) -> PendingReply:
        """`POST /v0/schedules/:schedule/resume`: fire again, from now on."""
        return self._set_paused(request, False)

    def _set_paused(self, request: HttpRequest, paused: bool) -> PendingReply:
        dispatcher = self._service.require_serving()
        engine = dispatcher.engine
        schedule = engine.state.schedules.named(request.name)
        _require_topic_allowed(request, schedule.options.topic)
        return dispatcher.submit(
            cmd.PauseSchedule(request.name, paused), _paused, (request, _shown(request))
        )

    @serves("run_schedule")
    def run(self, request: HttpRequest) -> PendingReply:
        """`POST /v0/schedules/:schedule/run`: write the record now."""
        dispatcher = self._service.require_serving()
        schedule = dispatcher.engine.state.schedules.named(request.name)
        topic = schedule.options.topic
        _require_topic_allowed(request, topic)
        return dispatcher.submit(cmd.RunSchedule(topic, request.name), _run, (request, topic))

    @serves("list_firings")
    def firings(self, request: HttpRequest) -> PendingReply:
        """`GET /v0/firings`: when a cron text fires."""
        dispatcher = self._service.require_serving()
        query = request.query
        if "cron" not in query:
            raise InvalidRequest("`cron` is missing")
        cron, timezone = require_cron(query["cron"]), query.get("timezone", "UTC")
        require_zone(timezone)
        given = query.get("after")
        after = dispatcher.engine.clock.now_ms()
        if given is not None:
            after = read_number(given, "`after`", limits.U64_MAX)
        options = ScheduleOptions("", b"", b"", cron, timezone=timezone)
        first = next_time(cron, timezone, after) or 0
        times = [*islice(times_from(options, first), _shown(request))]
        members = {"cron": cron, "timezone": timezone, "next": times}
        return dispatcher.hold(members, 0, 0, show_members, request)


def _require_topic_allowed(request: HttpRequest, topic: str) -> None:
    """The path's name was checked already; the topic must be allowed too.

    Raises:
        Forbidden: It is outside the key's prefixes; it is not named, since the caller did not.
    """
    if not request.allows(topic):
        raise Forbidden(_OUTSIDE)


def _shown(request: HttpRequest) -> int:
    """The `next` parameter."""
    given = request.query.get("next")
    if given is None:
        return limits.FIRINGS_SHOWN_DEFAULT
    return min(read_number(given, "`next`", limits.U32_MAX), limits.FIRINGS_SHOWN_MAX)


def _marks(engine: Engine, schedules: list[ScheduleState]) -> tuple[int, int]:
    """What the log must have reached before these may be shown."""
    written, durable = 0, engine.control_mark
    for schedule in schedules:
        topic: Topic | None = engine.state.topics.get(schedule.options.topic)
        if topic is not None:
            written = max(written, topic.mark_written)
            durable = max(durable, topic.mark_durable)
    return written, durable


def _entry(schedule: ScheduleState) -> dict[str, Any]:
    """A schedule as the list shows it."""
    options, error = schedule.options, schedule.error
    return {
        "schedule": schedule.name,
        "topic": options.topic,
        "cron": options.cron or None,
        "every_ms": options.every_ms or None,
        "timezone": options.timezone,
        "jitter_ms": options.jitter_ms,
        "catch_up": options.catch_up,
        "paused": schedule.paused,
        "created_at": schedule.created_at,
        "next_at": None if schedule.paused else schedule.next_at or None,
        "last_scheduled_for": schedule.last_scheduled_for or None,
        "last_fired_at": schedule.last_fired_at or None,
        "last_seq": schedule.last_seq or None,
        "last_result": schedule.last_result,
        "last_error": None
        if error is None
        else {
            "code": error.code,
            "message": error.message,
            "retry_at": schedule.retry_at or None,
        },
        "fired": schedule.fired,
        "skipped": schedule.skipped,
        "missed": schedule.missed,
        "failed": schedule.failed,
    }


def _members(schedule: ScheduleState, shown: int) -> dict[str, Any]:
    """A schedule as its own replies show it."""
    first = 0 if schedule.paused else schedule.next_at
    return {
        **_entry(schedule),
        "record": msgspec.Raw(schedule.options.record),
        "next": [*islice(times_from(schedule.options, first), shown)],
    }


def _put(
    context: tuple[HttpRequest, cmd.PutSchedule, int],
    result: cmd.SchedulePutResult,
    spent: Spent,
) -> Reply:
    request, command, shown = context
    schedule = result.schedule
    members = {**_members(schedule, shown), "created": result.created}
    if command.if_absent:
        have, want = _wanted(schedule.options), _wanted(command.options)
        members["differs"] = {
            field: {"have": have[field], "want": want[field]} for field in result.differs
        }
    return reply_with(request, members, 201 if result.created else 200)


def _wanted(options: ScheduleOptions) -> Mapping[str, Any]:
    return {
        "topic": options.topic,
        "cron": options.cron or None,
        "every_ms": options.every_ms or None,
        "timezone": options.timezone,
        "jitter_ms": options.jitter_ms,
        "catch_up": options.catch_up,
        "record": msgspec.Raw(options.record),
    }


def _paused(context: tuple[HttpRequest, int], result: cmd.SchedulePutResult, spent: Spent) -> Reply:
    request, shown = context
    return reply_with(request, _members(result.schedule, shown))


def _dropped(request: HttpRequest, result: cmd.ScheduleDropResult, spent: Spent) -> Reply:
    return reply_with(request, {"schedule": request.name, "deleted": result.deleted})


def _run(context: tuple[HttpRequest, str], result: cmd.FiringOutcome, spent: Spent) -> Reply:
    request, topic = context
    members = {
        "schedule": request.name,
        "topic": topic,
        "scheduled_for": result.scheduled_for,
        "seq": result.seq or None,
        "result": result.result,
    }
    return reply_with(request, members)

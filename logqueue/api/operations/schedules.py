"""Operations of schedules."""

from __future__ import annotations

from typing import Any

from logqueue import shapes
from logqueue.api.bodies import schedules as schedule_bodies
from logqueue.api.operations.row import PAGING, TEXT, U64, Body, Operation, Parameter, flag
from logqueue.core import commands as cmd
from logqueue.errors import (
    NotAQueue,
    RecordTooLarge,
    ScheduleNotFound,
    Throttled,
    TopicFull,
    TopicNotFound,
)
from logqueue.model.limits import FIRINGS_SHOWN_DEFAULT, FIRINGS_SHOWN_MAX
from logqueue.model.scopes import Scope

SCHEDULES = "/v0/schedules"
SCHEDULE = "/v0/schedules/*"

NEXT = Parameter(
    "next",
    {
        "type": "integer",
        "minimum": 0,
        "maximum": FIRINGS_SHOWN_MAX,
        "default": FIRINGS_SHOWN_DEFAULT,
    },
    f"How many next firings to show, clamped to {FIRINGS_SHOWN_MAX}.",
)

ENTRY: dict[str, Any] = {
    "schedule": "nightly",
    "topic": "transcode",
    "cron": "0 3 * * *",
    "every_ms": None,
    "timezone": "Europe/Berlin",
    "jitter_ms": 0,
    "catch_up": "one",
    "paused": False,
    "created_at": 1_795_211_132_582,
    "next_at": 1_795_312_800_000,
    "last_scheduled_for": 1_795_226_400_000,
    "last_fired_at": 1_795_226_400_002,
    "last_seq": 7,
    "last_result": "created",
    "last_error": None,
    "fired": 1,
    "skipped": 0,
    "missed": 0,
    "failed": 0,
}
NIGHTLY: dict[str, Any] = {
    **ENTRY,
    "record": {"data": {"task": "report"}},
    "next": [1_795_312_800_000, 1_795_399_200_000],
}
TIMED = {"performance": {"server_total_ms": 0.31}}
WRITING = (TopicNotFound, NotAQueue, Throttled)

OPERATIONS = (
    Operation(
        name="list_schedules",
        method="GET",
        pattern=SCHEDULES,
        scope=Scope.READ,
        group="schedules",
        summary="List schedules",
        doc="schedules",
        text="In pages, in ascending order of names. A key limited to prefixes sees only those "
        "whose name and topic it may access.",
        query=(*PAGING, Parameter("topic", TEXT, "Only schedules that write to this topic.")),
        reply=shapes.SchedulePage,
        example={"schedules": [ENTRY], **TIMED},
    ),
    Operation(
        name="put_schedule",
        method="PUT",
        pattern=SCHEDULE,
        scope=Scope.ADMIN,
        body_policy=Body.REQUIRED,
        command=cmd.PutSchedule,
        group="schedules",
        summary="Create or configure a schedule",
        doc="schedules",
        text="Writes `record` to `topic` at each time of `cron` or `every_ms`. The topic must "
        "exist. The options are replaced; the same options again change nothing.",
        query=(
            flag(
                "if_absent",
                False,
                "Never change an existing schedule: `differs` says what is different.",
            ),
            NEXT,
        ),
        body=schedule_bodies.ScheduleBody,
        asks={
            "topic": "transcode",
            "cron": "0 3 * * *",
            "timezone": "Europe/Berlin",
            "record": {"data": {"task": "report"}},
        },
        reply=shapes.Schedule,
        example={**NIGHTLY, "created": True, **TIMED},
        statuses=(200, 201),
        errors=(*WRITING, RecordTooLarge),
        creates=True,
    ),
    Operation(
        name="get_schedule",
        method="GET",
        pattern=SCHEDULE,
        scope=Scope.READ,
        group="schedules",
        summary="Get a schedule and its next firings",
        doc="schedules",
        query=(NEXT,),
        reply=shapes.Schedule,
        example={**NIGHTLY, **TIMED},
        errors=(ScheduleNotFound,),
    ),
    Operation(
        name="delete_schedule",
        method="DELETE",
        pattern=SCHEDULE,
        scope=Scope.ADMIN,
        command=cmd.DropSchedule,
        group="schedules",
        summary="Delete a schedule",
        doc="schedules",
        text="Jobs it has made are kept. If the schedule does not exist, `deleted` is false.",
        reply=shapes.ScheduleDropped,
        example={"schedule": "nightly", "deleted": True, **TIMED},
    ),
    Operation(
        name="pause_schedule",
        method="POST",
        pattern=SCHEDULE + "/pause",
        scope=Scope.ADMIN,
        command=cmd.PauseSchedule,
        group="schedules",
        summary="Pause a schedule",
        doc="schedules",
        text="It does not fire until it is resumed. Times that pass meanwhile are not made up for.",
        reply=shapes.Schedule,
        example={**NIGHTLY, "paused": True, "next_at": None, "next": [], **TIMED},
        errors=(ScheduleNotFound,),
    ),
    Operation(
        name="resume_schedule",
        method="POST",
        pattern=SCHEDULE + "/resume",
        scope=Scope.ADMIN,
        command=cmd.PauseSchedule,
        group="schedules",
        summary="Resume a schedule",
        doc="schedules",
        reply=shapes.Schedule,
        example={**NIGHTLY, **TIMED},
        errors=(ScheduleNotFound,),
    ),
    Operation(
        name="run_schedule",
        method="POST",
        pattern=SCHEDULE + "/run",
        scope=Scope.ADMIN,
        command=cmd.RunSchedule,
        group="schedules",
        summary="Let a schedule write its record now",
        doc="schedules",
        text="Its times do not change. A paused schedule can be run, too.",
        reply=shapes.ScheduleRun,
        example={
            "schedule": "nightly",
            "topic": "transcode",
            "scheduled_for": 1_795_230_000_000,
            "seq": 8,
            "result": "created",
            **TIMED,
        },
        errors=(ScheduleNotFound, *WRITING, RecordTooLarge, TopicFull),
    ),
    Operation(
        name="list_firings",
        method="GET",
        pattern="/v0/firings",
        scope=Scope.READ,
        group="schedules",
        summary="List the times of a cron text",
        doc="schedules",
        text="Before a schedule is made of it.",
        query=(
            Parameter("cron", TEXT, "Five fields, or `@daily` and the like.", True, "0 3 * * *"),
            Parameter("timezone", TEXT, "`UTC` when not given.", example="Europe/Berlin"),
            Parameter("after", U64, "Ms since the epoch; now when not given."),
            NEXT,
        ),
        reply=shapes.Firings,
        example={
            "cron": "0 3 * * *",
            "timezone": "Europe/Berlin",
            "next": [1_795_312_800_000, 1_795_399_200_000],
            **TIMED,
        },
    ),
)

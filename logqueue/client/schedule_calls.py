"""Calls about schedules.

Owns: their parameters and what they mean. Must not know: how a call is made.
"""

from __future__ import annotations

from typing import Any

from logqueue.client.appending import new_record
from logqueue.client.calls import Call, Listing, call, given
from logqueue.client.endpoints import (
    DELETE_SCHEDULE,
    GET_SCHEDULE,
    LIST_FIRINGS,
    LIST_SCHEDULES,
    PAUSE_SCHEDULE,
    PUT_SCHEDULE,
    RESUME_SCHEDULE,
    RUN_SCHEDULE,
)
from logqueue.client.topic_calls import PAGE_SIZE
from logqueue.shapes import (
    CatchUp,
    Firings,
    Schedule,
    ScheduleDropped,
    ScheduleEntry,
    SchedulePage,
    ScheduleRun,
)


def put_schedule(
    schedule: str,
    topic: str,
    record: Any,
    *,
    cron: str | None = None,
    every_ms: int | None = None,
    timezone: str | None = None,
    jitter_ms: int | None = None,
    catch_up: CatchUp | None = None,
    paused: bool | None = None,
    if_absent: bool = False,
    next: int | None = None,
) -> Call[Schedule]:
    """Create a schedule that writes a record at times of its own, or replace its options.

    Args:
        record: What it writes, a value or a `NewRecord`, as for `append`. Each job also has
            `schedule` and `scheduled_for` (ms since the epoch) in its `meta`.
        cron: Five fields, or `@daily` and the like. Either this or `every_ms`.
        every_ms: Time between two firings, a second to a year.
        timezone: Of which `cron` speaks; UTC when not given.
        jitter_ms: Up to how long after its time a firing comes.
        catch_up: What becomes of firings that were missed: `none`, `one` (the default), `all`.
        paused: Pauses it, or resumes it; an existing one stays as it is when not given.
        if_absent: Never change an existing one: `differs` says what is different.
        next: How many next firings the reply shows, 0 to 50; 5 when not given.

    Raises:
        InvalidRequest: A name, a time or the record is invalid.
        TopicNotFound: The topic does not exist.
        NotAQueue: The record says what only a job can say, and the topic is a log.
        Throttled: The server has as many schedules as it may have.
    """
    body = given(
        topic=topic,
        cron=cron,
        every_ms=every_ms,
        timezone=timezone,
        jitter_ms=jitter_ms,
        catch_up=catch_up,
        paused=paused,
    )
    query = given(if_absent="true" if if_absent else None, next=next)
    return call(PUT_SCHEDULE, schedule, body={**body, "record": new_record(record)}, query=query)


def schedule(schedule: str, *, next: int | None = None) -> Call[Schedule]:
    """A schedule, what it has done, and when it fires next.

    Args:
        next: How many next firings to show, 0 to 50; 5 when not given.

    Raises:
        ScheduleNotFound: There is no such schedule.
    """
    return call(GET_SCHEDULE, schedule, query=given(next=next))


def schedule_page(
    *,
    prefix: str | None = None,
    topic: str | None = None,
    cursor: str | None = None,
    page_size: int | None = None,
) -> Call[SchedulePage]:
    """One page of the list of schedules, in name order.

    Args:
        topic: Only schedules that write to this topic.
        cursor: `next_cursor` of the page before.
        page_size: 1 to 1000; 100 when not given.
    """
    query = given(prefix=prefix or None, topic=topic, cursor=cursor or None, page_size=page_size)
    return call(LIST_SCHEDULES, query=query)


def schedules(*, prefix: str | None = None, topic: str | None = None) -> Listing[ScheduleEntry]:
    """Every schedule that fits, in name order, page by page; see `schedule_page`."""

    def ask(cursor: str | None) -> Call[SchedulePage]:
        return schedule_page(prefix=prefix, topic=topic, cursor=cursor, page_size=PAGE_SIZE)

    def turn(page: SchedulePage) -> tuple[list[ScheduleEntry], Call[SchedulePage] | None]:
        return page.schedules, ask(page.next_cursor) if page.next_cursor else None

    return Listing(ask(None), turn)


def drop_schedule(schedule: str) -> Call[ScheduleDropped]:
    """Delete a schedule; the jobs it has made stay.

    After a lost reply the call is made again, and may then find nothing to delete.
    """
    return call(DELETE_SCHEDULE, schedule)


def pause_schedule(schedule: str) -> Call[Schedule]:
    """Let a schedule fire no more until it is resumed.

    Raises:
        ScheduleNotFound: There is no such schedule.
    """
    return call(PAUSE_SCHEDULE, schedule)


def resume_schedule(schedule: str) -> Call[Schedule]:
    """Let a paused schedule fire again; what passed meanwhile is not made up for.

    Raises:
        ScheduleNotFound: There is no such schedule.
    """
    return call(RESUME_SCHEDULE, schedule)


def run_schedule(schedule: str) -> Call[ScheduleRun]:
    """Have a schedule write its record now; its times do not change.

    Raises:
        ScheduleNotFound: There is no such schedule.
        TopicNotFound, TopicFull: Its topic does not take the record.
    """
    return call(RUN_SCHEDULE, schedule, is_repeatable=False)


def firings(
    cron: str, *, timezone: str | None = None, after: int | None = None, next: int | None = None
) -> Call[Firings]:
    """When a cron text fires, before a schedule is made of it.

    Args:
        timezone: UTC when not given.
        after: Ms since the epoch; now when not given.
        next: How many times, 0 to 50; 5 when not given.

    Raises:
        InvalidRequest: The text or the zone is invalid.
    """
    return call(LIST_FIRINGS, query=given(cron=cron, timezone=timezone, after=after, next=next))

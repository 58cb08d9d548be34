"""When a task runs by itself, as an app declares it.

Owns: the times and options of schedules, what is declared of each, how one on the server differs.
Must not know: how calls are made, when a worker declares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from logqueue.client.appending import NewRecord
from logqueue.client.calls import as_json
from logqueue.errors import quoted
from logqueue.shapes import Schedule
from logqueue.worker.message import Message, OnConflict, Unique
from logqueue.worker.payload import Arguments

CatchUp = Literal["none", "one", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleTimes:
    """What `Cron` and `Every` have in common.

    Attributes:
        name: Of the schedule on the server; `QUEUE.TASK` when not given. Each schedule of a task
            needs its own.
        args, kwargs: What the task is called with.
        jitter: Up to how many seconds after its time a firing comes.
        catch_up: Which firings that the server missed are made up for.
        key: At most one job has it.
        unique: How long a job has the key: while it is `waiting` (the default), until it ends
            (`running`: the task never runs while the last run is not over), or `kept`.
        on_duplicate: What a firing does when a job has the key; `replace` by default.
        tag: The tag of its jobs.
    """

    name: str | None = None
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    jitter: float = 0.0
    catch_up: CatchUp = "one"
    key: str | None = None
    unique: Unique | None = None
    on_duplicate: OnConflict | None = None
    tag: str | None = None

    def times(self) -> dict[str, Any]:
        """The members of a schedule that say when it fires."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Cron(ScheduleTimes):
    """At the times of a cron text in a time zone: `Cron("0 3 * * *", tz="Europe/Berlin")`.

    Attributes:
        text: Five fields, or `@daily` and the like; the server checks it.
        tz: Name of the IANA zone database.
    """

    text: str
    tz: str = "UTC"

    def times(self) -> dict[str, Any]:
        """See `ScheduleTimes`."""
        return {"cron": self.text, "timezone": self.tz}


@dataclass(frozen=True, slots=True, kw_only=True)
class Every(ScheduleTimes):
    """Again and again, so far apart: `Every(minutes=5)`. A second at least, a year at most."""

    days: float = 0
    hours: float = 0
    minutes: float = 0
    seconds: float = 0

    def times(self) -> dict[str, Any]:
        """See `ScheduleTimes`."""
        hours = self.days * 24 + self.hours
        return {"every_ms": round((hours * 3600 + self.minutes * 60 + self.seconds) * 1000)}


@dataclass(frozen=True, slots=True)
class DeclaredSchedule:
    """A schedule of a task.

    Attributes:
        name: On the server.
        message: The job that each firing makes.
    """

    name: str
    when: ScheduleTimes
    message: Message

    @property
    def queue(self) -> str:
        """Where its jobs go."""
        return self.message.queue

    def record(self) -> NewRecord:
        """The record that it writes."""
        return self.message.record()

    def options(self) -> dict[str, Any]:
        """The other arguments of `put_schedule`."""
        jitter_ms = round(self.when.jitter * 1000)
        return {**self.when.times(), "jitter_ms": jitter_ms, "catch_up": self.when.catch_up}

    def drift(self, found: Schedule) -> list[str]:
        """What differs between a schedule on the server and this one, one text per member."""
        return [
            f"{member} is {as_json(drift.have)}, the app declares {as_json(drift.want)}"
            for member, drift in (found.differs or {}).items()
        ]


def declared(
    whens: ScheduleTimes | Iterable[ScheduleTimes], task: str, queue: str, arguments: Arguments
) -> list[DeclaredSchedule]:
    """The schedules of a task.

    Raises:
        TypeError: Their arguments do not fit the function.
        ValueError: Two of them have one name, or a time between two firings is out of range.
    """
    found: dict[str, DeclaredSchedule] = {}
    for when in [whens] if isinstance(whens, ScheduleTimes) else whens:
        name = when.name or f"{queue}.{task}"
        if name in found:
            raise ValueError(
                f"task {task} has two schedules named {quoted(name)}: give each a name="
            )
        if isinstance(when, Every) and when.times()["every_ms"] < 1000:
            raise ValueError(f"schedule {name}: at least a second must be between two firings")
        message = Message(
            queue=queue,
            data=arguments.encode(when.args, when.kwargs),
            tag=when.tag,
            key=when.key,
            on_conflict=when.on_duplicate,
            unique=when.unique,
        )
        found[name] = DeclaredSchedule(name, when, message)
    return [*found.values()]

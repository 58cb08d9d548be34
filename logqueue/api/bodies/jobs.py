"""Bodies and parameters of job administration: from JSON to commands.

Owns: the members of purge, release and changes, and the filters of a job listing.
Must not know: how a command is decided, replies, routes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, get_args

import msgspec

from logqueue.api.bodies.reader import U32, BodyReader
from logqueue.api.bodies.records import Priority
from logqueue.api.bodies.unknown_members import Ignore
from logqueue.core import commands as cmd
from logqueue.core.job_filter import JobFilter, needles_of
from logqueue.errors import (
    BatchTooLarge,
    InvalidRequest,
    quoted,
)
from logqueue.events import block as blocks
from logqueue.model import limits
from logqueue.model.config import U64
from logqueue.model.tag_predicate import Predicate

JOB_STATES: tuple[cmd.JobState, ...] = get_args(cmd.JobState)


class PurgeBody(msgspec.Struct):
    """`POST /v0/topics/:q/purge`."""

    states: list[cmd.JobState]


class ReleaseBody(msgspec.Struct):
    """`POST /v0/topics/:q/release`."""

    seqs: list[U64]


class JobStatusBody(msgspec.Struct):
    """`POST /v0/topics/:q/jobs/status`."""

    seqs: list[U64]
    wait_ms: U32 = 0
    until: Literal["all", "any"] = "all"


class JobFilterBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which jobs a change of many is about; all of it must match.

    Elsewhere unknown members are ignored; here a misspelt one would select more jobs.
    """

    state: cmd.JobState | list[cmd.JobState] | None = None
    tag: str | None = None
    key: str | None = None
    node: str | None = None
    min_age_ms: U64 | None = None
    max_age_ms: U64 | None = None
    min_deliveries: U32 = 0
    text: str | None = None
    priority: Priority | None = None
    group: str | None = None
    seqs: list[U64] | None = None
    before_seq: U64 | None = None
    operation: str | None = None


class ChangeJobsBody(msgspec.Struct):
    """`POST /v0/topics/:q/jobs/change`."""

    action: cmd.JobAction
    filter: JobFilterBody
    delay_ms: U64 | None = None
    priority: Priority | None = None
    force: bool = False
    limit: U64 | None = None
    rate_per_s: U32 | None = None
    dry_run: bool = False
    wait: bool = False


_read_status_body = BodyReader(JobStatusBody).read
_read_change_body = BodyReader(ChangeJobsBody).read
_read_purge_body = BodyReader(PurgeBody).read
_read_release_body = BodyReader(ReleaseBody).read


def purge_command(topic: str, body: bytes, ignore: Ignore | None = None) -> cmd.Purge:
    """The command of a purge body.

    Raises:
        InvalidRequest: No state, or an unknown one.
    """
    decoded: PurgeBody = _read_purge_body(body, ignore)
    if not decoded.states:
        raise InvalidRequest(f"`states` must name at least one of {', '.join(JOB_STATES)}")
    return cmd.Purge(topic, frozenset(decoded.states))


def release_command(topic: str, body: bytes, ignore: Ignore | None = None) -> cmd.Release:
    """The command of a release body.

    Raises:
        InvalidRequest, BatchTooLarge: A seq is out of range, or there are too many.
    """
    decoded: ReleaseBody = _read_release_body(body, ignore)
    return cmd.Release(topic, checked_seqs(decoded.seqs, limits.SEQS_PER_CALL_MAX))


def read_status_body(body: bytes, ignore: Ignore | None = None) -> JobStatusBody:
    """Which jobs a caller asks about, each once, and how long it waits for their ends.

    Raises:
        InvalidRequest, BatchTooLarge: It is none, a seq is out of range, or there are too many.
    """
    decoded: JobStatusBody = _read_status_body(body, ignore)
    seqs = checked_seqs(decoded.seqs, limits.SEQS_PER_CALL_MAX)
    wait_ms = min(decoded.wait_ms, limits.JOB_WAIT_MS_MAX)
    return msgspec.structs.replace(decoded, seqs=[*dict.fromkeys(seqs)], wait_ms=wait_ms)


def read_wait_ms(query: Mapping[str, str]) -> int:
    """How long a caller waits for the end of a job, in milliseconds.

    Raises:
        InvalidRequest: It is not a number.
    """
    return min(_number(query, "wait_ms", 0, limits.U32_MAX), limits.JOB_WAIT_MS_MAX)


def read_change_body(body: bytes, ignore: Ignore | None = None) -> ChangeJobsBody:
    """A body of a change of many jobs, with all numbers in their ranges.

    Raises:
        InvalidRequest, BatchTooLarge: It is none, or a member is out of range.
    """
    decoded: ChangeJobsBody = _read_change_body(body, ignore)
    if decoded.action == "delay":
        if decoded.delay_ms is None:
            raise InvalidRequest('the action "delay" needs `delay_ms`')
        if decoded.delay_ms > limits.DELAY_MS_MAX:
            raise InvalidRequest(f"`delay_ms` must be at most {limits.DELAY_MS_MAX} (a year)")
    elif decoded.delay_ms is not None:
        raise InvalidRequest(f'`delay_ms` is for the action "delay", not "{decoded.action}"')
    if decoded.action == "prioritize" and decoded.priority is None:
        raise InvalidRequest('the action "prioritize" needs `priority`')
    if decoded.action != "prioritize" and decoded.priority is not None:
        raise InvalidRequest(f'`priority` is for the action "prioritize", not "{decoded.action}"')
    if decoded.limit == 0:
        raise InvalidRequest("`limit` must be at least 1; leave it out to change all")
    if decoded.rate_per_s is not None and not 1 <= decoded.rate_per_s <= limits.RATE_PER_S_MAX:
        raise InvalidRequest(f"`rate_per_s` must be from 1 to {limits.RATE_PER_S_MAX}")
    _check_filter(decoded.filter)
    return decoded


def _check_filter(wanted: JobFilterBody) -> None:
    for name in ("min_age_ms", "max_age_ms", "before_seq"):
        if (getattr(wanted, name) or 0) > limits.U64_MAX:
            raise InvalidRequest(f"`filter.{name}` must be at most {limits.U64_MAX}")
    if wanted.seqs is not None:
        checked_seqs(wanted.seqs, limits.SEQS_PER_CHANGE_MAX)


def job_filter(body: ChangeJobsBody, of_operation: Sequence[int] | None = None) -> JobFilter:
    """The filter of a change: the jobs to which its action applies, and which it selects.

    Args:
        body: What `read_change_body` gives.
        of_operation: The jobs that the operation in the filter has changed.

    Raises:
        InvalidRequest: The action applies to jobs in none of the states, or the text is too long.
    """
    wanted = body.filter
    applies = cmd.APPLIES_TO[body.action]
    if body.action == "cancel" and not body.force:
        applies -= {"in_flight"}
    given = [wanted.state] if isinstance(wanted.state, str) else wanted.state
    states = applies if not given else applies & {*given}
    if not states:
        names = " or ".join(sorted(applies))
        hint = '; add `"force": true` for jobs in flight' if body.action == "cancel" else ""
        raise InvalidRequest(f'the action "{body.action}" is for jobs that are {names}{hint}')
    return JobFilter(
        states=states,
        match=None if wanted.tag is None else Predicate.parse(wanted.tag),
        key=None if wanted.key is None else blocks.write_string(wanted.key),
        node=wanted.node,
        min_age_ms=wanted.min_age_ms,
        max_age_ms=wanted.max_age_ms,
        min_deliveries=wanted.min_deliveries,
        needles=_needles(wanted.text),
        priority=wanted.priority,
        group=None if wanted.group is None else blocks.write_string(wanted.group),
        seqs=_both(wanted.seqs, of_operation),
    )


def checked_seqs(seqs: list[int], most: int) -> list[int]:
    """The seqs of a body.

    Raises:
        InvalidRequest, BatchTooLarge: One is out of range, or there are too many.
    """
    if len(seqs) > most:
        raise BatchTooLarge(
            f"{len(seqs)} seqs in one call; send at most {most}", {"seqs": len(seqs), "max": most}
        )
    if seqs and max(seqs) > limits.U64_MAX:
        raise InvalidRequest(f"`seqs` must be at most {limits.U64_MAX}")
    return seqs


def _both(some: Sequence[int] | None, others: Sequence[int] | None) -> Sequence[int] | None:
    """The seqs that are in both, where both are given."""
    if some is None or others is None:
        return others if some is None else some
    return sorted({*some} & {*others})


class JobQuery(NamedTuple):
    """What a page of jobs is to show.

    Attributes:
        wanted: Which jobs.
        after: Only jobs with a higher seq.
        limit: Jobs at most.
    """

    wanted: JobFilter
    after: int
    limit: int


def read_job_query(query: Mapping[str, str]) -> JobQuery:
    """The filters of a job listing.

    Raises:
        InvalidRequest: An unknown state, a number that is none, or a text that is too long.
    """
    states: set[cmd.JobState] = set()
    for name in query.get("state", "").split(","):
        if name:
            states.add(_state(name))
    tag, key, group = query.get("tag"), query.get("key"), query.get("group")
    limit = _number(query, "limit", limits.JOBS_LISTED_DEFAULT, limits.U32_MAX)
    wanted = JobFilter(
        states=frozenset(states),
        match=None if tag is None else Predicate.parse(tag),
        key=None if key is None else blocks.write_string(key),
        node=query.get("node"),
        min_age_ms=_number_if_given(query, "min_age_ms"),
        max_age_ms=_number_if_given(query, "max_age_ms"),
        min_deliveries=_number(query, "min_deliveries", 0, limits.U32_MAX),
        needles=_needles(query.get("text")),
        priority=_number_if_given(query, "priority", limits.JOB_PRIORITY_MAX),
        group=None if group is None else blocks.write_string(group),
    )
    after = _number(query, "after", 0, limits.U64_MAX)
    return JobQuery(wanted, after, min(max(limit, 1), limits.JOBS_LISTED_MAX))


def read_group_query(query: Mapping[str, str]) -> tuple[bool, int]:
    """Whether groups are listed by age, and how many.

    Raises:
        InvalidRequest: An unknown order, or a number that is none.
    """
    order = query.get("order", "backlog")
    if order not in ("backlog", "age"):
        raise InvalidRequest(f"invalid `order` {quoted(order[:40])}: use backlog or age")
    limit = _number(query, "limit", limits.GROUPS_LISTED_DEFAULT, limits.U32_MAX)
    return order == "age", min(max(limit, 1), limits.GROUPS_LISTED_MAX)


def _number_if_given(query: Mapping[str, str], name: str, most: int = limits.U64_MAX) -> int | None:
    return _number(query, name, 0, most) if name in query else None


def _needles(text: str | None) -> tuple[bytes, ...]:
    """The byte strings that a search for a text looks for; none for an empty one.

    Raises:
        InvalidRequest: It is too long.
    """
    if not text:
        return ()
    if len(text) > limits.SEARCH_TEXT_CHARS_MAX:
        raise InvalidRequest(f"`text` may have {limits.SEARCH_TEXT_CHARS_MAX} characters at most")
    return needles_of(text)


def _state(name: str) -> cmd.JobState:
    for state in JOB_STATES:
        if state == name:
            return state
    raise InvalidRequest(f"invalid `state` {quoted(name[:40])}: use {', '.join(JOB_STATES)}")


def _number(query: Mapping[str, str], name: str, default: int, most: int) -> int:
    given = query.get(name)
    return default if given is None else read_number(given, f"`{name}`", most)


def read_number(text: str, what: str, most: int) -> int:
    """An unsigned integer of a path or a query.

    Raises:
        InvalidRequest: It is not one, or over `most`.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= 40) or int(text) > most:
        raise InvalidRequest(f"{what} must be an integer from 0 to {most}, not {quoted(text[:40])}")
    return int(text)

"""Bodies and parameters of job administration: from JSON to commands.

Owns: the members of purge and release, and the filters of a job listing.
Must not know: how a command is decided, replies, routes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, get_args

import msgspec

from logqueue.api.bodies.reader import BodyReader
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
    tag, key = query.get("tag"), query.get("key")
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
    )
    after = _number(query, "after", 0, limits.U64_MAX)
    return JobQuery(wanted, after, min(max(limit, 1), limits.JOBS_LISTED_MAX))


def _number_if_given(query: Mapping[str, str], name: str) -> int | None:
    return _number(query, name, 0, limits.U64_MAX) if name in query else None


def _needles(text: str | None) -> tuple[bytes, ...]:
    """The byte strings that a search for a text looks for; none for an empty one.

    Raises:
        InvalidRequest: It is too long.
    """
    if not text:
        return ()
    if len(text.encode("utf-8", "surrogatepass")) > limits.SEARCH_TEXT_BYTES_MAX:
        raise InvalidRequest(f"`text` may have {limits.SEARCH_TEXT_BYTES_MAX} bytes at most")
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

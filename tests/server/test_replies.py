"""Replies that are joined from bytes by hand have the shapes that clients and OpenAPI know.

Every hand-made encoder of `api.replies` and `api.frames` is in CASES, and gets whatever its
arguments may be. What it makes must be JSON with exactly the members of its shape.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logqueue import shapes
from logqueue.api import frames, replies
from logqueue.api.openapi import document
from logqueue.api.operations import OPERATIONS
from logqueue.core import results
from logqueue.core.ended_jobs import EndedJob
from logqueue.core.job_status import STATE_OF, KnownJob
from logqueue.core.job_views import JobListing, JobSummary
from logqueue.core.reading import ReadPage, RemovedRange
from tests.http.described import Judge

U64 = st.integers(0, 2**64 - 1)
COUNT = st.integers(0, 10_000)
MS = st.integers(0, 2**45)
WORDS = st.text(st.characters(exclude_categories=("C", "Z")), max_size=20)
TOPIC = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,20}", fullmatch=True)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=5,
).map(msgspec.json.encode)
FOLLOW = st.sampled_from(
    (b"", b'{"batch":"b"}', b'{"batch":"b","then":[{"topic":"q","record":{"data":1}}]}')
)
META = st.dictionaries(WORDS, WORDS, max_size=2).map(msgspec.json.encode)
TEXT = WORDS.map(msgspec.json.encode)
TIMINGS = st.just(b'{"server_total_ms":0.125}')
FATE = {
    "key": st.just(b"") | TEXT,
    "error": st.none() | WORDS,
    "updated_at": st.just(0) | MS,
    "given_back": st.just(0) | COUNT,
    "tag": st.just(b"") | TEXT,
    "data": JSON,
    "meta": st.just(b"") | META,
    "follow": FOLLOW,
    "priority": st.integers(0, 9),
    "group": st.just(b"") | TEXT,
}
CLAIMED = st.builds(
    results.ClaimedJob, seq=U64, lease=U64, deadline=MS, ts=MS, deliveries=COUNT, **FATE
)
REASON = st.none() | st.sampled_from(["empty", "delayed", "in_flight", "paused", "rate_limited"])
CLAIM = st.builds(
    results.ClaimResult, jobs=st.just([]), ready=COUNT, reason=REASON, retry_after_ms=st.none() | MS
)
RESULTS = st.lists(
    st.tuples(U64, st.sampled_from(["created", "replaced", "kept"])), min_size=1, max_size=4
)
APPENDED = st.builds(
    results.AppendResult,
    first_seq=U64,
    records=st.integers(1, 5),
    head_seq=U64,
    created=st.booleans(),
    deduped=st.booleans(),
    results=st.none() | RESULTS,
)
SETTLED = st.builds(
    results.SettleResult,
    settled=COUNT,
    skipped=st.lists(U64, max_size=4),
    ready=COUNT,
    in_flight=COUNT,
)
ACKED = st.builds(
    results.SettleResult,
    settled=COUNT,
    skipped=st.lists(U64, max_size=4),
    ready=COUNT,
    in_flight=COUNT,
    appended=st.lists(APPENDED, max_size=2),
)
EXTENDED = st.builds(
    results.ExtendResult,
    seqs=st.lists(U64, max_size=4),
    skipped=st.lists(U64, max_size=4),
    deadline=MS,
)
GAP = st.builds(
    RemovedRange,
    gap_from=U64,
    gap_to=U64,
    reason=st.sampled_from(["cap", "ttl", "mixed", "recreated", "source_trim"]),
    missed_estimate=U64,
    earliest_seq=U64,
    head_seq=U64,
)
PAGE = st.builds(
    ReadPage,
    runs=st.just([]),
    next_from_seq=U64,
    head_seq=st.just(2**64 - 1),
    earliest_seq=U64,
    tombstone=st.none() | GAP,
    scanned=COUNT,
)
RECORDS = st.sampled_from([b"", b'{"$seq":1,"$ts":2,"data":null}'])
SUMMARY = st.builds(
    JobSummary,
    seq=U64,
    state=st.sampled_from(["ready", "delayed", "in_flight", "held"]),
    ts=MS,
    deliveries=COUNT,
    max_deliveries=COUNT,
    node=WORDS,
    deadline=MS,
    lease=U64,
    not_before=MS,
    expires_at=MS,
    progress=st.sampled_from([None, 0.0, 0.5, 1.0]),
    note=st.sampled_from(["", "half", "ä"]),
    **FATE,
)
ENDED = st.builds(
    EndedJob,
    outcome=st.sampled_from([*STATE_OF]),
    at=MS,
    node=WORDS,
    reason=st.sampled_from(["", "rejected", "max_deliveries", "expired"]),
    segment=st.just(1),
    result=st.sampled_from([b"", b"0", b'{"a":[null]}']),
    error=st.none() | WORDS,
)
STATUSES = st.builds(
    replies.job_status_member,
    U64,
    st.none()
    | st.builds(KnownJob, seq=U64, live=SUMMARY, ended=st.none())
    | st.builds(KnownJob, seq=U64, live=st.none(), ended=st.none() | ENDED),
    MS,
)
JOBS = st.builds(
    JobListing, jobs=st.lists(SUMMARY, max_size=3), next_after=st.none() | U64, scanned=COUNT
)
EVENT = st.fixed_dictionaries({"at": MS, "event": st.just("nack"), "node": WORDS, "error": WORDS})

ONE_JOB = st.fixed_dictionaries(
    {
        "job": SUMMARY,
        "why": st.just({"code": "ready", "text": "Ready."}),
        "history": st.lists(EVENT, max_size=2),
        "history_complete": st.booleans(),
        "timeline": st.lists(EVENT, max_size=2),
        "timeline_complete": st.booleans(),
    }
)


def together(rows: list[results.ClaimedJob]) -> results.ClaimedJobs:
    """Some jobs as those of one claimer: the first one's deadline, and leases that count up."""
    first = rows[0] if rows else None
    lease, deadline = (first.lease, first.deadline) if first is not None else (0, 0)
    leases = range(lease, lease + len(rows))
    jobs = results.ClaimedJobs([row.seq for row in rows], leases, deadline)
    jobs.times = [row.ts for row in rows]
    jobs.deliveries = [row.deliveries for row in rows]
    jobs.data = [row.data for row in rows]
    tags, metas = [row.tag for row in rows], [row.meta for row in rows]
    jobs.tags = tags if any(tags) else None
    jobs.metas = metas if any(metas) else None
    fates = [
        results.JobFate(
            r.key,
            r.error,
            r.updated_at,
            r.given_back,
            follow=r.follow,
        )
        for r in rows
    ]
    priorities, groups = [row.priority for row in rows], [row.group for row in rows]
    jobs.priorities = priorities if any(priorities) else None
    jobs.groups = groups if any(groups) else None
    jobs.fates = fates if any(fate != results.JobFate() for fate in fates) else None
    return jobs


def data_of(frame: bytes) -> bytes:
    """The JSON of a server-sent event, which is one line."""
    (line,) = [line for line in frame.splitlines() if line.startswith(b"data: ")]
    return line.removeprefix(b"data: ")


def told(kind: str) -> Callable[[frames.StreamEvent], bytes]:
    """What an event says, after a look at its kind."""

    def check(event: frames.StreamEvent) -> bytes:
        assert event.kind == kind
        return data_of(frames.encode_sse(event, b"1"))

    return check


Case = tuple[Callable[..., Any], tuple[st.SearchStrategy[Any], ...], type, Callable[..., bytes]]
AS_IT_IS: Callable[..., bytes] = bytes

CASES: list[Case] = [
    (replies.encode_appended, (TOPIC, APPENDED, st.booleans(), TIMINGS), shapes.Appended, AS_IT_IS),
    (
        replies.encode_claimed,
        (TOPIC, st.lists(CLAIMED, max_size=3).map(together), CLAIM, TIMINGS),
        shapes.Claimed,
        AS_IT_IS,
    ),
    (
        replies.encode_job_frames,
        (TOPIC, st.lists(CLAIMED, min_size=1, max_size=1).map(together)),
        shapes.JobFrame,
        data_of,
    ),
    (replies.encode_settled, (TOPIC, st.just("acked"), SETTLED, TIMINGS), shapes.Acked, AS_IT_IS),
    (
        replies.encode_acked,
        (TOPIC, ACKED, st.lists(TOPIC, min_size=2, max_size=2), TIMINGS),
        shapes.Acked,
        AS_IT_IS,
    ),
    (replies.encode_settled, (TOPIC, st.just("nacked"), SETTLED, TIMINGS), shapes.Nacked, AS_IT_IS),
    (
        replies.encode_settled,
        (TOPIC, st.just("rejected"), SETTLED, TIMINGS),
        shapes.Rejected,
        AS_IT_IS,
    ),
    (replies.encode_extended, (TOPIC, EXTENDED, TIMINGS), shapes.Extended, AS_IT_IS),
    (replies.encode_page, (TOPIC, PAGE, RECORDS, TIMINGS), shapes.Page, AS_IT_IS),
    (replies.encode_jobs, (TOPIC, JOBS, MS, st.booleans(), TIMINGS), shapes.JobPage, AS_IT_IS),
    (
        replies.encode_job_history,
        (TOPIC, ONE_JOB, MS, TIMINGS),
        shapes.JobHistory,
        AS_IT_IS,
    ),
    (
        replies.encode_job_statuses,
        (TOPIC, st.lists(STATUSES, max_size=3), st.lists(U64, max_size=2), TIMINGS),
        shapes.JobStatuses,
        AS_IT_IS,
    ),
    (frames.record_event, (TOPIC, PAGE, RECORDS, U64), shapes.Records, told("record")),
    (
        frames.tombstone_event,
        (TOPIC, GAP, st.sampled_from(["cap", "from_seq_too_old"]), U64),
        shapes.Gap,
        told("tombstone"),
    ),
    (frames.caught_up_event, (TOPIC, U64), shapes.CaughtUp, told("caught_up")),
    (frames.deleted_event, (WORDS, U64), shapes.TopicDeleted, told("topic_deleted")),
    (frames.encode_sse_error, (WORDS, WORDS, st.just(b"1")), shapes.StreamError, data_of),
]

WITHOUT_SHAPE = {
    "encode_error",
    "encode_ack",
    "encode_socket_error",
    "encode_sse",
    "encode_message",
    "encode_cursors",
}
"""Made by the encoder of JSON, or of what others in CASES make; the WebSocket has its own tests."""


@cache
def judge() -> Judge:
    """The OpenAPI document, unknown members refused."""
    return Judge(document(OPERATIONS))


def test_every_encoder_is_held_to_its_shape() -> None:
    """A new encoder of bytes needs a case here."""
    names = {
        name
        for module in (replies, frames)
        for name in vars(module)
        if name.startswith("encode_") or name.endswith("_event")
    }
    assert names - WITHOUT_SHAPE == {encode.__name__ for encode, *_ in CASES}


@pytest.mark.parametrize(
    ("encode", "arguments", "shape", "json_of"), CASES, ids=lambda one: getattr(one, "__name__", "")
)
def test_bytes_made_by_hand_have_their_shape(
    encode: Callable[..., Any],
    arguments: tuple[st.SearchStrategy[Any], ...],
    shape: type,
    json_of: Callable[..., bytes],
) -> None:
    @settings(derandomize=True, max_examples=30, deadline=None)
    @given(st.tuples(*arguments))
    def check(values: tuple[Any, ...]) -> None:
        made = json_of(encode(*values))
        msgspec.json.decode(made, type=shape)
        judge().require(shape.__name__, msgspec.json.decode(made))

    check()


@given(jobs=st.lists(CLAIMED, min_size=1, max_size=3).map(together), claim=CLAIM)
@settings(derandomize=True, max_examples=30, deadline=None)
def test_a_claimed_job_says_what_it_is(
    jobs: results.ClaimedJobs, claim: results.ClaimResult
) -> None:
    made = replies.encode_claimed("q", jobs, claim, b"{}")
    claimed = msgspec.json.decode(made, type=shapes.Claimed)
    for job, read in zip(jobs, claimed.jobs, strict=True):
        assert (read.seq, read.lease_id, read.deadline) == (
            job.seq,
            f"lease_{job.lease:x}",
            job.deadline,
        )
        assert (read.data, read.meta) == (
            msgspec.json.decode(job.data),
            msgspec.json.decode(job.meta) if job.meta else None,
        )

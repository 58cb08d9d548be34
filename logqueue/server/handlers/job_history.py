"""One job with its whole life, as the server still knows it.

Owns: the reply of one job: what it is or was, why it waits, its timeline. Must not know: how the
log is searched, HTTP.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from logqueue.api import replies
from logqueue.core.decide.why import Why, WorkersSeen, explain, first_line, lasting
from logqueue.core.job_status import STATE_OF, job_status
from logqueue.core.job_views import JobSummary, describe_job
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.topic import Topic
from logqueue.errors import NotFound, quoted
from logqueue.events.event import JobEndKind
from logqueue.segments.job_trail import Entry, JobTrail, lease_steps
from logqueue.server.engine.background import leases_flushed
from logqueue.server.engine.dispatcher import Dispatcher
from logqueue.server.service import Phase, Service
from logqueue.server.storage.job_search import JobSearch, SearchedJob

ENTRIES_MAX = 1000
"""Steps of a job that are shown: the latest."""

_ENDED = {
    "acked": "Done: acked",
    "rejected": "Rejected",
    "dropped": "Dropped",
    "expired": "Expired",
    "superseded": "Replaced by a newer job with its key",
    "cancelled": "Cancelled",
    "dead_lettered": "Dead-lettered",
    "redriven": "Moved back by a redrive",
    "deleted": "Deleted",
    "gone": "No longer in the queue; the log does not say how it ended",
}


_REASONS = {
    "max_deliveries": ", after all its deliveries",
    "expired": ", past its time to live",
}


class Shown(NamedTuple):
    """What a caller may see.

    Attributes:
        allows: Which names of topics.
        data: Whether it wants the data.
        ended: Whether it asks about jobs that have ended, too.
    """

    allows: Callable[[str], bool]
    data: bool
    ended: bool

    def name(self, topic: str | None) -> str:
        """A topic's name, or what replaces it."""
        return replies.shown_name(topic, self.allows)

    def entry(self, entry: Entry) -> Entry:
        """A step of which the names of other topics are shown only where they may be."""
        name = entry.get("topic")
        return entry if name is None else {**entry, "topic": self.name(name)}


def job_now(
    service: Service, dispatcher: Dispatcher, topic: QueueTopic, seq: int, now: int, shown: Shown
) -> dict[str, Any]:
    """The members of the reply about one live job, without its past.

    Raises:
        NotFound: There is no such job; asked about ended ones, too: there has been none.
    """
    job = describe_job(topic, seq, with_data=shown.data)
    if job is None and topic.queue.ended is not None:
        return _kept_end(topic, seq, now)
    if job is None:
        if not shown.ended or not 0 < seq <= topic.head:
            raise _no_job(topic, seq)
        gone = {"$seq": seq, "$ts": 0, "state": "gone", "deliveries": 0, "age_ms": 0}
        return {"job": gone, "why": {"code": "ended", "text": "It is no longer in the queue."}}
    why = _why(service, dispatcher, topic, job, now, [], shown)
    return {"job": job, "why": _why_members(why)}


async def read_job(
    service: Service, dispatcher: Dispatcher, name: str, seq: int, shown: Shown
) -> dict[str, Any]:
    """The members of the reply about one job.

    Raises:
        TopicNotFound, NotAQueue: There is no such queue.
        NotFound: There is no such job; asked about ended ones, too: the log knows of none.
    """
    engine = dispatcher.engine
    for _ in range(2):
        topic = engine.queue_now(name)
        job = describe_job(topic, seq, with_data=False) if 0 < seq <= topic.head else None
        await dispatcher.barrier.wait(topic.mark_written, topic.mark_durable)
        if job is None and not shown.ended:
            if topic.queue.ended is not None:
                members = _kept_end(topic, seq, engine.clock.now_ms())
                await dispatcher.barrier.wait(topic.mark_written, topic.mark_durable)
                return members
            raise _no_job(topic, seq)
        trail, search = _trail(dispatcher, topic, seq, job.ts if job is not None else 0)
        if topic.is_on_disk and 0 < seq <= topic.head:
            await leases_flushed(engine.journal)
            await service.stepping.run(search.steps())
        was_there = job is not None
        now = engine.clock.now_ms()
        topic = engine.queue_now(name, now)
        job = describe_job(topic, seq, with_data=shown.data)
        # What ended while its log was read is looked up once more.
        if job is not None or not was_there:
            break
    await dispatcher.barrier.wait(topic.mark_written, topic.mark_durable)
    entries = trail.entries(job is not None and job.state == "in_flight", now)
    if job is None:
        members = _ended(topic, seq, trail, entries, search.is_whole, now, shown)
        if "copy" in members:
            copy: Topic | None = engine.state.topics.get(members["copy"]["topic"])
            members["copy"]["exists"] = copy is not None and copy.holds(members["copy"]["seq"])
        return members
    claims = [entry for entry in entries if entry["event"] == "claimed"]
    why = _why(service, dispatcher, topic, job, now, claims, shown)
    knows_all = len(claims) >= job.deliveries
    steps = [*map(shown.entry, _with_append(entries, job)[-ENTRIES_MAX:])]
    return {
        "job": job,
        "why": _why_members(why),
        "history": lease_steps(steps),
        "history_complete": knows_all,
        "timeline": steps,
        "timeline_complete": knows_all and search.is_whole and len(entries) <= ENTRIES_MAX,
    }


def _trail(
    dispatcher: Dispatcher, topic: QueueTopic, seq: int, ts: int
) -> tuple[JobTrail, JobSearch]:
    engine = dispatcher.engine
    state = engine.state

    def name_of(number: int) -> str | None:
        found = state.instances.get(number)
        return found.name if found is not None else None

    def source_of(number: int) -> int | None:
        router = state.routers_by_number.get(number)
        return router.source if router is not None else None

    trail = JobTrail(topic.number, seq, topic.name, name_of, source_of)
    through = max(topic.mark_written, topic.mark_durable)
    sought = SearchedJob(topic.number, seq, ts, through)
    return trail, JobSearch(engine.journal.fs, engine.segments, sought, trail)


def _with_append(entries: list[Entry], job: JobSummary) -> list[Entry]:
    """The steps of a live job; the record itself tells when it was written."""
    if any(entry["event"] in ("appended", "redriven", "routed") for entry in entries):
        return entries
    return [{"at": job.ts, "event": "appended"}, *entries]


def _why(
    service: Service,
    dispatcher: Dispatcher,
    topic: QueueTopic,
    job: JobSummary,
    now: int,
    claims: list[Entry],
    shown: Shown,
) -> Why:
    claimed_at = claims[-1]["at"] if claims and len(claims) >= job.deliveries else 0
    engine = dispatcher.engine
    why = explain(
        engine.state,
        topic,
        job,
        now,
        _workers(service, dispatcher, topic, now),
        claimed_at=claimed_at,
        shown=shown.name,
    )
    if service.phase is Phase.STANDBY and job.state == "ready":
        text = "Ready, but this server is a standby: only the writer hands out jobs."
        return why._replace(code="standby", text=text)
    if engine.journal.jobs.failure is not None and topic.config.is_logged:
        # Claims go on; what they lead to does not.
        text = f"{why.text[:-1]}. A write has failed: acks are refused until the server restarts."
        return why._replace(text=text)
    return why


def _workers(service: Service, dispatcher: Dispatcher, topic: QueueTopic, now: int) -> WorkersSeen:
    waitlist = dispatcher.waitlist_of(topic)
    present = 0
    if waitlist is not None:
        present = len(waitlist.streams) + sum(1 for _ in waitlist.waiting())
    seen = [observed.seen_at for _, observed in dispatcher.workers.of(topic.number)]
    uptime_ms = int((time.monotonic() - service.started) * 1000)
    return WorkersSeen(present, max(seen, default=0), now - uptime_ms)


def _why_members(why: Why) -> dict[str, Any]:
    members = why._asdict()
    return {name: value for name, value in members.items() if value is not None}


def _ended(
    topic: QueueTopic,
    seq: int,
    trail: JobTrail,
    entries: list[Entry],
    is_whole: bool,
    now: int,
    shown: Shown,
) -> dict[str, Any]:
    """What the log knows of a job that is gone.

    Raises:
        NotFound: Nothing.
    """
    written = trail.written
    kept = _kept_end(topic, seq, now) if topic.queue.ended is not None else None
    if not trail.ended and written is None:
        if kept is not None:
            return kept
        raise _no_job(topic, seq)
    state = trail.ended
    if not state:
        state = "expired" if seq <= topic.ttl_floor else "gone"
        state = "dropped" if topic.ttl_floor < seq <= topic.cap_floor else state
    steps = [*map(shown.entry, entries[-ENTRIES_MAX:])]
    last = steps[-1] if trail.ended else {}
    claims = sum(entry["event"] == "claimed" for entry in entries)
    job: dict[str, Any] = {"$seq": seq, "$ts": written.ts if written is not None else 0}
    if written is not None:
        if written.tag:
            job["$tag"] = replies.raw(written.tag)
        if written.key:
            job["$key"] = replies.raw(written.key)
    job |= {"state": state, "deliveries": claims}
    if "error" in last:
        job["last_error"] = last["error"]
    job["age_ms"] = max(now - written.ts, 0) if written is not None else 0
    if written is not None and shown.data:
        job["data"] = replies.raw(written.data)
        if written.meta:
            job["meta"] = replies.raw(written.meta)
    text = _ending_text(state, last, now)
    if kept is not None:
        # A queue with results uses the same words for what only the logs remember.
        job |= {"outcome": state, "state": STATE_OF.get(cast("JobEndKind", state), "gone")}
        job |= kept["job"] if kept["job"]["state"] != "gone" else {}
    members: dict[str, Any] = {
        "job": job,
        "why": {"code": "ended", "text": text},
        "history": lease_steps(steps),
        "history_complete": is_whole,
        "timeline": steps,
        "timeline_complete": is_whole and written is not None and bool(trail.ended),
    }
    if "seq" in last and "topic" in last:
        members["copy"] = {"topic": last["topic"], "seq": last["seq"]}
    return members


def _kept_end(topic: QueueTopic, seq: int, now: int) -> dict[str, Any]:
    """The members of the reply about a job that has ended, of a queue that keeps that.

    Raises:
        NotFound: There has been no such job.
    """
    status = job_status(topic, seq, now)
    if status is None:
        raise _no_job(topic, seq)
    job = replies.ended_members(seq, status.ended)
    text = "It has ended; what became of it is no longer kept."
    if status.ended is not None:
        ended = status.ended
        last: Entry = {"at": ended.at, "node": ended.node, "reason": ended.reason}
        last["error"] = ended.error
        text = _ending_text(ended.outcome, last, now)
    return {"job": job, "why": {"code": "ended", "text": text}}


def _no_job(topic: QueueTopic, seq: int) -> NotFound:
    return NotFound(
        f"topic {quoted(topic.name)} has no job {seq}, or it has ended (ended=true looks further)"
        if 0 < seq <= topic.head
        else f"topic {quoted(topic.name)} has no job {seq}",
        {"topic": topic.name, "seq": seq},
    )


def _ending_text(state: str, last: Entry, now: int) -> str:
    ago = f" {lasting(max(now - last['at'], 0))} ago" if last else ""
    error = f" ({first_line(last['error'])})" if last.get("error") else ""
    node = last.get("node")
    if state == "dead_lettered" and last.get("reason") == "rejected" and node:
        return f"Dead-lettered: {node} rejected it{ago}{error}."
    by = f" by {node}" if node else ""
    why = _REASONS.get(last.get("reason", ""), "")
    return f"{_ENDED[state]}{by}{ago}{why}{error}."

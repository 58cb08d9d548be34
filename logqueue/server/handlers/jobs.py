"""Handlers of job administration: list, show, cancel, purge, release, workers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Generator, Sequence
from functools import partial
from heapq import nsmallest
from typing import Any

from logqueue.api import replies
from logqueue.api.bodies import jobs as job_bodies
from logqueue.core import commands as cmd
from logqueue.core.group_orders import GroupOrder
from logqueue.core.group_stats import GroupStats, groups_of, stats_in_parts
from logqueue.core.queue_topic import QueueTopic
from logqueue.errors import NotFound, quoted
from logqueue.events import block as blocks
from logqueue.model import limits
from logqueue.model.scopes import Scope
from logqueue.server.engine.dispatcher import Dispatcher
from logqueue.server.engine.job_changes import JobsChange, steps_of_change
from logqueue.server.engine.pending import Spent
from logqueue.server.engine.worker_registry import Observed
from logqueue.server.handlers.job_history import Shown, job_now, read_job
from logqueue.server.handlers.job_pages import JobPageParts, page_in_steps
from logqueue.server.handlers.job_statuses import wait_for_ends
from logqueue.server.handlers.members import reply_with
from logqueue.server.handlers.operations import answer_started
from logqueue.server.http.api import long_poll
from logqueue.server.http.requests import Answer, HttpRequest, PendingReply, Reply
from logqueue.server.http.routing import serves
from logqueue.server.service import Service

WORKERS_SHOWN_MAX = 1000
COUNTED_PER_STEP = 20_000
"""Leases that one step of the event loop counts by their nodes."""


class JobRoutes:
    """The operator's half of the queue API."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._reading_history = asyncio.Semaphore(1)

    # -- reading ---------------------------------------------------------------------------------

    @serves("list_jobs")
    def list(self, request: HttpRequest) -> Answer:
        """`GET /v0/topics/:q/jobs`: a page of jobs, never leases."""
        dispatcher = self._service.require_serving()
        engine = dispatcher.engine
        query = job_bodies.read_job_query(request.query)
        now, data = engine.clock.now_ms(), request.flag("data", True)
        steps = page_in_steps(engine, request.name, query, now, data=data)
        try:
            next(steps)
        except StopIteration as end:
            page: JobPageParts = end.value
            return dispatcher.show((page, now, data), page.topic, _jobs_listed, request)
        return request.unless_gone(self._list_more(request, steps, now, data))

    async def _list_more(
        self, request: HttpRequest, steps: Generator[None, None, JobPageParts], now: int, data: bool
    ) -> Reply:
        """A page that takes longer than one step may, behind its first step."""
        dispatcher = self._service.require_serving()
        while True:
            await asyncio.sleep(0)
            try:
                next(steps)
            except StopIteration as end:
                page: JobPageParts = end.value
                break
        await dispatcher.barrier.wait(page.topic.mark_written, page.topic.mark_durable)
        return _jobs_listed(request, (page, now, data), Spent())

    @serves("get_job")
    def get(self, request: HttpRequest) -> Answer:
        """`GET /v0/topics/:q/jobs/:seq`: one job and its history."""
        dispatcher = self._service.require_serving()
        seq = _seq(request)
        dispatcher.engine.state.queue(request.name)
        shown = Shown(request.allows, request.flag("data", True), request.flag("ended", False))
        wait_ms = job_bodies.read_wait_ms(request.query)
        if wait_ms:
            return long_poll(self._service, request, self._when_ended(request, seq, wait_ms, shown))
        if not request.flag("timeline", True):
            now = dispatcher.engine.clock.now_ms()
            topic = dispatcher.engine.queue_now(request.name, now)
            members = job_now(self._service, dispatcher, topic, seq, now, shown)
            return dispatcher.show((members, now), topic, _job_shown, request)
        return self._get(request, dispatcher, seq, shown)

    async def _when_ended(
        self, request: HttpRequest, seq: int, wait_ms: int, shown: Shown
    ) -> Reply:
        await wait_for_ends(self._service, request.name, [seq], wait_ms)
        dispatcher = self._service.require_serving()
        if request.flag("timeline", True):
            return await self._get(request, dispatcher, seq, shown)
        now = dispatcher.engine.clock.now_ms()
        topic = dispatcher.engine.queue_now(request.name, now)
        members = job_now(self._service, dispatcher, topic, seq, now, shown)
        await dispatcher.barrier.wait(topic.mark_written, topic.mark_durable)
        return _job_shown(request, (members, now), Spent())

    async def _get(
        self, request: HttpRequest, dispatcher: Dispatcher, seq: int, shown: Shown
    ) -> Reply:
        async with self._reading_history:
            members = await read_job(self._service, dispatcher, request.name, seq, shown)
        now = dispatcher.engine.clock.now_ms()
        return _job_shown(request, (members, now), Spent())

    @serves("list_workers")
    def workers(self, request: HttpRequest) -> Answer:
        """`GET /v0/topics/:q/workers`: each node that is or was at work."""
        dispatcher = self._service.require_serving()
        dispatcher.engine.state.queue(request.name)
        return self._workers(request, dispatcher)

    async def _workers(self, request: HttpRequest, dispatcher: Dispatcher) -> Reply:
        topic = dispatcher.engine.queue_now(request.name)
        in_flight: Counter[str] = Counter()
        # As of now, counted bit by bit: leases that end meanwhile are counted or not.
        jobs = [*topic.queue.jobs.values()]
        for start in range(0, len(jobs), COUNTED_PER_STEP):
            grants = (job.grant for job in jobs[start : start + COUNTED_PER_STEP] if job.live)
            in_flight.update(grant.node for grant in grants if grant is not None)
            await asyncio.sleep(0)
        del jobs
        crew = _crew(dispatcher, topic, in_flight)
        shown = sorted(crew, key=lambda worker: (-(worker["last_seen_ts"] or 0), worker["node"]))
        body = {"topic": request.name, "workers": shown[:WORKERS_SHOWN_MAX], "count": len(crew)}
        await dispatcher.barrier.wait(topic.mark_written, topic.mark_durable)
        return reply_with(request, body)

    @serves("list_groups")
    def groups(self, request: HttpRequest) -> Answer:
        """`GET /v0/topics/:q/groups`: those with the most waiting jobs, or the oldest."""
        dispatcher = self._service.require_serving()
        dispatcher.engine.state.queue(request.name)
        by_age, limit = job_bodies.read_group_query(request.query)
        return self._groups(request, dispatcher, by_age, limit)

    async def _groups(
        self, request: HttpRequest, dispatcher: Dispatcher, by_age: bool, limit: int
    ) -> Reply:
        topic = dispatcher.engine.queue_now(request.name)
        order = topic.queue.order
        shown: list[GroupStats] = []
        count = scanned = 0
        if isinstance(order, GroupOrder):
            count = groups_of(order)
            for part in stats_in_parts(order, limits.GROUPS_SCANNED_MAX):
                scanned += len(part)
                shown = nsmallest(limit, [*shown, *part], key=_by_age if by_age else _by_backlog)
                await asyncio.sleep(0)
        now = dispatcher.engine.clock.now_ms()
        body = {
            "topic": request.name,
            "groups": [_group_view(topic, stats, now) for stats in shown],
            "count": max(count, scanned),
            "scanned": scanned,
        }
        await dispatcher.barrier.wait(topic.mark_written, topic.mark_durable)
        return reply_with(request, body)

    # -- job administration ----------------------------------------------------------------------

    @serves("cancel_job")
    def cancel(self, request: HttpRequest) -> PendingReply:
        """`DELETE /v0/topics/:q/jobs/:seq`: remove one job."""
        dispatcher = self._service.require_serving()
        command = cmd.CancelJob(request.name, _seq(request), request.flag("force", False))
        return dispatcher.submit(command, _cancelled, request)

    @serves("cancel_key")
    def cancel_key(self, request: HttpRequest) -> PendingReply:
        """`DELETE /v0/topics/:q/keys/:key`: remove the waiting job with a key."""
        dispatcher = self._service.require_serving()
        command = cmd.CancelKey(request.name, blocks.write_string(request.item))
        return dispatcher.submit(command, _cancelled, request)

    @serves("purge_jobs")
    def purge(self, request: HttpRequest) -> PendingReply:
        """`POST /v0/topics/:q/purge`: remove all jobs in some states."""
        dispatcher = self._service.require_serving()
        command = job_bodies.purge_command(request.name, request.body, request.ignore)
        dispatcher.engine.state.queue(request.name)
        return dispatcher.submit(command, _purged, request)

    @serves("change_jobs")
    def change(self, request: HttpRequest) -> Answer:
        """`POST /v0/topics/:q/jobs/change`: the same for many jobs, in the background."""
        dispatcher = self._service.require_serving()
        body = job_bodies.read_change_body(request.body, request.ignore)
        if body.action == "cancel" and request.key is not None:
            request.key.require(Scope.DELETE)
        dispatcher.engine.state.queue(request.name)
        changed: Sequence[int] | None = None
        if body.filter.operation is not None:
            changed = _changed_by(dispatcher, request, body.filter.operation)
        change = JobsChange(
            topic=request.name,
            action=body.action,
            wanted=job_bodies.job_filter(body, changed),
            before_seq=body.filter.before_seq,
            delay_ms=body.delay_ms or 0,
            priority=body.priority or 0,
            limit=body.limit or 0,
        )
        operation = dispatcher.operations.start(
            change.action,
            change.topic,
            partial(steps_of_change, dispatcher.engine, change),
            dry_run=body.dry_run,
            rate_per_s=body.rate_per_s or 0,
        )
        return answer_started(dispatcher, request, operation, waits=body.wait)

    @serves("release_jobs")
    def release(self, request: HttpRequest) -> PendingReply:
        """`POST /v0/topics/:q/release`: held jobs are ready again."""
        dispatcher = self._service.require_serving()
        command = job_bodies.release_command(request.name, request.body, request.ignore)
        return dispatcher.submit(command, _released, request)


def _changed_by(dispatcher: Dispatcher, request: HttpRequest, identity: str) -> Sequence[int]:
    """The jobs of this queue that an operation has changed.

    Raises:
        NotFound: No such operation is remembered, or not its jobs.
    """
    operation = dispatcher.operations.find(identity, request.allows)
    if operation.topic != request.name or operation.seqs is None:
        raise NotFound(
            f"the jobs that operation {quoted(identity[:40])} has changed in this queue are not "
            "known, or not any longer: select them by other filters"
        )
    return operation.seqs[:]


def _jobs_listed(
    request: HttpRequest, found: tuple[JobPageParts, int, bool], spent: Spent
) -> Reply:
    page, now, data = found
    performance = replies.performance(request.began)
    return Reply(replies.encode_jobs(request.name, page.last, now, data, performance, page.earlier))


def _job_shown(request: HttpRequest, found: tuple[dict[str, Any], int], spent: Spent) -> Reply:
    members, now = found
    performance = replies.performance(request.began)
    return Reply(replies.encode_job_history(request.name, members, now, performance))


def _cancelled(request: HttpRequest, result: cmd.CancelResult, spent: Spent) -> Reply:
    members: dict[str, Any] = {"topic": request.name, "cancelled": result.cancelled}
    if result.state is not None:
        members |= {"$seq": result.seq, "state": result.state}
    return reply_with(request, members)


def _purged(request: HttpRequest, result: cmd.PurgeResult, spent: Spent) -> Reply:
    return reply_with(request, {"topic": request.name, "purged": result.counts})


def _released(request: HttpRequest, result: cmd.ReleaseResult, spent: Spent) -> Reply:
    return reply_with(request, {"topic": request.name, **result._asdict()})


def _by_backlog(stats: GroupStats) -> tuple[int, int]:
    return -stats.waiting, -stats.in_flight


def _by_age(stats: GroupStats) -> int:
    return stats.oldest_seq or limits.U64_MAX


def _group_view(topic: QueueTopic, stats: GroupStats, now: int) -> dict[str, Any]:
    """One group; the oldest of its jobs may have gone since it was counted."""
    view: dict[str, Any] = {
        "group": blocks.read_string(stats.group),
        "waiting": stats.waiting,
        "in_flight": stats.in_flight,
    }
    batch = topic.batch_of(stats.oldest_seq) if stats.oldest_seq else None
    index = batch.index_of(stats.oldest_seq) if batch is not None else -1
    if batch is not None and index >= 0:
        view["oldest_seq"] = stats.oldest_seq
        view["oldest_ms"] = max(now - batch.ts_at(index), 0)
    view["blocked"] = stats.is_blocked
    return view


def _crew(
    dispatcher: Dispatcher, topic: QueueTopic, in_flight: Counter[str]
) -> list[dict[str, Any]]:
    """Every node that was seen, holds a lease, has a stream or waits."""
    lapsed = topic.queue.lapsed
    streams: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    waitlist = dispatcher.waitlist_of(topic)
    if waitlist is not None:
        streams.update(stream.node for stream in waitlist.streams)
        waiting.update(call.claimer.node for call in waitlist.waiting())
    seen = dict(dispatcher.workers.of(topic.number))
    unseen = Observed()
    return [
        {
            "node": node,
            "in_flight": in_flight[node],
            "last_seen_ts": known.seen_at or None,
            "streams": streams[node],
            "waiting": waiting[node],
            "claimed": known.claimed,
            "acked": known.acked,
            "nacked": known.nacked,
            "rejected": known.rejected,
            "expired": lapsed.get(node, 0),
        }
        for node in {*seen, *in_flight, *lapsed, *streams, *waiting}
        for known in (seen.get(node, unseen),)
    ]


def _seq(request: HttpRequest) -> int:
    return job_bodies.read_number(request.item, "the seq in the path", limits.U64_MAX)

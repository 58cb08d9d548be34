"""`GET /v0/workers`: who works on which queue, and what each of them has in hand.

Owns: the look at all queues that a key may see, in steps of a few milliseconds. Must not know: when
a node counts as a worker in the live feed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from heapq import heappush, heappushpop
from typing import Any

from logqueue.api.paging import names_from
from logqueue.core.leases import Grant
from logqueue.core.queue_topic import QueueTopic
from logqueue.errors import InvalidRequest
from logqueue.server.engine.dispatcher import Dispatcher
from logqueue.server.engine.worker_registry import Observed
from logqueue.server.handlers.members import reply_with
from logqueue.server.http.requests import Answer, HttpRequest, Reply
from logqueue.server.http.routing import serves
from logqueue.server.service import Service

WORKERS_SHOWN_MAX = 1000
JOBS_DEFAULT, JOBS_MAX = 10, 1000
"""Jobs in hand that are shown of each node; the ones whose leases end soonest."""
JOBS_OF_ALL_MAX = 20_000
PRESENT_MS = 60_000
"""A node that was seen so recently is at work."""
QUEUES_PER_STEP = 1000
LEASES_PER_STEP = 5000
NODES_PER_STEP = 500


class _QueueWork:
    """What one node does with one queue."""

    __slots__ = ("in_flight", "observed", "streams", "topic", "waiting")

    def __init__(self, topic: QueueTopic) -> None:
        self.topic = topic
        self.in_flight = 0
        self.streams = 0
        self.waiting = 0
        self.observed = Observed()


class _NodeWork:
    """What one node does with all queues.

    Attributes:
        jobs: A heap of the jobs in hand whose leases end soonest: minus the deadline, minus the
            seq, and the queue.
    """

    __slots__ = ("jobs", "queues")

    def __init__(self) -> None:
        self.queues: dict[int, _QueueWork] = {}
        self.jobs: list[tuple[int, int, int]] = []

    def of(self, topic: QueueTopic) -> _QueueWork:
        """What it does with a queue."""
        work = self.queues.get(topic.number)
        if work is None:
            work = self.queues[topic.number] = _QueueWork(topic)
        return work

    def hold(self, topic: QueueTopic, grant: Grant, jobs_max: int) -> None:
        """Note the leases of a grant."""
        known = topic.queue.jobs
        listed = 0
        if topic.queue.orphans:
            held = [seq for seq in grant.seqs if _is_held(topic, seq, grant)]
            self.of(topic).in_flight += len(held)
        else:
            held = [*grant.seqs]
            self.of(topic).in_flight += grant.live
        for seq in held:
            if listed == jobs_max:
                break
            job = known.get(seq)
            if job is not None and job.grant is grant:
                listed += 1
                entry = (-grant.deadline, -seq, topic.number)
                if len(self.jobs) < jobs_max:
                    heappush(self.jobs, entry)
                else:
                    heappushpop(self.jobs, entry)

    @property
    def seen_at(self) -> int:
        """When it was last seen, on any queue."""
        return max(work.observed.seen_at for work in self.queues.values())

    @property
    def in_flight(self) -> int:
        """Jobs in hand."""
        return sum(work.in_flight for work in self.queues.values())

    def state(self, now: int) -> str:
        """Whether it is there, and has work."""
        is_connected = any(work.streams or work.waiting for work in self.queues.values())
        if is_connected or self.seen_at >= now - PRESENT_MS:
            return "working" if self.in_flight else "idle"
        return "silent" if self.in_flight else "gone"


def _is_held(topic: QueueTopic, seq: int, grant: Grant) -> bool:
    job = topic.queue.jobs.get(seq)
    return job is not None and job.grant is grant and job.live


class _CrewReport:
    """One look at all queues. The state is as of the moment in which each part is looked at."""

    def __init__(self, dispatcher: Dispatcher, node: str, jobs_max: int) -> None:
        self._dispatcher = dispatcher
        self._node = node
        self._jobs_max = jobs_max
        self.nodes: dict[str, _NodeWork] = {}
        self.queues: dict[int, QueueTopic] = {}

    def _work_of(self, node: str) -> _NodeWork | None:
        if self._node and node != self._node:
            return None
        work = self.nodes.get(node)
        if work is None:
            work = self.nodes[node] = _NodeWork()
        return work

    async def look(self, names: list[str]) -> None:
        """Look at these queues; names of logs, and of queues that are gone, are passed over."""
        engine = self._dispatcher.engine
        busy = []
        for start in range(0, len(names), QUEUES_PER_STEP):
            now = engine.clock.now_ms()
            for name in names[start : start + QUEUES_PER_STEP]:
                topic = engine.state.topics.get(name)
                if isinstance(topic, QueueTopic):
                    self.queues[topic.number] = topic
                    if topic.queue.rests_to < now:
                        engine.lapse(topic, now)
                    if topic.queue.leased or topic.queue.orphans:
                        busy.append(topic)
            await asyncio.sleep(0)
        async for topic, grants in self._grants(busy):
            for grant in grants:
                work = self._work_of(grant.node)
                if work is not None:
                    work.hold(topic, grant, self._jobs_max)
        await self._observe()

    async def _grants(
        self, busy: list[QueueTopic]
    ) -> AsyncIterator[tuple[QueueTopic, list[Grant]]]:
        """The leases of queues, some in each step."""
        left = LEASES_PER_STEP
        for topic in busy:
            for part in topic.queue.grants_in_parts():
                some: list[Grant] = []
                for grant in part:
                    some.append(grant)
                    left -= max(min(len(grant.seqs), self._jobs_max), 1)
                    if left <= 0:
                        yield topic, some
                        await asyncio.sleep(0)
                        left, some = LEASES_PER_STEP, []
                yield topic, [grant for grant in some if grant.live]

    async def _observe(self) -> None:
        """Add who was seen, is connected, or let leases expire."""
        dispatcher = self._dispatcher
        seen = [*dispatcher.workers.latest()]
        for start in range(0, len(seen), LEASES_PER_STEP):
            for number, node, observed in seen[start : start + LEASES_PER_STEP]:
                topic = self.queues.get(number)
                work = self._work_of(node) if topic is not None else None
                if topic is not None and work is not None:
                    work.of(topic).observed = observed
            await asyncio.sleep(0)
        for waitlist in dispatcher.waitlists():
            topic = self.queues.get(waitlist.topic.number)
            if topic is None:
                continue
            for stream in waitlist.streams:
                if (work := self._work_of(stream.node)) is not None:
                    work.of(topic).streams += 1
            for call in waitlist.waiting():
                if (work := self._work_of(call.claimer.node)) is not None:
                    work.of(topic).waiting += 1
            await asyncio.sleep(0)

    async def members(self) -> list[dict[str, Any]]:
        """The nodes that were found, the last seen first, as the reply has them."""
        order = sorted(self.nodes.items(), key=lambda item: (-item[1].seen_at, item[0]))
        shown: list[dict[str, Any]] = []
        jobs_left = JOBS_OF_ALL_MAX
        for node, work in order[:WORKERS_SHOWN_MAX]:
            shown.append(self._members_of(node, work, min(self._jobs_max, jobs_left)))
            jobs_left -= len(shown[-1]["jobs"])
            if len(shown) % (NODES_PER_STEP // max(self._jobs_max, 1) + 1) == 0:
                await asyncio.sleep(0)
        return shown

    def _members_of(self, node: str, work: _NodeWork, jobs_max: int) -> dict[str, Any]:
        now = self._dispatcher.engine.clock.now_ms()
        queues = [self._queue_members(node, part, now) for part in work.queues.values()]
        total = {
            name: sum(part[name] for part in queues)
            for name in ("in_flight", "streams", "waiting", *_COUNTS, "expired")
        }
        per_s = sum(part["acked_per_s"] for part in queues)
        jobs = []
        for minus_deadline, minus_seq, number in sorted(work.jobs, reverse=True)[:jobs_max]:
            with suppress(KeyError):
                jobs.append(
                    self._job_members(self.queues[number], -minus_seq, -minus_deadline, now)
                )
        return {
            "node": node,
            "state": work.state(now),
            "last_seen_ts": work.seen_at or None,
            **total,
            "acked_per_s": round(per_s, 1),
            "queues": sorted(queues, key=lambda part: part["topic"]),
            "jobs": jobs,
        }

    def _queue_members(self, node: str, work: _QueueWork, now: int) -> dict[str, Any]:
        observed = work.observed
        return {
            "topic": work.topic.name,
            "in_flight": work.in_flight,
            "last_seen_ts": observed.seen_at or None,
            "streams": work.streams,
            "waiting": work.waiting,
            **{name: getattr(observed, name) for name in _COUNTS},
            "expired": work.topic.queue.lapsed.get(node, 0),
            "acked_per_s": round(self._dispatcher.workers.acked_per_s(observed, now), 1),
        }

    def _job_members(self, topic: QueueTopic, seq: int, deadline: int, now: int) -> dict[str, Any]:
        """One job in hand.

        Raises:
            KeyError: It has ended meanwhile.
        """
        job = topic.queue.jobs[seq]
        batch = topic.batch_of(seq)
        index = batch.index_of(seq) if batch is not None else -1
        if batch is None or index < 0:
            raise KeyError(seq)
        members: dict[str, Any] = {
            "topic": topic.name,
            "$seq": seq,
            "age_ms": max(now - batch.ts_at(index), 0),
            "deadline": deadline,
            "lease_left_ms": max(deadline - now, 0),
            "deliveries": job.deliveries,
        }
        progress = topic.queue.progress.get(seq)
        if progress is not None and progress.share is not None:
            members["progress"] = progress.share
        if progress is not None and progress.note:
            members["note"] = progress.note
        return members


_COUNTS = ("claimed", "acked", "nacked", "rejected")


class WorkerRoutes:
    """Who works here."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @serves("list_all_workers")
    def list(self, request: HttpRequest) -> Answer:
        """`GET /v0/workers`: every node, over all queues that the key may see."""
        self._service.require_serving()
        query = request.query
        jobs = query.get("jobs", str(JOBS_DEFAULT))
        if not (jobs.isascii() and jobs.isdigit() and len(jobs) <= 4) or int(jobs) > JOBS_MAX:
            raise InvalidRequest(f"`jobs` must be an integer from 0 to {JOBS_MAX}")
        return request.unless_gone(self._list(request, query.get("node", ""), int(jobs)))

    async def _list(self, request: HttpRequest, node: str, jobs_max: int) -> Reply:
        dispatcher = self._service.require_serving()
        topics = dispatcher.engine.state.topics
        wanted = request.query.get("topic")
        if wanted is not None:
            names = [wanted] if request.allows(wanted) else []
        else:
            names = [*names_from(topics, request.query.get("prefix", ""), "", request.key)]
        report = _CrewReport(dispatcher, node, jobs_max)
        await report.look(names)
        shown = await report.members()
        written = max((topic.mark_written for topic in report.queues.values()), default=0)
        durable = max((topic.mark_durable for topic in report.queues.values()), default=0)
        await dispatcher.barrier.wait(written, max(durable, dispatcher.engine.control_mark))
        return reply_with(request, {"workers": shown, "count": len(report.nodes)})

"""Handlers about dead letters: in groups, moved back, dropped; and the edit of one job."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec

from logqueue.api import replies
from logqueue.api.bodies import dead_letters as bodies
from logqueue.api.bodies.jobs import read_number
from logqueue.core import commands as cmd
from logqueue.core.letters import letter_meta
from logqueue.core.topic import Topic
from logqueue.errors import Forbidden, StorageUnreadable
from logqueue.events.block import DATA, META, TAG
from logqueue.model import limits
from logqueue.server.engine.dispatcher import Dispatcher
from logqueue.server.engine.letter_groups import GroupKey, LetterGroup, LetterIndexes
from logqueue.server.engine.letter_operations import drop_steps, redrive_steps
from logqueue.server.engine.pending import Spent
from logqueue.server.handlers.members import reply_with
from logqueue.server.handlers.operations import answer_started
from logqueue.server.http.requests import Answer, HttpRequest, PendingReply, Reply
from logqueue.server.http.routing import serves
from logqueue.server.service import Service

GROUPS_DEFAULT = 100
GROUPS_SHOWN_MAX = 500
DATA_SHOWN_MAX = 4096
"""Bytes of data up to which the example of a group has it."""
TOPICS_PER_STEP = 5000


class DeadLetterRoutes:
    """What became of jobs that nothing worked for, and what to do about them."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._indexes = LetterIndexes()
        self._grouping = asyncio.Lock()

    # -- one job ---------------------------------------------------------------------------------

    @serves("edit_job")
    def edit(self, request: HttpRequest) -> PendingReply:
        """`PATCH /v0/topics/:q/jobs/:seq`: a waiting job gets other content."""
        dispatcher = self._service.require_serving()
        seq = read_number(request.item, "the seq in the path", limits.U64_MAX)
        command = bodies.edit_command(request.name, seq, request.body, request.ignore)
        return dispatcher.submit(command, _edited, (request, seq))

    # -- groups ----------------------------------------------------------------------------------

    @serves("list_dead_letters")
    def list(self, request: HttpRequest) -> Answer:
        """`GET /v0/dead_letters`: in groups of one cause."""
        dispatcher = self._service.require_serving()
        given = request.query.get("limit", str(GROUPS_DEFAULT))
        limit = min(max(read_number(given, "`limit`", limits.U32_MAX), 1), GROUPS_SHOWN_MAX)
        topic = request.query.get("topic")
        if topic is not None:
            if not request.allows(topic):
                raise Forbidden("this key may not read that topic", {"topic": topic})
            dispatcher.engine.state.topic(topic)
        return request.unless_gone(self._list(request, dispatcher, topic, limit))

    async def _list(
        self, request: HttpRequest, dispatcher: Dispatcher, only: str | None, limit: int
    ) -> Reply:
        engine = dispatcher.engine
        queues = await self._targets(request, dispatcher, only)
        wanted = request.query.get("from")
        found: list[tuple[Topic, GroupKey, LetterGroup]] = []
        counts: dict[str, int] = {}
        written = durable = rest = 0
        async with self._grouping:
            for name in sorted(queues):
                if name not in engine.state.topics:
                    continue
                topic = engine.topic_now(name)
                index = self._indexes.of(topic, engine.state.instances)
                for _ in index.refresh():
                    await asyncio.sleep(0)
                counts[name] = topic.live
                rest += index.unindexed
                written = max(written, topic.mark_written)
                durable = max(durable, topic.mark_durable)
                found += [
                    (topic, key, group)
                    for key, group in index.groups.items()
                    if wanted is None or key.origin == wanted
                ]
            found.sort(key=lambda group: len(group[2].seqs), reverse=True)
            now = engine.clock.now_ms()
            groups = []
            for topic, key, group in found[:limit]:
                groups.append(_group(topic, key, group, now))
                await asyncio.sleep(0)
        await dispatcher.barrier.wait(written, durable)
        members: dict[str, Any] = {
            "total": sum(counts.values()),
            "topics": [
                {"topic": name, "count": count, "queues": sorted(queues[name])}
                for name, count in counts.items()
            ],
            "groups": groups,
            "group_count": len(found),
        }
        if rest:
            members["ungrouped"] = rest
        return reply_with(request, members)

    async def _targets(
        self, request: HttpRequest, dispatcher: Dispatcher, only: str | None
    ) -> dict[str, set[str]]:
        """The dead-letter topics that the caller may read, with the queues whose jobs go there."""
        targets: dict[str, set[str]] = {only: set()} if only is not None else {}
        topics = [*dispatcher.engine.state.topics.values()]
        for start in range(0, len(topics), TOPICS_PER_STEP):
            for topic in topics[start : start + TOPICS_PER_STEP]:
                target = topic.config.dead_letter
                if target is None or not request.allows(target) or only not in (None, target):
                    continue
                names = targets.setdefault(target, set())
                if request.allows(topic.name):
                    names.add(topic.name)
            await asyncio.sleep(0)
        return targets

    # -- changes ---------------------------------------------------------------------------------

    @serves("redrive_jobs")
    def redrive(self, request: HttpRequest) -> Answer:
        """`POST /v0/topics/:topic/redrive`: move dead letters back to where they came from."""
        dispatcher = self._service.require_serving()
        command, pace = bodies.redrive_command(request.name, request.body, request.ignore)
        if command.to is not None and not request.allows(command.to):
            raise Forbidden(
                "this key may not redrive to a topic outside its prefixes", {"topic": command.to}
            )
        if request.key is not None and request.key.prefixes:
            check = partial(_require_origin_allowed, request)
            command = msgspec.structs.replace(command, check_target=check)
        if not pace.in_background:
            return dispatcher.submit(command, _redriven, (request, command))
        engine = dispatcher.engine
        # What is wrong with it is said now.
        engine.execute(cmd.RedriveLetters(command.topic, (), command))
        operation = dispatcher.operations.start(
            "redrive",
            request.name,
            partial(redrive_steps, engine, command),
            dry_run=command.dry_run,
            rate_per_s=pace.rate_per_s,
        )
        return answer_started(dispatcher, request, operation, waits=pace.waits)

    @serves("drop_dead_letters")
    def drop(self, request: HttpRequest) -> Answer:
        """`POST /v0/topics/:topic/drop`: delete dead letters."""
        dispatcher = self._service.require_serving()
        wanted = bodies.read_drop_body(request.body, request.ignore)
        engine = dispatcher.engine
        engine.state.topic(request.name)
        # A server that takes no changes refuses now.
        engine.execute(cmd.RemoveRecords(request.name, ()))
        operation = dispatcher.operations.start(
            "drop",
            request.name,
            partial(drop_steps, engine, request.name, wanted.letters, wanted.seqs, wanted.limit),
            dry_run=wanted.dry_run,
            rate_per_s=wanted.pace.rate_per_s,
        )
        return answer_started(dispatcher, request, operation, waits=wanted.pace.waits)


def _require_origin_allowed(request: HttpRequest, target: str) -> None:
    """A key must not write outside its prefixes by way of a redrive. The records say where they
    came from, so that the refusal says neither which topic that is nor whether it exists."""
    if not request.allows(target):
        raise Forbidden(
            "this key may not redrive to topics outside its prefixes, and a dead letter came from "
            "one: name `to`, or select others"
        )


def _group(topic: Topic, key: GroupKey, group: LetterGroup, now: int) -> dict[str, Any]:
    members: dict[str, Any] = {"topic": topic.name}
    named = zip(("queue", "reason", "error"), key, strict=True)
    members |= {name: value for name, value in named if value is not None}
    members |= {
        "count": len(group.seqs),
        "first_at": min(group.times[0], group.times[-1]),
        "last_at": max(group.times[0], group.times[-1]),
        "per_hour": group.per_hour(now),
    }
    example = next(_examples(topic, group), None)
    if example is not None:
        members["example"] = example
    return members


def _examples(topic: Topic, group: LetterGroup) -> Iterator[dict[str, Any]]:
    """The letters of a group, the latest first, as far as they can be read."""
    for seq in reversed(group.seqs[-3:]):
        try:
            records = [*topic.records([seq])]
        except StorageUnreadable:
            continue
        for _, ts, texts in records:
            letter = letter_meta(texts[META])
            example: dict[str, Any] = {"$seq": seq, "$ts": ts}
            if texts[TAG]:
                example["$tag"] = replies.raw(texts[TAG])
            if letter.error is not None:
                example["error"] = letter.error
            for name, number in (("src_seq", letter.src_seq), ("deliveries", letter.deliveries)):
                if number is not None and number.isascii() and number.isdigit():
                    example[name] = int(number[:20])
            if len(texts[DATA]) <= DATA_SHOWN_MAX:
                example["data"] = replies.raw(texts[DATA])
            else:
                example["data_bytes"] = len(texts[DATA])
            yield example


def _edited(context: tuple[HttpRequest, int], result: cmd.EditResult, spent: Spent) -> Reply:
    request, seq = context
    members = {"topic": request.name, "$seq": seq, "was": result.was, "state": result.state}
    return reply_with(request, members)


def _redriven(
    context: tuple[HttpRequest, cmd.Redrive], result: cmd.RedriveResult, spent: Spent
) -> Reply:
    request, command = context
    members = {
        "topic": request.name,
        "redriven": result.redriven,
        "skipped": result.skipped,
        "remaining": result.remaining,
        "targets": result.targets,
        "dry_run": command.dry_run,
    }
    return reply_with(request, members)

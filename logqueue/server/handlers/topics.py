"""Handlers of the topic routes: configure, look, list, delete, write, read, delete records."""

from __future__ import annotations

import asyncio
import re
from collections.abc import MutableSequence, Sequence
from itertools import islice
from typing import Any

from logqueue.api import replies
from logqueue.api.bodies import reads as read_bodies
from logqueue.api.bodies import records as record_bodies
from logqueue.api.bodies import topics as topic_bodies
from logqueue.api.paging import names_from, page_size, read_cursor, write_cursor
from logqueue.api.record_texts import bytes_of, encode_in_parts, shown
from logqueue.core import commands as cmd
from logqueue.core.reading import ReadPage, readable
from logqueue.core.seq_at import seek
from logqueue.core.topic import Topic
from logqueue.errors import InvalidRequest, StorageUnreadable
from logqueue.model.limits import DIFF_BYTES_DEFAULT, DIFF_WAIT_MS_MAX, U64_MAX
from logqueue.server.engine.engine import Engine
from logqueue.server.engine.pending import Spent
from logqueue.server.handlers.appends import (
    append_timings,
    require_config_allowed,
    require_follow_allowed,
    require_targets_allowed,
)
from logqueue.server.handlers.members import reply_with, show_members
from logqueue.server.http.api import long_poll
from logqueue.server.http.requests import Answer, HttpRequest, PendingReply, Reply
from logqueue.server.http.routing import serves
from logqueue.server.service import Service

LISTED_PER_STEP = 100
"""Topics of a long page in one step of the event loop."""


class TopicRoutes:
    """The topic half of the API."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @serves("put_topic")
    def put(self, request: HttpRequest) -> PendingReply:
        """`PUT /v0/topics/:topic`: create, or replace the whole config."""
        dispatcher = self._service.require_serving()
        config = topic_bodies.read_config_body(request.body or b"{}", request.ignore).resolved()
        require_targets_allowed(request.key, config.dead_letter, config.archive)
        if config.paused:
            self._name_paused(request, config.paused)
        command = cmd.PutTopic(request.name, config, request.query.get("if_version"))
        return dispatcher.submit(command, _configured, request)

    @serves("patch_topic")
    def patch(self, request: HttpRequest) -> PendingReply:
        """`PATCH /v0/topics/:topic`: change the named fields of the config."""
        dispatcher = self._service.require_serving()
        command = topic_bodies.patch_command(
            request.name, request.body, request.ignore, request.query.get("if_version")
        )
        changes = command.changes
        if "paused" in changes:
            self._name_paused(request, changes["paused"])
        require_targets_allowed(request.key, changes.get("dead_letter"), changes.get("archive"))
        return dispatcher.submit(command, _configured, request)

    def _name_paused(self, request: HttpRequest, wanted: object) -> None:
        """A change of config has no effect on `paused`: say so where that makes a difference."""
        engine = self._service.require_serving().engine
        topic: Topic | None = engine.state.topics.get(request.name)
        if topic is not None and topic.config.paused is not bool(wanted):
            request.ignore([*request.ignored, "paused"])

    @serves("ensure_topic")
    def ensure(self, request: HttpRequest) -> PendingReply:
        """`POST /v0/topics/:topic/ensure`: create the topic if it is missing, else compare."""
        dispatcher = self._service.require_serving()
        command = topic_bodies.ensure_command(request.name, request.body or b"{}", request.ignore)
        require_targets_allowed(request.key, command.config.dead_letter, command.config.archive)
        return dispatcher.submit(command, _ensured, request)

    @serves("pause_queue")
    def pause(self, request: HttpRequest) -> PendingReply:
        """`POST /v0/topics/:q/pause`: hand out nothing from now on."""
        return self._set_paused(request, True)

    @serves("resume_queue")
    def resume(self, request: HttpRequest) -> PendingReply:
        """`POST /v0/topics/:q/resume`: hand out jobs again."""
        return self._set_paused(request, False)

    def _set_paused(self, request: HttpRequest, paused: bool) -> PendingReply:
        dispatcher = self._service.require_serving()
        return dispatcher.submit(cmd.SetPaused(request.name, paused), _paused, request)

    @serves("get_topic")
    def get(self, request: HttpRequest) -> PendingReply:
        """`GET /v0/topics/:topic`: state and counters as of now."""
        dispatcher = self._service.require_serving()
        engine = dispatcher.engine
        touch = request.flag("touch", True)
        now = engine.clock.now_ms()
        topic = engine.topic_now(request.name, now)
        if touch:
            topic.last_read_at = topic.touched_at = now
        state = replies.topic_state(topic, now, request.allows)
        state["log_id"] = engine.journal.log_id_of(topic)
        return dispatcher.show(state, topic, show_members, request)

    @serves("get_topic_stats")
    def stats(self, request: HttpRequest) -> PendingReply:
        """`GET /v0/topics/:topic/stats`: counters as of now."""
        dispatcher = self._service.require_serving()
        now = dispatcher.engine.clock.now_ms()
        topic = dispatcher.engine.topic_now(request.name, now)
        return dispatcher.show(replies.topic_stats(topic, now), topic, show_members, request)

    @serves("list_topics")
    def list(self, request: HttpRequest) -> Answer:
        """`GET /v0/topics`: a page of topics in name order."""
        dispatcher = self._service.require_serving()
        query = request.query
        size = page_size(query.get("page_size"))
        after = read_cursor(query.get("cursor"))
        names = names_from(
            dispatcher.engine.state.topics, query.get("prefix", ""), after, request.key
        )
        found = [*islice(names, size + 1)]
        page: dict[str, Any] = {"topics": []}
        if len(found) > size:
            del found[size:]
            page["next_cursor"] = write_cursor(found[-1])
        if len(found) > LISTED_PER_STEP:
            return request.unless_gone(self._list_in_steps(request, page, found))
        written, durable = self._describe(request, page["topics"], found)
        return dispatcher.hold(page, written, durable, show_members, request)

    async def _list_in_steps(
        self, request: HttpRequest, page: dict[str, Any], names: Sequence[str]
    ) -> Reply:
        """A long page, made a few topics at a time, so that other requests run between."""
        written = durable = 0
        for start in range(0, len(names), LISTED_PER_STEP):
            some = names[start : start + LISTED_PER_STEP]
            marks = self._describe(request, page["topics"], some)
            written, durable = max(written, marks[0]), max(durable, marks[1])
            await asyncio.sleep(0)
        dispatcher = self._service.require_serving()
        await dispatcher.barrier.wait(written, durable)
        return reply_with(request, page)

    def _describe(
        self, request: HttpRequest, entries: MutableSequence[dict[str, Any]], names: Sequence[str]
    ) -> tuple[int, int]:
        """Add what the list shows of some topics; returns what their reply must wait for."""
        engine = self._service.require_serving().engine
        touch = request.flag("touch", False)
        now = engine.clock.now_ms()
        written = durable = 0
        for name in names:
            if name not in engine.state.topics:
                # Deleted since the page was started.
                durable = max(durable, engine.control_mark)
                continue
            topic = engine.topic_now(name, now)
            if touch:
                topic.touched_at = now
            entries.append(replies.topic_entry(topic, now))
            written, durable = max(written, topic.mark_written), max(durable, topic.mark_durable)
        return written, durable

    @serves("delete_topic")
    def drop(self, request: HttpRequest) -> PendingReply:
        """`DELETE /v0/topics/:topic`: delete the topic and all it holds."""
        dispatcher = self._service.require_serving()
        command = cmd.DropTopic(request.name, request.flag("if_empty", False))
        return dispatcher.submit(command, _dropped, request)

    @serves("write_records")
    def append(self, request: HttpRequest) -> PendingReply:
        """`POST /v0/topics/:topic`: write a batch."""
        dispatcher = self._service.require_serving()
        body = request.document
        if body is None:
            body = record_bodies.read_append_body(request.body, request.ignore)
        header_key = None
        if body.idempotency_key is None:
            sent = request.header(b"idempotency-key")
            header_key = sent.decode("utf-8", "replace") if sent is not None else None
        engine = dispatcher.engine
        if body.config is not None:
            require_config_allowed(dispatcher, request.key, request.name, body.config)
        command = record_bodies.append_command(request.name, body, header_key)
        if request.key is not None:
            require_follow_allowed(request.key, command.block)
        return dispatcher.submit(command, _appended, (request, engine))

    @serves("read_records")
    def diff(self, request: HttpRequest) -> Answer:
        """`POST /v0/topics/:topic/diff`: read records behind a cursor, or wait for some."""
        dispatcher = self._service.require_serving()
        body = read_bodies.read_diff_body(request.body or b"{}", request.ignore)
        topic, page = _read(dispatcher.engine, request, body)
        if body.wait_ms and page.says_nothing:
            return long_poll(self._service, request, self._diff_when_there_is(request, body))
        if _is_large(page, body):
            return request.unless_gone(self._large_page(request, topic, page, body))
        found = dispatcher.record_texts.of_page(topic, page, _shown(body))
        return dispatcher.show(found, topic, _paged, request)

    async def _large_page(
        self, request: HttpRequest, topic: Topic, page: ReadPage, body: read_bodies.DiffBody
    ) -> Reply:
        """The reply with a page that is too large for one step: one such page is made at a time,
        a part of it in each step."""
        written, durable = topic.mark_written, topic.mark_durable
        request.hold(bytes_of(page.runs))
        async with self._service.large_pages:
            try:
                parts = await _in_steps(page, body)
            except StorageUnreadable:
                page = readable(topic, page)
                parts = await _in_steps(page, body)
        await self._service.require_serving().barrier.wait(written, durable)
        front, back = replies.page_around(request.name, page, replies.performance(request.began))
        reply = Reply(b"")
        reply.parts = [front, *parts, back]
        return reply

    @serves("seq_at")
    def seq_at(self, request: HttpRequest) -> PendingReply:
        """`GET /v0/topics/:topic/seq_at`: where the records from a time on begin."""
        dispatcher = self._service.require_serving()
        engine = dispatcher.engine
        given = request.query.get("ts", "")
        if not re.fullmatch("[0-9]{1,20}", given, re.ASCII) or int(given) > U64_MAX:
            raise InvalidRequest("`ts` must be a time in milliseconds since the Unix epoch")
        topic = engine.topic_now(request.name)
        found = seek(topic, int(given))
        members = {
            "topic": topic.name,
            "log_id": engine.journal.log_id_of(topic),
            "ts": int(given),
            "seq": found.seq,
            "previous_seq": found.previous,
            "earliest_seq": topic.earliest_seq,
            "head_seq": topic.head,
        }
        return dispatcher.show(members, topic, show_members, request)

    async def _diff_when_there_is(self, request: HttpRequest, body: read_bodies.DiffBody) -> Reply:
        """The long poll: read again whenever the topic changes, until there is something."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(body.wait_ms, DIFF_WAIT_MS_MAX) / 1000
        while True:
            dispatcher = self._service.require_serving()
            # Registered before the read, so that no change falls between the two.
            changed = dispatcher.waiting_reads.next_change(request.name)
            try:
                topic, page = _read(dispatcher.engine, request, body)
                left_s = deadline - loop.time()
                if page.says_nothing and left_s > 0:
                    await asyncio.wait((changed,), timeout=left_s)
                    continue
            finally:
                # Whether the time is up, the client gone or the topic: it waits for nothing now.
                changed.cancel()
            if _is_large(page, body):
                return await self._large_page(request, topic, page, body)
            page, records = dispatcher.record_texts.of_page(topic, page, _shown(body))
            await dispatcher.barrier.wait(topic.mark_written, topic.mark_durable)
            return Reply(
                replies.encode_page(request.name, page, records, replies.performance(request.began))
            )

    @serves("delete_records")
    def delete(self, request: HttpRequest) -> Answer:
        """`POST /v0/topics/:topic/delete`: delete records by seq and/or tag."""
        dispatcher = self._service.require_serving()
        command = read_bodies.delete_command(request.name, request.body, request.ignore)
        return dispatcher.submit(command, _deleted, request)


def _read(
    engine: Engine, request: HttpRequest, body: read_bodies.DiffBody
) -> tuple[Topic, ReadPage]:
    now = engine.clock.now_ms()
    topic = engine.topic_now(request.name, now)
    topic.last_read_at = topic.touched_at = now
    return topic, read_bodies.read_page(topic, body, now)


async def _in_steps(page: ReadPage, body: read_bodies.DiffBody) -> list[bytes]:
    """The parts of a page's records as JSON, each encoded in a step of its own."""
    parts: list[bytes] = []
    for part in encode_in_parts(page.runs, _shown(body)):
        parts.append(part)
        await asyncio.sleep(0)
    return parts


def _shown(body: read_bodies.DiffBody) -> int:
    return shown(tags=body.include_tags, meta=body.include_meta)


def _is_large(page: ReadPage, body: read_bodies.DiffBody) -> bool:
    """Whether to make a page in steps. Only callers that raise the byte limit get so much."""
    return body.max_batch_bytes > DIFF_BYTES_DEFAULT < bytes_of(page.runs)


def _paged(request: HttpRequest, found: tuple[ReadPage, bytes], spent: Spent) -> Reply:
    page, records = found
    return Reply(
        replies.encode_page(request.name, page, records, replies.performance(request.began))
    )


def _configured(request: HttpRequest, result: cmd.PutResult, spent: Spent) -> Reply:
    members = {
        "topic": request.name,
        "created": result.created,
        "config": replies.config_members(result.config, request.allows),
        "config_version": result.config.version,
    }
    return reply_with(request, members, 201 if result.created else 200)


def _ensured(request: HttpRequest, result: cmd.EnsureResult, spent: Spent) -> Reply:
    config = replies.config_members(result.config, request.allows)
    members = {
        "topic": request.name,
        "created": result.created,
        "differs": {
            field: {"have": config.get(field, have), "want": want}
            for field, (have, want) in result.differs.items()
        },
        "config": config,
        "config_version": result.config.version,
    }
    return reply_with(request, members, 201 if result.created else 200)


def _paused(request: HttpRequest, result: cmd.PutResult, spent: Spent) -> Reply:
    return reply_with(request, {"topic": request.name, "paused": result.config.paused})


def _dropped(request: HttpRequest, result: cmd.DropResult, spent: Spent) -> Reply:
    members = {
        "topic": request.name,
        "deleted": result.deleted,
        "routers_removed": [*filter(request.allows, result.routers_removed)],
    }
    return reply_with(request, members)


def _appended(context: tuple[HttpRequest, Engine], result: cmd.AppendResult, spent: Spent) -> Reply:
    request, engine = context
    further = append_timings(engine, request.name, result, spent)
    performance = replies.performance(request.began, further)
    return_seqs = not request.query_string or request.flag("return_seqs", True)
    encoded = replies.encode_appended(request.name, result, return_seqs, performance)
    return Reply(encoded, 201 if result.created else 200)


def _deleted(request: HttpRequest, result: cmd.RemoveResult, spent: Spent) -> Reply:
    members = {
        "topic": request.name,
        "deleted": result.deleted,
        "earliest_seq": result.earliest_seq,
        "head_seq": result.head_seq,
        "count": result.live,
        "bytes": result.live_bytes,
    }
    return reply_with(request, members)

"""Actions on queues: create, find, list, configure, tag, purge, delete.

Must not know: messages, how a config is decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sized
from typing import Any, Final

from logqueue.api.paging import names_from, read_cursor, write_cursor
from logqueue.core import commands as cmd
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.topic import Topic
from logqueue.errors import InvalidRequest, quoted
from logqueue.model.config import SqsOptions, TopicOptions
from logqueue.model.scopes import NO_SCOPE, Scope
from logqueue.server.engine.pending import Pending, Spent
from logqueue.server.http.requests import Answer, Reply
from logqueue.server.sqs import queue_attributes
from logqueue.server.sqs.addresses import FIFO, queue_of_url, require_queue_name
from logqueue.server.sqs.bodies import (
    CreateBody,
    GetAttributesBody,
    ListBody,
    NameBody,
    QueueBody,
    SetAttributesBody,
    SourcesBody,
    TagBody,
    UntagBody,
    number,
)
from logqueue.server.sqs.calls import SqsCall, action, reply
from logqueue.server.sqs.refusals import (
    INVALID_PARAMETER,
    MISSING_PARAMETER,
    PURGE_IN_PROGRESS,
    QUEUE_NAME_EXISTS,
    SqsRefusal,
)

RESULTS_MAX: Final = 1000
TAGS_MAX: Final = 50
TAG_KEY_CHARS_MAX: Final = 128
TAG_VALUE_CHARS_MAX: Final = 256
NAMES_PER_STEP: Final = 2000


@action("CreateQueue", CreateBody, NO_SCOPE)
def create(call: SqsCall, body: CreateBody) -> Answer:
    """Create a queue; one that is there must be alike in what the caller names."""
    name, sent = body.queue_name, body.attributes or {}
    call.require_allowed(name)
    call.dispatcher.turn.run()
    engine = call.dispatcher.engine
    topic: Topic | None = engine.state.topics.get(name)
    if topic is not None:
        return _existing(call, topic, sent)
    require_queue_name(name)
    call.request.name = name
    _require_tags(body.tags or {}, {})
    config = queue_attributes.created(name, sent, body.tags or {}, engine.clock.now_ms())
    call.require(Scope.ADMIN)
    _require_target(call, name, config.dead_letter)
    return call.dispatcher.submit(cmd.PutTopic(name, config), _created, (call, name))


def _created(context: tuple[SqsCall, str], result: object, spent: Spent) -> Reply:
    call, name = context
    return reply({"QueueUrl": call.addresses.url(name)})


def _existing(call: SqsCall, topic: Topic, sent: Mapping[str, str]) -> Answer:
    if not isinstance(topic, QueueTopic):
        raise SqsRefusal(QUEUE_NAME_EXISTS, f"{quoted(topic.name)} is a topic that is not a queue")
    other = queue_attributes.differs(topic, sent)
    if other is not None:
        raise SqsRefusal(
            QUEUE_NAME_EXISTS,
            f"a queue already exists with the same name and a different value for attribute "
            f"{other}",
        )
    return call.dispatcher.show(None, topic, _created, (call, topic.name))


def _require_target(call: SqsCall, name: str, target: str | None) -> None:
    """Check where the dead letters of a queue are to go."""
    if target is None:
        return
    call.require_allowed(target)
    topic: Topic | None = call.dispatcher.engine.state.topics.get(target)
    if not isinstance(topic, QueueTopic):
        raise SqsRefusal(
            INVALID_PARAMETER, "invalid RedrivePolicy: the dead-letter target does not exist"
        )
    if queue_attributes.is_fifo(topic) is not name.endswith(FIFO):
        raise SqsRefusal(
            INVALID_PARAMETER,
            "invalid RedrivePolicy: the dead-letter target of a FIFO queue must be one, too, and "
            "that of any other queue must not",
        )
    options = topic.config.sqs or SqsOptions()
    permission = options.redrive_permission
    if permission == "denyAll" or (permission == "byQueue" and name not in options.redrive_sources):
        raise SqsRefusal(
            INVALID_PARAMETER,
            "invalid RedrivePolicy: the dead-letter target does not allow this queue",
        )


@action("DeleteQueue", QueueBody, Scope.DELETE)
def delete(call: SqsCall, body: QueueBody) -> Answer:
    """Delete a queue with everything in it."""
    topic = call.queue(queue_of_url(body.queue_url))
    return call.dispatcher.submit(cmd.DropTopic(topic.name), _done, None)


def _done(context: object, result: object, spent: Spent) -> Reply:
    return reply({})


@action("GetQueueUrl", NameBody, NO_SCOPE, is_read=True)
def get_url(call: SqsCall, body: NameBody) -> Answer:
    """Find a queue."""
    topic = call.queue(body.queue_name)
    return call.dispatcher.show(None, topic, _created, (call, topic.name))


@action("ListQueues", ListBody, Scope.READ, is_read=True)
def list_queues(call: SqsCall, body: ListBody) -> Answer:
    """A page of queues in the order of their names."""
    prefix = body.queue_name_prefix or ""
    return _page(call, "QueueUrls", prefix, body.next_token, body.max_results, lambda topic: True)


@action("ListDeadLetterSourceQueues", SourcesBody, Scope.READ, is_read=True)
def list_sources(call: SqsCall, body: SourcesBody) -> Answer:
    """A page of the queues whose dead letters go to one."""
    target = call.queue(queue_of_url(body.queue_url)).name

    def is_source(topic: Topic) -> bool:
        return topic.config.dead_letter == target

    return _page(call, "queueUrls", "", body.next_token, body.max_results, is_source)


def _page(
    call: SqsCall,
    member: str,
    prefix: str,
    token: str | None,
    limit: int | None,
    is_wanted: Callable[[Topic], bool],
) -> Answer:
    number("MaxResults", limit, 1, RESULTS_MAX)
    try:
        after = read_cursor(token)
    except InvalidRequest:
        raise SqsRefusal(INVALID_PARAMETER, "NextToken is not one of this server") from None
    return call.request.unless_gone(_list(call, member, prefix, after, limit, is_wanted))


async def _list(
    call: SqsCall,
    member: str,
    prefix: str,
    after: str,
    limit: int | None,
    is_wanted: Callable[[Topic], bool],
) -> Reply:
    """The page, made some names at a time: logs are passed over, however many there are."""
    most = limit or RESULTS_MAX
    topics = call.dispatcher.engine.state.topics
    found: list[str] = []
    durable = call.dispatcher.engine.control_mark
    scanned = NAMES_PER_STEP
    while scanned == NAMES_PER_STEP and len(found) <= most:
        scanned = 0
        names = names_from(topics, prefix, after, call.request.key)
        for scanned, name in enumerate(names, 1):
            after = name
            topic = topics[name]
            if isinstance(topic, QueueTopic) and is_wanted(topic):
                found.append(name)
                durable = max(durable, topic.mark_durable)
            if scanned == NAMES_PER_STEP or len(found) > most:
                break
        await asyncio.sleep(0)
    await call.dispatcher.barrier.wait(0, durable)
    has_more = len(found) > most
    urls = [call.addresses.url(name) for name in found[:most]]
    next_token = write_cursor(found[most - 1]) if has_more and limit is not None else None
    return reply({member: urls, "NextToken": next_token})


@action("GetQueueAttributes", GetAttributesBody, Scope.READ, is_read=True)
def get_attributes(call: SqsCall, body: GetAttributesBody) -> Answer:
    """What a queue is set up to do, and how many messages it has."""
    topic = call.queue(queue_of_url(body.queue_url))
    found = queue_attributes.shown(topic, body.attribute_names or (), call.addresses)
    return call.dispatcher.show({"Attributes": found or None}, topic, _shown, None)


def _shown(context: None, members: Mapping[str, Any], spent: Spent) -> Reply:
    return reply(members)


@action("SetQueueAttributes", SetAttributesBody, Scope.ADMIN)
def set_attributes(call: SqsCall, body: SetAttributesBody) -> Answer:
    """Change what a queue is set up to do."""
    topic = call.queue(queue_of_url(body.queue_url))
    is_fifo = queue_attributes.is_fifo(topic)
    changes = queue_attributes.changes_of(body.attributes, is_fifo=is_fifo)
    _require_target(call, topic.name, changes.get("dead_letter"))
    return _change(call, topic, changes)


def _change(call: SqsCall, topic: QueueTopic, changes: Mapping[str, Any]) -> Answer:
    now = call.dispatcher.engine.clock.now_ms()
    options = {**changes.get("sqs", {}), "modified_at": now}
    command = cmd.PatchTopic(topic.name, {**changes, "sqs": options})
    return call.dispatcher.submit(command, _done, None)


# -- tags ------------------------------------------------------------------------------------------


def _tags(config: TopicOptions) -> Mapping[str, str]:
    return (config.sqs or SqsOptions()).tags


def _require_some(name: str, given: Sized) -> None:
    if not given:
        raise SqsRefusal(MISSING_PARAMETER, f"the request must contain the parameter {name}")


def _require_tags(tags: Mapping[str, str], known: Mapping[str, str]) -> None:
    if len({*tags, *known}) > TAGS_MAX:
        raise SqsRefusal(INVALID_PARAMETER, f"a queue may have at most {TAGS_MAX} tags")
    for key, value in tags.items():
        if not 1 <= len(key) <= TAG_KEY_CHARS_MAX or len(value) > TAG_VALUE_CHARS_MAX:
            raise SqsRefusal(
                INVALID_PARAMETER,
                f"the key of a tag must have 1 to {TAG_KEY_CHARS_MAX} characters, and its value at "
                f"most {TAG_VALUE_CHARS_MAX}",
            )


@action("TagQueue", TagBody, Scope.ADMIN)
def tag(call: SqsCall, body: TagBody) -> Answer:
    """Give a queue tags."""
    topic = call.queue(queue_of_url(body.queue_url))
    _require_some("Tags", body.tags)
    _require_tags(body.tags, _tags(topic.config))
    return _change(call, topic, {"sqs": {"tags": body.tags}})


@action("UntagQueue", UntagBody, Scope.ADMIN)
def untag(call: SqsCall, body: UntagBody) -> Answer:
    """Take tags of a queue away."""
    topic = call.queue(queue_of_url(body.queue_url))
    _require_some("TagKeys", body.tag_keys)
    return _change(call, topic, {"sqs": {"tags": dict.fromkeys(body.tag_keys)}})


@action("ListQueueTags", QueueBody, Scope.READ, is_read=True)
def list_tags(call: SqsCall, body: QueueBody) -> Answer:
    """The tags of a queue."""
    topic = call.queue(queue_of_url(body.queue_url))
    return call.dispatcher.show({"Tags": _tags(topic.config) or None}, topic, _shown, None)


# -- purge -----------------------------------------------------------------------------------------


@action("PurgeQueue", QueueBody, Scope.DELETE)
def purge(call: SqsCall, body: QueueBody) -> Answer:
    """Remove all messages, those in flight too; the reply says that they are gone."""
    topic = call.queue(queue_of_url(body.queue_url))
    if topic.number in call.observations.purging:
        raise SqsRefusal(
            PURGE_IN_PROGRESS, f"only one PurgeQueue operation on {topic.name} at a time"
        )
    states = frozenset[cmd.JobState](("ready", "delayed", "in_flight", "held"))
    pending: Pending[Reply] = call.dispatcher.submit(cmd.Purge(topic.name, states), _done, None)
    call.observations.purging.add(topic.number)

    async def finish() -> Reply:
        try:
            await pending.ready()
        finally:
            call.observations.purging.discard(topic.number)
        return pending.answer()

    return finish()

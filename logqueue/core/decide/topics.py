"""Deciding about topics and their records. Nothing here changes the state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec
from msgspec.structs import replace

from logqueue import events as ev
from logqueue.core import commands as cmd
from logqueue.core.batch import Batch
from logqueue.core.decide.appends import (
    NOTHING_FREED,
    cap_floor,
    evicted_below,
    new_topic,
    require_room,
)
from logqueue.core.decide.copies import removable
from logqueue.core.decide.decision import AfterApply, Decision
from logqueue.core.decide.endings import archive
from logqueue.core.decide.expiry import copies_expired
from logqueue.core.decide.keyed_writes import remembered, upsert
from logqueue.core.decide.writes import write
from logqueue.core.edges import require_no_loop_by_config
from logqueue.core.queue_topic import QueueTopic, topic_of
from logqueue.core.selection import still_matching
from logqueue.core.state import State
from logqueue.core.topic import Remembered, Topic
from logqueue.errors import (
    BatchClosed,
    ConfigChanged,
    InvalidRequest,
    LogqueueError,
    NotAQueue,
    TopicExistsIncompatible,
    TopicNotEmpty,
    TopicNotFound,
    quoted,
)
from logqueue.events import block as blocks
from logqueue.events import follow
from logqueue.model.config import TopicOptions, require_topic_name

DEFAULT_CONFIG = TopicOptions().resolved()


def put_topic(state: State, command: cmd.PutTopic, now: int) -> Decision[cmd.PutResult]:
    """Create a topic or replace its config; caps and TTL act at once."""
    require_topic_name(command.topic)
    command.config.require_targets(command.topic)
    topic: Topic | None = state.topics.get(command.topic)
    _require_version(command.topic, topic, command.if_version)
    if topic is None:
        created = new_topic(state, command.topic, command.config, now)
        return Decision([created], cmd.PutResult(True, created.config))
    becomes_queue = command.config.is_queue and not topic.config.is_queue and not topic.head
    if not becomes_queue:
        _require_same_type(topic, command.config)
    # A declaration made at every start of a program must not resume what an operator has paused.
    config = command.config
    if not becomes_queue:
        config = replace(config, paused=topic.config.paused)
    return Decision(_configured(state, topic, config, now), cmd.PutResult(False, config))


def _require_version(name: str, topic: Topic | None, version: str | None) -> None:
    """Refuse a change that was made for another config than the present one.

    Raises:
        ConfigChanged: The topic has another config, or does not exist.
    """
    if version is None:
        return
    if topic is None:
        raise ConfigChanged(
            f"topic {quoted(name)} does not exist, so its config does not have version "
            f"{quoted(version[:80])}",
            {"topic": name, "config_version": None, "config": None},
        )
    config = topic.config
    if config.version != version:
        raise ConfigChanged(
            f"the config of topic {quoted(name)} has changed since version "
            f"{quoted(version[:80])}: look at the present config, and send the change again with "
            "its version",
            {
                "topic": name,
                "config_version": config.version,
                "config": msgspec.to_builtins(config.members),
            },
            names=[target for target in (config.dead_letter, config.archive) if target is not None],
        )


def ensure_topic(state: State, command: cmd.EnsureTopic, now: int) -> Decision[cmd.EnsureResult]:
    """Create a topic unless it exists; report how an existing one differs from what is wanted.

    `paused` is state, not config: it is never compared.
    """
    topic: Topic | None = state.topics.get(command.topic)
    wanted = command.config
    if topic is None:
        created = new_topic(state, command.topic, wanted, now)
        return Decision([created], cmd.EnsureResult(True, created.config))
    require_topic_name(command.topic)
    wanted.require_targets(command.topic)
    if "type" in command.sent:
        _require_same_type(topic, wanted)
    config = topic.config
    pairs = {
        field: (getattr(config, field), getattr(wanted, field))
        for field in TopicOptions.__struct_fields__
        if field in command.sent and field != "paused"
    }
    differs = {field: pair for field, pair in pairs.items() if pair[0] != pair[1]}
    return Decision([], cmd.EnsureResult(False, config, differs))


def _require_same_type(topic: Topic, config: TopicOptions) -> None:
    if topic.config.type != config.type:
        raise TopicExistsIncompatible(
            f"topic '{topic.name}' is a {topic.config.type} and cannot become a {config.type} "
            "(PUT replaces the whole config, so name the type; only a log that was never written "
            "to can become a queue); delete it first or use another name",
            {
                "topic": topic.name,
                "existing_type": topic.config.type,
                "requested_type": config.type,
            },
        )


def set_paused(state: State, command: cmd.SetPaused, now: int) -> Decision[cmd.PutResult]:
    """Pause or resume a queue.

    Raises:
        TopicNotFound, NotAQueue: There is no such queue.
    """
    topic = state.queue(command.topic)
    config = replace(topic.config, paused=command.paused)
    reply = cmd.PutResult(False, config)
    if config.paused == topic.config.paused:
        return Decision([], reply)
    return Decision(_reconfigured(topic, config, now), reply)


def _reconfigured(topic: Topic, config: TopicOptions, now: int) -> list[ev.Event]:
    events: list[ev.Event] = []
    before = topic.config.retry_backoff
    if isinstance(topic, QueueTopic) and before != config.retry_backoff:
        events.append(ev.BackoffChanged(now, topic.number, before))
    events.append(ev.TopicConfigured(now, topic.number, config, topic.head, topic.cap_floor))
    return events


def _configured(state: State, topic: Topic, config: TopicOptions, now: int) -> list[ev.Event]:
    """The events that change a config. Tightened bounds act at once, also on a topic that otherwise
    rejects rather than evicts."""
    require_no_loop_by_config(state, topic.name, config, topic.config)
    events = _reconfigured(topic, config, now)
    caps, dropped = cap_floor(topic, config)
    ttl = expired = 0
    if config.ttl_ms and not copies_expired(topic, config):
        ttl, expired = topic.expired_floor(max(now - config.ttl_ms, 0))
    if caps > topic.cap_floor or ttl > topic.ttl_floor:
        # What both bounds reach has expired: a record is removed once.
        dropped = max(dropped - expired, 0)
        if dropped and config.archive is not None:
            evicted = (record for record in evicted_below(topic, caps) if record[0] > ttl)
            events.extend(archive(state, topic, evicted, "dropped", now, "", config.archive))
        events.append(ev.RecordsTrimmed(now, topic.number, ttl, caps, expired, dropped))
    return events


def patch_topic(state: State, command: cmd.PatchTopic, now: int) -> Decision[cmd.PutResult]:
    """Change some fields of a config.

    Raises:
        ConfigChanged: The present config has another version than the command names.
        InvalidRequest: The result is not a valid config.
    """
    topic = state.topic(command.topic)
    _require_version(command.topic, topic, command.if_version)
    config = topic.config.merged(command.changes).resolved()
    return put_topic(state, cmd.PutTopic(command.topic, config), now)


def drop_topic(state: State, command: cmd.DropTopic, now: int) -> Decision[cmd.DropResult]:
    """Delete a topic with all it holds. Deleting what is not there is fine."""
    topic: Topic | None = state.topics.get(command.topic)
    if topic is None:
        return Decision([], cmd.DropResult(False))
    if command.if_empty and topic.live:
        raise TopicNotEmpty(
            f"topic {quoted(topic.name)} still holds {topic.live} records",
            {"topic": topic.name, "count": topic.live},
        )
    removed = tuple(router.name for router in state.routers_of(topic.number))
    return Decision([ev.TopicRemoved(now, topic.number)], cmd.DropResult(True, removed))


def append(
    state: State, command: cmd.Append, now: int, freed: tuple[int, int] = NOTHING_FREED
) -> Decision[cmd.AppendResult]:
    """Write a batch, creating the topic first when asked to; `freed` as of `append_event`."""
    topic: Topic | None = state.topics.get(command.topic)
    events: list[ev.Event] = []
    created = topic is None
    if topic is None:
        created_event = _lazy_topic(state, command, now)
        events.append(created_event)
        # A placeholder with the new topic's config, so that one set of rules decides both cases.
        topic = topic_of(created_event.topic, created_event.name, created_event.config)
    elif command.key is not None:
        earlier = topic.remembered(command.key, now)
        if earlier is not None:
            reply = _repeated(command, earlier)
            return Decision([], reply)
    if not blocks.is_plain(command.block):
        require_queue_for(topic, command.block, command.keyed)
        require_batches(state, topic, command.block)
    if command.keyed:
        written, keyed_reply = upsert(state, topic, command, now, freed)
        return Decision([*events, *written], keyed_reply._replace(created=created))
    block, count, key = command.block, command.count, command.key
    events.extend(write(state, topic, block, count, now, key, freed=freed))
    head = topic.head + command.count
    reply = cmd.AppendResult(head - command.count + 1, command.count, head, created, False)
    return Decision(events, reply)


def append_together(
    state: State, members: Sequence[cmd.Append], now: int
) -> Decision[list[cmd.AppendResult | LogqueueError]]:
    """Write the records of several plain appends as one batch; what there is no room for is
    refused by itself."""
    topic: Topic = state.topics[members[0].topic]
    answers: list[cmd.AppendResult | LogqueueError] = []
    taken: list[bytes] = []
    head = topic.head
    size = 0
    is_bounded = topic.config.discard == "reject" or state.quotas.total_bytes_max > 0
    for command in members:
        if is_bounded:
            added = blocks.size_total(command.block)
            try:
                require_room(state, topic, command.count, added, (head - topic.head, size))
            except LogqueueError as refusal:
                answers.append(refusal)
                continue
            size += added
        taken.append(command.block)
        head += command.count
        answers.append(
            cmd.AppendResult(head - command.count + 1, command.count, head, False, False)
        )
    if not taken:
        return Decision([], answers)
    block = taken[0] if len(taken) == 1 else blocks.join(taken)
    return Decision(write(state, topic, block, head - topic.head, now), answers)


def _repeated(command: cmd.Append, earlier: Remembered) -> cmd.AppendResult:
    results = None
    if command.keyed or earlier.results:
        results = remembered(earlier.first_seq, earlier.records, earlier.results)
    return cmd.AppendResult(earlier.first_seq, earlier.records, earlier.head, False, True, results)


def require_queue_for(topic: Topic, block: bytes, keyed: Sequence[cmd.Keyed] = ()) -> None:
    """Refuse fields of records that only a queue knows what to do with.

    Raises:
        NotAQueue: The topic is a log, and some record has one.
    """
    if isinstance(topic, QueueTopic):
        return
    view = blocks.BlockView(block)
    asked = ["key"] if keyed else []
    asked += [
        name
        for name, column in (
            ("delay_ms", blocks.DELAY),
            ("not_before", blocks.NOT_BEFORE),
            ("max_deliveries", blocks.MAX_DELIVERIES),
            ("priority", blocks.PRIORITY),
        )
        if view.numbers(column) is not None
    ]
    if view.column(blocks.GROUP) is not None:
        asked.append("group")
    texts = view.column(blocks.FOLLOW)
    if texts is not None:
        asked.append("then" if any(map(follow.has_steps, texts)) else "batch")
    if asked:
        raise NotAQueue(
            f"topic '{topic.name}' is a log: its records cannot have `{asked[0]}`; only topics "
            'created with "type":"queue" hand out jobs',
            {"topic": topic.name, "field": asked[0]},
        )


def require_batches(state: State, topic: Topic, block: bytes) -> None:
    """Refuse jobs of batches that take none.

    Raises:
        BatchNotFound, BatchClosed: There is no such batch, or it is over.
        InvalidRequest: The jobs would be lost at a restart, without an end that counts.
    """
    if not block[1] >> blocks.FOLLOW & 1:
        return
    names = follow.members_in(blocks.BlockView(block))
    for name in names:
        if not state.batches.is_open_to(state.batches.named(name)):
            raise BatchClosed.named(name)
    if names and not topic.config.is_logged:
        raise InvalidRequest(
            f"topic '{topic.name}' is ephemeral: its jobs cannot be in a batch, which outlives "
            "restarts"
        )


def _lazy_topic(state: State, command: cmd.Append, now: int) -> ev.TopicCreated:
    config = command.config or DEFAULT_CONFIG
    auto_create = state.quotas.auto_create
    wanted = command.create
    if wanted is None:
        wanted = auto_create if command.config is None else config.auto_create
    if not wanted:
        raise TopicNotFound.named(command.topic, by_writing=auto_create)
    return new_topic(state, command.topic, config, now)


def remove_records(
    state: State, command: cmd.RemoveRecords, now: int
) -> Decision[cmd.RemoveResult]:
    """Delete those of some records that are still there and match, as many as one transaction may;
    permanent and silent."""
    topic = state.topic(command.topic)
    seqs = topic.batches.live_among(command.seqs)
    if command.match is not None:
        seqs = still_matching(topic, command.match, seqs)
    some = removable(topic, seqs, are_copied=topic.config.archive is not None)
    events: list[ev.Event] = []
    if some:
        events = archive(state, topic, topic.records(some), "cancelled", now)
        events.append(ev.RecordsRemoved(now, topic.number, [*some]))
    rest = seqs[len(some) :]
    return Decision(
        events,
        AfterApply(
            lambda: cmd.RemoveResult(
                len(some), topic.earliest_seq, topic.head, topic.live, topic.live_bytes, rest
            )
        ),
    )


def compact(state: State, command: cmd.Compact, now: int) -> Decision[cmd.Done]:
    """Write the live records of neighbouring batches as one new batch."""
    topic = state.topic(command.topic)
    batches = [*islice(topic.batches_from(command.first_seqs[0]), len(command.first_seqs))]
    assert [batch.first_seq for batch in batches] == list(command.first_seqs)
    records = [record for batch in batches for record in batch.records()]
    assert records, "a batch without live records is not in its topic"
    columns: list[list[bytes] | None] = []
    for column in range(len(blocks.TEXT_COLUMNS)):
        texts = [fragments[column] for _, _, fragments in records]
        columns.append(texts if any(texts) else None)
    numbers: dict[int, list[int]] = {}
    if not all(batch.is_plain for batch in batches):
        for column in blocks.TEXTS[len(columns) :]:
            texts = [text for batch in batches for text in _texts_of(batch, column)]
            columns.append(texts if any(texts) else None)
        for column in range(blocks.DELAY, len(blocks.NUMBER_COLUMNS)):
            values = [value for batch in batches for value in _numbers_of(batch, column)]
            if any(values):
                numbers[column] = values
    block = blocks.pack(
        columns,
        seqs=[seq for seq, _, _ in records],
        ts=[ts for _, ts, _ in records],
        numbers=numbers,
    )
    span = (batches[0].first_seq, batches[-1].last_seq)
    hops = batches[0].hops
    assert all(batch.hops == hops for batch in batches), "moved together only after as many hops"
    moved = ev.RecordsMoved(now, topic.number, block, span, hops)
    return Decision([moved], cmd.Done(len(records)))


def _texts_of(batch: Batch, column: int) -> Iterator[bytes]:
    view = blocks.BlockView(batch.block)
    return (view.text(column, index) for index in batch.live_indexes())


def _numbers_of(batch: Batch, column: int) -> Iterator[int]:
    view = blocks.BlockView(batch.block)
    return (view.number(column, index) for index in batch.live_indexes())

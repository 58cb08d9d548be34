"""A topic as the live feed shows it.

Owns: its members, and which of them differ between two looks. Must not know: who looks, frames.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from logqueue.core.decide.claims import allowed_now, oldest_ready_ms
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.model.config import Durability
from logqueue.server.stats.attention import TopicSigns
from logqueue.server.stats.history import TopicRates

GRANTS_LOOKED_AT = 128
"""Claims of a queue whose holders are looked for, mostly the soonest to end."""


WIRE_NAMES = {"live": "count", "size": "bytes"}
"""Members that tuples have other names for."""


class LogFeedEntry(NamedTuple):
    """A topic of type log; members as of `shapes.StatsTopic`, but for `WIRE_NAMES`."""

    type: str
    durability: Durability
    head_seq: int
    live: int
    size: int
    paused: bool
    rates: TopicRates


class QueueFeedEntry(NamedTuple):
    """A topic of type queue; members as of `shapes.StatsTopic`, but for `WIRE_NAMES`."""

    type: str
    durability: Durability
    head_seq: int
    live: int
    size: int
    paused: bool
    rates: TopicRates
    ready: int
    in_flight: int
    delayed: int
    held: int
    oldest_ready_at: int | None
    dead: int | None
    dead_letter: str | None
    archive: str | None
    workers: int
    rate_limited: bool
    held_back: str | None


FeedEntry = LogFeedEntry | QueueFeedEntry

_NAMES = {
    kind: tuple([WIRE_NAMES.get(name, name) for name in kind._fields])
    for kind in (LogFeedEntry, QueueFeedEntry)
}


def entry_of(
    state: State, topic: Topic, rates: TopicRates, workers: int, now: int, oldest_ms: int | None
) -> FeedEntry:
    """A topic as of now. Time must have acted on it.

    Args:
        state: That of all topics.
        topic: The topic.
        rates: What happens on it.
        workers: How many it has.
        now: ms since the epoch.
        oldest_ms: For how long its oldest claimable job has been claimable, where that is known.
    """
    config = topic.config
    assert config.durability is not None
    common = (config.durability, topic.head, topic.live, topic.live_bytes, config.paused, rates)
    if not isinstance(topic, QueueTopic):
        return LogFeedEntry("log", *common)
    queue, ready = topic.queue, topic.ready
    if ready and oldest_ms is None:
        oldest_ms = oldest_ready_ms(topic, now)
    reason = held_back(topic, now)
    return QueueFeedEntry(
        "queue",
        *common,
        ready,
        queue.leased,
        len(queue.delayed),
        len(queue.held),
        now - (oldest_ms or 0) if ready else None,
        dead_of(state, topic),
        config.dead_letter,
        config.archive,
        workers,
        reason == "rate_limited",
        reason,
    )


def held_back(topic: QueueTopic, now: int) -> str | None:
    """Why claims get nothing, however many jobs are ready."""
    allowed, limit = allowed_now(topic, now)
    return None if allowed else limit


def dead_of(state: State, topic: Topic) -> int | None:
    """Live records of a queue's dead-letter topic; None without one."""
    name = topic.config.dead_letter
    if name is None:
        return None
    letters: Topic | None = state.topics.get(name)
    return letters.live if letters is not None else 0


def holders_of(topic: QueueTopic) -> set[str]:
    """Nodes that hold leases, as far as a look at some of them shows."""
    return {grant.node for grant in topic.queue.some_grants(GRANTS_LOOKED_AT)}


def masked(entry: FeedEntry, allows: Callable[[str], bool]) -> FeedEntry:
    """What those may see of it who may not know all names."""
    if isinstance(entry, LogFeedEntry):
        return entry
    if entry.dead_letter is not None and not allows(entry.dead_letter):
        entry = entry._replace(dead_letter=None, dead=None)
    if entry.archive is not None and not allows(entry.archive):
        entry = entry._replace(archive=None)
    return entry


def members(entry: FeedEntry, before: FeedEntry | None = None) -> dict[str, Any]:
    """The members of an entry by name: all of them, or those that differ."""
    names = _NAMES[type(entry)]
    if before is None:
        found: dict[str, Any] = dict(zip(names, entry, strict=True))
    else:
        columns = zip(names, entry, before, strict=True)
        found = {name: value for name, value, old in columns if value != old}
    rates = found.get("rates")
    if rates is not None:
        found["rates"] = (
            rates._asdict() if isinstance(entry, QueueFeedEntry) else {"appended": rates.appended}
        )
    return found


def signs_of(
    name: str, entry: QueueFeedEntry | LogFeedEntry, topic: Topic, expired: int, worker_seen_at: int
) -> TopicSigns:
    """What attention asks of a topic. Dead letters are added up by where they are."""
    config = topic.config
    caps = (config.cap_records, config.cap_bytes) if config.discard == "reject" else (0, 0)
    if isinstance(entry, LogFeedEntry):
        return TopicSigns(
            name, live=entry.live, size=entry.size, cap_records=caps[0], cap_bytes=caps[1]
        )
    return TopicSigns(
        name,
        entry.ready,
        entry.held,
        entry.oldest_ready_at,
        entry.workers,
        worker_seen_at,
        entry.paused,
        entry.held_back,
        expired,
        entry.live,
        entry.size,
        *caps,
    )

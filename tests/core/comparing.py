"""The core's portrait against the naive model's.

Owns: which differences are differences. Must not know: how either side comes to its state.
"""

from __future__ import annotations

from typing import Any

import msgspec

from logqueue.core.state import State
from tests.core.model import Lease, Model, ModelTopic
from tests.portrait import portrait


def compare(state: State, model: Model, now: int) -> None:
    """Assert that both say the same."""
    pictures = portrait(state, now)
    assert list(pictures) == sorted(model.topics)
    for name, picture in pictures.items():
        floors = picture.pop("floors")
        picture.pop("written_at")
        assert picture.pop("holes") == [], name
        topic = model.topics[name]
        assert picture == _picture(topic, now), name
        # A floor covers all that was evicted, perhaps deleted seqs above it, and nothing alive.
        assert topic.removed_to <= max(floors) < picture["earliest"], name


def _picture(topic: ModelTopic, now: int) -> dict[str, Any]:
    window = topic.config.idempotency_window_ms
    picture: dict[str, Any] = {
        "instance": topic.instance,
        "config": msgspec.structs.asdict(topic.config),
        "head": topic.head,
        "earliest": min(topic.records, default=topic.head + 1),
        "bytes": topic.size,
        "records": {seq: (r.ts, *r.texts) for seq, r in sorted(topic.records.items())},
        "keys": {k: w[:4] for k, w in topic.keys.items() if now - w[0] <= window},
    }
    if topic.config.type == "queue":
        picture["queue"] = _queue(topic)
    return picture


def _queue(topic: ModelTopic) -> dict[str, Any]:
    jobs: dict[int, tuple[Any, ...]] = {}
    orphans: dict[int, tuple[Any, ...]] = {}
    for seq, count in sorted(topic.deliveries.items()):
        lease = topic.leases.get(seq)
        if lease is not None:
            place = ("leased", count, lease.number, lease.node, lease.deadline, lease.stream)
            (jobs if seq in topic.records else orphans)[seq] = place
        elif seq in topic.delayed:
            jobs[seq] = ("delayed", count, topic.delayed[seq])
        else:
            jobs[seq] = ("reclaimed", count)
    return {
        "jobs": jobs,
        "orphans": orphans,
        "dead_lettered": topic.dead_lettered,
        "errors": {},
        "given back": {},
        "finished": {k: v for k, v in sorted(topic.finished.items()) if v},
    }


def adopt_leases(model: Model, state: State, name: str) -> None:
    """After the loss of part of the leases log: what came back may be older, and is believed.

    A job is not held by somebody who never held it, and was not delivered more often than it was.
    """
    topic = model.topics[name]
    found = portrait(state)[name]["queue"]["jobs"]
    model.forget_leases(name)
    for seq, place in found.items():
        assert seq in topic.records, f"{name}: a lease of {seq}, which is gone"
        topic.deliveries[seq] = place[1]
        if place[0] == "leased":
            assert topic.config.leases_durable, f"{name}: a lease of {seq} outlived the server"
            topic.leases[seq] = Lease(place[3], place[2], place[4], place[5])
        elif place[0] == "delayed":
            topic.delayed[seq] = place[2]
        else:
            topic.reclaim.add(seq)

"""The contract once more, as plainly as it can be said: dicts and lists, no cleverness.

Owns: what each command should answer and leave behind. Must not know: batches, blocks, events,
logs, anything of the core but its constants and its config.
"""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from typing import Any, NamedTuple

from logqueue.model.config import TopicOptions

POSTPONED_MS = 1000


class Refused(Exception):
    """The name of the refusal that should come."""


class Kept(NamedTuple):
    """One live record."""

    ts: int
    texts: tuple[bytes, bytes, bytes, bytes]
    logged: bool

    @property
    def size(self) -> int:
        """As the limits count it."""
        return len(self.texts[0]) + len(self.texts[3])


class Lease(NamedTuple):
    """Who holds a job."""

    node: str
    number: int
    deadline: int
    stream: int


class ModelTopic:
    """One topic."""

    def __init__(self, instance: int, config: TopicOptions) -> None:
        self.instance = instance
        self.config = config
        self.head = 0
        self.shown = 0
        self.records: dict[int, Kept] = {}
        self.keys: dict[str, tuple[int, int, int, int, bool]] = {}
        self.removed_to = 0
        self.leases: dict[int, Lease] = {}
        self.deliveries: dict[int, int] = {}
        self.delayed: dict[int, int] = {}
        self.reclaim: set[int] = set()
        self.dead_lettered = 0
        self.finished: Counter[str] = Counter()

    def tick(self, now: int) -> None:
        """Let time act."""
        self.tick_leases(now)
        if self.config.ttl_ms:
            ttl_ms = self.config.ttl_ms
            self.evict([s for s, r in self.records.items() if now - r.ts > ttl_ms], "expired")

    def tick_leases(self, now: int) -> None:
        """Let time act on leases and delays."""
        for seq, lease in list(self.leases.items()):
            if now > lease.deadline:
                del self.leases[seq]
                self.give_back(seq, 0)
        for seq, ready_at in list(self.delayed.items()):
            if now >= ready_at:
                del self.delayed[seq]
                self.reclaim.add(seq)

    def give_back(self, seq: int, ready_at: int) -> None:
        """A lease has ended without an ack."""
        if seq not in self.records:
            self.deliveries.pop(seq, None)
        elif ready_at:
            self.delayed[seq] = ready_at
        else:
            self.reclaim.add(seq)

    def remove(self, seq: int) -> None:
        """A record goes; a holder keeps its lease."""
        self.records.pop(seq, None)
        self.delayed.pop(seq, None)
        self.reclaim.discard(seq)
        if seq not in self.leases:
            self.deliveries.pop(seq, None)

    def evict(self, seqs: list[int], outcome: str) -> None:
        """Records go from the front."""
        self.count(outcome, len(seqs))
        for seq in seqs:
            self.remove(seq)
            self.removed_to = max(self.removed_to, seq)

    def count(self, outcome: str, jobs: int) -> None:
        """Jobs came to an end."""
        if self.config.type == "queue":
            self.finished[outcome] += jobs

    @property
    def size(self) -> int:
        """Bytes of live records."""
        return sum(record.size for record in self.records.values())

    def enforce_caps(self) -> None:
        """Evict the oldest until caps hold."""
        config = self.config
        while (config.cap_records and len(self.records) > config.cap_records) or (
            config.cap_bytes and self.size > config.cap_bytes
        ):
            self.evict([min(self.records)], "dropped")

    def require_room(self, count: int, size: int) -> None:
        """Refuse what a topic that rejects has no room for."""
        config = self.config
        if config.discard != "reject":
            return
        if (config.cap_records and count > config.cap_records) or (
            config.cap_bytes and size > config.cap_bytes
        ):
            raise Refused("RecordTooLarge")
        if (config.cap_records and len(self.records) + count > config.cap_records) or (
            config.cap_bytes and self.size + size > config.cap_bytes
        ):
            raise Refused("TopicFull")

    def add(self, now: int, texts: list[Any]) -> int:
        """Append, evict; returns the first seq."""
        first = self.head + 1
        logged = self.config.durability != "ephemeral"
        for index, fragments in enumerate(texts):
            self.records[first + index] = Kept(now, fragments, logged)
        self.head += len(texts)
        if self.config.discard == "old":
            self.enforce_caps()
        return first

    @property
    def counters(self) -> tuple[int, int]:
        """(ready, in flight)."""
        in_flight = sum(seq in self.records for seq in self.leases)
        return len(self.records) - in_flight - len(self.delayed), in_flight

    def held(
        self, node: str, seqs: list[int], tokens: list[int | None] | None, *, once: bool
    ) -> tuple[list[int], list[int]]:
        """Seqs that this node holds, and the others."""
        good: list[int] = []
        bad: list[int] = []
        for seq, token in zip(seqs, tokens or [None] * len(seqs), strict=True):
            lease = self.leases.get(seq)
            mine = lease is not None and lease.node == node and token in (None, lease.number)
            (good if mine and not (once and seq in good) else bad).append(seq)
        return good, bad


class Model:
    """All topics."""

    def __init__(self, topics_max: int) -> None:
        self.topics: dict[str, ModelTopic] = {}
        self.topics_max = topics_max
        self.instances = 0
        self.last_lease = 0

    def copy(self) -> Model:
        """A snapshot."""
        return deepcopy(self)

    def tick(self, name: str, now: int) -> None:
        """Time acts on a topic when it is touched."""
        topic = self.topics.get(name)
        if topic is not None:
            topic.tick(now)

    def topic(self, name: str, *, queue: bool = False) -> ModelTopic:
        """A topic that must be there."""
        if name not in self.topics:
            raise Refused("TopicNotFound")
        topic = self.topics[name]
        if queue and topic.config.type != "queue":
            raise Refused("NotAQueue")
        return topic

    def create(self, name: str, config: TopicOptions) -> ModelTopic:
        """A new instance."""
        if len(self.topics) >= self.topics_max:
            raise Refused("Throttled")
        self.instances += 1
        topic = self.topics[name] = ModelTopic(self.instances, config)
        return topic

    # -- commands --------------------------------------------------------------------------------

    def put(self, now: int, name: str, config: TopicOptions) -> bool:
        """Create or configure; whether it was created."""
        if config.dead_letter == name and config.type == "queue":
            raise Refused("InvalidRequest")
        topic = self.topics.get(name)
        if topic is None:
            self.create(name, config)
            return True
        becomes_queue = config.type == "queue" and not topic.head
        if topic.config.type != config.type and not becomes_queue:
            raise Refused("TopicExistsIncompatible")
        topic.config = config
        topic.tick(now)
        topic.enforce_caps()
        topic.keys = {
            k: w for k, w in topic.keys.items() if now - w[0] <= config.idempotency_window_ms
        }
        return False

    def drop(self, now: int, name: str, if_empty: bool) -> bool:
        """Delete a topic; whether it was there."""
        if name not in self.topics:
            return False
        if if_empty and self.topics[name].records:
            raise Refused("TopicNotEmpty")
        del self.topics[name]
        return True

    def append(
        self, now: int, name: str, texts: list[Any], key: str | None, create: bool
    ) -> tuple[int, int, int, bool, bool]:
        """(first seq, count, head, created, deduped)."""
        topic = self.topics.get(name)
        created = topic is None
        if topic is None:
            if not create:
                raise Refused("TopicNotFound")
            topic = self.create(name, TopicOptions().resolved())
        write = topic.keys.get(key) if key is not None else None
        if write is not None and now - write[0] <= topic.config.idempotency_window_ms:
            return write[1], write[2], write[3], False, True
        topic.require_room(len(texts), sum(len(t[0]) + len(t[3]) for t in texts))
        first = topic.add(now, texts)
        if key is not None:
            logged = topic.config.durability != "ephemeral"
            topic.keys[key] = (now, first, len(texts), topic.head, logged)
        return first, len(texts), topic.head, created, False

    def delete(
        self, now: int, name: str, before: int | None, tag: str | None
    ) -> tuple[int, int, int, int, int]:
        """Delete by seq and tag (a tag ending in * is a prefix): (deleted, earliest, head, ...)."""
        topic = self.topic(name)
        hits = []
        for seq, record in topic.records.items():
            text = record.texts[1].decode().strip('"') if record.texts[1] else None
            if before is not None and seq >= before:
                continue
            if tag is not None:
                if text is None:
                    continue
                if not (text.startswith(tag[:-1]) if tag.endswith("*") else text == tag):
                    continue
            hits.append(seq)
        topic.count("cancelled", len(hits))
        for seq in hits:
            topic.remove(seq)
        earliest = min(topic.records, default=topic.head + 1)
        return len(hits), earliest, topic.head, len(topic.records), topic.size

    def choose(self, now: int, name: str, wanted: int) -> tuple[list[int], list[int]]:
        """Jobs to hand out in the order of selection, and those delivered too often."""
        topic = self.topic(name, queue=True)
        limit = topic.config.max_deliveries if topic.config.dead_letter else 0
        fresh = [s for s in sorted(topic.records) if s not in topic.deliveries]
        chosen: list[int] = []
        exhausted: list[int] = []
        for seq in [*sorted(topic.reclaim), *fresh]:
            if len(chosen) == wanted:
                break
            if limit and topic.deliveries.get(seq, 0) + 1 > limit:
                exhausted.append(seq)
            else:
                chosen.append(seq)
        return chosen, exhausted

    def lease(self, name: str, seq: int, lease: Lease) -> int:
        """A job is handed out; its deliveries."""
        topic = self.topics[name]
        assert seq not in topic.leases and seq in topic.records and seq not in topic.delayed
        assert lease.number > self.last_lease, "lease numbers only grow"
        self.last_lease = lease.number
        topic.reclaim.discard(seq)
        topic.leases[seq] = lease
        topic.deliveries[seq] = topic.deliveries.get(seq, 0) + 1
        return topic.deliveries[seq]

    def ack(
        self, now: int, name: str, node: str, seqs: list[int], tokens: list[int | None] | None
    ) -> tuple[int, list[int], int, int]:
        """(acked, skipped, ready, in flight)."""
        topic = self.topic(name, queue=True)
        held, skipped = topic.held(node, seqs, tokens, once=True)
        topic.count("acked", sum(seq in topic.records for seq in held))
        for seq in held:
            del topic.leases[seq]
            topic.remove(seq)
        return len(held), skipped, *topic.counters

    def nack(
        self,
        now: int,
        name: str,
        node: str,
        seqs: list[int],
        tokens: list[int | None] | None,
        delay: int,
    ) -> tuple[int, list[int], int, int]:
        """(nacked, skipped, ready, in flight)."""
        topic = self.topic(name, queue=True)
        held, skipped = topic.held(node, seqs, tokens, once=True)
        for seq in held:
            del topic.leases[seq]
            topic.give_back(seq, now + delay if delay else 0)
        return len(held), skipped, *topic.counters

    def extend(
        self,
        now: int,
        name: str,
        node: str,
        seqs: list[int],
        tokens: list[int | None] | None,
        lease_ms: int,
    ) -> tuple[list[int], list[int], int]:
        """(extended, skipped, deadline)."""
        topic = self.topic(name, queue=True)
        held, skipped = topic.held(node, seqs, tokens, once=False)
        for seq in held:
            topic.leases[seq] = topic.leases[seq]._replace(deadline=now + lease_ms)
        return held, skipped, now + lease_ms

    def release(self, now: int, name: str, stream: int) -> int:
        """A work connection is gone; how many jobs came back."""
        topic = self.topic(name, queue=True)
        held = [seq for seq, lease in topic.leases.items() if lease.stream == stream]
        for seq in held:
            del topic.leases[seq]
            topic.give_back(seq, 0)
        return len(held)

    # -- ends of a life --------------------------------------------------------------------------

    def forget_ephemeral(self) -> None:
        """What no log holds is gone with the process."""
        for topic in self.topics.values():
            for seq in [s for s, r in topic.records.items() if not r.logged]:
                topic.remove(seq)
            topic.keys = {k: w for k, w in topic.keys.items() if w[4]}

    def forget_leases(self, name: str) -> None:
        """All jobs of a queue are as never delivered."""
        topic = self.topics[name]
        topic.leases, topic.deliveries, topic.delayed = {}, {}, {}
        topic.reclaim = set()

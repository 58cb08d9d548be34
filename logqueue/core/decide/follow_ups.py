"""Deciding acks that write: the end of jobs and what follows from them, all or nothing.

Owns: when such an ack counts, and the one transaction it becomes. Nothing here changes the state.
Must not know: who may write where, how a lease is held.

A write in an ack is the same as a write by itself: it creates its topic, evicts, meets jobs with
the same key, is recognized by its idempotency key. It comes before the end of the jobs, so what it
evicts may be one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from logqueue import events as ev
from logqueue.core import commands as cmd
from logqueue.core.decide.endings import acked, archive
from logqueue.core.decide.multi_part import MultiPartDecision
from logqueue.core.decide.topics import append
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.errors import BatchTooLarge, RecordTooLarge, quoted
from logqueue.events.follow import INPUT, StoredStep, begin, steps_of
from logqueue.model import limits
from logqueue.model.config import TopicOptions

STEP_CONFIG = TopicOptions(type="queue").resolved()
"""What the topic of a step is created with."""


class AckTransaction:
    """An ack that writes: what it comes to."""

    def __init__(self, state: State, topic: QueueTopic, seqs: Sequence[int], now: int) -> None:
        """Nothing yet.

        Args:
            state: Read only.
            topic: The queue.
            seqs: The jobs that end, all of them held.
            now: The clock.
        """
        self._state = state
        self._topic = topic
        self._seqs = seqs
        self._now = now
        self._decided = MultiPartDecision(state)
        self._copies: list[list[ev.Event]] = []
        self._freed = sum(topic.holds(seq) for seq in seqs), sum(map(topic.size_of, seqs))
        self._floor = 0

    def write(self, command: cmd.Append) -> cmd.AppendResult:
        """Take in a write, to another topic than those before.

        Raises:
            LogqueueError: As a write by itself is refused; room is what this ack leaves.
        """
        is_own = command.topic == self._topic.name
        decision = append(
            self._state, command, self._now, self._freed if is_own else (0, self._freed[1])
        )
        own: list[ev.Event] = []
        others: list[ev.Event] = []
        for event in decision.events:
            (own if self._is_of(event, command.topic, decision.events) else others).append(event)
        # The topics that are written to come first: an archive may be one of them.
        self._decided.add(self._decided.rebase(own))
        self._copies.append(others)
        if is_own:
            floors = (e.cap_floor for e in own if isinstance(e, ev.RecordsAppended))
            self._floor = max(self._floor, *floors, 0)
        return decision.settle()

    def begin_steps(self, results: Mapping[int, bytes]) -> None:
        """Write the next steps of the chains of these jobs.

        Args:
            results: What the jobs came to, by seq, as JSON.

        Raises:
            LogqueueError: A step is refused, as a write by itself would be.
        """
        if not self._topic.has_steps:
            return
        chains: dict[str, list[tuple[list[StoredStep], bytes]]] = {}
        for seq in self._seqs:
            steps = steps_of(self._topic.follow_of(seq))
            if steps:
                result = results.get(seq, b"")
                require_input_fits(seq, steps[0], result)
                chains.setdefault(steps[0].topic, []).append((steps, result))
        for topic, some in chains.items():
            create = self._state.quotas.auto_create
            block = begin(some)
            self.write(cmd.Append(topic, block, len(some), create=create, config=STEP_CONFIG))

    def end(self, node: str, results: Sequence[tuple[int, bytes]] = ()) -> list[ev.Event]:
        """The whole transaction: the writes, copies in archives, and the end of the jobs.

        Args:
            node: Who acks.
            results: What the jobs came to, as for `acked`.

        Raises:
            BatchTooLarge: The archive of the queue cannot take so much in one transaction.
            RecordTooLarge, TopicFull, Throttled: An archive or the server has no room.
        """
        topic, state, now = self._topic, self._state, self._now
        ends = [*self._seqs]
        if topic.config.archive is not None or topic.has_steps:
            self._require_copies_fit()
        if topic.config.archive is not None:
            finished = topic.records(sorted(seq for seq in ends if seq > self._floor))
            self._copies.append(archive(state, topic, finished, "acked", now, node))
        for part in self._copies:
            self._decided.add(self._decided.rebase(part))
        self._decided.require_quotas(self._freed[1])
        return [*self._decided.events, *acked(topic, {node: ends}, now, results, self._floor)]

    def _is_of(self, event: ev.Event, name: str, events: Sequence[ev.Event]) -> bool:
        """Whether an event of a write is about the topic that is written to."""
        known: Topic | None = self._state.topics.get(name)
        if known is not None:
            return event.topic == known.number
        created = (e for e in events if isinstance(e, ev.TopicCreated) and e.name == name)
        return event.topic == next(created).topic

    def _require_copies_fit(self) -> None:
        jobs, size = self._freed
        if self._topic.has_steps:
            size += sum(len(self._topic.follow_of(seq)) for seq in self._seqs)
        if jobs > limits.COPIED_PER_PASS_MAX or (jobs > 1 and size > limits.COPIED_BYTES_MAX):
            raise BatchTooLarge(
                f"{jobs} jobs of {size} bytes in one ack with `append`, on a queue with an archive "
                f"or with chains; send at most {limits.COPIED_PER_PASS_MAX} jobs of "
                f"{limits.COPIED_BYTES_MAX} bytes at a time",
                {"seqs": jobs, "max": limits.COPIED_PER_PASS_MAX},
            )


def require_input_fits(seq: int, step: StoredStep, result: bytes) -> None:
    """Refuse a result that is too large to be passed on.

    Raises:
        RecordTooLarge: The next step would be larger than a record may be.
    """
    size = len(bytes(step.record.data)) + len(bytes(step.record.meta)) + len(result)
    if size + len(INPUT) + 6 > limits.RECORD_BYTES_MAX:
        raise RecordTooLarge(
            f"the result of job {seq} has {len(result)} bytes, too many to pass on to the next "
            f"step of its chain, on topic {quoted(step.topic)}: a record has at most "
            f"{limits.RECORD_BYTES_MAX} bytes of data and meta; hand on a reference instead",
            names=(step.topic,),
        )


def repeated(state: State, command: cmd.AckJobs, now: int) -> tuple[cmd.AppendResult, ...] | None:
    """The results of the writes of an ack that was carried out before, and was sent again because
    its reply was lost; None when it was not, or when its idempotency keys cannot tell."""
    results: list[cmd.AppendResult] = []
    for written in command.append:
        topic: Topic | None = state.topics.get(written.topic)
        if topic is None or written.key is None or topic.remembered(written.key, now) is None:
            return None
        results.append(append(state, written, now).settle())
    return tuple(results)


def topics_written(state: State, command: cmd.AckJobs) -> list[Topic]:
    """The topics that an ack may write to, as far as they exist."""
    found: dict[int, Topic] = {}
    names = {written.topic: None for written in command.append}
    queue: Topic | None = state.topics.get(command.topic)
    if queue is not None and queue.has_steps:
        firsts = (steps[0] for seq in command.seqs if (steps := steps_of(queue.follow_of(seq))))
        names.update((step.topic, None) for step in firsts)
    for name in names:
        topic: Topic | None = state.topics.get(name)
        if topic is not None:
            found[topic.number] = topic
            archived = state.topics.get(topic.config.archive or "")
            if archived is not None:
                found[archived.number] = archived
    return [*found.values()]

"""Which records a call over a whole topic means, found bit by bit.

Owns: walks over a topic in parts of `limits.SCANNED_PER_PASS_MAX`, between which anything may
change: what a part names has to be held against the state again. Changes nothing. Must not know:
what becomes of the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from logqueue.core.commands import JobState
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.record_times import seq_of
from logqueue.core.topic import Topic
from logqueue.model import limits
from logqueue.model.tag_predicate import Predicate


def live_parts(topic: Topic, before: int) -> Iterator[list[int]]:
    """Live seqs below one, ascending."""
    start = 1
    while start < before:
        part = topic.batches.live_seqs(start, limits.SCANNED_PER_PASS_MAX)
        if not part:
            return
        start = part[-1] + 1
        yield part if start <= before else [seq for seq in part if seq < before]


def matching_parts(topic: Topic, match: Predicate | None, before: int) -> Iterator[list[int]]:
    """Seqs below one of live records that have a matching tag, or of all."""
    if match is None:
        yield from live_parts(topic, before)
    elif topic.tags is not None:
        for seqs in topic.tags.scan(match):
            part = sorted({seq for seq in seqs if seq < before})
            yield topic.batches.live_among(part)


def parts_in_state(topic: QueueTopic, wanted: JobState, before: int) -> Iterator[list[int]]:
    """Seqs below one of jobs that may be in a state."""
    queue = topic.queue
    if wanted == "ready":
        yield from live_parts(topic, before)
    elif wanted == "delayed":
        for moments in _sliced([*queue.delayed]):
            yield sorted(map(seq_of, moments))
    else:
        for seqs in _sliced([*(queue.held if wanted == "held" else queue.jobs)]):
            yield sorted(seqs)


def _sliced(items: Sequence[int]) -> Iterator[Sequence[int]]:
    for at in range(0, len(items), limits.SCANNED_PER_PASS_MAX):
        yield items[at : at + limits.SCANNED_PER_PASS_MAX]


def still_matching(topic: Topic, match: Predicate, seqs: Iterable[int]) -> list[int]:
    """Those whose tag matches now: a keyed write may have given a record another one."""
    if topic.attributes is None:
        return [*seqs]
    return [seq for seq in seqs if match.matches_fragment(topic.tag_of(seq))]

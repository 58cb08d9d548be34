"""Background operations on dead letters: move them back at a pace, or drop them.

Owns: their steps, and what they count. Each step is one decision of its own, bounded in records and
bytes, so what a crash leaves is found by a repeat. Must not know: HTTP, who started them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from logqueue.core import commands as cmd
from logqueue.core.decide.redrive import letters_of
from logqueue.core.letters import LetterFilter
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.selection import matching_parts
from logqueue.core.topic import Topic
from logqueue.model import limits
from logqueue.server.engine.engine import Engine
from logqueue.server.engine.operations import BackgroundOperation, OperationSteps

LETTERS_PER_STEP = 200
"""Letters that one step moves: each is read, written and removed."""


def redrive_steps(
    engine: Engine, command: cmd.Redrive, operation: BackgroundOperation
) -> OperationSteps:
    """The steps of a redrive of all that its filter selects, up to its `limit`.

    Raises:
        LogqueueError: Refused; what earlier steps have done stays done.
    """
    # Refused now, if it is.
    engine.execute(cmd.RedriveLetters(command.topic, (), command))
    topic = engine.topic_now(command.topic)
    targets: dict[str, None] = {}
    if command.check_target is not None:
        # All targets are known to be allowed before the first letter moves.
        checked = replace(command, dry_run=True)
        for part in _parts(topic, letters_of(command), command.seqs, None):
            for some in _sliced(part, limits.COPIED_PER_PASS_MAX):
                engine.execute(cmd.RedriveLetters(topic.name, some, checked))
            yield None
    most = min(operation.portion_max, LETTERS_PER_STEP)
    left = command.limit
    for part in _parts(topic, letters_of(command), command.seqs, operation):
        wanted = part[:left]
        left -= len(wanted)
        operation.matched += len(wanted)
        yield None
        for some in _sliced(wanted, most):
            rest: Sequence[int] = some
            while rest:
                if engine.state.topics.get(topic.name) is not topic:
                    return
                outcome = engine.execute(cmd.RedriveLetters(topic.name, rest, command))
                moved = outcome.result
                operation.changed += moved.redriven
                operation.skipped += len(rest) - len(moved.rest) - moved.redriven
                targets.update(dict.fromkeys(moved.targets))
                operation.result = {"targets": [*targets]}
                rest = moved.rest
                yield outcome
        if left <= 0:
            return


def drop_steps(
    engine: Engine,
    name: str,
    letters: LetterFilter,
    seqs: Sequence[int] | None,
    limit: int,
    operation: BackgroundOperation,
) -> OperationSteps:
    """The steps of a deletion of the dead letters that a filter selects.

    Raises:
        LogqueueError: Refused; what earlier steps have done stays done.
    """
    topic = engine.topic_now(name)
    left = limit
    for part in _parts(topic, letters, seqs, operation):
        wanted = part[:left]
        left -= len(wanted)
        operation.matched += len(wanted)
        yield None
        for some in _sliced(wanted, operation.portion_max):
            rest: Sequence[int] = _waiting(topic, some)
            operation.skipped += len(some) - len(rest)
            if operation.dry_run:
                operation.changed += len(rest)
                continue
            while rest:
                if engine.state.topics.get(topic.name) is not topic:
                    return
                outcome = engine.execute(cmd.RemoveRecords(topic.name, rest))
                removed = outcome.result
                operation.changed += removed.deleted
                rest = removed.rest
                yield outcome
        if left <= 0:
            return


def _waiting(topic: Topic, seqs: Sequence[int]) -> list[int]:
    """Those that no worker holds, where the dead letters are themselves jobs."""
    if not isinstance(topic, QueueTopic):
        return [*seqs]
    jobs = topic.queue.jobs
    return [seq for seq in seqs if (job := jobs.get(seq)) is None or job.grant is None]


def _parts(
    topic: Topic,
    letters: LetterFilter,
    seqs: Sequence[int] | None,
    operation: BackgroundOperation | None,
) -> Iterator[list[int]]:
    """What a filter selects of the letters that are there now, found bit by bit."""
    before = topic.head + 1
    if letters.before_seq is not None:
        before = min(before, letters.before_seq)
    if seqs is not None:
        parts: Iterator[list[int]] = iter([sorted(set(seqs))])
        total = len(set(seqs))
    else:
        parts = matching_parts(topic, letters.match, before)
        total = topic.live
    if operation is not None:
        operation.total = total
    for part in parts:
        if operation is not None:
            operation.scanned += len(part)
        yield letters.selected(topic, part)


def _sliced(seqs: Sequence[int], most: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(seqs), most):
        yield seqs[start : start + most]

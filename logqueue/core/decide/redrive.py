"""Deciding a redrive: dead letters go back to where they came from.

Owns: which dead letters are selected, and what a redriven job looks like. Nothing here changes
the state.

Copies and removals are events of one decision, thus one frame of the log: through any crash a dead
letter is in exactly one of the two places, and a repeated call finds only what is still here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from logqueue import events as ev
from logqueue.core import commands as cmd
from logqueue.core.decide.copies import as_many_as_fit, removable
from logqueue.core.decide.dead_letters import STAMP, STRAY_META
from logqueue.core.decide.decision import Decision
from logqueue.core.decide.multi_part import MultiPartDecision
from logqueue.core.decide.writes import write
from logqueue.core.letters import LetterFilter
from logqueue.core.queue_state import QueueState
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.selection import matching_parts
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.errors import InvalidRequest
from logqueue.events import block as blocks
from logqueue.events import follow
from logqueue.model import limits
from logqueue.model.config import is_topic_name

_encoder = msgspec.json.Encoder()
_metas = msgspec.json.Decoder(dict[str, msgspec.Raw])


def redrive(state: State, command: cmd.RedriveLetters, now: int) -> Decision[cmd.RedriveResult]:
    """Move some dead letters back, as many as one transaction may.

    Raises:
        TopicNotFound: The topic, or `to`, does not exist.
        InvalidRequest: `to` is the topic itself.
    """
    source, wanted = state.topic(command.topic), command.wanted
    if wanted.to is not None:
        state.topic(wanted.to)
        if wanted.to == command.topic:
            raise InvalidRequest("`to` must name another topic than the one that is redriven")
    selected = selected_among(source, wanted, command.seqs)
    some = removable(source, selected, are_copied=True)
    by_target: dict[str, list[int]] = {}
    checked: set[str] = set()
    for seq, _, texts in source.records(some):
        target = wanted.to or _origin(texts[blocks.META])
        if wanted.check_target is not None and target is not None:
            # The steps that follow it are written when it is acked, with any key.
            named = {target, *(step.topic for step in _steps(texts[blocks.META]))}
            for name in sorted(named - checked):
                wanted.check_target(name)
            checked |= named
        leased = isinstance(source, QueueTopic) and not source.queue.is_waiting(seq)
        if target is not None and target != source.name and not leased and target in state.topics:
            by_target.setdefault(target, []).append(seq)
    decided = MultiPartDecision(state)
    moved: list[int] = []
    targets: list[str] = []
    for target, seqs in by_target.items():
        copies = _Copies(state, source, state.topics[target], now, decided, wanted.data)
        count, written = as_many_as_fit(seqs, copies.write)
        if count:
            moved.extend(seqs[:count])
            decided.add(written)
            targets.append(target)
    if moved:
        decided.add([ev.RecordsRemoved(now, source.number, sorted(moved), redriven=True)])
    skipped = len(some) - len(moved)
    reply = cmd.RedriveResult(len(moved), skipped, 0, targets, selected[len(some) :])
    return Decision([] if wanted.dry_run else decided.events, reply)


def parts_to_redrive(topic: Topic, wanted: cmd.Redrive) -> Iterator[list[int]]:
    """The dead letters that a redrive means, found bit by bit; see `finding`."""
    before = topic.head + 1
    if wanted.before_seq is not None:
        before = min(before, wanted.before_seq)
    if wanted.seqs is not None:
        yield selected_among(topic, wanted, sorted(set(wanted.seqs)))
        return
    for part in matching_parts(topic, wanted.match, before):
        yield selected_among(topic, wanted, part)


def selected_among(topic: Topic, wanted: cmd.Redrive, seqs: Sequence[int]) -> list[int]:
    """Those of some seqs, ascending, that are live and that all filters let through."""
    return letters_of(wanted).selected(topic, seqs)


def letters_of(wanted: cmd.Redrive) -> LetterFilter:
    """The filter of a redrive."""
    return LetterFilter(wanted.match, wanted.before_seq, wanted.reason, wanted.origin, wanted.error)


def _stamp(meta: bytes, name: str) -> str | None:
    """What a stamp of a dead letter says."""
    if not meta.startswith(b"{") or (STAMP + name).encode() not in meta:
        return None
    value = _metas.decode(meta).get(STAMP + name)
    if value is None or not bytes(value).startswith(b'"'):
        return None
    return blocks.read_string(bytes(value))


def _origin(meta: bytes) -> str | None:
    return _stamp(meta, "from")


class _Copies:
    """Jobs made again of dead letters, for one target."""

    def __init__(
        self,
        state: State,
        source: Topic,
        target: Topic,
        now: int,
        decided: MultiPartDecision,
        data: bytes | None,
    ) -> None:
        self.state = state
        self.source = source
        self.target = target
        self.now = now
        self.decided = decided
        self.data = data

    def write(self, seqs: Sequence[int]) -> list[ev.Event]:
        """The events that add some of them to the target.

        Raises:
            RecordTooLarge, TopicFull, Throttled: No room.
        """
        records = [*self.source.records(seqs)]
        columns = [[texts[c] for _, _, texts in records] for c in range(len(blocks.TEXT_COLUMNS))]
        metas = columns[blocks.META]
        columns[blocks.META] = [_unstamped(meta) for meta in metas]
        if self.data is not None:
            columns[blocks.DATA] = [self.data] * len(records)
        numbers = {}
        if isinstance(self.target, QueueTopic):
            keys = list(_keys(self.target.queue, metas))
            columns.append(keys)
            uniques = [_unique(meta) if key else 0 for key, meta in zip(keys, metas, strict=True)]
            if any(uniques):
                numbers[blocks.UNIQUE] = uniques
            bounds = [_bound(meta) for meta in metas]
            if any(bounds):
                numbers[blocks.MAX_DELIVERIES] = bounds
            order = [self.source.order_of(seq) for seq, _, _ in records]
            if any(priority for priority, _ in order):
                numbers[blocks.PRIORITY] = [priority for priority, _ in order]
            columns.append([group for _, group in order])
            columns.append([follow.fragment(None, _steps(meta)) for meta in metas])
        block = blocks.pack([c if any(c) else None for c in columns], numbers=numbers)
        return self.decided.rebase(write(self.state, self.target, block, len(records), self.now))


def _keys(queue: QueueState, metas: Sequence[bytes]) -> Iterator[bytes]:
    """Each job gets its key back, unless a waiting job or an earlier copy has it by now."""
    given: set[bytes] = set()
    for meta in metas:
        key = _stamp(meta, "key")
        fragment = b"" if key is None else blocks.write_string(key)
        taken = queue.keys is not None and queue.keys.holder(fragment) is not None
        yield b"" if taken or fragment in given else fragment
        given.add(fragment)


def _unique(meta: bytes) -> int:
    given = _stamp(meta, "unique") or ""
    return int(given) if given in ("1", "2") else 0


def _bound(meta: bytes) -> int:
    given = _stamp(meta, "max_deliveries") or ""
    return int(given) if given.isascii() and given.isdigit() and len(given) < 20 else 0


def _steps(meta: bytes) -> list[follow.StoredStep]:
    """The rest of the chain of a job; none if what the letter has is not one."""
    text = _stamp(meta, "then")
    steps = follow.read_steps(text) if text and len(text) <= limits.FOLLOW_BYTES_MAX else []
    is_sound = len(steps) <= limits.STEPS_MAX and all(map(_is_sound, steps))
    return steps if is_sound else []


def _is_sound(step: follow.StoredStep) -> bool:
    record = step.record
    numbers = (record.not_before, record.ttl_ms, record.max_deliveries)
    names = (step.topic, *([] if record.batch is None else [record.batch]))
    return (
        all(map(is_topic_name, names))
        and all(0 <= number <= limits.U64_MAX for number in numbers)
        and 0 <= record.delay_ms <= limits.DELAY_MS_MAX
        and 0 <= record.priority <= limits.JOB_PRIORITY_MAX
        and len((record.group or "").encode()) <= limits.GROUP_BYTES_MAX
        and len((record.tag or "").encode()) <= limits.TAG_BYTES_MAX
        and len((record.node or "").encode()) <= limits.NODE_BYTES_MAX
        and bytes(record.data) != b""
    )


def _unstamped(meta: bytes) -> bytes:
    """A meta as it was before the job died."""
    if not meta.startswith(b"{"):
        return meta
    keys = _metas.decode(meta)
    stray = keys.get(STRAY_META)
    if stray is not None:
        return bytes(stray)
    kept = {name: value for name, value in keys.items() if not name.startswith(STAMP)}
    return _encoder.encode(kept) if kept else b""

"""Dead letters in groups of one cause, counted as they come.

Owns: an index of each dead-letter topic that was asked about: which letters are in which group, and
when they came. It is brought up to date in bounded steps: new letters are looked at once, what has
gone is left out. 16 bytes per letter, for `LETTERS_INDEXED_MAX` of a topic at most. Must not know:
HTTP, how groups are shown.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from itertools import compress
from typing import NamedTuple

from logqueue.core.letters import error_pattern, letter_meta
from logqueue.core.topic import Topic
from logqueue.events.block import META, BlockView

LETTERS_INDEXED_MAX = 2_000_000
"""Letters of one topic that are in groups; later ones are only counted."""
GROUPS_MAX = 500
"""Groups of one topic; the letters of all further ones are one group, without an error."""
INDEXED_PER_STEP = 300
KEPT_PER_STEP = 5000
HOURS = 24
HOUR_MS = 3_600_000


class GroupKey(NamedTuple):
    """What the letters of a group have in common.

    Attributes:
        origin: Their queue; None for records that are not dead letters.
        reason: Why they were dead-lettered.
        error: The pattern of their error, "" without one; None for the group of the rest.
    """

    origin: str | None
    reason: str | None
    error: str | None


class LetterGroup:
    """The letters of one group, oldest first.

    Attributes:
        seqs: Their seqs.
        times: When each came, ms since the epoch.
    """

    __slots__ = ("seqs", "times")

    def __init__(self) -> None:
        self.seqs = array("Q")
        self.times = array("Q")

    def per_hour(self, now: int) -> list[int]:
        """How many came in each of the last 24 hours, the oldest hour first."""
        starts = [now - (HOURS - hour) * HOUR_MS for hour in range(HOURS)]
        places = [bisect_left(self.times, max(start, 0)) for start in starts]
        ends = [*places[1:], len(self.times)]
        return [end - place for place, end in zip(places, ends, strict=True)]


class LetterIndex:
    """The groups of one dead-letter topic.

    Attributes:
        groups: By what they have in common.
        unindexed: Letters that are in no group, since there are too many.
    """

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.groups: dict[GroupKey, LetterGroup] = {}
        self.unindexed = 0
        self._through = 0
        self._indexed = 0

    def refresh(self) -> Iterator[None]:
        """Bring it up to date; yields after each bounded step."""
        topic = self.topic
        yield from self._extend()
        self.unindexed = topic.batches.count_live(self._through + 1, topic.head + 1)
        if self._indexed + self.unindexed != topic.live:
            yield from self._prune()
            # There may be room for more.
            yield from self._extend()
            self.unindexed = topic.batches.count_live(self._through + 1, topic.head + 1)

    def _extend(self) -> Iterator[None]:
        """Look at those that came last."""
        topic = self.topic
        while (start := self._through + 1) <= topic.head and self._indexed < LETTERS_INDEXED_MAX:
            seqs = topic.batches.live_seqs(start, INDEXED_PER_STEP)
            if not seqs:
                self._through = topic.head
                break
            self._add(seqs)
            self._through = seqs[-1]
            yield

    def _add(self, seqs: list[int]) -> None:
        for batch, start, end in self.topic.batches.runs(seqs):
            metas = BlockView(batch.block).column(META, start, end) or [b""] * (end - start)
            times = batch.times_at(start, end)
            for place, (meta, at) in enumerate(zip(metas, times, strict=True)):
                group = self._group_of(meta)
                group.seqs.append(batch.seq_at(start + place))
                group.times.append(at)
                self._indexed += 1

    def _group_of(self, meta: bytes) -> LetterGroup:
        letter = letter_meta(meta)
        key = GroupKey(letter.origin, letter.reason, error_pattern(letter.error or ""))
        group = self.groups.get(key)
        if group is None:
            if len(self.groups) >= GROUPS_MAX:
                key = GroupKey(None, None, None)
            group = self.groups.setdefault(key, LetterGroup())
        return group

    def _prune(self) -> Iterator[None]:
        """Leave out what has gone since."""
        live_among = self.topic.batches.live_among
        for key, group in [*self.groups.items()]:
            kept = LetterGroup()
            for start in range(0, len(group.seqs), KEPT_PER_STEP):
                seqs = group.seqs[start : start + KEPT_PER_STEP]
                live = live_among(seqs)
                times = group.times[start : start + KEPT_PER_STEP]
                if len(live) == len(seqs):
                    kept.times.extend(times)
                else:
                    alive = set(live)
                    kept.times.extend(compress(times, (seq in alive for seq in seqs)))
                kept.seqs.extend(live)
                yield
            self._indexed -= len(group.seqs) - len(kept.seqs)
            if kept.seqs:
                self.groups[key] = kept
            else:
                del self.groups[key]


class LetterIndexes:
    """The indexes of all topics that were asked about and still exist."""

    def __init__(self) -> None:
        self._of: dict[int, LetterIndex] = {}

    def of(self, topic: Topic, instances: dict[int, Topic]) -> LetterIndex:
        """The index of a topic, perhaps a new one.

        Args:
            topic: A topic of these.
            instances: All topics there are; what is indexed of others is forgotten.
        """
        for number, index in [*self._of.items()]:
            if instances.get(number) is not index.topic:
                del self._of[number]
        found = self._of.get(topic.number)
        if found is None:
            found = self._of[topic.number] = LetterIndex(topic)
        return found

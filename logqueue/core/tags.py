"""Which records of one topic have which tag, so that a delete by tag need not look at the rest.

Owns: the map from tags to seqs. Nothing is taken out when a record is removed: what is found is
held against the live records, and entries of records that are gone are pruned in small steps once
they are the most of it. Must not know: topics, commands, why a record is removed.

A tag is kept as its JSON string fragment, which is canonical: equal texts have equal fragments,
and a text begins with a prefix exactly if its fragment begins with the prefix's, up to the quote.
Every tag is in one place of `_runs` or `_new`, for queries by prefix.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from logqueue.core.batches import Batches
from logqueue.events.block import write_string
from logqueue.model import limits
from logqueue.model.tag_predicate import Predicate

RUN_TAGS_MAX = 2048
PRUNED_PER_STEP = 2048
SMALL_ENTRY_MAX = 4
STALE_MIN = 1024
"""Entries of removed records that are not worth a prune."""

REPLACED_LATELY = 64
"""So many of the latest seqs of an entry are looked through in any order."""


class TagIndex:
    """Tags and the seqs of their records.

    Attributes:
        entries: Seqs held, those of removed records included.
        stale: Removed records since the last prune began; at least as many as entries are stale.
    """

    __slots__ = ("_new", "_runs", "_seqs", "entries", "stale")

    def __init__(self) -> None:
        self.entries = 0
        self.stale = 0
        # One number for a tag used once, which is what producers of unique tags make; in no order.
        self._seqs: dict[bytes, int | array[int]] = {}
        self._runs: list[list[bytes]] = []
        self._new: list[bytes] = []

    def add(self, seqs: Sequence[int], tags: Sequence[bytes]) -> None:
        """Note the tags of records that were not noted before; b"" means none."""
        known = self._seqs
        first = tags[0]
        if len(tags) > 1 and first and tags.count(first) == len(tags):
            self._extend(first, seqs)
            self.entries += len(tags)
            return
        count = 0
        for seq, tag in zip(seqs, tags, strict=True):
            if not tag:
                continue
            count += 1
            entry = known.get(tag)
            if entry is None:
                known[tag] = seq
                self._note_new(tag)
            elif type(entry) is int:
                known[tag] = array("Q", (entry, seq))
            else:
                entry.append(seq)  # type: ignore[union-attr]
        self.entries += count

    def discard(self, seq: int, tag: bytes) -> None:
        """Forget the tag of a record that lives on with another content; b"" means none."""
        entry = self._seqs.get(tag)
        if entry is None:
            return
        if isinstance(entry, int):
            if entry == seq:
                self._seqs[tag] = array("Q")
                self.entries -= 1
        elif (at := _place_in(entry, seq)) >= 0:
            del entry[at]
            self.entries -= 1

    def _extend(self, tag: bytes, seqs: Iterable[int]) -> None:
        """Add several seqs under one tag."""
        entry = self._seqs.get(tag)
        if isinstance(entry, array):
            entry.extend(seqs)
            return
        held = self._seqs[tag] = array("Q", seqs)
        if entry is None:
            self._note_new(tag)
        else:
            held.append(entry)

    def _note_new(self, tag: bytes) -> None:
        self._new.append(tag)
        if len(self._new) == RUN_TAGS_MAX:
            self._seal()

    def _seal(self) -> None:
        """Sort the newest tags, a few at a time: no writer pays for all tags there are."""
        if self._new:
            self._new.sort()
            self._runs.append(self._new)
            self._new = []

    # -- queries ---------------------------------------------------------------------------------

    def scan(self, match: Predicate) -> Iterator[Sequence[int]]:
        """Seqs noted by now under tags that match, those of removed records among them, in parts of
        about a size and in no order. Between two parts the index may change."""
        fragment, seqs_max = write_string(match.value), limits.SCANNED_PER_PASS_MAX
        if not match.is_prefix:
            entry = self._seqs.get(fragment, ())
            # A copy: slices of the entry itself would move when something is pruned.
            held = (entry,) if isinstance(entry, int) else entry[:]
            for at in range(0, len(held), seqs_max):
                yield held[at : at + seqs_max]
            return
        part: list[int] = []
        for count, tag in enumerate(self._with_prefix(fragment[:-1]), 1):
            entry = self._seqs.get(tag, ())
            if isinstance(entry, int):
                part.append(entry)
            elif len(entry) <= seqs_max:
                part.extend(entry)
            else:
                held = entry[:]
                for at in range(0, len(held), seqs_max):
                    yield held[at : at + seqs_max]
            if len(part) >= seqs_max or count % seqs_max == 0:
                yield part
                part = []
        yield part

    def count(self, match: Predicate, tags_max: int = RUN_TAGS_MAX) -> int:
        """About how many seqs are noted under tags that match, those of removed records among
        them; more than any queue has if so many tags match that counting takes long."""
        fragment = write_string(match.value)
        if not match.is_prefix:
            entry = self._seqs.get(fragment, ())
            return 1 if isinstance(entry, int) else len(entry)
        count = 0
        for looked, tag in enumerate(self._with_prefix(fragment[:-1])):
            if looked == tags_max:
                return limits.U64_MAX
            entry = self._seqs.get(tag, ())
            count += 1 if isinstance(entry, int) else len(entry)
        return count

    def _with_prefix(self, prefix: bytes) -> Iterator[bytes]:
        """The tags by now that begin so. What is sealed or pruned meanwhile makes new lists."""
        new, runs = self._new[:], self._runs[:]
        for tag in new:
            if tag.startswith(prefix):
                yield tag
        for run in runs:
            for at in range(bisect_left(run, prefix), len(run)):
                if not run[at].startswith(prefix):
                    break
                yield run[at]

    def release(self) -> list[list[Any] | dict[Any, Any]]:
        """Everything that is large, to be freed bit by bit; the index must no longer be used."""
        return [self._seqs, *self._runs]

    # -- pruning ---------------------------------------------------------------------------------

    @property
    def wants_prune(self) -> bool:
        """Whether entries of removed records may be the most of it."""
        return self.stale > STALE_MIN and 2 * self.stale > self.entries

    def prune(self, batches: Batches) -> Iterator[None]:
        """Forget removed records, in steps between which anything may be added and looked for."""
        self.stale = 0
        self._seal()
        looked_at = 0
        for place in range(len(self._runs)):
            for tag in self._runs[place]:
                entry = self._seqs[tag]
                if isinstance(entry, int) or len(entry) <= SMALL_ENTRY_MAX:
                    continue
                at = 0
                while at < len(entry):
                    looked_at += min(len(entry) - at, PRUNED_PER_STEP)
                    at = self._prune_slice(entry, at, batches)
                    if looked_at >= PRUNED_PER_STEP:
                        yield
                        looked_at = 0
            looked_at += self._prune_run(place, batches)
            if looked_at >= PRUNED_PER_STEP:
                yield
                looked_at = 0
        self._runs = [run for run in self._runs if run]

    def _prune_slice(self, entry: array[int], at: int, batches: Batches) -> int:
        """Prune a slice of a long entry; where the next one begins."""
        part = sorted(entry[at : at + PRUNED_PER_STEP])
        live = batches.live_among(part)
        if len(live) < len(part):
            entry[at : at + len(part)] = array("Q", live)
            self.entries -= len(part) - len(live)
        return at + len(live)

    def _prune_run(self, place: int, batches: Batches) -> int:
        """Prune the short entries of a run, and tags with none left; how many were looked at."""
        run = self._runs[place]
        looked_at = 0
        for tag in run:
            entry = self._seqs[tag]
            held = [entry] if isinstance(entry, int) else entry
            if len(held) > SMALL_ENTRY_MAX:
                continue
            looked_at += len(held)
            live = batches.live_among(sorted(held))
            self.entries -= len(held) - len(live)
            if not live:
                del self._seqs[tag]
            elif len(live) == 1:
                self._seqs[tag] = live[0]
            elif len(live) < len(held):
                self._seqs[tag] = array("Q", live)
        kept = [tag for tag in run if tag in self._seqs]
        self._runs[place] = kept
        # Neighbours that have become short share a run from now on.
        before = self._runs[place - 1] if place else None
        if before is not None and len(before) + len(kept) <= RUN_TAGS_MAX:
            self._runs[place - 1] = []
            self._runs[place] = sorted(before + kept)
        return looked_at


def _place_in(entry: array[int], seq: int) -> int:
    """The place of a seq in an entry, -1 when absent. Nearly all are in order; those
    of replaced records came last."""
    behind = max(len(entry) - REPLACED_LATELY, 0)
    latest = entry[behind:]
    if seq in latest:
        return behind + latest.index(seq)
    at = bisect_left(entry, seq, 0, behind)
    if at < behind and entry[at] == seq:
        return at
    return entry.index(seq) if seq in entry else -1

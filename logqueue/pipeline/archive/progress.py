"""How far each topic of an archive is archived, from its manifests alone.

Owns: that state, and how a manifest changes it. Must not know: the log, files, what comes next.

Topics are known by `log_id`, so one that was created again is another one. Of `records` a place is
a seq; of `lease_events` it is an order of the whole log, kept for each topic by itself: a selection
that becomes wider begins at the first order with the topics that it adds, and one that becomes
narrower leaves the others where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from logqueue.pipeline.archive.manifests import (
    ArchivedTopic,
    FileEntry,
    Manifest,
    Reached,
    Watermark,
)
from logqueue.segments import ranges as rg


class ProgressState(msgspec.Struct, frozen=True, kw_only=True):
    """A `ArchiveProgress` as plain values."""

    topics: list[ArchivedTopic]
    ends: dict[str, int]
    next: dict[str, int]
    watermarks: dict[str, tuple[int, int]]
    legacy_ends: dict[str, int]
    legacy_ts: int
    max_ts: int


@dataclass
class ArchiveProgress:
    """How far the topics of one table are archived.

    Attributes:
        topics: What is known of each, by `log_id`.
        ends: The highest place in a file, by `log_id`.
        next: First place that is not archived, where that was stated.
        watermarks: Order and time up to which both tables are complete, by `log_id`.
        legacy_ends: By log, one after the highest order in manifests of earlier versions, which do
            not say which topics they cover: those with a file.
        legacy_ts: Highest time of a row in these manifests.
        max_ts: Highest time of a row that is in a segment.
    """

    topics: dict[str, ArchivedTopic] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    next: dict[str, int] = field(default_factory=dict)
    watermarks: dict[str, tuple[int, int]] = field(default_factory=dict)
    legacy_ends: dict[str, int] = field(default_factory=dict)
    legacy_ts: int = 0
    max_ts: int = 0

    def next_of(self, log_id: str) -> int:
        """First place of a topic that is not archived; 0 when nothing of it is."""
        stated = self.next.get(log_id)
        after = self.ends[log_id] + 1 if log_id in self.ends else 0
        if stated is not None:
            return max(stated, after)
        # Places of events are orders, which one log has in common.
        return max(after, self.legacy_ends.get(log_of(log_id), 0)) if after else 0

    def add(self, manifest: Manifest) -> None:
        """Take in the next epoch."""
        self.note(manifest.topics)
        self._add_files(manifest.files)
        self.next.update((reached.log_id, reached.next) for reached in manifest.reached)
        if not is_current(manifest):
            self._add_legacy(manifest)
        for covered in manifest.covered or ():
            ids = log_ids(covered.log, covered.topics)
            self.next.update(dict.fromkeys(ids, covered.end))
        if manifest.watermark is not None:
            self.mark(manifest.watermark)

    def note(self, topics: Iterable[ArchivedTopic]) -> None:
        """Take in what the log says of topics."""
        self.topics.update((topic.log_id, topic) for topic in topics)

    def mark(self, watermark: Watermark) -> None:
        """Take in the end of a run."""
        end = watermark.order, watermark.ts
        ids = log_ids(watermark.log, watermark.topics)
        self.watermarks.update(dict.fromkeys(ids, end))

    def _add_files(self, files: Iterable[FileEntry]) -> None:
        for entry in files:
            known = self.topics.get(entry.log_id)
            if known is None:
                known = ArchivedTopic(topic=entry.topic, log_id=entry.log_id)
                self.topics[entry.log_id] = known
            self.ends[entry.log_id] = max(self.ends.get(entry.log_id, 0), entry.last)
            if not known.is_paged:
                self.max_ts = max(self.max_ts, entry.max_ts)

    def _add_legacy(self, manifest: Manifest) -> None:
        for entry in manifest.files:
            self.legacy_ts = max(self.legacy_ts, entry.max_ts)
            if manifest.table == "lease_events":
                log = log_of(entry.log_id)
                self.legacy_ends[log] = max(self.legacy_ends.get(log, 0), entry.last + 1)

    def state(self) -> ProgressState:
        """Itself as plain values."""
        return ProgressState(
            topics=[*self.topics.values()],
            ends=self.ends,
            next=self.next,
            watermarks=self.watermarks,
            legacy_ends=self.legacy_ends,
            legacy_ts=self.legacy_ts,
            max_ts=self.max_ts,
        )

    @classmethod
    def of(cls, state: ProgressState) -> ArchiveProgress:
        """What `state` gave."""
        return cls(
            {topic.log_id: topic for topic in state.topics},
            dict(state.ends),
            dict(state.next),
            dict(state.watermarks),
            dict(state.legacy_ends),
            state.legacy_ts,
            state.max_ts,
        )


def is_current(manifest: Manifest) -> bool:
    """Whether a manifest says which topics it covers; those of earlier versions do not."""
    return manifest.covered is not None


def stated(ends: Mapping[str, int], files: Iterable[FileEntry]) -> list[Reached]:
    """What a manifest must state of how far topics were read, beyond what its files show.

    Args:
        ends: By `log_id`, the first place that was not read.
    """
    last: dict[str, int] = {}
    for entry in files:
        last[entry.log_id] = max(last.get(entry.log_id, 0), entry.last)
    return [
        Reached(log_id=log_id, next=next)
        for log_id, next in sorted(ends.items())
        if next != last.get(log_id, -1) + 1
    ]


def log_of(log_id: str) -> str:
    """The identity of the log that a topic's `log_id` is of."""
    return log_id.rpartition("-")[0]


def log_ids(log: str, numbers: rg.Ranges) -> list[str]:
    """The `log_id` of each topic instance of some ranges."""
    return [f"{log}-{number}" for first, last in numbers for number in range(first, last + 1)]

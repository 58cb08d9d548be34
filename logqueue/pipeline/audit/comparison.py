"""The rule about records in two places: both hold the same.

Owns: what two places that differ say. Must not know: engines, how records are held against each
other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from logqueue.pipeline.audit.findings import Finding
from logqueue.pipeline.audit.history import Instance
from logqueue.segments import ranges as seq_ranges
from logqueue.segments.ranges import Ranges

HERE, THERE, OTHER = "here", "there", "other"
_SAYS: Final = {
    HERE: "is missing in the place that is compared with",
    THERE: "is only in the place that is compared with",
    OTHER: "has other content in the place that is compared with",
}


@dataclass(slots=True)
class ComparedTopic:
    """One topic instance in two places.

    Attributes:
        here, there: The last seq in each place; None when it has no record.
        differences: Seqs that are only here, only there, or in both with other content.
    """

    topic: str
    here: int | None = None
    there: int | None = None
    differences: dict[str, Ranges] = field(default_factory=dict)


@dataclass(slots=True)
class PlaceComparison:
    """Two places.

    Attributes:
        topics: By log_id.
        gaps_here, gaps_there: By log_id, seqs whose segments that place has dropped; what became
            of their records is unknown there.
    """

    topics: dict[str, ComparedTopic] = field(default_factory=dict)
    gaps_here: Mapping[str, Ranges] = field(default_factory=dict)
    gaps_there: Mapping[str, Ranges] = field(default_factory=dict)


def findings(comparison: PlaceComparison, instances: Mapping[str, Instance]) -> Iterator[Finding]:
    """Where two places differ. What is behind the end of either of them is not compared.

    Args:
        comparison: Of the places.
        instances: What the log that is audited says of each instance.
    """
    for log_id, topic in sorted(
        comparison.topics.items(), key=lambda item: (item[1].topic, item[0])
    ):
        evidence = {"log_id": log_id}
        if topic.here is not None and (topic.there is None or topic.there < topic.here):
            detail = "the place that is compared with ends before this range; it was not compared"
            if topic.there is None:
                detail = "the place that is compared with has no record of it; it was not compared"
            first = (topic.there or 0) + 1
            yield Finding("same_records", "info", topic.topic, first, topic.here, detail, evidence)
        if topic.here is None or topic.there is None:
            continue
        inst = instances.get(log_id)
        until = min(max(topic.here, inst.head if inst is not None else 0), topic.there)
        dropped = comparison.gaps_there.get(log_id, [])
        unknown = list(comparison.gaps_here.get(log_id, []))
        if inst is not None and inst.known_from > 1:
            # What was in segments that were dropped may be in the other place.
            unknown = seq_ranges.union(unknown, [(1, inst.known_from - 1)])
        for kind, ranges in sorted(topic.differences.items()):
            ranges = seq_ranges.cut(ranges, 0, until)
            if kind == HERE:
                yield from _dropped(topic.topic, seq_ranges.both(ranges, dropped), evidence)
                ranges = seq_ranges.without(ranges, dropped)
            elif kind == THERE:
                ranges = seq_ranges.without(ranges, unknown)
            for first, last in ranges:
                detail = f"each of {last - first + 1} records {_SAYS[kind]}"
                yield Finding("same_records", "error", topic.topic, first, last, detail, evidence)


def _dropped(topic: str, ranges: Ranges, evidence: Mapping[str, object]) -> Iterator[Finding]:
    if ranges:
        detail = (
            f"{seq_ranges.count(ranges)} records are in segments that the place that is compared "
            "with has dropped, so they cannot be compared"
        )
        first, last = ranges[0][0], ranges[-1][1]
        yield Finding("same_records", "info", topic, first, last, detail, evidence)

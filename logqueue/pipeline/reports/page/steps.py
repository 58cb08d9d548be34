"""The steps of time a page draws, and how buckets of a report are gathered into them.

Owns: the one time axis of a page. Must not know: what is counted, HTML.

A report may hold far more buckets than a page can show. They are gathered into steps, and how is
said on the page: counts are summed, depths, ages and percentiles keep their highest, so that no
peak disappears. Nothing is averaged but shares of time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from logqueue.pipeline.reports.page import numbers

MOST_STEPS = 120
Values = list[float | None]


def known(values: Iterable[float | None]) -> list[float]:
    """The values that are there."""
    return [value for value in values if value is not None]


@dataclass(frozen=True)
class Steps:
    """Equal steps of time from `start` on.

    Attributes:
        start: Milliseconds since the epoch.
        width: Milliseconds per step.
        bucket: Milliseconds per bucket of the report; a step holds whole buckets.
        count: How many steps, at least 1.
    """

    start: int
    width: int
    bucket: int
    count: int

    @property
    def end(self) -> int:
        """Where the last step ends."""
        return self.start + self.width * self.count

    @property
    def is_gathered(self) -> bool:
        """Whether a step holds more than one bucket."""
        return self.width > self.bucket

    def names(self) -> list[str]:
        """When each step begins, in words."""
        return [numbers.moment(self.start + n * self.width) for n in range(self.count)]


def steps_over(
    times: Iterable[int],
    *,
    bucket: int | None = None,
    start: int | None = None,
    end: int | None = None,
    most: int = MOST_STEPS,
) -> Steps:
    """The steps that hold these buckets and the range asked for.

    Args:
        times: Where buckets begin, in any order, doubled or not.
        bucket: Width of a bucket; by default the smallest distance between two.
        start: Where the range begins; by default the first bucket.
        end: Where the range ends (exclusive); by default behind the last bucket.
        most: How many steps there may be.
    """
    known = sorted(set(times))
    if bucket is None:
        gaps = [after - before for before, after in pairwise(known)]
        bucket = min(gaps, default=numbers.MINUTE)
    first = min([*known[:1], *([] if start is None else [start])], default=0)
    last = max([*(at + bucket for at in known[-1:]), *([] if end is None else [end])], default=0)
    last = max(last, first + 1)
    width = bucket
    if (last - first) / width > most - 1:
        width = numbers.step_above((last - first) / (most - 1), bucket)
    begin = first // width * width if known == [] or known[0] % bucket == 0 else first
    return Steps(begin, width, bucket, max(1, -(-(last - begin) // width)))

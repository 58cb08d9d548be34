"""What tasks do with records beyond runs, with what they have to know of them.

Owns: functions with their arguments, as any engine sends them to its tasks. Must not know: engines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from logqueue.pipeline.audit.copies import dead_letters
from logqueue.pipeline.audit.record_rules import times_back


@dataclass(frozen=True, slots=True)
class TimesBack:
    """Finds the records that are older than one before them."""

    suspects: Mapping[str, list[tuple[int, int, int]]]

    def of_records(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """As `record_rules.BACK`."""
        return times_back(batches, self.suspects)


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Finds dead letters among some records."""

    wanted: Mapping[str, frozenset[int]]

    def of_records(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """As `copies.LETTERS`."""
        return dead_letters(batches, self.wanted)

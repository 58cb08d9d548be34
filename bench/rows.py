"""The rows of the table: what was measured, how often, and whether its target was reached.

Owns: rows, targets, the size of a measurement. Must not know: how anything is measured or shown.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec


@dataclass(frozen=True)
class Scale:
    """How long and how much. Targets are judged at full scale only: they speak of its counts."""

    name: str
    repeats: int
    seconds: float
    warmup_s: float
    lone_writes: int
    stream_latency_s: float
    stream_jobs: int
    backlog_jobs: int
    backlog_small_jobs: int
    claim_rounds: int
    read_records: int
    tidied_segments: int
    stall_jobs: int
    settle_s: float
    client_records: int
    worker_jobs: int
    idle_s: float
    idle_jobs: int
    starts: int
    spark_records: int
    spark_live_records: int
    spark_written: int
    spark_jobs: int
    spark_appends: int
    spark_starts: int


FULL = Scale(
    name="full",
    repeats=3,
    seconds=3.0,
    warmup_s=0.7,
    lone_writes=1500,
    stream_latency_s=6.0,
    stream_jobs=200_000,
    backlog_jobs=1_000_000,
    backlog_small_jobs=1_000,
    claim_rounds=300,
    read_records=200_000,
    tidied_segments=3,
    stall_jobs=1_000_000,
    settle_s=1.0,
    client_records=1_000_000,
    worker_jobs=50_000,
    idle_s=10.0,
    idle_jobs=300,
    starts=10,
    spark_records=5_000_000,
    spark_live_records=1_000_000,
    spark_written=1_000_000,
    spark_jobs=1_000_000,
    spark_appends=2_000,
    spark_starts=3,
)
QUICK = Scale(
    name="quick",
    repeats=1,
    seconds=0.1,
    warmup_s=0.05,
    lone_writes=20,
    stream_latency_s=0.3,
    stream_jobs=2_000,
    backlog_jobs=2_000,
    backlog_small_jobs=1_000,
    claim_rounds=5,
    read_records=2_500,
    tidied_segments=0,
    stall_jobs=1_000,
    settle_s=0.0,
    client_records=5_000,
    worker_jobs=500,
    idle_s=0.2,
    idle_jobs=5,
    starts=1,
    spark_records=20_000,
    spark_live_records=20_000,
    spark_written=2_000,
    spark_jobs=1_000,
    spark_appends=20,
    spark_starts=1,
)
PAIRED = replace(
    FULL,
    name="paired",
    repeats=1,
    seconds=0.6,
    warmup_s=0.2,
    lone_writes=300,
    stream_latency_s=1.5,
    stream_jobs=30_000,
    backlog_jobs=50_000,
    claim_rounds=60,
    read_records=50_000,
    settle_s=0.3,
)
"""One turn of a paired comparison: short, since many of them follow each other."""


@dataclass(frozen=True)
class Target:
    """A bound on a value; text says it in words when the number alone does not."""

    bound: float
    at_most: bool
    text: str = ""

    def reached(self, value: float) -> bool:
        """Is this value within the bound?"""
        return value <= self.bound if self.at_most else value >= self.bound


class Reading(NamedTuple):
    """One repetition of a row that counts requests."""

    rate: float
    cpu_us: float
    note: str


@dataclass
class Row:
    """One line of the table: a value per repetition.

    Attributes:
        cpu_us: Processor time of the server process per request in microseconds, per repetition;
            empty where a row does not count requests.
    """

    name: str
    what: str
    unit: str
    target: Target | None = None
    values: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failure: str = ""
    cpu_us: list[float] = field(default_factory=list)

    def add(self, reading: Reading) -> None:
        """One more repetition."""
        self.values.append(reading.rate)
        self.notes.append(reading.note)
        self.cpu_us.append(reading.cpu_us)

    @property
    def more_is_better(self) -> bool:
        """Whether a larger value is the better one."""
        return not self.target.at_most if self.target else self.unit.endswith("/s")

    @property
    def median(self) -> float:
        """The value that is reported."""
        return statistics.median(self.values)

    def reached(self, scale: Scale) -> bool | None:
        """Whether the target was reached; None when there is nothing to judge."""
        if self.target is None or scale is not FULL:
            return None
        return not self.failure and self.target.reached(self.median)


class RowReport(msgspec.Struct):
    """A row for machines."""

    name: str
    what: str
    unit: str
    target: float | None
    target_at_most: bool | None
    median: float | None
    values: list[float]
    cpu_us: list[float]
    reached: bool | None
    notes: list[str]
    failure: str


def for_machines(row: Row, scale: Scale) -> RowReport:
    """The row as it goes into JSON."""
    return RowReport(
        name=row.name,
        what=row.what,
        unit=row.unit,
        target=row.target.bound if row.target else None,
        target_at_most=row.target.at_most if row.target else None,
        median=row.median if row.values else None,
        values=row.values,
        cpu_us=row.cpu_us,
        reached=row.reached(scale),
        notes=row.notes,
        failure=row.failure,
    )

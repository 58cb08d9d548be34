"""Logs written by hand: right bytes, whatever history.

Owns: both logs of a data directory, filled with transactions that no server decided. Must not know:
who reads them.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from logqueue import events as ev
from logqueue.events import block as blocks
from logqueue.model.config import TopicOptions
from wal import Log

START_MS = 1_700_000_000_000


class CraftedLog:
    """A data directory under the hands of a test. Orders count up unless one is given."""

    def __init__(self, directory: Path, *, segment_bytes_max: int = 64 << 20) -> None:
        """Two new logs, whose identity is always the same."""
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.order = 0
        self.at = START_MS
        self.next_lease = 1
        self._logs = {
            name: Log.open(
                str(directory / name),
                segment_bytes_max=segment_bytes_max,
                random_bytes=lambda count: b"c" * count,
            )
            for name in ("jobs", "leases")
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for log in self._logs.values():
            log.close()

    @property
    def identity(self) -> str:
        """Of the jobs log, as hex."""
        return self._logs["jobs"].identity.hex()

    def roll(self) -> None:
        """Seal the segment of the jobs log and begin another."""
        self._logs["jobs"].roll()

    def log(self, *events: ev.Event, order: int | None = None) -> int:
        """Write one transaction to each log that its events go to; returns the last order."""
        for name, bit in (("jobs", ev.JOBS), ("leases", ev.LEASES)):
            part = [event for event in events if type(event).log & bit]
            if part:
                self.order = order if order is not None else self.order + 1
                self._logs[name].append(ev.encode(self.order, part), sync=False)
                while self._logs[name].step():
                    pass
        return self.order

    # -- what histories are made of ----------------------------------------------------------------

    def topic(self, number: int, name: str, **config: Any) -> None:
        self.log(ev.TopicCreated(self.at, number, name, TopicOptions(**config).resolved()))

    def append(
        self, topic: int, first: int, count: int, *, metas: list[dict[str, str]] | None = None
    ) -> None:
        """Records whose data is their seq."""
        self.log(appended(self.at, topic, first, count, metas=metas))

    def claim(self, topic: int, *seqs: int, node: str = "w1", lease_ms: int = 30_000) -> None:
        grants = [(node, self.at + lease_ms, 0, list(seqs))]
        self.log(ev.JobsClaimed(self.at, topic, self.next_lease, max(seqs) + 1, grants))
        self.next_lease += len(seqs)

    def ack(self, topic: int, *seqs: int, node: str = "w1") -> None:
        self.log(ev.JobsAcked(self.at, topic, node, list(seqs)))


def appended(
    at: int,
    topic: int,
    first: int,
    count: int,
    *,
    metas: list[dict[str, str]] | None = None,
    reserved: int = 0,
    data: str | None = None,
    not_before: int | None = None,
) -> ev.RecordsAppended:
    """The event of a write; the data of each record is its seq unless other data is given."""
    values = [data or str(seq) for seq in range(first, first + count)]
    texts: list[list[bytes] | None] = [[value.encode() for value in values], None, None, None]
    if metas is not None:
        texts[blocks.META] = [json.dumps(meta, separators=(",", ":")).encode() for meta in metas]
    numbers = {} if not_before is None else {blocks.NOT_BEFORE: [not_before] * count}
    block = blocks.pack(texts, numbers=numbers)
    size = blocks.BlockView(block).size_total()
    return ev.RecordsAppended(at, topic, first, count, block, seqs_reserved=reserved, size=size)


def dead_letter_meta(source: str, seq: int) -> dict[str, str]:
    """What a dead letter says of itself."""
    return {"$dead_letter_from": source, "$dead_letter_src_seq": str(seq)}


def archived_meta(source: str, seq: int) -> dict[str, str]:
    """What an archive's copy says of itself."""
    return {"$outcome": "acked", "$archived_from": source, "$archived_src_seq": str(seq)}


def segments(directory: Path, log: str = "jobs") -> list[Path]:
    """The files of a log, ascending."""
    return sorted((directory / log).glob("*.wal"))

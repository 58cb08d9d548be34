"""Logs for Spark to read, written without a server: as many records and lives of jobs as one likes.

Owns: what is in them. Must not know: Spark, what is measured.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from bench.load import job
from logqueue import events as ev
from logqueue.events import block
from logqueue.model.config import TopicOptions
from wal import Log

PER_BATCH = 1000
START_MS = 1_760_000_000_000
LEASE_MS = 30_000
NODES = tuple(f"host-{n // 4}/worker-{n % 4}" for n in range(8))
SINGLES_AT_ONCE = 200
"""Jobs of single transactions that go to the files together."""
TURN_MS = 400
"""How far the clock moves with each batch."""


class LogWriter:
    """Both logs of a data directory that no other process uses."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.at = START_MS
        self._order = 0
        self._lease = 1
        self._logs = {name: Log.open(str(directory / name)) for name in ("jobs", "leases")}

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

    def write(self, *events: ev.Event, now: bool = True) -> None:
        """One transaction to each log that its events go to.

        Args:
            now: Whether it is in the file afterwards, or goes there with one of the next.
        """
        for name, bit in (("jobs", ev.JOBS), ("leases", ev.LEASES)):
            part = [event for event in events if type(event).log & bit]
            if part:
                self._order += 1
                self._logs[name].append(ev.encode(self._order, part), sync=False)
                while now and self._logs[name].step():
                    pass

    def topic(self, number: int, name: str, **config: str) -> None:
        """Make a topic."""
        made = TopicOptions(**config).resolved()  # type: ignore[arg-type]
        self.write(ev.TopicCreated(self.at, number, name, made))

    def append(self, topic: int, first: int, count: int, *, now: bool = True) -> None:
        """Append records of 100 bytes."""
        packed = block.pack([[job(n) for n in range(first, first + count)], None, None, None])
        size = block.BlockView(packed).size_total()
        self.write(ev.RecordsAppended(self.at, topic, first, count, packed, size=size), now=now)

    def claim(self, topic: int, seqs: list[int]) -> None:
        """Claim jobs, shared among the nodes."""
        grants = [
            (node, self.at + LEASE_MS, 0, part)
            for n, node in enumerate(NODES)
            if (part := seqs[n :: len(NODES)])
        ]
        self.write(ev.JobsClaimed(self.at, topic, self._lease, max(seqs) + 1, grants))
        self._lease += len(seqs)

    def live(self, topic: int, first: int, count: int) -> None:
        """The whole life of a batch: a fifth comes back once, a hundredth is rejected."""
        seqs = list(range(first, first + count))
        self.append(topic, first, count)
        self.at += TURN_MS
        self.claim(topic, seqs)
        for n, node in enumerate(NODES):
            mine = seqs[n :: len(NODES)]
            self.at += TURN_MS // len(NODES)
            self.write(ev.JobsExtended(self.at, topic, node, self.at + LEASE_MS, mine))
        back = seqs[::5]
        for n, node in enumerate(NODES):
            mine = [seq for seq in seqs[n :: len(NODES)] if seq % 5 == first % 5]
            if mine:
                failed = ev.JobsReleased(self.at, topic, node, "nack", 0, mine, error="no answer")
                self.write(failed)
        self.claim(topic, back)
        self._end(topic, seqs, set(back))

    def _end(self, topic: int, seqs: list[int], back: set[int]) -> None:
        self.at += TURN_MS
        again = sorted(back)
        holders = {seq: NODES[n % len(NODES)] for n, seq in enumerate(seqs)}
        holders |= {seq: NODES[n % len(NODES)] for n, seq in enumerate(again)}
        for node in NODES:
            mine = [seq for seq in seqs if holders[seq] == node]
            bad = [seq for seq in mine if seq % 100 == 0]
            good = [seq for seq in mine if seq % 100]
            if good:
                self.write(ev.JobsAcked(self.at, topic, node, good))
            if bad:
                self.write(ev.RecordsFinished(self.at, topic, "rejected", node, bad))


def write_records(directory: Path, records: int, topic: str) -> None:
    """A log topic with that many records."""
    with LogWriter(directory) as log:
        log.topic(1, topic)
        for first in range(1, records + 1, PER_BATCH):
            log.append(1, first, min(PER_BATCH, records + 1 - first))
            log.at += 20


def write_single_jobs(directory: Path, jobs: int, topic: str) -> None:
    """A queue whose jobs were appended, claimed and acked one at a time: a transaction each."""
    with LogWriter(directory) as log:
        log.topic(1, topic, type="queue")
        for seq in range(1, jobs + 1):
            node, now = NODES[seq % len(NODES)], seq % SINGLES_AT_ONCE == 0 or seq == jobs
            log.at += 1
            log.append(1, seq, 1, now=False)
            grant = node, log.at + LEASE_MS, 0, [seq]
            log.write(ev.JobsClaimed(log.at, 1, seq, seq + 1, [grant]), now=False)
            log.at += 2
            log.write(ev.JobsAcked(log.at, 1, node, [seq]), now=now)


def write_jobs(directory: Path, jobs: int, topic: str) -> None:
    """A queue through which that many jobs have gone, about 3.4 events for each."""
    with LogWriter(directory) as log:
        log.topic(1, topic, type="queue")
        for first in range(1, jobs + 1, PER_BATCH):
            log.live(1, first, min(PER_BATCH, jobs + 1 - first))

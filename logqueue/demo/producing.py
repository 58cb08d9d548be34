"""The producer of the demo of a takeover: it appends while the workers work, whatever happens.

Owns: the thread that appends, and which seqs its jobs have got. Must not know: servers and their
ends; the client finds the one that writes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from logqueue import Client
from logqueue.demo.jobs import JobFeed
from logqueue.demo.queue import standing
from logqueue.demo.workers import JOBS, PATIENT

BATCH = 10
AHEAD_MAX = 100
"""So many jobs may be waiting: the producer is still at work when the writer is killed."""

PAUSE_S = 0.01


class JobProducer:
    """Appends jobs from a thread of its own."""

    def __init__(self, urls: Sequence[str], sources: Sequence[JobFeed]) -> None:
        """Nothing is sent yet.

        Args:
            urls: Of all servers.
            sources: One for each job.
        """
        self._urls = urls
        self._sources = sources
        self._pool = ThreadPoolExecutor(1)
        self._sending: Future[dict[int, JobFeed]] | None = None
        self._is_over = False

    def start(self) -> None:
        """Begin to append."""
        self._sending = self._pool.submit(self._append_all)

    def check(self) -> None:
        """Raise what has ended it early."""
        assert self._sending is not None
        if self._sending.done():
            self._sending.result()

    def result(self) -> dict[int, JobFeed]:
        """Every job by its seq, as the servers have answered; waits until all are sent."""
        assert self._sending is not None
        return self._sending.result()

    def close(self) -> None:
        """End it, wherever it is."""
        self._is_over = True
        self._pool.shutdown()

    def _append_all(self) -> dict[int, JobFeed]:
        appended: dict[int, JobFeed] = {}
        with Client(self._urls, backoff=PATIENT) as client:
            for start in range(0, len(self._sources), BATCH):
                while not self._is_over and standing(client).left > AHEAD_MAX:
                    time.sleep(PAUSE_S)
                if self._is_over:
                    break
                batch = self._sources[start : start + BATCH]
                stored = client.append(JOBS, batch)
                seqs = range(stored.first_seq, stored.last_seq + 1)
                appended.update(zip(seqs, batch, strict=True))
        return appended

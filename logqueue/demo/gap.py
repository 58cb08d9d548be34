"""The gap between a writer that was killed and the standby that took over, in seconds.

Owns: a thread that writes a record every few milliseconds, one that asks the standby how it is, and
what their answers say. Must not know: jobs, why the writer ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from logqueue import Backoff, Client, LogqueueError
from logqueue.errors import NotReady

PROBES = "demo.probes"
EVERY_S = 0.02
STANDBY_EVERY_S = 0.005
CALL_S = 2.0
ONCE = Backoff(attempts=1)


@dataclass(frozen=True)
class TakeoverGap:
    """Seconds after the kill; None for what was not seen.

    Attributes:
        last_answer_s: The last write that the old writer answered; 0 or below.
        began_s: The standby began to take over.
        ready_s: The standby was ready to write.
        first_answer_s: The first write that the new writer answered.
    """

    last_answer_s: float
    began_s: float | None
    ready_s: float | None
    first_answer_s: float

    @property
    def seconds(self) -> float:
        """How long no write was answered."""
        return self.first_answer_s - self.last_answer_s

    def moments(self) -> Sequence[tuple[str, float | None]]:
        """What happened when, in order."""
        return (
            ("last write answered by the old writer", self.last_answer_s),
            ("the old writer is killed (SIGKILL)", 0.0),
            ("the standby has noticed, and begins to take over", self.began_s),
            ("the standby is the writer", self.ready_s),
            ("first write answered by the new writer", self.first_answer_s),
        )


class GapProbe:
    """Measures while it is open. Times are those of the monotonic clock."""

    def __init__(self, urls: Sequence[str], standby: str) -> None:
        """Nothing is asked yet.

        Args:
            urls: Of both servers.
            standby: Of the one that is to take over.
        """
        self._urls = urls
        self._standby = standby
        self._over = threading.Event()
        self._answered = threading.Event()
        self._killed_at: float | None = None
        self._last = 0.0
        self._first: float | None = None
        self._began: float | None = None
        self._ready: float | None = None
        self._threads = [
            threading.Thread(target=run, daemon=True) for run in (self._write, self._ask)
        ]

    def __enter__(self) -> Self:
        with Client(self._urls) as client:
            client.put_topic(PROBES, durable=True, cap_records=1000)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def killed(self) -> None:
        """The writer has ended: what is answered from now on, the standby has answered."""
        self._killed_at = time.monotonic()

    def wait(self, timeout_s: float) -> TakeoverGap | None:
        """Wait until the standby answers; None when it did not in time."""
        assert self._killed_at is not None, "the writer is killed first"
        if not self._answered.wait(timeout_s) or self._first is None:
            return None
        return TakeoverGap(
            last_answer_s=self._last - self._killed_at,
            began_s=self._after(self._began),
            ready_s=self._after(self._ready),
            first_answer_s=self._first - self._killed_at,
        )

    def _after(self, moment: float | None) -> float | None:
        return None if moment is None or self._killed_at is None else moment - self._killed_at

    def _write(self) -> None:
        def once(client: Client) -> None:
            client.append(PROBES, [None])
            now = time.monotonic()
            if self._killed_at is None:
                self._last = now
            elif self._first is None:
                self._first = now
                self._answered.set()

        self._repeat(self._urls, EVERY_S, once)

    def _ask(self) -> None:
        def once(client: Client) -> None:
            try:
                client.ready()
            except NotReady:
                if self._killed_at is not None and self._began is None:
                    self._began = time.monotonic()
                return
            if self._began is not None and self._ready is None:
                self._ready = time.monotonic()

        self._repeat((self._standby,), STANDBY_EVERY_S, once)

    def _repeat(self, urls: Sequence[str], every_s: float, once: Callable[[Client], None]) -> None:
        with Client(urls, timeout_s=CALL_S, backoff=ONCE) as client:
            while not self._over.wait(every_s):
                try:
                    once(client)
                except LogqueueError:
                    continue

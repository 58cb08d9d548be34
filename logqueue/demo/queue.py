"""The queue of the demo, as the one that watches the run sees it.

Owns: setting the topics up, following the work until enough is done, reading what came out. Must
not know: servers and their ends, how a job is done, how the facts are judged or shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from logqueue import Client, Record
from logqueue.demo.checks import DeadLetter, Standing
from logqueue.demo.crew import DemoWorkers
from logqueue.demo.jobs import JobFeed
from logqueue.demo.progress import Narrator
from logqueue.demo.workers import DEAD, JOBS, RESULTS, Result

DELIVERIES_MAX = 5
"""Above what the workers try: it is there for jobs that would kill a worker."""

WATCH_EVERY_S = 0.05
STALL_S = 60.0
IDEMPOTENCY_WINDOW_MS = 86_400_000


class Stalled(Exception):
    """Jobs are left and nothing has been finished for a long time."""


def set_up(client: Client) -> None:
    """Create the topics of the demo."""
    client.put_topic(RESULTS, durable=True, idempotency_window_ms=IDEMPOTENCY_WINDOW_MS)
    client.put_topic(DEAD, durable=True)
    client.put_topic(
        JOBS, type="queue", durable=True, max_deliveries=DELIVERIES_MAX, dead_letter=DEAD
    )


def watch(
    client: Client,
    crew: DemoWorkers,
    narrator: Narrator,
    until: int,
    check: Callable[[], object] = lambda: None,
) -> None:
    """Follow the queue until so many jobs are done.

    Args:
        check: Raises when what else runs has failed.

    Raises:
        Stalled: Nothing happens any longer.
        WorkerFailed: A worker ended.
    """
    progress_at, before = time.monotonic(), -1
    while True:
        now = standing(client)
        narrator.done(now.done, now.queue.in_flight)
        if now.done >= until:
            return
        if now.done > before:
            progress_at, before = time.monotonic(), now.done
        if time.monotonic() > progress_at + STALL_S:
            raise Stalled(f"{now.done} of {until} jobs done, and no more for {STALL_S:.0f} s")
        crew.check()
        check()
        time.sleep(WATCH_EVERY_S)


def standing(client: Client) -> Standing:
    """The queue as it is now."""
    state = client.topic(JOBS)
    assert state.queue is not None, "it was created as a queue"
    return Standing(state.count, state.queue, state.head_seq)


def results(client: Client) -> list[Result]:
    """What the workers stored."""
    return [msgspec.convert(one.data, Result) for one in _records(client, RESULTS)]


def dead_letters(client: Client) -> list[DeadLetter]:
    """The jobs that failed for the last time."""
    return [_dead_letter(one) for one in _records(client, DEAD)]


def _records(client: Client, topic: str) -> list[Record]:
    """Every record of a log that has lost none."""
    return [item for item in client.read(topic) if isinstance(item, Record)]


def _dead_letter(copy: Record) -> DeadLetter:
    assert isinstance(copy.meta, dict), "the server writes where a dead letter comes from"
    return DeadLetter(
        seq=int(copy.meta["$dead_letter_src_seq"]),
        name=msgspec.convert(copy.data, JobFeed).name,
        deliveries=int(copy.meta["$dead_letter_deliveries"]),
        reason=copy.meta.get("$dead_letter_error", ""),
    )

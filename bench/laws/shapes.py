"""Logs of several shapes, each of any size, and what is in them.

Owns: which topics, over which time. Must not know: what is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench.spark_logs import LogWriter

PER_BATCH: Final = 1000
DAY_MS: Final = 86_400_000
WIDE_TOPICS: Final = 145
WIDE_DAYS: Final = 90
MANY_TOPICS: Final = 1600


def hot(log: LogWriter, jobs: int) -> None:
    """All jobs in one queue."""
    log.topic(1, "hot", type="queue")
    for first in range(1, jobs + 1, PER_BATCH):
        log.live(1, first, min(PER_BATCH, jobs + 1 - first))


def wide(log: LogWriter, jobs: int) -> None:
    """Jobs of 145 queues over 90 days, as many in each."""
    each = max(jobs // (WIDE_TOPICS * WIDE_DAYS), 1)
    for topic in range(1, WIDE_TOPICS + 1):
        log.topic(topic, f"queue-{topic}", type="queue")
    start = log.at
    for day in range(WIDE_DAYS):
        log.at = max(log.at, start + day * DAY_MS)
        for topic in range(1, WIDE_TOPICS + 1):
            log.live(topic, day * each + 1, each)


def many(log: LogWriter, jobs: int) -> None:
    """Jobs of 1600 queues."""
    each = max(jobs // MANY_TOPICS, 1)
    for topic in range(1, MANY_TOPICS + 1):
        log.topic(topic, f"queue-{topic}", type="queue")
    for topic in range(1, MANY_TOPICS + 1):
        log.live(topic, 1, each)


def single(log: LogWriter, jobs: int) -> None:
    """One queue whose jobs are appended, claimed and acked one by one."""
    log.topic(1, "single", type="queue")
    for seq in range(1, jobs + 1):
        log.live(1, seq, 1)


SHAPES: Final[dict[str, Callable[[LogWriter, int], None]]] = {
    "hot": hot,
    "wide": wide,
    "many": many,
    "single": single,
}


def written(directory: Path, shape: str, jobs: int) -> Path:
    """A log of a shape and size; one that is there is taken as it is."""
    place = directory / f"{shape}-{jobs}"
    if not place.is_dir():
        draft = directory / f"{shape}-{jobs}.part"
        if draft.is_dir():
            raise FileExistsError(f"{draft} is left of an earlier run: remove it")
        with LogWriter(draft) as log:
            SHAPES[shape](log, jobs)
        draft.rename(place)
    return place

"""How fast jobs are folded from their sorted rows: `python -m bench.fold [--jobs 300000]`.

Owns: histories in which some share of the jobs was tried again or expired, and the time that the
fold needs for them by column, and one by one as `JobTimeline` defines it, in CPU seconds of one
process. Must not know: where rows come from in a real run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from unittest import mock

import numpy as np
import pyarrow as pa

from logqueue.pipeline.lifecycle.job_history import ACKED, APPENDED, CLAIMED, EXTENDED, RELEASED
from logqueue.pipeline.rows import history_batches
from logqueue.pipeline.rows.history_batches import FOLD_SCHEMA, folder

START = 1_700_000_000_000
BATCH_ROWS = 10_000
"""As Spark gives them."""

PLAIN = (APPENDED, CLAIMED, ACKED)
RETRIED = (APPENDED, CLAIMED, RELEASED, CLAIMED, EXTENDED, ACKED)
EXPIRED = (APPENDED, CLAIMED, CLAIMED, ACKED)


def history(jobs: int, share: float, long: int = 0) -> list[pa.RecordBatch]:
    """Sorted rows.

    Args:
        share: Of jobs that are tried again, after an error or when their lease ran out.
        long: So many jobs have 500 events.
    """
    chance = np.random.default_rng(7)
    shapes = [np.array(shape) for shape in (PLAIN, RETRIED, EXPIRED)]
    shapes.append(np.array([APPENDED, CLAIMED, *[EXTENDED] * 500, ACKED]))
    shape = np.where(chance.random(jobs) < share, chance.integers(1, 3, jobs), 0)
    shape[chance.integers(0, jobs, long)] = 3
    lengths = np.array([len(each) for each in shapes])[shape]
    kind = np.concatenate([shapes[n] for n in shape.tolist()])
    seq = np.repeat(np.arange(1, jobs + 1), lengths)
    nth = np.arange(len(kind)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    ts = START + seq * 3 + nth * 2_000
    lease_ms = np.where((shape == 2)[seq - 1] & (nth == 1), 1_000, 30_000)
    due = np.where((kind == CLAIMED) | (kind == EXTENDED), ts + lease_ms, 0)
    worker = pa.array([f"worker-{n}" for n in range(20)])
    who = worker.take(pa.array(seq % 20, mask=kind == APPENDED))
    lease = pa.array(np.char.add("lease_", seq.astype("U")).tolist(), mask=kind != CLAIMED)
    failed = kind == RELEASED
    arrays = [
        pa.repeat("0123456789abcdef-0", len(kind)),
        *(pa.array(column.astype(np.int64)) for column in (seq, nth, kind, ts, due)),
        who,
        lease,
        pa.array(np.where(failed, "nack", ""), mask=~failed),
        pa.array(np.where(failed, "ValueError: no luck", ""), mask=~failed),
    ]
    rows = pa.RecordBatch.from_arrays(arrays, schema=FOLD_SCHEMA)
    return [rows.slice(at, BATCH_ROWS) for at in range(0, len(kind), BATCH_ROWS)]


def cpu_s(batches: list[pa.RecordBatch]) -> float:
    """CPU seconds of one fold."""
    began = time.process_time()
    for _ in folder(START + 10**10, {})(batches):
        pass
    return time.process_time() - began


def measured(jobs: int) -> Iterator[str]:
    """A line for each kind of history."""
    yield f"{'history':24} {'rows':>9} {'by column':>9} {'column us/job':>13} {'one by one':>10}"
    for share, long in ((0.0, 0), (0.1, 0), (0.5, 0), (0.1, jobs // 1000)):
        batches = history(jobs, share, long)
        fast = cpu_s(batches)
        sample = batches[: max(len(batches) // 10, 1)]
        with mock.patch.object(history_batches, "LONG_ROWS_MIN", 0):
            slow = cpu_s(sample) * len(batches) / len(sample)
        name = f"{share:.0%} retried, expired" + (f", {long} long" if long else "")
        rows = sum(batch.num_rows for batch in batches)
        yield (
            f"{name:24} {rows:>9} {1 - long / jobs:>9.1%} {fast / jobs * 1e6:>13.2f}"
            f" {slow / jobs * 1e6:>10.2f}"
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=300_000)
    for line in measured(parser.parse_args().jobs):
        print(line, flush=True)


if __name__ == "__main__":
    main()

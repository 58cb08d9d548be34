"""The bound on steps of a job: what is cut is counted, and the last step stays."""

from __future__ import annotations

from logqueue.pipeline.lifecycle.job_history import ACKED, CLAIMED, RELEASED, STEPS_MAX, JobTimeline
from logqueue.pipeline.rows.history_batches import LONG_ROWS_MIN
from logqueue.pipeline.rows.job_columns import STEPS_PER_ROW


def test_steps_beyond_the_bound_are_cut_and_counted() -> None:
    """A job that is handed back again and again is one row that fits."""
    rounds = 2 * STEPS_MAX
    job = JobTimeline()
    job.append(100, 0)
    for n in range(rounds):
        job.take(CLAIMED, 200 + n, 10**9, "a", f"l{n}", None, None)
        job.take(RELEASED, 200 + n, 0, "a", None, None, None)
    job.take(ACKED, 10**6, 0, "a", None, None, None)
    job.close(10**6)
    assert len(job.steps) == STEPS_MAX
    assert [step.activity for step in job.steps[:3]] == ["appended", "claimed", "released"]
    assert (job.steps[-1].activity, job.steps[-1].state) == ("acked", "acked")
    assert len(job.steps) + job.steps_cut == 2 * rounds + 2
    # 40 are shown; the record itself is not among them.
    assert job.variant.endswith(f">released>({2 * rounds + 1 - 40} more)")
    assert len(job.attempts) == rounds, "every lease is there"


def test_jobs_that_are_folded_by_column_are_within_the_bound() -> None:
    assert LONG_ROWS_MIN * STEPS_PER_ROW <= STEPS_MAX

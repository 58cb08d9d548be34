"""What one job's events mean: crashes, restarts, a clock that is set back."""

from __future__ import annotations

from typing import Any

from logqueue.pipeline.lifecycle.job_history import EVENTS, JobTimeline


def told_of(*events: tuple[Any, ...], end: int = 10_000, appended: int | None = 100) -> JobTimeline:
    """A job from (event, ts) and, as needed, due, worker, lease id, reason, detail."""
    job = JobTimeline()
    if appended is not None:
        job.append(appended, 0)
    for name, ts, *more in events:
        none: list[Any] = [0, None, None, None, None]
        due, worker, lease, reason, detail = [*more, *none[len(more) :]]
        job.take(EVENTS.index(name), ts, due, worker, lease, reason, detail)
    job.close(end)
    return job


def outcomes(job: JobTimeline) -> list[tuple[str, int]]:
    return [(attempt.outcome, attempt.ended_at) for attempt in job.attempts]


def test_a_held_job_that_is_edited_stays_held() -> None:
    job = told_of(("held", 500), ("replaced", 600), ("unheld", 700), appended=100)
    assert [step.activity for step in job.steps][-3:] == ["held", "replaced", "unheld"]
    assert (job.steps[-2].state, job.state) == ("held", "ready")


def test_an_ack_whose_claim_was_lost_ends_the_job_without_an_attempt() -> None:
    job = told_of(("acked", 500, 0, "ant"))
    assert (job.state, job.finished_at, job.attempts, job.variant) == ("acked", 500, [], "acked")


def test_a_claim_over_an_open_lease_shows_that_it_was_lost() -> None:
    job = told_of(("claimed", 200, 9_000, "ant"), ("claimed", 700, 19_500, "bee"))
    assert outcomes(job) == [("lost", 700), ("open", 0)]
    assert (job.variant, job.wasted_ms, job.state) == ("claimed>lost>claimed", 500, "in_flight")


def test_a_word_of_another_worker_shows_it_too() -> None:
    job = told_of(("claimed", 200, 9_000, "ant"), ("acked", 700, 0, "bee"))
    assert outcomes(job) == [("lost", 700)]
    assert job.state == "acked"
    again = told_of(("claimed", 200, 900, "ant"), ("extended", 700, 9_000, "bee"))
    assert outcomes(again) == [("lost", 700)]


def test_a_lease_holds_through_its_deadline_and_not_beyond() -> None:
    assert outcomes(told_of(("claimed", 200, 900, "ant"), end=900)) == [("open", 0)]
    assert outcomes(told_of(("claimed", 200, 900, "ant"), end=901)) == [("expired", 900)]
    acked = told_of(("claimed", 200, 900, "ant"), ("acked", 900, 0, "ant"))
    assert outcomes(acked) == [("acked", 900)]
    longer = told_of(("claimed", 200, 900, "ant"), ("extended", 900, 5_000, "ant"), end=6_000)
    assert (outcomes(longer), longer.attempts[0].overrun_ms) == ([("expired", 5_000)], 4_100)


def test_leases_of_a_lost_record_are_not_those_of_its_successor() -> None:
    job = told_of(("claimed", 40, 900, "ant"), ("released", 50, 0, "ant"), ("acked", 500))
    assert (job.attempts, job.variant) == ([], "acked")


def test_a_clock_that_is_set_back_does_not_turn_a_job_around() -> None:
    job = told_of(("claimed", 900, 5_000, "ant"), ("acked", 300, 0, "ant"))
    assert outcomes(job) == [("acked", 900)]
    assert (job.run_ms, job.finished_at) == (0, 900)


def test_the_lease_of_a_record_that_went_lasts_on() -> None:
    job = told_of(
        ("claimed", 200, 9_000, "ant"), ("expired", 300), ("acked", 400, 0, "ant"), ("trimmed", 500)
    )
    assert outcomes(job) == [("acked", 400)]
    assert (job.state, job.finished_at, job.variant) == ("expired", 300, "claimed>ttl_expired")


def test_a_job_that_is_known_from_events_only() -> None:
    job = told_of(("claimed", 200, 900, "ant"), appended=None)
    assert (job.state, job.first_ready_at, job.began_at) == ("ready", 0, 200)
    assert not told_of(("trimmed", 200), appended=None).is_known


def test_a_variant_does_not_grow_for_ever() -> None:
    back_and_forth = [
        event
        for n in range(30)
        for event in (("claimed", 200 + n, 9_000, "a"), ("released", 200 + n, 0, "a"))
    ]
    variant = told_of(*back_and_forth).variant
    assert variant.endswith(">released>(20 more)") and variant.count(">") == 40


def test_what_a_hold_said_twice_changes() -> None:
    job = told_of(("claimed", 200, 900, "a"), ("held", 300), ("held", 400), ("unheld", 500))
    assert (job.variant, job.deliveries, job.state) == ("claimed>held>unheld", 0, "ready")

"""How a job is settled, by policy and by what its handler did: one row each."""

from __future__ import annotations

from random import Random

import pytest

from logqueue.worker import (
    AckPolicy,
    BadPayload,
    JobTimeout,
    Reject,
    Retry,
    RetryLater,
    Snooze,
    UnknownTask,
)
from logqueue.worker.outcomes import ACK, ERROR_BYTES_MAX, Outcome, decide, error_text

FIVE = Retry.constant(5.0, max_attempts=3)
BOOM = ValueError("boom")
NACK = Outcome("nack", 5000, "ValueError: boom")
REJECT = Outcome("reject", error="ValueError: boom")
FIRST, ALWAYS, STRICT, DEFAULT, MANUAL = (
    AckPolicy.ACK_FIRST,
    AckPolicy.ACK,
    AckPolicy.REJECT_ON_ERROR,
    AckPolicy.NACK_ON_ERROR,
    AckPolicy.MANUAL,
)


@pytest.mark.parametrize(
    ("policy", "error", "attempt", "outcome"),
    [
        (FIRST, None, 1, None),
        (FIRST, BOOM, 1, None),
        (FIRST, Snooze(1.0), 1, None),
        (ALWAYS, None, 1, ACK),
        (ALWAYS, BOOM, 1, ACK),
        (ALWAYS, Reject("bad"), 1, Outcome("reject", error="bad")),
        (STRICT, None, 1, ACK),
        (STRICT, BOOM, 1, REJECT),
        (STRICT, RetryLater(2.0), 1, Outcome("nack", 2000)),
        (DEFAULT, None, 1, ACK),
        (DEFAULT, BOOM, 1, NACK),
        (DEFAULT, BOOM, 2, NACK),
        (DEFAULT, BOOM, 3, REJECT),
        (DEFAULT, JobTimeout("late"), 1, Outcome("nack", 5000, "JobTimeout: late")),
        (DEFAULT, UnknownTask("x"), 1, Outcome("nack", 5000, "UnknownTask: x")),
        (DEFAULT, BadPayload("x"), 1, Outcome("reject", error="BadPayload: x")),
        (DEFAULT, Snooze(1.5), 9, Outcome("nack", 1500, count=False)),
        (DEFAULT, RetryLater(2.0, "busy"), 9, Outcome("nack", 2000, "busy")),
        (DEFAULT, RetryLater(), 1, Outcome("nack", 5000)),
        (DEFAULT, RetryLater(reason="busy"), 3, Outcome("reject", error="busy")),
        (DEFAULT, Reject(), 1, Outcome("reject")),
        (MANUAL, None, 1, None),
        (MANUAL, BOOM, 1, NACK),
        (MANUAL, BOOM, 3, REJECT),
    ],
)
def test_outcomes(
    policy: AckPolicy, error: BaseException | None, attempt: int, outcome: Outcome | None
) -> None:
    assert decide(policy, FIVE, error, attempt, Random(1)) == outcome


def test_an_error_text_fits_what_the_server_keeps() -> None:
    text = error_text(ValueError("ü" * 10_000))
    assert text.startswith("ValueError: üü")
    assert ERROR_BYTES_MAX - 1 <= len(text.encode()) <= ERROR_BYTES_MAX


def test_an_error_without_text_is_named() -> None:
    assert error_text(KeyError()) == "KeyError"

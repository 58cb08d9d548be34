"""Retry rules, as tables."""

from __future__ import annotations

from random import Random

import pytest

from logqueue.worker import Retry

ERROR = ValueError("x")


def delays(rule: Retry, attempts: int) -> list[float | None]:
    """The delay after each attempt."""
    return [rule.delay(n, ERROR, Random(1)) for n in range(1, attempts + 1)]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Retry.none(), [None, None]),
        (Retry.constant(5.0), [5.0, 5.0, 5.0]),
        (Retry.constant(5.0, max_attempts=3), [5.0, 5.0, None]),
        (Retry.linear(1.0, 2.0, jitter=False), [1.0, 3.0, 5.0, 7.0]),
        (Retry.linear(1.0, 2.0, cap=4.0, jitter=False), [1.0, 3.0, 4.0, 4.0]),
        (Retry.exponential(1.0, 3.0, jitter=False), [1.0, 3.0, 9.0, 27.0]),
        (Retry.exponential(1.0, 3.0, cap=10.0, jitter=False), [1.0, 3.0, 9.0, 10.0]),
        (Retry(max_attempts=3, first=1.0, factor=2.0, jitter=False), [1.0, 2.0, None]),
        (Retry(first=1.0, factor=2.0, max_total_delay=6.9, jitter=False), [1.0, 2.0, None]),
        (Retry(first=1.0, factor=2.0, max_total_delay=7.0, jitter=False), [1.0, 2.0, 4.0, None]),
        (Retry.constant(0.0, max_total_delay=1.0), [0.0, 0.0, 0.0]),
    ],
)
def test_delays(rule: Retry, expected: list[float | None]) -> None:
    assert delays(rule, len(expected)) == expected


def test_jitter_takes_its_share_and_no_more() -> None:
    chance = Random(7)
    rule = Retry.constant(10.0, jitter=0.2)
    drawn = [rule.delay(1, ERROR, chance) or 0.0 for _ in range(200)]
    assert 8.0 <= min(drawn) < 8.2
    assert 9.8 < max(drawn) <= 10.0


def test_true_means_half_of_the_delay() -> None:
    chance = Random(7)
    drawn = [Retry(first=10.0).delay(1, ERROR, chance) or 0.0 for _ in range(200)]
    assert 5.0 <= min(drawn) < 5.2
    assert max(drawn) <= 10.0


@pytest.mark.parametrize(
    ("on", "unless", "error", "is_retried"),
    [
        ((Exception,), (), ValueError(), True),
        ((OSError,), (), ConnectionError(), True),
        ((OSError,), (), ValueError(), False),
        ((Exception,), (ValueError,), ValueError(), False),
        ((Exception,), (ValueError,), UnicodeError(), False),
        ((Exception,), (ValueError,), OSError(), True),
        ((Exception,), (), SystemExit(), False),
    ],
)
def test_filters(
    on: tuple[type[BaseException], ...],
    unless: tuple[type[BaseException], ...],
    error: BaseException,
    is_retried: bool,
) -> None:
    rule = Retry(on=on, unless=unless)
    assert (rule.delay(1, error, Random(1)) is not None) is is_retried


def test_a_thousand_attempts_do_not_overflow() -> None:
    assert Retry(jitter=False).delay(100_000, ERROR, Random(1)) == 300.0


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"max_attempts": 0}, "max_attempts"),
        ({"first": -1.0}, "first"),
        ({"factor": 0.5}, "factor"),
        ({"jitter": 1.5}, "jitter"),
    ],
)
def test_rules_that_make_no_sense_are_refused(wrong: dict[str, float], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Retry(**wrong)  # type: ignore[arg-type]

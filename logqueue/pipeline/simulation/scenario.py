"""A scenario: what is to be different from what was measured.

Owns: the changes there are, how they are written and checked. Must not know: how a queue is
replayed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from logqueue.errors import quoted
from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.reports.selection import parse_duration
from logqueue.pipeline.simulation.changes import CHANGES

FACTOR_MAX: Final = 1000.0
WORKERS_MAX: Final = 10_000
AS_MEASURED: Final = "as measured"


@dataclass(frozen=True, slots=True)
class WorkerChange:
    """How many jobs are worked on at a time.

    Attributes:
        slots: A number of their own, present all the time; None keeps the measured ones.
        factor: So many times the measured ones.
        more: So many more than the measured ones (fewer when negative).
    """

    slots: int | None = None
    factor: float = 1.0
    more: int = 0


@dataclass(frozen=True, slots=True)
class Scenario:
    """Changes to what was measured.

    Attributes:
        name: As written; `AS_MEASURED` without changes.
        load, run: Factors.
        backoff_ms: First and longest delay before a retry; None as measured.
        max_deliveries: None as measured.
        lease_ms: None as measured.
        max_in_flight: None for no limit but the workers.
        claim_rate: Claims per second; None for no limit.
        first: Tags whose jobs go first.
    """

    name: str = AS_MEASURED
    workers: WorkerChange = WorkerChange()
    load: float = 1.0
    run: float = 1.0
    backoff_ms: tuple[int, int] | None = None
    max_deliveries: int | None = None
    lease_ms: int | None = None
    max_in_flight: int | None = None
    claim_rate: float | None = None
    first: frozenset[str] = frozenset()


def parse_scenario(text: str) -> Scenario:
    """A scenario from `workers=x2,load=x1.5`.

    Raises:
        PipelineError: A change is unknown, given twice, or its value is none.
    """
    scenario = Scenario(name=text.strip())
    seen: set[str] = set()
    for part in text.split(","):
        name, sign, value = (piece.strip() for piece in part.partition("="))
        read = _READERS.get(name)
        if read is None or not sign:
            raise PipelineError(
                f"{quoted(part.strip())} is not a change: use one of\n{_indented(CHANGES)}"
            )
        if name in seen and name != "first":
            raise PipelineError(f"{name} is given twice in {quoted(text)}")
        seen.add(name)
        scenario = read(scenario, value)
    return scenario


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _workers(scenario: Scenario, text: str) -> Scenario:
    if text.startswith("x"):
        return replace(scenario, workers=WorkerChange(factor=_factor(text, "workers")))
    if text.startswith(("+", "-")):
        number = _count(text[1:], "workers", WORKERS_MAX)
        return replace(scenario, workers=WorkerChange(more=-number if text[0] == "-" else number))
    return replace(scenario, workers=WorkerChange(slots=_count(text, "workers", WORKERS_MAX)))


def _backoff(scenario: Scenario, text: str) -> Scenario:
    first, dots, longest = text.partition("..")
    low = parse_duration(first, "backoff")
    high = parse_duration(longest, "backoff") if dots else low
    if high < low:
        raise PipelineError(f"backoff {quoted(text)} begins above its end: write backoff=5s..5m")
    return replace(scenario, backoff_ms=(low, high))


def _factor(text: str, name: str) -> float:
    number = text.removeprefix("x")
    if not text.startswith("x") or not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", number):
        raise PipelineError(f"{name} {quoted(text)} is not a factor: write {name}=x1.5")
    factor = float(number)
    if not 0 < factor <= FACTOR_MAX:
        raise PipelineError(f"{name} must be above x0 and at most x{FACTOR_MAX:.0f}")
    return factor


def _count(text: str, name: str, most: int) -> int:
    if not re.fullmatch(r"\d{1,9}", text) or not 1 <= int(text) <= most:
        raise PipelineError(f"{name} {quoted(text)} is not a number from 1 to {most}")
    return int(text)


def _rate(scenario: Scenario, text: str) -> Scenario:
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text) or not float(text) > 0:
        raise PipelineError(f"claim_rate {quoted(text)} is not a number per second: claim_rate=100")
    return replace(scenario, claim_rate=float(text))


def _first(scenario: Scenario, text: str) -> Scenario:
    if not text:
        raise PipelineError("first needs a tag: write first=urgent")
    return replace(scenario, first=scenario.first | {text})


_READERS: Final[dict[str, Callable[[Scenario, str], Scenario]]] = {
    "workers": _workers,
    "load": lambda scenario, text: replace(scenario, load=_factor(text, "load")),
    "run": lambda scenario, text: replace(scenario, run=_factor(text, "run")),
    "backoff": _backoff,
    "max_deliveries": lambda scenario, text: replace(
        scenario, max_deliveries=_count(text, "max_deliveries", 1_000_000)
    ),
    "lease": lambda scenario, text: replace(scenario, lease_ms=parse_duration(text, "lease")),
    "max_in_flight": lambda scenario, text: replace(
        scenario, max_in_flight=_count(text, "max_in_flight", 1_000_000)
    ),
    "claim_rate": _rate,
    "first": _first,
}


def backoff_delay(scenario: Scenario, deliveries: int) -> int | None:
    """The delay before the retry after so many deliveries, ms; None as measured."""
    if scenario.backoff_ms is None:
        return None
    first, longest = scenario.backoff_ms
    doublings = min(deliveries - 1, max(0, math.ceil(math.log2(longest / first))))
    return min(first << doublings, longest)

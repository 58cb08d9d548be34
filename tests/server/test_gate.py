"""The gate: who may leave when the log has come how far."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import product
from typing import Any, cast

import pytest

from logqueue.errors import LogqueueError, StorageReadOnly
from logqueue.server.gate import Gate


@dataclass
class Positions:
    """What the gate looks at of a log."""

    written: int = 0
    durable: int = 0
    failure: BaseException | None = None

    def wake(self) -> None:
        """The gate asks for a round."""


def released(log: Positions, steps: list[tuple[int, int]], written: int, durable: int) -> list[int]:
    """At which steps of the log's advance a waiter has been released."""

    async def scene() -> list[int]:
        gate = Gate(cast(Any, log), asyncio.get_running_loop())
        seen: list[int] = []
        taken: list[tuple[int, int]] = []
        gate.when(written, durable, lambda failure: seen.append(len(taken)))
        for step in steps:
            taken.append(step)
            log.written, log.durable = step
            gate.notify()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return seen

    return asyncio.run(scene())


@pytest.mark.parametrize(("written", "durable"), [*product((0, 1, 2, 3), (0, 1, 2))])
def test_released_once_both_positions_are_reached(written: int, durable: int) -> None:
    steps = [(1, 0), (1, 1), (2, 1), (3, 1), (3, 3)]
    expected = next(
        (n for n, (w, d) in enumerate([(0, 0), *steps]) if w >= written and d >= durable), None
    )
    assert released(Positions(), steps, written, durable) == [expected]


def test_a_failure_is_told_to_everybody() -> None:
    async def scene() -> list[LogqueueError | None]:
        log = Positions()
        gate = Gate(cast(Any, log), asyncio.get_running_loop())
        told: list[LogqueueError | None] = []
        gate.when(1, 0, told.append)
        gate.when(1, 1, told.append)
        log.failure = OSError("gone")
        gate.notify()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return told

    told = asyncio.run(scene())
    assert [type(failure) for failure in told] == [StorageReadOnly] * 2

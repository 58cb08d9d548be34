"""Time enters a command once, and a read, too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from logqueue.core import commands as cmd
from logqueue.server.engine.pending import Spent
from tests.core.world import job as job_of
from tests.core.world import pack
from tests.server.memory import Memory

COMMANDS: dict[str, cmd.Command[object]] = {
    "append": cmd.Append("q", pack([job_of("x")]), 1),
    "claim": cmd.ClaimJobs("q", (cmd.Claimer("w", 1),)),
    "claim that waits": cmd.ClaimJobs("q", (cmd.Claimer("w", 1),), wait_ms=9),
    "ack": cmd.AckJobs("q", "w", (1,)),
    "nack": cmd.NackJobs("q", "w", (1,)),
    "reject": cmd.RejectJobs("q", "w", (1,)),
    "extend": cmd.ExtendLeases("q", "w", (1,), 9),
    "cancel": cmd.CancelJob("q", 2),
}


@pytest.fixture
def memory() -> Iterator[Memory]:
    """A server with a queue of some jobs, one of them leased."""
    server = Memory()
    server.queue()
    server.append(1, 2, 3)
    server.take()
    yield server
    server.close()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_reads_the_clock_once(memory: Memory, name: str) -> None:
    clock = memory.dispatcher.engine.clock
    read = clock.now_ms
    reads = 0

    def now_ms() -> int:
        nonlocal reads
        reads += 1
        return read()

    def submit() -> None:
        vars(clock)["now_ms"] = now_ms
        memory.dispatcher.submit(COMMANDS[name], encode, None)
        memory.dispatcher.turn.run()
        vars(clock)["now_ms"] = read

    memory.core._run(submit)
    assert reads == 1


def encode(_: None, result: object, spent: Spent) -> object:
    """No request waits for it."""
    return result

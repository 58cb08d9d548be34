"""Background operations: bounded steps between requests, progress, pace, stop, who sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from logqueue.core import commands as cmd
from logqueue.errors import LogqueueError, Throttled, TopicFull
from logqueue.server.engine import operations
from logqueue.server.engine.operations import BackgroundOperation, OperationSteps
from tests.server.memory import Memory


@pytest.fixture
def memory() -> Iterator[Memory]:
    server = Memory()
    server.queue()
    yield server
    server.close()


def counting(operation: BackgroundOperation, steps: int, each: int = 10) -> OperationSteps:
    """So many steps, which change so many each."""
    operation.total = steps * each
    for _ in range(steps):
        some = min(operation.portion_max, each)
        operation.scanned += some
        operation.matched += some
        operation.changed += some
        yield None


def begin(
    memory: Memory,
    steps_of: Callable[[BackgroundOperation], OperationSteps],
    topic: str = "q",
    **options: Any,
) -> str:
    """Start an operation in the server's thread; its id."""
    table = memory.dispatcher.operations
    return memory.core._run(lambda: table.start("count", topic, steps_of, **options)).id


def start(memory: Memory, steps: int = 5, *, topic: str = "q", **options: Any) -> str:
    return begin(memory, lambda operation: counting(operation, steps), topic, **options)


def shown(memory: Memory, identity: str) -> dict[str, Any]:
    found: dict[str, Any] = memory.call("GET", f"operations/{identity}")["operation"]
    return found


def test_an_operation_is_listed_and_shown_with_its_counts(memory: Memory) -> None:
    earlier, later = start(memory, 3), start(memory, 5, dry_run=True)
    memory.wait(1)
    found = memory.call("GET", "operations")["operations"]
    assert [one["id"] for one in found] == [later, earlier]
    one = shown(memory, earlier)
    assert (one["state"], one["action"], one["topic"]) == ("done", "count", "q")
    assert (one["total"], one["scanned"], one["matched"], one["changed"]) == (30, 30, 30, 30)
    assert one["finished_at"] >= one["started_at"] and not one["dry_run"]
    assert shown(memory, later)["dry_run"]


def test_each_step_has_a_turn_of_the_loop_and_others_are_served_between(memory: Memory) -> None:
    """As many turns as steps, however many operations there are: one step in each."""
    dispatcher = memory.dispatcher
    order: list[str] = []

    def steps(name: str) -> OperationSteps:
        for _ in range(3):
            order.append(name)
            dispatcher.loop.call_soon(order.append, "turn")
            yield None

    table = dispatcher.operations
    memory.core._run(lambda: [table.start(n, "q", lambda o: steps(o.action)) for n in ("a", "b")])
    assert order.count("a") == order.count("b") == 3
    assert all("turn" in order[i : i + 2] for i in range(len(order)))


def test_a_rate_bounds_what_changes_in_a_second(memory: Memory) -> None:
    identity = start(memory, 100, rate_per_s=20)
    changed = []
    for _ in range(4):
        memory.wait(1)
        changed.append(shown(memory, identity)["changed"])
    assert all(abs(count - 20 * (second + 1)) <= 2 for second, count in enumerate(changed))
    assert shown(memory, identity)["rate_per_s"] == 20


def test_a_stopped_operation_ends_before_its_next_step(memory: Memory) -> None:
    identity = start(memory, 100, rate_per_s=20)
    memory.wait(1)
    stopping = memory.begin("DELETE", f"operations/{identity}")
    memory.wait(operations.STOP_POLL_S)
    assert stopping.status == 200
    found = shown(memory, identity)
    assert found["state"] == "cancelled" and found["changed"] < 30 and found["finished_at"]
    # To stop it again changes nothing.
    assert memory.call("DELETE", f"operations/{identity}")["operation"] == found


def test_what_a_failed_operation_has_done_stays_and_its_error_is_shown(memory: Memory) -> None:
    def steps(operation: BackgroundOperation) -> OperationSteps:
        operation.changed = 1
        yield memory.dispatcher.engine.execute(cmd.Release("q", []))
        raise TopicFull("'zz' is full", names=("zz",))

    identity = begin(memory, steps)
    found = shown(memory, identity)
    assert found["state"] == "failed" and found["changed"] == 1
    assert found["error"] == {"code": "topic_full", "message": "'zz' is full"}


def test_a_fault_of_the_server_is_an_internal_error(memory: Memory) -> None:
    def steps(operation: BackgroundOperation) -> OperationSteps:
        yield None
        raise ZeroDivisionError

    identity = begin(memory, steps)
    assert shown(memory, identity)["error"]["code"] == "internal"


def test_a_bounded_number_runs_and_is_remembered(memory: Memory) -> None:
    running = [start(memory, 9, rate_per_s=1) for _ in range(operations.RUNNING_MAX)]
    with pytest.raises(Throttled, match="16 operations are running"):
        start(memory)
    for identity in running:
        memory.begin("DELETE", f"operations/{identity}")
    memory.wait(1)
    for _ in range(operations.REMEMBERED_MAX):
        start(memory, 1)
    found = memory.call("GET", "operations")["operations"]
    assert len(found) == operations.REMEMBERED_MAX
    assert not {one["id"] for one in found} & {*running}
    reply = memory.begin("GET", f"operations/{running[0]}")
    assert reply.status == 404 and b"no operation" in reply.take()


def test_only_keys_with_the_prefix_see_an_operation(memory: Memory) -> None:
    mine, other = start(memory, topic="mine.q"), start(memory, topic="zz.q")
    table = memory.dispatcher.operations

    def allows(name: str) -> bool:
        return name.startswith("mine.")

    assert [one.id for one in table.listed(allows)] == [mine]
    assert table.find(mine, allows).topic == "mine.q"
    for identity in (other, "op_none"):
        with pytest.raises(LogqueueError, match="no operation"):
            table.find(identity, allows)

"""What is left of a job, however it ends: the documented copy, in one place, and nothing else.

Every way to end, with every kind of archive and dead-letter topic: none, a log, a queue whose cap
evicts into an archive of its own, and one that rejects because it is full.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from logqueue.core import commands as cmd
from logqueue.core.invariants import check
from logqueue.errors import LogqueueError
from logqueue.events import block as blocks
from tests.core.world import World, wish

KINDS = ("none", "log", "capped", "full")
JOBS = (1, 2, 3)
OLD = (101, 102)
"""What a capped target is full of before."""


def world_with(archive: str, dead_letter: str, **config: Any) -> World:
    """A queue of three jobs, and where its jobs go when they end."""
    world = World(segment_bytes=64 << 10)
    for name, kind in (("done", archive), ("letters", dead_letter)):
        if kind == "log":
            world.put(name, type="log", durability="fsync")
        elif kind == "capped":
            deep = f"deep-{name}"
            world.put(name, durability="fsync", cap_records=2, archive=deep)
            world.write(name, *OLD)
        elif kind == "full":
            world.put(name, durability="fsync", cap_records=2, discard="reject")
            world.write(name, *OLD)
    world.put(
        durability="fsync",
        lease_ms=1000,
        archive=None if archive == "none" else "done",
        dead_letter=None if dead_letter == "none" else "letters",
        **config,
    )
    world.write("q", *(wish(number, key=f"k{number}", tag="t") for number in JOBS))
    return world


def ack(world: World) -> None:
    """The plain end."""
    world.ack(*world.take(3))


def reject(world: World) -> None:
    """A worker gives up."""
    world.reject(*world.take(3), error="no")


def exhaust(world: World) -> None:
    """One delivery too many."""
    world.nack(*world.take(3))
    world.take(3)


def lapse(world: World) -> None:
    """The same by leases that run out."""
    world.take(3)
    world.wait(1001)
    world.take(3)


def expire(world: World) -> None:
    """Past the time to live."""
    world.wait(5001)
    world.topic("q")


def delete(world: World) -> None:
    """By whoever may write."""
    world.delete(match="t")


def delete_leased(world: World) -> None:
    """The same while somebody works on them."""
    world.take(3)
    world.delete(before=4)


def purge(world: World) -> None:
    """By an operator, by state."""
    world.purge("ready")


def cancel(world: World) -> None:
    """By an operator, one by one; by force when somebody works on it."""
    world.take(1)
    for seq in JOBS:
        world.cancel(seq, force=True)


def cancel_key(world: World) -> None:
    """By key."""
    for number in JOBS:
        world.run(cmd.CancelKey("q", blocks.write_string(f"k{number}")))


def overflow(world: World) -> None:
    """A cap evicts them for newer ones, which end themselves in no way."""
    world.write("q", 11, 12, 13)


def tighten(world: World) -> None:
    """A cap that comes later."""
    world.write("q", 11, 12, 13)
    world.patch("q", cap_records=3)


def supersede(world: World) -> None:
    """A newer job has the key when they come back."""
    seqs = world.take(3)
    world.write("q", *(wish(10 + number, key=f"k{number}") for number in JOBS))
    world.nack(*seqs)
    world.topic("q")


WAYS: dict[str, tuple[Callable[[World], None], dict[str, Any], str, str]] = {
    # How, with which config, what the archive says of it, and whether dead letters come first.
    "ack": (ack, {}, "acked", ""),
    "reject": (reject, {}, "rejected", "rejected"),
    "exhaust": (exhaust, {"max_deliveries": 1, "on_exhausted": "drop"}, "dropped", ""),
    "exhaust-letter": (exhaust, {"max_deliveries": 1}, "", "max_deliveries"),
    "lapse-letter": (lapse, {"max_deliveries": 1}, "", "max_deliveries"),
    "expire": (expire, {"ttl_ms": 5000}, "expired", ""),
    "expire-letter": (
        expire, {"ttl_ms": 5000, "on_expire": "dead_letter"}, "expired", "expired",
    ),
    "delete": (delete, {}, "cancelled", ""),
    "delete-leased": (delete_leased, {}, "cancelled", ""),
    "purge": (purge, {}, "cancelled", ""),
    "cancel": (cancel, {}, "cancelled", ""),
    "cancel-key": (cancel_key, {}, "cancelled", ""),
    "overflow": (overflow, {"cap_records": 3}, "dropped", ""),
    "tighten": (tighten, {}, "dropped", ""),
    "supersede": (supersede, {}, "superseded", ""),
}  # fmt: skip


def numbers(world: World, name: str) -> list[int]:
    """What is in a topic; nothing when there is none."""
    return [int(n) for n in world.values(name)] if name in world.state.topics else []


def stamps(world: World, name: str, stamp: str) -> set[str]:
    """What the copies of the jobs say."""
    pairs = zip(numbers(world, name), world.meta(name), strict=True)
    return {meta[stamp] for number, meta in pairs if number in JOBS}


@pytest.mark.parametrize("dead_letter", KINDS)
@pytest.mark.parametrize("archive", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_the_documented_copy_and_no_other(way: str, archive: str, dead_letter: str) -> None:
    end, config, outcome, reason = WAYS[way]
    if dead_letter == "none" and config.get("on_expire"):
        config = {"ttl_ms": 5000}
    world = world_with(archive, dead_letter, **config)
    with suppress(LogqueueError):
        end(world)
    check(world.state)
    target, kind, said = "done", archive, ("$outcome", outcome)
    if reason and dead_letter != "none":
        target, kind, said = "letters", dead_letter, ("$dead_letter_reason", reason)
    elif not outcome:
        # Without a dead-letter topic nothing says what is to become of them: they stay.
        target, kind = "", "full"
    places = ("q", "done", "letters", "deep-done", "deep-letters")
    for life in range(2):
        found = Counter(n for name in places for n in numbers(world, name) if n in JOBS)
        there = {name: [n for n in numbers(world, name) if n in JOBS] for name in places}
        if kind == "full":
            assert there["q"] == [*JOBS], f"no room for a copy, and yet it went: {there}"
        elif kind == "none":
            assert not found, f"no copy was asked for: {there}"
        else:
            assert found == Counter(JOBS), f"one copy each: {there}"
            assert not there["q"]
            assert stamps(world, target, said[0]) == {said[1]}
        if kind == "capped":
            deep = f"deep-{target}"
            assert there[target] == [2, 3] and numbers(world, deep) == [*OLD, 1]
            metas = world.meta(deep)
            assert {m["$outcome"] for m in metas} == {"dropped"}
            assert {m["$archived_from"] for m in metas} == {target}
            assert metas[2][said[0]] == (said[1] if target == "letters" else "dropped")
        elsewhere = {name for name, kept in there.items() if kept and name != "q"}
        assert elsewhere <= {target, f"deep-{target}"}, "a copy where none belongs"
        if life == 0:
            world.step()
            world.kill()


def test_a_redrive_moves_letters_and_leaves_no_copy() -> None:
    world = world_with("none", "none")
    world.put("letters", durability="fsync", cap_records=9, archive="deep")
    world.patch("q", dead_letter="letters")
    reject(world)
    assert world.redrive("letters").redriven == 3
    assert numbers(world, "q") == [*JOBS] and numbers(world, "letters") == []
    assert "deep" not in world.state.topics
    world.patch("q", cap_records=2, archive="done")
    reject(world)
    world.write("q", 8, 9)
    assert world.redrive("letters").redriven == 2, "the cap has evicted the first"
    check(world.state)
    assert numbers(world, "q") == [2, 3] and numbers(world, "done") == [1, 8, 9]


def test_evictions_go_down_a_chain_of_archives() -> None:
    world = World(segment_bytes=64 << 10)
    for name, archive in (("a", "b"), ("b", "c"), ("c", "d"), ("d", None)):
        world.put(name, durability="fsync", cap_records=2, archive=archive)
    for number in range(1, 9):
        world.write("a", number)
    assert [numbers(world, name) for name in "abcd"] == [[7, 8], [5, 6], [3, 4], [1, 2]]
    world.write("a", *range(9, 16))
    check(world.state)
    assert numbers(world, "a") == [14, 15]
    world.kill()
    assert numbers(world, "a") == [14, 15]


def test_a_ring_of_archives_ends_where_it_began() -> None:
    world = World(segment_bytes=64 << 10)
    for name in "abc":
        world.put(name, durability="fsync", cap_records=2)
    for name, archive in (("a", "b"), ("b", "c"), ("c", "a")):
        world.patch(name, archive=archive)
    for number in range(1, 20):
        world.write("a", number)
        check(world.state)
    assert [numbers(world, name) for name in "abc"] == [[18, 19], [16, 17], [14, 15]]
    world.ack(*world.take(2, topic="a"), topic="a")
    check(world.state)
    assert [numbers(world, name) for name in "abc"] == [[], [18, 19], [16, 17]]
    world.kill()
    assert [numbers(world, name) for name in "abc"] == [[], [18, 19], [16, 17]]

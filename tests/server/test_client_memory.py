"""The books of what is held for clients."""

from __future__ import annotations

import time

import pytest

from logqueue.errors import Throttled
from logqueue.server.client_memory import ClientMemory, MemoryShare


def refused(share: MemoryShare, size: int) -> str:
    """The limit that a share meets."""
    with pytest.raises(Throttled) as refusal:
        share.resize(size)
    assert refusal.value.detail is not None
    return str(refusal.value.detail["limit"])


def test_one_key_leaves_room_for_the_others() -> None:
    memory = ClientMemory(100, 60)
    mine, other, unknown = MemoryShare(memory, "a"), MemoryShare(memory, "b"), MemoryShare(memory)
    mine.resize(60)
    assert refused(mine, 61) == "max_client_bytes_per_key"
    assert refused(MemoryShare(memory, "a"), 1) == "max_client_bytes_per_key"
    other.resize(30)
    unknown.resize(10)
    assert refused(other, 31) == "max_client_bytes"
    mine.resize(59)
    other.resize(31)
    assert (memory.used, memory.peak, memory.shares) == (100, 100, 3)
    assert memory.refused == {"max_client_bytes_per_key": 2, "max_client_bytes": 1}
    for share in (mine, other, unknown, mine):
        share.release()
    assert (memory.used, memory.used_by_key, memory.shares) == (0, {}, 0)


def test_what_is_there_already_is_counted_whatever_the_limit() -> None:
    memory = ClientMemory(10, 0)
    share = MemoryShare(memory)
    share.resize(50, is_forced=True)
    assert memory.used == 50
    share.resize(20)
    assert refused(share, 21) == "max_client_bytes"
    assert share.size == 20


def test_a_share_may_find_its_key_late() -> None:
    memory = ClientMemory(0, 10)
    share = MemoryShare(memory)
    share.resize(8)
    share.belong("a")
    assert memory.used_by_key == {"a": 8}
    assert refused(share, 11) == "max_client_bytes_per_key"
    share.belong("")
    assert memory.used_by_key == {}
    assert memory.used == 8


def test_idle_and_stalled_holders_are_dropped_before_a_client_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    memory = ClientMemory(30, 0, lambda: idle.release())
    idle, first, second, share = (MemoryShare(memory) for _ in range(4))
    for held in (idle, first, second):
        held.resize(10)
    memory.stall("first", first.release)
    now += 1
    memory.stall("second", second.release)
    share.resize(10)
    assert (idle.size, first.size, second.size) == (0, 10, 10)
    assert refused(share, 20) == "max_client_bytes"
    now += 9
    share.resize(20)
    assert (first.size, second.size, memory.dropped) == (0, 10, 1)
    assert refused(share, 30) == "max_client_bytes"
    memory.flow("second")
    now += 9
    assert refused(share, 30) == "max_client_bytes"

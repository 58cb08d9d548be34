"""The rules of records as short transcripts in virtual time: room, TTL, keys, deletes, config."""

from __future__ import annotations

from typing import Any

import pytest

from logqueue.errors import (
    LogqueueError,
    RecordTooLarge,
    Throttled,
    TopicExistsIncompatible,
    TopicFull,
    TopicNotEmpty,
    TopicNotFound,
    quoted,
)
from logqueue.model.limits import Quotas
from tests.core.world import World, job


@pytest.fixture
def world() -> World:
    """An empty server."""
    return World()


# -- TTL -------------------------------------------------------------------------------------------


def test_a_record_lives_up_to_its_ttl(world: World) -> None:
    world.put(ttl_ms=1000)
    world.fill(2)
    world.wait(1000)
    assert world.seqs() == [1, 2]
    world.wait(1)
    assert world.seqs() == [] and world.topic("q").earliest_seq == 3
    assert world.topic("q").ttl_floor == 2


def test_only_the_old_front_goes(world: World) -> None:
    world.put(ttl_ms=1000)
    world.fill(2)
    world.wait(600)
    world.fill(1)
    world.wait(600)
    assert world.seqs() == [3]


# -- caps ------------------------------------------------------------------------------------------


def test_old_ones_make_room(world: World) -> None:
    world.put(cap_records=3)
    assert world.write("q", 1, 2, 3, 4, 5).records == 5
    assert world.seqs() == [3, 4, 5] and world.topic("q").cap_floor == 2


def test_caps_count_live_records_not_the_span_of_seqs(world: World) -> None:
    world.put(cap_records=3)
    world.fill(3)
    world.take(3)
    world.ack(2, 3)
    world.write("q", 4, 5)
    assert world.seqs() == [1, 4, 5]


def test_a_record_above_the_byte_cap_is_evicted_at_once(world: World) -> None:
    world.put(cap_bytes=10)
    world.fill(2)
    assert world.write("q", "x" * 20).first_seq == 3
    assert world.seqs() == [] and world.topic("q").head == 3


def test_rejecting(world: World) -> None:
    world.put(cap_records=3, discard="reject")
    world.fill(2)
    with pytest.raises(TopicFull):
        world.write("q", 1, 2)
    with pytest.raises(RecordTooLarge):
        world.write("q", 1, 2, 3, 4)
    assert world.seqs() == [1, 2]
    assert world.write("q", 3).first_seq == 3


def test_expired_records_make_room_first(world: World) -> None:
    world.put(cap_records=1, discard="reject", ttl_ms=100)
    world.fill(1)
    world.wait(101)
    assert world.write("q", 2).first_seq == 2


@pytest.mark.parametrize("discard", ["old", "reject"])
def test_tightening_acts_at_once_and_loosening_brings_nothing_back(
    world: World, discard: str
) -> None:
    world.put(discard=discard)
    world.fill(5)
    world.put(discard=discard, cap_records=2)
    assert world.seqs() == [4, 5]
    world.put(discard=discard)
    assert world.seqs() == [4, 5]
    world.wait(11)
    world.put(ttl_ms=10)
    assert world.seqs() == []


def test_quotas(world: World) -> None:
    world = World(quotas=Quotas(topics_max=1, total_bytes_max=10))
    world.write("a", "12345678")
    for refused in (
        lambda: world.put("b"),
        lambda: world.write("b", 1),
        lambda: world.fill(1, "a"),
    ):
        with pytest.raises(Throttled):
            refused()
    assert world.seqs("a") == [1]
    world.put("a", type="log")
    world.delete("a", before=9)
    world.fill(1, "a")


# -- idempotency -----------------------------------------------------------------------------------


def test_a_key_answers_with_the_first_write(world: World) -> None:
    world.put("t", type="log", idempotency_window_ms=1000)
    first = world.write("t", 1, 2, key="k")
    world.fill(3, "t")
    world.wait(1000)
    again = world.write("t", "other", key="k")
    assert again == first._replace(deduped=True)
    world.wait(1)
    assert world.write("t", "other", key="k").first_seq == 6


def test_a_key_needs_no_room(world: World) -> None:
    world.put(cap_records=1, discard="reject")
    world.write("q", 1, key="")
    assert world.write("q", 1, key="").deduped


def test_a_refused_write_leaves_no_key(world: World) -> None:
    world.put(cap_records=1, discard="reject")
    world.fill(1)
    with pytest.raises(TopicFull):
        world.write("q", 2, key="k")
    world.delete(before=9)
    assert not world.write("q", 2, key="k").deduped


def test_keys_are_per_topic_instance_and_survive_restarts(world: World) -> None:
    world.write("a", 1, key="k")
    assert not world.write("b", 1, key="k").deduped
    world.step()
    world.kill()
    assert world.write("a", 1, key="k").deduped
    world.drop("a")
    assert not world.write("a", 1, key="k").deduped


def test_a_shortened_window_forgets_at_once_and_for_good(world: World) -> None:
    world.put()
    world.write("q", 1, key="k")
    world.wait(100)
    world.put(idempotency_window_ms=50)
    assert not world.write("q", 1, key="k").deduped


def test_huge_windows_are_long(world: World) -> None:
    world.put(idempotency_window_ms=2**64 - 1)
    world.write("q", 1, key="k")
    world.wait(10**12)
    assert world.write("q", 1, key="k").deduped


# -- deletes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "left"), [(0, 5), (1, 5), (3, 3), (5, 1), (6, 0), (10**18, 0)])
def test_delete_by_seq(world: World, before: int, left: int) -> None:
    world.put()
    world.fill(5)
    assert world.delete(before=before) == 5 - left
    assert world.delete(before=before) == 0
    assert len(world.seqs()) == left and world.topic("q").head == 5
    assert world.topic("q").earliest_seq == 6 - left


@pytest.mark.parametrize(
    ("match", "left"),
    [
        ("*", [1]),
        ("", [1, 3, 4, 5]),
        ("a*", [1, 2, 5]),
        ("a", [1, 2, 4, 5]),
        ("b*", [1, 2, 3, 4, 5]),
    ],
)
def test_delete_by_tag(world: World, match: str, left: list[int]) -> None:
    tags = (None, "", "a", "ab", "c")
    world.write("t", *[job(i, tag=tag) for i, tag in enumerate(tags)])
    world.delete("t", match=match)
    assert world.seqs("t") == left


# -- topics ----------------------------------------------------------------------------------------


def test_a_type_is_for_life(world: World) -> None:
    world.put()
    with pytest.raises(TopicExistsIncompatible):
        world.put(type="log")


def test_drop_if_empty(world: World) -> None:
    world.put(ttl_ms=10)
    world.fill(1)
    with pytest.raises(TopicNotEmpty):
        world.drop(if_empty=True)
    world.wait(11)
    assert world.drop(if_empty=True) and not world.drop(if_empty=True)


@pytest.mark.parametrize(
    ("options", "error"),
    [({"create": False}, TopicNotFound), ({"create": True}, None), ({}, None)],
)
def test_lazy_creation(
    world: World, options: dict[str, Any], error: type[LogqueueError] | None
) -> None:
    if error is None:
        assert world.write("t", 1, **options).created
        assert not world.write("t", 1, **options).created
    else:
        with pytest.raises(error):
            world.write("t", 1, **options)
        assert "t" not in world.state.topics


# -- promised seqs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "ahead"), [(1, 256), (64, 256), (100, 400), (5000, 4096)])
def test_how_far_seqs_are_promised(world: World, count: int, ahead: int) -> None:
    """A hole after a crash is of the order of what was written; large writes sync now and then."""
    world.put(type="log", durability="disk")
    world.fill(count)
    assert world.topic("q").seqs_reserved == count + ahead
    world.fill(1)
    assert world.topic("q").seqs_reserved == count + ahead
    world.kill()
    assert world.topic("q").head <= count + ahead


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders", "'orders'"),
        ("it's", "'it's'"),
        ('a "b"', "'a \"b\"'"),
        ("C:\\x", "'C:\\x'"),
        ("caf\u00e9", "'caf\u00e9'"),
        ("\x1b[2J\n", "'\\x1b[2J\\n'"),
        ("\udc80\u200e", "'\\udc80\\u200e'"),
    ],
)
def test_text_in_messages_is_quoted_plainly(text: str, shown: str) -> None:
    """Without doubled backslashes, and without what a terminal would obey."""
    assert quoted(text) == shown

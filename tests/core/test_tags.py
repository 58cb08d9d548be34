"""Deleting by tag against a plain filter, through moves, evictions, prunes and restarts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logqueue.core import tags as tagging
from logqueue.core.invariants import check
from logqueue.events.block import TAG
from logqueue.model.tag_predicate import Predicate
from logqueue.server.storage import compaction
from tests.core.world import World, job

TAGS = st.sampled_from([None, "", "a", "ab", "abc", "b", "*", "a*", 'q"', "q\\", "ä", "a\n"])
MATCHES = st.one_of(
    st.sampled_from(["", "*", "a", "a*", "ab*", "b", 'q"*', "q*", "q\\", "ä*", "x", "a\n*"]),
    st.sampled_from([["tag", "Eq", "*"], ["tag", "Eq", "a*"], ["tag", "Glob", "a**"]]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.lists(TAGS, min_size=1, max_size=6)),
        st.tuples(st.just("delete"), MATCHES, st.one_of(st.none(), st.integers(0, 60))),
        st.tuples(st.just("delete_seqs"), st.integers(0, 60)),
        st.tuples(st.just("ack"), st.integers(1, 4)),
        st.tuples(st.just("cap"), st.integers(1, 12)),
        st.tuples(st.sampled_from(["move", "prune", "restart", "kill"])),
    ),
    min_size=1,
    max_size=25,
)


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small runs, small slices, and no garbage that is not worth it."""
    monkeypatch.setattr(tagging, "RUN_TAGS_MAX", 3)
    monkeypatch.setattr(tagging, "PRUNED_PER_STEP", 2)
    monkeypatch.setattr(tagging, "SMALL_ENTRY_MAX", 2)
    monkeypatch.setattr(tagging, "STALE_MIN", 0)
    monkeypatch.setattr(compaction, "SLACK_BYTES", 0)


def matching(world: World, match: Any, before: int | None) -> set[int]:
    """Seqs that a delete should hit, found by looking at every record."""
    predicate = Predicate.parse(match)
    return {
        seq
        for seq, _, texts in world.records()
        if texts[TAG]
        and predicate.matches(msgspec.json.decode(texts[TAG]))
        and (before is None or seq < before)
    }


def act(world: World, step: tuple[Any, ...]) -> None:
    match step:
        case ("write", tags):
            world.write("q", *(job(n, tag=tag) for n, tag in enumerate(tags)))
        case ("delete", predicate, before):
            there, hits = set(world.seqs()), matching(world, predicate, before)
            assert world.delete(before=before, match=predicate) == len(hits)
            assert set(world.seqs()) == there - hits
        case ("delete_seqs", before):
            world.delete(before=before)
        case ("ack", count):
            world.ack(*world.take(count))
        case ("cap", count):
            world.put(durability="fsync", cap_records=count)
            world.put(durability="fsync")
        case ("move",):
            # What fills a segment makes the one before it worth rewriting.
            world.write("fill", "x" * 3000)
            world.delete("fill")
            world.tidy()
        case ("prune",):
            index = world.topic("q").tags
            if index is not None:
                for _ in index.prune(world.topic("q").batches):
                    check(world.state)
        case _:
            getattr(world, step[0])()
    check(world.state)


@settings(max_examples=300, deadline=None)
@given(steps=STEPS)
def test_a_delete_by_tag_hits_what_a_plain_filter_hits(steps: list[tuple[Any, ...]]) -> None:
    world = World()
    world.put(durability="fsync")
    world.put("fill", durability="fsync", type="log")
    for step in steps:
        act(world, step)


def test_a_tag_may_go_and_come_back_while_a_prune_is_under_way() -> None:
    world = World()
    world.put()
    for n in range(12):
        world.write("q", job(n, tag=f"t{n}"))
    world.delete(match="t*")
    index = world.topic("q").tags
    assert index is not None
    for step, _ in enumerate(index.prune(world.topic("q").batches)):
        world.write("q", job(step, tag=f"t{step}"), job(step, tag="same"))
        check(world.state)
    assert world.delete(match="t*") > 0 and world.delete(match="same") > 0
    assert world.topic("q").live == 0


def test_a_prune_forgets_what_is_gone_and_nothing_else() -> None:
    world = World()
    world.put()
    world.write("q", *(job(n, tag="one") for n in range(50)))
    world.write("q", *(job(n, tag=f"t{n}") for n in range(20)))
    world.delete(before=41)
    world.delete(match="t1*")
    index = world.topic("q").tags
    assert index is not None and index.wants_prune and index.entries == 70
    steps = sum(1 for _ in index.prune(world.topic("q").batches))
    assert steps > 20, "in small steps"
    assert index.entries == world.topic("q").live == 19
    assert index.stale == 0
    check(world.state)


def test_untagged_records_make_no_index() -> None:
    world = World()
    world.put()
    world.fill(5)
    assert world.topic("q").tags is None
    assert world.delete(match="*") == 0
    world.restart()
    assert world.topic("q").tags is None


def test_records_whose_append_is_no_longer_in_the_log_are_found_after_a_restart() -> None:
    world = World()
    world.put(durability="fsync")
    world.put("fill", durability="fsync", type="log")
    world.write("q", *(job(n, tag="ab"[n % 2]) for n in range(10)))
    world.delete(before=4)
    for _ in range(8):
        world.write("fill", "x" * 2000)
        world.delete("fill")
    world.tidy()
    assert world.engine.journal.jobs.segments()[0].id > 1, "the append is gone from the log"
    world.kill()
    assert world.delete(match="a") == 3
    assert world.seqs() == [4, 6, 8, 10]

"""Filters of jobs, held against a naive reading of the same queue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from logqueue.core import job_filter
from logqueue.core.commands import JobState
from logqueue.core.job_filter import (
    JobFilter,
    JobFilterRun,
    indexed_parts,
    needles_of,
    selected,
    state_of,
)
from logqueue.core.job_views import describe_job, list_jobs
from logqueue.events import block as blocks
from logqueue.events.block import write_string
from logqueue.model import limits
from logqueue.model.tag_predicate import Predicate
from tests.core.test_payloads import offload
from tests.core.world import World, wish

WORDS = ("alpha", "beta", "gamma", 'qu"ote', "ü", "a/b")
STATES: tuple[JobState, ...] = ("ready", "delayed", "in_flight", "held")


def filled(rng: Random) -> World:
    """A queue with jobs in all states."""
    world = World()
    world.put(durability="ephemeral", on_exhausted="hold", lease_ms=60_000)
    for number in range(12):
        records = [
            wish(
                {"word": rng.choice(WORDS), "n": rng.randrange(40)},
                tag=rng.choice((None, "a", "ab", "b")),
                key=f"k{number}-{place}" if rng.random() < 0.4 else None,
                delay_ms=rng.choice((0, 0, 0, 900_000)),
            )
            for place in range(rng.randrange(1, 9))
        ]
        world.write("q", *records)
        if rng.random() < 0.5:
            world.wait(rng.randrange(1, 50))
        node = rng.choice(("w1", "w2"))
        for claimed in world.claim(rng.randrange(4), node=node):
            fate = rng.randrange(5)
            if fate == 0:
                world.reject(claimed.seq, node=node, error=rng.choice(WORDS))
            elif fate == 1:
                world.nack(claimed.seq, node=node, error=rng.choice(WORDS), delay_ms=600_000)
            elif fate == 2:
                world.ack(claimed.seq, node=node)
    return world


def drawn(rng: Random) -> dict[str, Any]:
    """A few members of a filter."""
    every: dict[str, Any] = {
        "states": frozenset(rng.sample(STATES, rng.randrange(1, 4))),
        "match": Predicate(rng.choice(("a", "ab", "none")), rng.random() < 0.5),
        "key": write_string(f"k{rng.randrange(12)}-{rng.randrange(3)}"),
        "node": rng.choice(("w1", "w2", "w3")),
        "min_age_ms": rng.randrange(400),
        "max_age_ms": rng.randrange(400),
        "min_deliveries": rng.randrange(1, 3),
        "needles": needles_of(rng.choice((*WORDS, '"n": 1', "none"))),
        "seqs": sorted(rng.sample(range(1, 60), 20)),
    }
    return {name: every[name] for name in rng.sample(sorted(every), rng.randrange(4))}


def steps_of(
    world: World, wanted: JobFilter, before: int | None = None
) -> list[tuple[list[int], int]]:
    """The steps of a selection: what passes, and how many were examined."""
    topic = world.queue()
    before = topic.head + 1 if before is None else before
    indexed = indexed_parts(topic, wanted, before)
    return [*selected(topic, JobFilterRun(topic, wanted, world.now), indexed, before)]


def naive(world: World, wanted: JobFilter) -> list[int]:
    """What passes, read off every job by itself."""
    topic, found = world.queue(), []
    for seq in topic.batches.live_seqs(1, 10**6):
        view = describe_job(topic, seq)
        assert view is not None
        age = world.now - view.ts
        texts = (view.data, view.tag, view.key, (view.error or "").encode())
        tag = json.loads(view.tag) if view.tag else None
        if (
            (not wanted.states or state_of(topic, seq) in wanted.states)
            and (wanted.match is None or wanted.match.matches(tag))
            and (wanted.key is None or view.key == wanted.key)
            and (wanted.node is None or view.node == wanted.node)
            and (wanted.min_age_ms is None or age >= wanted.min_age_ms)
            and (wanted.max_age_ms is None or age <= wanted.max_age_ms)
            and view.deliveries >= wanted.min_deliveries
            and (not wanted.needles or any(n in t for n in wanted.needles for t in texts))
            and (wanted.seqs is None or seq in wanted.seqs)
        ):
            found.append(seq)
    return found


@pytest.mark.parametrize("seed", range(8))
def test_any_filter_selects_what_a_naive_reading_selects(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SCANNED_PER_PASS_MAX", 7)
    monkeypatch.setattr(limits, "FILTERED_PER_PASS_MAX", 5)
    monkeypatch.setattr(job_filter, "RUN_JOBS_MAX", 3)
    rng = Random(seed)
    world = filled(rng)
    topic = world.queue()
    for _ in range(60):
        monkeypatch.setattr(job_filter, "INDEX_SHARE", rng.choice((0, 4)))
        wanted = JobFilter(**drawn(rng))
        expected = naive(world, wanted)
        steps = [
            *selected(
                topic,
                JobFilterRun(topic, wanted, world.now),
                indexed_parts(topic, wanted, topic.head + 1),
                topic.head + 1,
            )
        ]
        assert sorted(seq for some, _ in steps for seq in some) == expected, wanted
        assert all(scanned <= 5 + 3 for _, scanned in steps)
        found: list[int] = []
        after: int | None = 0
        while after is not None:
            search = JobFilterRun(topic, wanted, world.now)
            page = list_jobs(topic, search, after=after, limit=4, scanned_max=9)
            found += [one.seq for one in page.jobs]
            assert page.scanned <= 9
            after = page.next_after
        assert found == expected, wanted


def test_jobs_behind_the_start_are_not_selected() -> None:
    world = filled(Random(1))
    topic = world.queue()
    wanted = JobFilter()
    steps = [
        *selected(
            topic, JobFilterRun(topic, wanted, world.now), indexed_parts(topic, wanted, 10), 10
        )
    ]
    assert [seq for some, _ in steps for seq in some] == [s for s in world.seqs() if s < 10]


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ('say "hi"', {"a": 'say "hi"'}),
        ('"n": 17', {"m": 1, "n": 17}),
        ('"a": 1, "b"', {"a": 1, "b": 2}),
        ("über", {"a": "über"}),
        ("line\nbreak", {"a": "line\nbreak"}),
        ("a/b", {"a": "a/b"}),
        ("🙂", {"a": "🙂"}),
    ],
)
def test_a_text_is_found_however_its_json_was_written(text: str, data: object) -> None:
    ways = (
        json.dumps(data, separators=(",", ":")),
        json.dumps(data, separators=(",", ":"), ensure_ascii=False),
        json.dumps(data, separators=(",", ":")).replace("/", "\\/"),
    )
    for way in ways:
        assert any(needle in way.encode() for needle in needles_of(text)), way


def test_one_job_of_many_is_found_by_its_tag_or_key_without_a_scan() -> None:
    world = World()
    world.put(durability="ephemeral")
    for start in range(0, 4000, 1000):
        world.write("q", *[wish(n, tag=f"t{n}", key=f"k{n}") for n in range(start, start + 1000)])
    topic = world.queue()
    for wanted in (
        JobFilter(match=Predicate("t3210", False)),
        JobFilter(key=write_string("k3210")),
        JobFilter(match=Predicate("t321", True), states=frozenset(("ready",))),
    ):
        steps = [
            *selected(
                topic,
                JobFilterRun(topic, wanted, world.now),
                indexed_parts(topic, wanted, topic.head + 1),
                topic.head + 1,
            )
        ]
        assert 3211 in [seq for some, _ in steps for seq in some]
        assert sum(scanned for _, scanned in steps) <= 11
    assert indexed_parts(topic, JobFilter(match=Predicate("t", True)), 5000) is None


@pytest.fixture
def cold() -> Iterator[World]:
    """A queue whose data is outside memory, each job by itself."""
    world = World(segment_bytes=64 << 10)
    world.put(durability="fsync")
    for number in range(60):
        world.write("q", {"n": number, "pad": "x" * 3000})
    for number in range(200):
        world.write("other", f"{number}" * 600)
    world.step()
    offload(world)
    yield world


def test_a_search_for_text_reads_so_many_bytes_in_a_step(
    cold: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data outside memory is searched, too; each access of it counts for more than its bytes."""
    topic = cold.queue()
    blocks_of = [batch.block for batch in topic.batches_from(1)]
    assert any(not isinstance(block, bytes) for block in blocks_of)
    monkeypatch.setattr(limits, "SEARCHED_BYTES_PER_PASS_MAX", 100_000)
    wanted = JobFilter(needles=needles_of('"n": 57'))
    steps = [
        *selected(
            topic,
            JobFilterRun(topic, wanted, cold.now),
            indexed_parts(topic, wanted, topic.head + 1),
            topic.head + 1,
        )
    ]
    assert [seq for some, _ in steps for seq in some] == [58]
    assert sum(scanned for _, scanned in steps) == 60
    assert max(scanned for _, scanned in steps) <= 100_000 // 3000 + 1
    page = list_jobs(topic, JobFilterRun(topic, wanted, cold.now), limit=9, with_data=False)
    assert page.next_after is not None and page.scanned <= 100_000 // 3000 + 1
    assert blocks.TAG == 1

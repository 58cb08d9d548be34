"""Segments read by themselves say what the live state said, whatever has happened."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from logqueue import events as ev
from logqueue.core.record_times import due_at
from logqueue.events.block import KEY, SEQ, TS, BlockView, read_string
from logqueue.segments.plan import choose, plan_events, plan_records, topics_of
from logqueue.segments.walk import read_records
from tests.core.world import World
from tests.effort import scaled
from tests.segments.histories import History, Row, indexes_of, row_of
from tests.segments.transitions import transitions

SEEDS = range(scaled(3, 24))


def rows_in(segments: dict[int, bytes]) -> dict[tuple[int, int], Row]:
    """All records of some segments; each must come once."""
    indexes = indexes_of(segments)
    known = topics_of(indexes)
    wanted = dict.fromkeys(known.topics)
    found: dict[tuple[int, int], Row] = {}
    for read in plan_records(indexes, wanted):
        for records in read_records(segments[read.segment], read, segments.__getitem__):
            view = BlockView(records.block)
            seqs, times = view.numbers(SEQ), view.numbers(TS)
            for place in range(view.count):
                seq = seqs[place] if seqs else records.first_seq + place
                ts = times[place] if times else records.at
                key = view.text(KEY, place)
                assert (records.topic, seq) not in found, "a record comes once"
                found[records.topic, seq] = (
                    ts,
                    view.texts(place),
                    read_string(key) if key else None,
                    due_at(view, place, ts),
                )
    return found


def live_rows(world: World) -> dict[tuple[int, int], Row]:
    """All records that readers of the server see."""
    return {
        (topic.number, batch.seq_at(index)): row_of(batch, index)
        for topic in world.state.instances.values()
        for batch in topic.batches
        for index in batch.live_indexes()
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_an_archive_has_every_record_as_it_came(seed: int) -> None:
    history = History(seed, topics_per_part=Random(seed).choice([1, 1000]))
    history.live(110)
    assert rows_in(history.segments["jobs"]) == history.came


@pytest.mark.parametrize("seed", SEEDS)
def test_without_its_oldest_segments_a_log_still_has_every_live_record_once(seed: int) -> None:
    history = History(seed + 1000)
    world = history.live(110)
    oldest = world.engine.journal.jobs.segments()[0].id
    live = live_rows(world)
    replaced = {(e.topic, seq) for e in history.told if isinstance(e, ev.RecordsReplaced)
                for block in e.blocks for seq in BlockView(block).numbers(SEQ) or ()}  # fmt: skip
    for first in {oldest, max(1, oldest - 1), *history.rng.sample(range(1, oldest + 1), 1)}:
        segments = {k: v for k, v in history.segments["jobs"].items() if k >= first}
        rows = rows_in(segments)
        assert rows.keys() <= history.came.keys()
        assert live.keys() <= rows.keys(), first
        assert all(row == history.came[at] for at, row in rows.items() if at not in replaced)


def expected_events(told: list[ev.Event]) -> Counter[tuple[int, str, int]]:
    """How often each thing happened to each job, floors left out."""
    found: Counter[tuple[int, str, int]] = Counter()

    def note(event: ev.Event, name: str, seqs: list[int]) -> None:
        found.update((event.topic, name, seq) for seq in seqs)

    for event in told:
        if isinstance(event, ev.JobsClaimed):
            note(event, "claimed", [seq for *_, seqs in event.grants for seq in seqs])
        elif isinstance(event, ev.JobsExtended):
            note(event, "extended", event.seqs)
        elif isinstance(event, ev.JobsReleased | ev.JobsRetimed):
            note(event, "released", event.seqs)
        elif isinstance(event, ev.JobsAcked):
            note(event, "acked", event.seqs)
        elif isinstance(event, ev.RecordsFinished):
            note(event, event.outcome, event.seqs)
        elif isinstance(event, ev.RecordsRemoved):
            name = "dead_lettered" if event.dead_lettered else "deleted"
            note(event, "redriven" if event.redriven else name, event.seqs)
        elif isinstance(event, ev.JobsHeld) and not event.again:
            note(event, "held", [seq for seq, *_ in event.jobs])
        elif isinstance(event, ev.HoldsReleased):
            note(event, "unheld", event.seqs)
        elif isinstance(event, ev.RecordsReplaced):
            seqs = [seq for block in event.blocks for seq in BlockView(block).numbers(SEQ) or ()]
            note(event, "replaced", seqs)
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_both_logs_tell_everything_that_happened_to_jobs_once(seed: int) -> None:
    history = History(seed + 2000)
    history.live(110)
    jobs = indexes_of(history.segments["jobs"])
    leases = indexes_of(history.segments["leases"], "leases", jobs[0].log_id)
    known = topics_of(jobs)
    queues = {number for number, facts in known.topics.items() if facts.is_queue}
    found: Counter[tuple[int, str, int]] = Counter()
    trimmed: dict[tuple[int, str], list[int]] = {}
    orders = []
    counted = Counter({part.topic: 0 for index in (*jobs, *leases) for part in index.topics})
    for read in plan_events(jobs, leases, known.topics):
        for event in transitions(history.segments[read.log][read.segment], read):
            counted[event.topic] += 1
            orders.append(event.order)
            if event.event == "trimmed":
                trimmed.setdefault((event.topic, event.reason), []).append(event.seq)
            else:
                found[event.topic, event.event, event.seq] += 1
    expected = expected_events(history.told)
    assert found == Counter({k: n for k, n in expected.items() if k[0] in queues})
    assert all(floors == sorted(set(floors)) for floors in trimmed.values())
    events = Counter({p.topic: 0 for index in (*jobs, *leases) for p in index.topics})
    for index in (*jobs, *leases):
        for part in index.topics:
            events[part.topic] += part.events
    assert +counted == +events


def test_instances_of_a_recreated_topic_are_told_apart() -> None:
    history = History(7)
    history.live(110)
    indexes = indexes_of(history.segments["jobs"])
    known = topics_of(indexes)
    instances = [n for first, last in choose(known, ["a"]) for n in range(first, last + 1)]
    assert len(instances) > 1
    parts = [part for index in indexes for part in index.topics if part.topic in instances]
    assert {part.name for part in parts} == {"a"}
    log_ids = {part.log_id for part in parts}
    assert log_ids <= {f"{indexes[0].identity}-{n}" for n in instances} and len(log_ids) > 1
    assert choose(known, pattern="a") == choose(known, ["a"])

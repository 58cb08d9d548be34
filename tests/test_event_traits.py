"""One event, one description: whoever is not an event's own code goes by its traits."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import reduce
from operator import or_
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, get_args

import msgspec
import pytest

from logqueue import events as ev
from logqueue.core.apply import dispatch
from logqueue.core.apply.append_runs import AppendRun
from logqueue.events import block as blocks
from logqueue.events import encoding
from logqueue.pipeline.audit import log as audit_log
from logqueue.pipeline.audit import steps as audit_steps
from logqueue.pipeline.progress import silent
from logqueue.pipeline.rows.segment_batches import event_batches
from logqueue.segments import fast_decode, walk
from logqueue.segments.catalog import read_segment, scan
from logqueue.segments.job_trail import JobTrail
from logqueue.segments.plan import plan_events, plan_records
from logqueue.server.engine.worker_registry import Workers
from logqueue.server.metrics import Metrics
from logqueue.server.storage.job_search import JobSearch, SearchedJob
from logqueue.server.storage.segment_store import LOG_NAMES, SegmentStore
from tests.core.world import World
from tests.house import Source, broken, sources
from tests.spark.crafted import CraftedLog, appended, segments
from wal import Log, OsFileSystem

REQUIRED = {"log": (1, 2, 3), "logged": get_args(ev.LoggedWhen), "synced": get_args(ev.SyncedWhen)}


def lacking(kind: type[ev.Event]) -> Iterator[str]:
    """Traits that an event does not state, or states wrongly."""
    for trait, allowed in REQUIRED.items():
        if trait not in vars(kind) or getattr(kind, trait) not in allowed:
            yield f"{kind.__name__}: {trait}"
    if kind.space not in get_args(ev.SpaceEffect):
        yield f"{kind.__name__}: space"
    if kind.has_topic is False and kind.logged != "always":
        yield f"{kind.__name__}: without a topic it is always logged"
    if getattr(kind, "log", 0) == ev.LEASES and (
        kind.space != "neutral" or kind.synced != "as_configured"
    ):
        yield f"{kind.__name__}: space and syncs are promises of the jobs log"


def test_every_event_states_its_traits() -> None:
    assert [problem for kind in ev.EVENTS for problem in lacking(kind)] == []


def test_an_event_that_states_none_is_found_out() -> None:
    class Silent(ev.Event, frozen=True, array_like=True, tag=91):
        pass

    assert [*lacking(Silent)] == ["Silent: log", "Silent: logged", "Silent: synced"]


def test_every_event_is_applied_and_has_a_tag_of_its_own() -> None:
    assert set(dispatch._APPLY) == {*ev.EVENTS, AppendRun}
    tags = [kind.__struct_config__.tag for kind in ev.EVENTS]
    assert len(set(tags)) == len(tags)


# -- an event that only this test declares ---------------------------------------------------------


class RecordsImported(ev.Event, frozen=True, array_like=True, tag=90):
    """Records from elsewhere, and an ack with them: a sample."""

    log: ClassVar[int] = ev.JOBS
    logged: ClassVar[ev.LoggedWhen] = "topic_logged"
    synced: ClassVar[ev.SyncedWhen] = "as_configured"
    space: ClassVar[ev.SpaceEffect] = "takes"
    holds_records: ClassVar[bool] = True

    node: str
    first: int
    block: bytes
    done: list[int]

    def visit_records(self, to: ev.RecordVisitor) -> None:
        view = blocks.BlockView(self.block)
        to.appended(self, self.first, view.count, self.block, view.size_total())

    def job_changes(self) -> Iterable[ev.JobChange]:
        return (ev.JobChange("acked", self.done, self.node, len(self.done)),)


class JobsLent(ev.Event, frozen=True, array_like=True, tag=92):
    """A claim by another name: a sample of the leases log."""

    log: ClassVar[int] = ev.LEASES
    logged: ClassVar[ev.LoggedWhen] = "topic_on_disk"
    synced: ClassVar[ev.SyncedWhen] = "as_configured"

    node: str
    lease: int
    seqs: list[int]

    def job_changes(self) -> Iterable[ev.JobChange]:
        return (ev.JobChange("claimed", self.seqs, self.node, len(self.seqs), self.lease, 9999),)


@pytest.fixture
def samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the module of a new event and its function in `core/apply` would bring."""
    kinds: list[type[ev.Event]] = [*ev.EVENTS, RecordsImported, JobsLent]
    of_union: Any = list[reduce(or_, kinds)]  # type: ignore[misc]
    transaction = msgspec.defstruct(
        "SampledTransaction", [("order", int), ("events", of_union)], array_like=True
    )
    monkeypatch.setattr(encoding, "_decoder", msgspec.msgpack.Decoder(transaction))
    passed, decode = audit_steps.decoder_of(kinds)
    monkeypatch.setattr(audit_steps, "PASSED", passed)
    monkeypatch.setattr(audit_steps, "decode_steps", decode)
    monkeypatch.setattr(walk, "RECORDS", fast_decode.records_decoder_of(kinds))
    for log in LOG_NAMES:
        decoder = fast_decode.jobs_decoder_of(kinds, log)
        monkeypatch.setitem(fast_decode.JOB_EVENTS, log, decoder)

    def imported(state: Any, event: RecordsImported, segment: int) -> None:
        count = blocks.BlockView(event.block).count
        as_write = ev.RecordsAppended(event.at, event.topic, event.first, count, event.block)
        dispatch._APPLY[ev.RecordsAppended](state, as_write, segment)

    def lent(state: Any, event: JobsLent, segment: int) -> None:
        pass

    table: dict[type[Any], Any] = {**dispatch._APPLY}
    table |= {RecordsImported: imported, JobsLent: lent}
    monkeypatch.setattr(dispatch, "_APPLY", table)


def sample(topic: int, first: int, count: int, done: list[int], at: int = 5) -> RecordsImported:
    block = appended(at, topic, first, count).block
    return RecordsImported(at, topic, "w", first, block, done)


@pytest.mark.parametrize(("durability", "synced"), [("fsync", True), ("disk", False)])
def test_the_journal_treats_it_by_its_traits(durability: str, synced: bool) -> None:
    world = World()
    world.put("q", type="queue", durability=durability)
    state, journal = world.state, world.engine.journal
    number = state.topics["q"].number
    before = journal.order
    position = journal.append(state, [sample(number, 1, 2, [])])
    assert position.number > 0 and position.synced is synced
    assert journal.append(state, [JobsLent(5, number, "w", 7, [1])]).number == 0
    assert journal.order == before + 2


def test_what_is_in_memory_only_is_not_logged() -> None:
    world = World()
    world.put("e", durability="ephemeral")
    number = world.state.topics["e"].number
    assert world.engine.journal.append(world.state, [sample(number, 1, 2, [])]).number == 0


def test_it_is_there_after_a_restart(samples: None) -> None:
    world = World()
    world.put("q", type="queue", durability="fsync")
    number = world.state.topics["q"].number
    world.engine.commit_housekeeping([sample(number, 1, 3, [], world.now)])
    assert world.seqs("q") == [1, 2, 3]
    world.step()
    world.restart()
    assert world.seqs("q") == [1, 2, 3]


@pytest.fixture
def directory(tmp_path: Path, samples: None) -> Path:
    with CraftedLog(tmp_path) as log:
        log.topic(1, "q", type="queue", durability="fsync")
        log.append(1, 1, 2)
        log.log(JobsLent(log.at, 1, "w", 70, [1, 2]))
        log.log(sample(1, 3, 4, [1, 2], log.at))
        log.append(1, 7, 1)
    return tmp_path


def test_index_and_walk_find_its_records_and_its_jobs(directory: Path) -> None:
    (path,) = segments(directory)
    index = scan(path, "jobs")
    part = index.part(1)
    assert part is not None and (part.ranges, part.rows, part.events) == ([(1, 7)], 7, 2)
    (read,) = plan_records([index], {1: [(4, 7)]})
    got = [(found.first_seq, found.count) for found in walk.read_records(read_segment(path), read)]
    assert got == [(4, 3), (7, 1)]
    (leases_path,) = segments(directory, "leases")
    leases = scan(leases_path, "leases", log_id=index.log_id)
    reads = plan_events([index], [leases], [1])
    told = [
        (row["event"], row["job_seq"], row["worker"], row["lease_id"])
        for read, at in zip(reads, (path, leases_path), strict=True)
        for batch in event_batches(read_segment(at), read)
        for row in batch.to_pylist()
    ]
    assert told == [
        ("acked", 1, "w", None),
        ("acked", 2, "w", None),
        ("claimed", 1, "w", "lease_46"),
        ("claimed", 2, "w", "lease_47"),
    ]


def test_the_audit_counts_its_records(directory: Path) -> None:
    sources = audit_log.files_of([str(directory)])
    history = audit_log.read_history(sources, [str(directory)], map, silent)
    inst = history.instances[1]
    assert (inst.head, inst.appended, inst.missing, inst.doubled) == (7, [(1, 7)], [], [])


def test_the_life_of_a_job_shows_it(directory: Path) -> None:
    logs = {name: Log.open(str(directory / name)) for name in LOG_NAMES}
    try:
        trail = JobTrail(1, 2, "q", lambda number: "q")
        segments = SegmentStore(OsFileSystem(), logs)
        for _ in JobSearch(OsFileSystem(), segments, SearchedJob(1, 2, 0, 99), trail).steps():
            pass
    finally:
        for log in logs.values():
            log.close()
    appended, claimed, acked = trail.entries(False, 0)
    assert (appended["event"], acked["event"], acked["node"]) == ("appended", "acked", "w")
    assert (claimed["event"], claimed["node"], claimed["lease_id"]) == ("claimed", "w", "lease_47")


def test_metrics_and_the_registry_of_workers_count_it() -> None:
    world = World()
    world.put("q", type="queue")
    topic = world.topic("q")
    service: Any = SimpleNamespace(settings=SimpleNamespace(metrics_topics_max=9))
    metrics, workers = Metrics(service), Workers()
    event = sample(topic.number, 1, 4, [8, 9])
    changes = tuple(event.job_changes())
    metrics.event(topic, event, changes)
    workers.event(event, changes)
    assert metrics.records_appended == 4
    assert metrics.jobs_finished == Counter(acked=2)
    [(node, observed)] = workers.of(topic.number)
    assert (node, observed.acked, observed.worked) == ("w", 2, 1)


# -- no module asks which class an event is of -----------------------------------------------------

ASKS: dict[str, set[str]] = {
    # The state of a journal is its checkpoints; a topic's first event says how it is logged.
    "logqueue.server.storage.journal": {"Checkpointed", "TopicCreated"},
    "logqueue.server.storage.log_replay": {"Checkpointed"},
    # Whether a segment begins with a whole checkpoint; whether the log ends with a clean one.
    "logqueue.segments.self_contained": {"Checkpointed"},
    "logqueue.pipeline.stores.wal_store": {"Checkpointed"},
    # The faster form of the one event that carries most records.
    "logqueue.segments.fast_decode": {"RecordsAppended"},
    # Events by column: those that nearly all events of jobs are.
    "logqueue.pipeline.rows.event_columns": {
        "JobsAcked",
        "JobsClaimed",
        "JobsExtended",
        "JobsReleased",
    },
    # Decisions know the events they have just made.
    "logqueue.core.decide.endings": {"RecordsAppended"},
    "logqueue.core.decide.follow_ups": {"RecordsAppended", "TopicCreated"},
    "logqueue.core.decide.routers": {"RecordsAppended"},
    "logqueue.core.decide.multi_part": {"RecordsAppended", "TopicCreated"},
}
"""The modules that ask, and after which events. Add none that could go by a trait."""

NAMES = frozenset(kind.__name__ for kind in ev.EVENTS)


def asked(source: Source) -> Iterator[tuple[int, str]]:
    """Mentions of event classes other than to make an event or in an annotation."""
    waiting: list[ast.AST] = [ast.parse(source.text)]
    while waiting:
        node = waiting.pop()
        name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
        if isinstance(node, ast.Attribute | ast.Name) and name in NAMES:
            yield node.lineno, name
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns"):
                continue
            made = isinstance(node, ast.Call) and field == "func"
            if made and isinstance(value, ast.Attribute | ast.Name):
                is_event = (value.attr if isinstance(value, ast.Attribute) else value.id) in NAMES
                if is_event:
                    continue
            inner = value if isinstance(value, list) else [value]
            waiting.extend(one for one in inner if isinstance(one, ast.AST))


def product() -> Iterator[Source]:
    for source in sources("logqueue"):
        if not (source.is_in("logqueue.events") or source.is_in("logqueue.core.apply")):
            yield source


def test_only_events_and_apply_tell_events_by_their_class() -> None:
    broken(
        "outside events and core/apply, go by an event's traits and by what it says to visitors",
        (
            f"{source.path}:{line}: asks for {name}"
            for source in product()
            for line, name in asked(source)
            if name not in ASKS.get(source.module, ())
        ),
    )
    assert {source.module for source in product() if [*asked(source)]} == set(ASKS)


def test_the_search_finds_ladders() -> None:
    text = """
def f(event: ev.JobsAcked) -> ev.JobsHeld:
    if isinstance(event, ev.JobsAcked | ev.JobsHeld) or type(event) in (ev.JobsExtended,):
        return ev.JobsReleased(1, 2)
TABLE = {JobsClaimed: 1}
"""
    found = {name for _, name in asked(Source("logqueue/sample.py", text))}
    assert found == {"JobsAcked", "JobsHeld", "JobsExtended", "JobsClaimed"}

"""Rules about the life of jobs: one history for each, all of them in one bucket."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa

from logqueue.pipeline.audit import account
from logqueue.pipeline.audit import rules as audit_rules
from logqueue.pipeline.audit.account import QueueTotals
from logqueue.pipeline.audit.job_rows import DELAY_COLUMNS, EVENT_COLUMNS, RowsPlan
from logqueue.pipeline.audit.job_rules import AuditedQueue, JobContext
from logqueue.pipeline.audit.verdicts import Verdict, decode, encode, verdict_of
from logqueue.pipeline.rows.segment_batches import EVENTS_SCHEMA, TIME

DURABLE = {"durable": True}
Row = dict[str, Any]


class Case(NamedTuple):
    """A history of a queue, and what an audit must say: (rule, severity, first seq, last seq)."""

    name: str
    rows: list[Row]
    expected: list[tuple[str, str, int, int]]
    facts: Mapping[str, Any] = MappingProxyType({})
    delays: Mapping[int, int] = MappingProxyType({})


def event(name: str, seq: int, order: int, at: int, **more: Any) -> Row:
    return {"event": name, "job_seq": seq, "lseq": order, "ts": at, "worker": "w1", **more}


def claim(seq: int, order: int, at: int, due: int = 100, **more: Any) -> Row:
    return event("claimed", seq, order, at, **{"deadline": due, "lease_id": "lease_1", **more})


def ack(seq: int, order: int, at: int, **more: Any) -> Row:
    return event("acked", seq, order, at, **more)


def nack(seq: int, order: int, at: int, **more: Any) -> Row:
    return event("released", seq, order, at, **{"reason": "nack", **more})


AFTER_RESTART = f"lease_{50 << 16:x}"

CLEAN = [
    Case("acked", [claim(1, 1, 10), ack(1, 2, 20)], []),
    Case("still open", [claim(1, 1, 10)], []),
    Case("nacked, claimed again", [claim(1, 1, 10), nack(1, 2, 20), claim(1, 3, 20)], []),
    Case("ran out, claimed again", [claim(1, 1, 10), claim(1, 2, 101, 200), ack(1, 3, 102)], []),
    Case(
        "extended",
        [claim(1, 1, 10), event("extended", 1, 2, 90, deadline=300), ack(1, 3, 250)],
        [],
    ),
    Case(
        "claimed again after a restart",
        [claim(1, 1, 10), claim(1, 2, 60, lease_id=AFTER_RESTART)],
        [],
    ),
    Case("expired, then acked", [claim(1, 1, 10), event("expired", 1, 2, 20), ack(1, 3, 30)], []),
    Case("deleted, then acked", [claim(1, 1, 10), event("deleted", 1, 2, 20), ack(1, 3, 30)], []),
    Case(
        "postponed while it waits",
        [claim(1, 1, 10), nack(1, 2, 20), nack(1, 3, 21, reason="postponed", worker="")],
        [],
    ),
    Case(
        "delayed and retried by an operator while it waits",
        [
            nack(1, 1, 10, reason="delayed", worker=""),
            nack(1, 2, 20, reason="retried", worker=""),
            claim(1, 3, 30),
            nack(1, 4, 40, reason="returned"),
            claim(1, 5, 50),
        ],
        [],
    ),
    Case("floor", [event("trimmed", 5, 1, 10, reason="cap", worker="")], []),
    Case(
        "held, said twice, let go",
        [
            claim(1, 1, 10),
            event("held", 1, 2, 20),
            event("held", 1, 3, 25),
            event("unheld", 1, 4, 30),
            claim(1, 5, 40),
        ],
        [],
        {"deliveries_max": 1},
    ),
    Case(
        "handed back does not count",
        [claim(1, 1, 10), nack(1, 2, 20, reason="hand_back"), claim(1, 3, 30), ack(1, 4, 40)],
        [],
        {"deliveries_max": 1},
    ),
    Case(
        "given back does not count",
        [claim(1, 1, 10), nack(1, 2, 20, reason="given_back"), claim(1, 3, 30), ack(1, 4, 40)],
        [],
        {"deliveries_max": 1},
    ),
    Case("claimed when the delay ends", [claim(1, 2, 50), ack(1, 3, 60)], [], {}, {1: 50}),
    Case(
        "replaced before its delay ended",
        [event("replaced", 1, 2, 20), claim(1, 3, 30)],
        [],
        {},
        {1: 50},
    ),
    Case("claimed after the pause", [claim(1, 30, 30)], [], {"paused": [(10, 20)]}),
    Case("dead letter", [claim(1, 1, 10), event("dead_lettered", 1, 2, 20, worker="")], []),
]

BROKEN = [
    Case("two at a time", [claim(7, 1, 10), claim(7, 2, 100)], [("one_lease", "error", 7, 7)]),
    Case(
        "two at a time, over the restart of a durable queue",
        [claim(7, 1, 10), claim(7, 2, 60, lease_id=AFTER_RESTART)],
        [("one_lease", "error", 7, 7)],
        DURABLE,
    ),
    Case(
        "claimed after the end",
        [claim(3, 1, 10), ack(3, 2, 20), claim(3, 3, 200), claim(4, 4, 210, 300), ack(4, 5, 220)],
        [("claim_open_job", "error", 3, 3)],
    ),
    Case(
        "acked twice", [claim(3, 1, 10), ack(3, 2, 20), ack(3, 3, 30)], [("one_end", "error", 3, 3)]
    ),
    Case(
        "acked and dead-lettered",
        [claim(3, 1, 10), ack(3, 2, 20), event("dead_lettered", 3, 3, 30)],
        [("one_end", "error", 3, 3)],
    ),
    Case(
        "held after its end",
        [claim(3, 1, 10), ack(3, 2, 20), event("held", 3, 3, 30)],
        [("one_end", "error", 3, 3)],
    ),
    Case(
        "acked after the deadline",
        [claim(5, 1, 10), ack(5, 2, 101)],
        [("settle_with_lease", "error", 5, 5)],
    ),
    Case(
        "acked without a claim",
        [ack(5, 2, 101), ack(6, 3, 101)],
        [("settle_with_lease", "error", 5, 6)],
    ),
    Case(
        "acked without a claim, where frames are lost",
        [ack(5, 2002, 101), ack(9, 2003, 101)],
        [("settle_with_lease", "info", 5, 9)],
    ),
    Case(
        "the same in a durable queue",
        [ack(5, 2002, 101)],
        [("settle_with_lease", "error", 5, 5)],
        DURABLE,
    ),
    Case(
        "extended after a nack",
        [claim(5, 1, 10), nack(5, 2, 20), event("extended", 5, 3, 30, deadline=90)],
        [("settle_with_lease", "error", 5, 5)],
    ),
    Case(
        "acked by somebody else",
        [claim(5, 1, 10), ack(5, 2, 20, worker="w2")],
        [("settle_by_holder", "error", 5, 5)],
    ),
    Case(
        "delivered too often",
        [claim(5, 1, 10), nack(5, 2, 20), claim(5, 3, 30), nack(5, 4, 40), claim(5, 5, 50)],
        [("deliveries_max", "error", 5, 5)],
        {"deliveries_max": 2},
    ),
    Case(
        "claimed before the delay of its write is over",
        [claim(64, 1, 10), ack(64, 2, 20)],
        [("claim_in_time", "error", 64, 64)],
        {},
        {64: 11},
    ),
    Case(
        "claimed before the delay of its nack is over",
        [claim(63, 1, 10), nack(63, 2, 20, ready_at=90), claim(63, 3, 89)],
        [("claim_in_time", "error", 63, 63)],
    ),
    Case(
        "claimed while held",
        [claim(5, 1, 10), event("held", 5, 2, 20), claim(5, 3, 30)],
        [("claim_held", "error", 5, 5)],
    ),
    Case(
        "claimed while paused",
        [claim(5, 15, 10), claim(6, 16, 10), claim(9, 17, 10)],
        [("claim_paused", "error", 5, 6), ("claim_paused", "error", 9, 9)],
        {"paused": [(10, 20)]},
    ),
]

LOST = [(2000, 2001)]


def _batch(cases: list[Case]) -> pa.RecordBatch:
    rows = [
        {**row, "topic": case.name, "log_id": f"log-{number}"}
        for number, case in enumerate(cases)
        for row in case.rows
    ]
    columns = []
    for name in EVENT_COLUMNS:
        values = [row.get(name) for row in rows]
        kind = EVENTS_SCHEMA.field(name).type
        if kind == TIME:
            times = [None if ms is None else ms * 1000 for ms in values]
            columns.append(pa.array(times, pa.int64()).view(kind))
        else:
            columns.append(pa.array(values, kind))
    return pa.RecordBatch.from_arrays(columns, names=EVENT_COLUMNS)


def _delays(cases: list[Case]) -> pa.RecordBatch:
    rows = [
        (case.name, seq, at * 1000, f"log-{number}")
        for number, case in enumerate(cases)
        for seq, at in case.delays.items()
    ]
    topics, seqs, times, ids = ([row[place] for row in rows] for place in range(4))
    arrays = [pa.array(topics, pa.string()), pa.array(seqs, pa.int64())]
    arrays += [pa.array(times, pa.int64()).view(TIME), pa.array(ids, pa.string())]
    return pa.RecordBatch.from_arrays(arrays, names=DELAY_COLUMNS)


def _judged(cases: list[Case], context: JobContext) -> dict[str, QueueTotals]:
    """All cases, each a queue of its own, in one table."""
    plan = RowsPlan(timed=frozenset(f"log-{number}" for number in range(len(cases))))
    batches = [*plan.of_events([_batch(cases)]), *plan.of_records([_delays(cases)])]
    verdict = verdict_of(pa.Table.from_batches(batches), context)
    queues, _ = account.gathered([verdict_codec(verdict)])
    return queues


def verdict_codec(verdict: Verdict) -> Verdict:
    """A verdict as it comes from a task."""
    return decode(encode(verdict))


def _facts(case: Case) -> AuditedQueue:
    known = dict(case.facts)
    return AuditedQueue(
        known.get("durable", False), False, known.get("deliveries_max", 0), known.get("paused", ())
    )


def test_each_fault_is_found_where_it_is_and_nothing_else() -> None:
    cases = CLEAN + BROKEN
    facts = {f"log-{number}": _facts(case) for number, case in enumerate(cases)}
    queues = _judged(cases, JobContext(facts, LOST))
    found: dict[str, list[tuple[Any, ...]]] = {case.name: [] for case in cases}
    for finding in account.broken_findings(queues):
        assert finding.topic is not None
        found[finding.topic].append(
            (finding.rule, finding.severity, finding.first_seq, finding.last_seq)
        )
    assert found == {case.name: case.expected for case in cases}
    broken = {rule for case in BROKEN for rule, *_ in case.expected}
    assert broken == {rule.name for rule in audit_rules.LEASE_RULES}
    assert [totals.floors for totals in queues.values() if totals.floors] == [[(5, 1)]]


def test_a_log_that_nothing_is_known_of_gives_the_benefit_of_the_doubt() -> None:
    cases = [Case("archived", [ack(5, 7, 10), claim(6, 8, 10), ack(6, 9, 20)], [])]
    queues = _judged(cases, JobContext({}, [(1, 1 << 62)]))
    [finding] = account.broken_findings(queues)
    assert (finding.rule, finding.severity) == ("settle_with_lease", "info")
    assert (finding.first_seq, finding.last_seq) == (5, 5)
    assert finding.evidence["order"] == 7

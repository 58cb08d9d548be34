"""Histories as the tables `jobs` and `attempts`, in memory.

Owns: rows of events and of truth turned into Arrow tables. Must not know: what they say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from logqueue.pipeline.lifecycle.job_history import APPENDED, EVENTS
from logqueue.pipeline.lifecycle.table_kind import TableKind
from logqueue.pipeline.lifecycle.tables import ATTEMPTS, JOBS
from logqueue.pipeline.rows.history_batches import FOLD_SCHEMA, folder
from tests.spark.histories import table_of
from tests.spark.reference import Play

Rows = list[dict[str, Any]]
_OF_JOB = {"topic": "topic", "seq": "job_seq", "tag": "tag", "key": "key", "log_id": "log_id"}


class TwoTables(NamedTuple):
    """What a lifecycle run makes."""

    jobs: pa.Table
    attempts: pa.Table


def folded(records: Iterable[Mapping[str, Any]], events: Rows, end: int) -> TwoTables:
    """The tables of a history without floors, as the product folds it."""
    rows: Rows = []
    topics: dict[str, str] = {}
    for record in records:
        topics[record["log_id"]] = record["topic"]
        ids = {"log_id": record["log_id"], "seq": record["seq"], "lseq": 0, "kind": APPENDED}
        times = {"ts": record["ts"], "due": record["not_before"] or 0}
        rows.append({**ids, **times, "lease": record.get("key"), "detail": record["tag"]})
    for event in events:
        kind = EVENTS.index(event["event"])
        ids = {"log_id": event["log_id"], "seq": event["job_seq"], "lseq": event["lseq"]}
        due = event.get("deadline") or event.get("ready_at") or 0
        words = {"who": event.get("worker"), "lease": event.get("lease_id")}
        words |= {name: event.get(name) for name in ("reason", "detail")}
        rows.append({**ids, "kind": kind, "ts": event["ts"], "due": due, **words})
    rows.sort(key=lambda row: (row["seq"], row["log_id"], row["lseq"], row["kind"]))
    batch = pa.RecordBatch.from_pylist(rows, schema=FOLD_SCHEMA)
    jobs = pa.Table.from_batches(folder(end, topics)([batch])).to_pylist()
    leases = [
        lease | {into: job[name] for name, into in _OF_JOB.items()}
        for job in jobs
        for lease in job["leases"]
    ]
    return TwoTables(_typed(jobs, JOBS), _typed(leases, ATTEMPTS))


def _typed(rows: Rows, kind: TableKind) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=kind.arrow())


def truth_of(played: Iterable[Play], end: int) -> TwoTables:
    """The tables of histories, as the reference says they are."""
    names = ("activity", "at", "state", "worker")
    jobs, attempts = [], []
    for play in played:
        its_jobs, its_attempts = play.truth(end)
        attempts += its_attempts
        for job in its_jobs:
            steps = [dict(zip(names, step, strict=True)) for step in job["steps"]]
            for step in steps:
                step["at"] = pa.scalar(step["at"], pa.timestamp("ms", tz="UTC")).as_py()
            jobs.append(job | {"steps": steps})
    return TwoTables(table_of(jobs, JOBS), table_of(attempts, ATTEMPTS))

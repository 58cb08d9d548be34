"""The audit: every rule the history of a log must keep, checked over all of it.

Owns: which rules apply to what is at hand, in which order, and the summary. Must not know: engines,
the command line. How each rule is checked is in the modules beside this one.

A clean log gives no findings. The same range gives the same rows, down to the `audit_id`. When
bytes of the log itself are damaged, that is what the audit reports, and rules over rows are left
out (and listed): content behind damage cannot be distinguished from missing content.

Everything that grows with the log is done in tasks by an engine; what comes back are digests: runs
of records, steps of segments, verdicts on buckets of jobs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from logqueue.pipeline.audit import (
    account,
    archive,
    comparison,
    copies,
    findings,
    group_order,
    log,
    plans,
    producers,
    record_rules,
    rules,
)
from logqueue.pipeline.audit.findings import Finding
from logqueue.pipeline.audit.group_rows import GROUP_COLUMNS, GROUPED, HAPPENED, QueueRows
from logqueue.pipeline.audit.history import AuditHistory, Instance
from logqueue.pipeline.audit.job_rows import EVENT_COLUMNS, RowsPlan, buckets_for
from logqueue.pipeline.audit.job_rules import AuditedQueue, JobContext
from logqueue.pipeline.audit.log import SegmentSource
from logqueue.pipeline.audit.queue_events import QueueEvents, QueueTables
from logqueue.pipeline.audit.record_runs import RUN_COLUMNS, RUNS, runs_of
from logqueue.pipeline.audit.tasks import DeadLetters, TimesBack
from logqueue.pipeline.audit.verdicts import Verdict
from logqueue.pipeline.progress import Note
from logqueue.pipeline.reading.place import InputPlace
from logqueue.segments import ranges as seq_ranges
from logqueue.segments.ranges import Ranges

if TYPE_CHECKING:
    import pyarrow as pa

RULES: Final = (
    *log.RULES,
    *archive.RULES,
    *rules.RECORD_RULES,
    *rules.JOB_RULES,
    *rules.LEASE_RULES,
    *rules.COPY_RULES,
    *producers.RULES,
    *group_order.RULES,
    *plans.RULES,
)
STEPS_MAX: Final = 200
"""Steps back of the clock that the rules about jobs make allowance for, the largest ones."""
BIGINT_MAX: Final = (1 << 63) - 1
_COPIES: Final = frozenset(rule.name for rule in rules.COPY_RULES)
_OF_QUEUES: Final = frozenset(rule.name for rule in (*group_order.RULES, *plans.RULES))
_OF_HISTORY: Final = (
    frozenset(rule.name for rule in (*log.RULES, *producers.RULES))
    | _COPIES
    | _OF_QUEUES
    | {"deliveries_max", "claim_paused"}
)
_OF_ARCHIVE: Final = frozenset(rule.name for rule in archive.RULES)
_OF_JOBS: Final = frozenset(rule.name for rule in (*rules.LEASE_RULES, *rules.JOB_RULES))

BatchFunction = Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


class JobTable(Protocol):
    """The rows of all jobs, in buckets."""

    def verdicts(self, context: JobContext) -> Iterator[Verdict]:
        """Judge every bucket."""


class AuditEngine(Protocol):
    """What runs the tasks of an audit."""

    def run_tasks(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        """The results of a function for some items, in their order."""
        ...

    def segments(self) -> tuple[Sequence[SegmentSource], Sequence[str]] | None:
        """The segments of the log that is audited, and how places are named; None when what is
        audited is not a log."""

    def map_records(
        self, columns: Sequence[str], function: BatchFunction, schema: pa.Schema
    ) -> pa.Table:
        """What a function makes of the records of each task; small, as all of it comes back."""

    def map_events(
        self, columns: Sequence[str], function: BatchFunction, schema: pa.Schema
    ) -> pa.Table:
        """The same of lease events."""

    def jobs(self, plan: RowsPlan) -> JobTable:
        """The rows that a plan asks for."""

    def compare(self, against: Any) -> comparison.PlaceComparison:
        """The records of another place, held against these."""


def run_audit(
    engine: AuditEngine,
    place: InputPlace,
    to: str,
    *,
    against: Any = None,
    rules: Sequence[str] | str | None = None,
    note: Note,
) -> dict[str, Any]:
    """Check the history of a log and write what is wrong with it.

    Args:
        engine: Runs the tasks.
        place: The history.
        to: A directory for the table `audit_findings` (Parquet) and `audit_findings.json`.
        against: Another place that must hold the same records: an archive, a log, a server.
        rules: Names of rules, as a list or with commas; all when None.
        note: Called at each step.

    Returns:
        job, audit_id, ranges (by log_id: topic, first and last seq, records), findings (by
        severity), rules (findings by rule), skipped (rule -> why), account, output.

    Raises:
        PipelineError: A rule is unknown, or there is nothing to audit.
    """
    run = _AuditRun(engine, place, findings.require_rules(rules, RULES), note)
    run.check_files()
    if run.damaged:
        run.skip(run.asked - _OF_HISTORY - _OF_ARCHIVE, "the log or its archive is damaged")
        run.skip(run.asked & (_COPIES | _OF_QUEUES), "the log is damaged")
    else:
        run.check_rows(against)
    found = findings.distinct(f for f in run.found if f.rule in run.asked)
    audit_id = _audit_id(run.ranges, run.history, sorted(run.asked), against is not None)
    output = findings.write(to, audit_id, found)
    by_rule: dict[str, int] = {}
    for finding in found:
        by_rule[finding.rule] = by_rule.get(finding.rule, 0) + 1
    return {
        "job": "audit",
        "audit_id": audit_id,
        "ranges": run.ranges,
        "findings": {s: sum(f.severity == s for f in found) for s in findings.SEVERITIES},
        "rules": by_rule,
        "skipped": dict(sorted(run.skipped.items())),
        "account": run.account,
        "output": output,
    }


def account_of(engine: AuditEngine, place: InputPlace, *, note: Note) -> dict[str, Any]:
    """The proof that every job appended was finished once or is open, and no rule about it broken.

    Returns:
        appended, one count per way to end, trimmed, open, compacted, unaccounted, by_topic, and
        `findings` of the rules that it rests on.

    Raises:
        PipelineError: There is nothing to audit.
    """
    names = _OF_JOBS | {"seq_contiguous", "seq_unique"}
    run = _AuditRun(engine, place, names, note)
    run.check_files()
    if not run.damaged:
        run.check_rows(None)
    found = findings.distinct(f for f in run.found if f.rule in names)
    return {**run.account, "findings": sum(f.severity != "info" for f in found)}


def _audit_id(
    ranges: Mapping[str, Any], history: AuditHistory | None, rules: Sequence[str], compared: bool
) -> str:
    last_order = history.orders.last if history is not None else 0
    text = json.dumps([ranges, last_order, rules, compared], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class _AuditRun:
    """One audit under way.

    Attributes:
        asked: Names of the rules.
        found: What was found so far.
        skipped: Rules that were not checked, and why.
        history: What the log says of itself; None when its files are not at hand.
        damaged: Bytes of the log or of the archive are not what was written.
        ranges: By log_id, what was read.
        instances: What is known of each topic instance, by log_id.
    """

    def __init__(
        self, engine: AuditEngine, place: InputPlace, asked: frozenset[str], note: Note
    ) -> None:
        self.engine = engine
        self.place = place
        self.asked = asked
        self.note = note
        self.found: list[Finding] = []
        self.skipped: dict[str, str] = {}
        self.history: AuditHistory | None = None
        self.damaged = False
        self.ranges: dict[str, dict[str, Any]] = {}
        self.account: dict[str, Any] = account.summed({}, {}, {})
        self.instances: dict[str, Instance] = {}

    def skip(self, names: Iterable[str], why: str) -> None:
        """Note rules that cannot be checked."""
        for name in names:
            if name in self.asked:
                self.skipped.setdefault(name, why)

    def covers(self, topic: str) -> bool:
        """Whether a topic is part of the audit."""
        return self.place.covers(topic)

    # -- files -------------------------------------------------------------------------------------

    def check_files(self) -> None:
        """Rules over files, and the history that the log tells."""
        log_at_hand = self.engine.segments()
        if log_at_hand is not None:
            sources, where = log_at_hand
            watch = log.WriteWatch(sources)
            self.history = log.read_history(sources, where, self.engine.run_tasks, self.note)
            self.history.certain_order = _certain_order(self.history, watch)
            self.instances = {inst.log_id: inst for inst in self.history.instances.values()}
            self.found += log.findings(self.history, where)
            self.found += [
                finding
                for finding in (
                    *producers.findings(self.history),
                    *producers.seq_findings(self.history),
                )
                if finding.topic is None or self.covers(finding.topic)
            ]
            self.damaged = any(not problem.is_tail for problem in self.history.problems)
        else:
            self.skip(_OF_HISTORY, "it needs the files of the log (path)")
        if self.place.archive is not None:
            run = self.engine.run_tasks
            found = [*archive.findings(self.place.archive, self.covers, run, self.note)]
            self.found += found
            self.damaged = self.damaged or bool(found)
            for log_id, ranges in archive.holes(self.place.archive).items():
                inst = self.instances[log_id] = Instance(0, "", log_id)
                inst.holes = [(first, last, "archive") for first, last in ranges]
        else:
            self.skip(_OF_ARCHIVE, "it needs an archive")

    # -- rows --------------------------------------------------------------------------------------

    def check_rows(self, against: Any) -> None:
        """Rules over records and lease events."""
        self.note("checking records", None)
        runs = self.engine.map_records(RUN_COLUMNS, runs_of, RUNS)
        records = record_rules.gathered(runs)
        self._judge_records(records)
        if self.asked & (_OF_JOBS | _COPIES):
            self.note("checking lease events", None)
            self._judge_jobs(records)
        if "redrive_once" in self.asked and self.history is not None:
            self._judge_redriven(self.history)
        if self.asked & _OF_QUEUES and self.history is not None:
            self._judge_queues(self.history)
        if against is None:
            self.skip(["same_records"], "there is no other place to compare with (against)")
        elif "same_records" in self.asked:
            self.note("comparing with the other source", None)
            self.found += comparison.findings(self.engine.compare(against), self.instances)

    def _judge_records(self, records: Mapping[str, record_rules.RecordRanges]) -> None:
        by_topic = sorted(records.items(), key=lambda item: (item[1].topic, item[0]))
        self.ranges = {
            log_id: {
                "topic": ranges.topic,
                "first": ranges.first,
                "last": ranges.last,
                "records": ranges.records,
            }
            for log_id, ranges in by_topic
        }
        heads = {log_id: (ranges.topic, ranges.last) for log_id, ranges in by_topic}
        for inst in self.instances.values():
            if inst.appended and self.covers(inst.name) and inst.dropped is None:
                heads.setdefault(inst.log_id, (inst.name, 0))
        holes = {log_id: record_rules.holes(ranges) for log_id, ranges in by_topic}
        self.found += record_rules.missing_findings(holes, heads, self.instances)
        self.found += record_rules.doubled_findings(records)
        suspects = {log_id: ranges.back for log_id, ranges in by_topic if ranges.back}
        if suspects and "time_order" in self.asked:
            task = TimesBack(suspects)
            table = self.engine.map_records(
                record_rules.BACK_COLUMNS, task.of_records, record_rules.BACK
            )
            self.found += record_rules.time_findings(table)

    def _judge_jobs(self, records: Mapping[str, record_rules.RecordRanges]) -> None:
        pairs = []
        if self.history is not None and self.asked & {"dead_letter_copy", "archive_copy"}:
            pairs = copies.pairs_of(self.history, self.covers)
        jobs = self.engine.jobs(self._rows_plan(records, pairs))
        context = JobContext(
            facts_of(self.history),
            self._lost(),
            self._set_back(),
            {},
            frozenset((kind, source) for kind, source, _ in pairs),
        )
        queues, copied = account.gathered(jobs.verdicts(context))
        floors = {log_id: totals.floors for log_id, totals in queues.items() if totals.floors}
        if floors:
            # Floors reach over all jobs below them, whatever bucket these are in.
            context = JobContext(
                context.facts, context.lost, context.set_back, floors, context.sources
            )
            queues, copied = account.gathered(jobs.verdicts(context))
        self.found += account.broken_findings(queues)
        self._settle_account(queues)
        if self.history is not None and pairs:
            names = {inst.log_id: inst.name for inst in self.history.instances.values()}
            floor_of: dict[str, int] = {}
            for log_id, moves in floors.items():
                name = names.get(log_id, "")
                floor_of[name] = max(floor_of.get(name, 0), *(floor for floor, _ in moves))
            self.found += copies.copy_findings(copied, pairs, self.history, floor_of)

    def _rows_plan(
        self, records: Mapping[str, record_rules.RecordRanges], pairs: Sequence[Any]
    ) -> RowsPlan:
        queues = None
        heads = None
        last_order = None
        if self.history is not None:
            queues = {i.log_id for i in self.history.instances.values() if i.is_queue}
            last_order = self.history.certain_order
        else:
            # Records and events of an archive, or of a server, are read one after the other.
            heads = {log_id: ranges.last for log_id, ranges in records.items()}
        present = {
            log_id: (ranges.topic, ranges.present)
            for log_id, ranges in records.items()
            if queues is None or log_id in queues
        }
        jobs = sum(ranges[-1][1] - ranges[0][0] + 1 for _, ranges in present.values())
        timed = frozenset(log_id for log_id in present if records[log_id].timed)
        return RowsPlan(buckets_for(jobs), last_order, heads, timed, pairs, present)

    def _lost(self) -> Ranges:
        """Orders that are in no log; everything when no log is at hand."""
        if self.history is None:
            return [(1, 1 << 62)]
        return self.history.lost_orders()

    def _set_back(self) -> list[tuple[int, int]]:
        """Where the clock was set back; nothing is known of that without a log."""
        steps = self.history.set_back if self.history is not None else []
        return sorted(sorted(steps, key=lambda step: -step[1])[:STEPS_MAX])

    def _settle_account(self, queues: Mapping[str, account.QueueTotals]) -> None:
        self.found += account.stray_findings(queues, self.instances)
        if self.history is not None:
            known = {i.log_id for i in self.history.instances.values() if i.is_queue}
            counted = {id: totals for id, totals in queues.items() if id in known}
        else:
            counted = {id: totals for id, totals in queues.items() if totals.events}
        broken: dict[str, int] = {}
        for totals in counted.values():
            broken[totals.topic] = broken.get(totals.topic, 0) + totals.ended_twice
        for name in ("seq_contiguous", "seq_unique"):
            for topic, ranges in _ranges_by_topic(self.found, name).items():
                broken[topic] = broken.get(topic, 0) + seq_ranges.count(ranges)
        self.account = account.summed(counted, self.instances, broken)

    def _judge_queues(self, history: AuditHistory) -> None:
        """Rules that look at several jobs of a queue at once."""
        self.found += plans.findings(history.plans, history.instances, self.covers)
        fifo = {
            inst.log_id: group_order.fifo_queue(
                inst, ranges, history.lost_orders(), history.set_back
            )
            for inst in history.instances.values()
            if self.covers(inst.name) and (ranges := group_order.fifo_ranges(inst, _times))
        }
        members = plans.members(history.plans, history.instances, self.covers)
        ids = sorted({*fifo, *members})
        if not ids:
            return
        self.note("checking groups and batches of jobs", None)
        task = QueueRows(ids, history.certain_order)
        happened = self.engine.map_events(EVENT_COLUMNS, task.happened, HAPPENED)
        ends = QueueTables(happened)
        if fifo:
            table = self.engine.map_records(GROUP_COLUMNS, QueueRows([*fifo]).grouped, GROUPED)
            grouped = QueueTables(table)
        for place, log_id in enumerate(ids):
            inst = self.instances[log_id]
            events = QueueEvents(ends.of(place), inst.dropped)
            if log_id in fifo:
                jobs = grouped.of([*fifo].index(log_id))
                self.found += group_order.findings(inst.name, jobs, events, fifo[log_id])
            self.found += plans.member_findings(inst, members.get(log_id, ()), events)

    def _judge_redriven(self, history: AuditHistory) -> None:
        instances, wanted = copies.redriven(history, self.covers)
        letters: dict[str, set[int]] = {}
        if wanted:
            task = DeadLetters(wanted)
            table = self.engine.map_records(copies.LETTER_COLUMNS, task.of_records, copies.LETTERS)
            for row in table.to_pylist():
                letters.setdefault(row["log_id"], set()).add(row["seq"])
        found = {log_id: frozenset(seqs) for log_id, seqs in letters.items()}
        self.found += copies.redrive_findings(instances, wanted, found)


def _certain_order(history: AuditHistory, watch: log.WriteWatch) -> int:
    """Up to which order both logs are at hand. Of logs that are being written that is where the
    shorter one ends: a server hands lease events to the system a moment after the job events that
    came with them.
    """
    ends = history.order_ends.values()
    is_written = not history.is_stopped and watch.is_written()
    return min(ends, default=0) if is_written else max(ends, default=0)


def _ranges_by_topic(found: Iterable[Finding], rule: str) -> dict[str, Ranges]:
    """The seqs that errors of one rule are about."""
    ranges: dict[str, list[tuple[int, int]]] = {}
    for finding in found:
        if finding.rule == rule and finding.severity == "error" and finding.topic:
            first, last = finding.first_seq or 0, finding.last_seq or 0
            ranges.setdefault(finding.topic, []).append((first, last))
    return {topic: seq_ranges.union(parts) for topic, parts in ranges.items()}


def facts_of(history: AuditHistory | None) -> dict[str, AuditedQueue]:
    """What the rules about jobs need to know of each queue, by log_id."""
    if history is None:
        return {}
    return {
        inst.log_id: AuditedQueue(
            all(config.leases_durable for _, config in inst.configs),
            inst.was_in_memory,
            _deliveries_max(inst),
            _times(inst, lambda config: config.paused),
            _times(inst, lambda config: config.archive is not None),
        )
        for _, inst in sorted(history.instances.items())
        if inst.is_queue
    }


def _deliveries_max(inst: Instance) -> int:
    """The most deliveries that any of its configs allows; 0 when there is no bound."""
    bounds = []
    for _, config in inst.configs:
        if config.when_exhausted is None or not config.max_deliveries:
            return 0
        bounds.append(config.max_deliveries)
    return min(max(*bounds, inst.bound_max, 0), BIGINT_MAX)


def _times(inst: Instance, holds: Callable[[Any], bool]) -> list[tuple[int, int]]:
    """Ranges of orders in which something held of a config; the end of a range is not in it."""
    found: list[tuple[int, int]] = []
    for place, (order, config) in enumerate(inst.configs):
        until = BIGINT_MAX
        if place + 1 < len(inst.configs):
            until = inst.configs[place + 1][0]
        if holds(config):
            # A checkpoint that tells of a topic first says how it was before, too.
            since = order if inst.created is not None or place else 0
            found.append((since, until))
    return found

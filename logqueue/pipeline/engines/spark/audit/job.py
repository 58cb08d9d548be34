"""The audit: every rule the history of a log must keep, checked over all of it.

Owns: which rules apply to what is at hand, in which order, and the summary. Must not know: the
command line. How each rule is checked is in the `audit_*` modules.

A clean log gives no findings. The same range gives the same rows, down to the `audit_id`. When
bytes of the log itself are damaged, that is what the audit tells, and rules over rows are left out
(and listed): content behind damage cannot be distinguished from missing content.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from logqueue.pipeline.audit import archive as audit_archive
from logqueue.pipeline.audit import findings
from logqueue.pipeline.audit import log as audit_log
from logqueue.pipeline.audit import producers as audit_producers
from logqueue.pipeline.audit import rules as audit_rules
from logqueue.pipeline.audit.findings import Finding
from logqueue.pipeline.audit.history import AuditHistory, Instance
from logqueue.pipeline.engines.spark.audit import account as audit_account
from logqueue.pipeline.engines.spark.audit import copies as audit_copies
from logqueue.pipeline.engines.spark.audit import leases as audit_leases
from logqueue.pipeline.engines.spark.audit import records as audit_records
from logqueue.pipeline.engines.spark.audit.fetching import directories_of
from logqueue.pipeline.progress import Note, silent
from logqueue.segments.ranges import Ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from logqueue.pipeline.engines.spark.formats.inputs import Input

RULES: Final = (
    *audit_log.RULES,
    *audit_archive.RULES,
    *audit_rules.RECORD_RULES,
    *audit_rules.JOB_RULES,
    *audit_rules.LEASE_RULES,
    *audit_rules.COPY_RULES,
    *audit_producers.RULES,
)
LOST_RANGES_MAX: Final = 1000
STEPS_MAX: Final = 200
"""Steps back of the clock that the rules about jobs make allowance for, the largest ones."""
BIGINT_MAX: Final = (1 << 63) - 1
_OF_HISTORY: Final = frozenset(
    rule.name for rule in (*audit_log.RULES, *audit_producers.RULES, *audit_rules.COPY_RULES)
) | {"deliveries_max", "claim_paused"}
_OF_ARCHIVE: Final = frozenset(rule.name for rule in audit_archive.RULES)
_OF_JOBS: Final = frozenset(
    rule.name for rule in (*audit_rules.LEASE_RULES, *audit_rules.JOB_RULES)
)
_UNACCOUNTED: Final = ("one_end", "seq_contiguous", "seq_unique")
"""Rules whose findings are jobs that the account does not explain."""


def run_audit(
    spark: SparkSession,
    input: Input,
    to: str,
    *,
    against: Input | None = None,
    rules: Sequence[str] | str | None = None,
    note: Note = silent,
) -> dict[str, Any]:
    """Check the history of a log and write what is wrong with it.

    Args:
        spark: A session.
        input: The history.
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
    run = _AuditRun(spark, input, findings.require_rules(rules, RULES), note)
    run.check_files()
    if run.damaged:
        run.skip(run.asked - _OF_HISTORY - _OF_ARCHIVE, "the log or its archive is damaged")
        run.skip(run.asked & {r.name for r in audit_rules.COPY_RULES}, "the log is damaged")
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


def account(spark: SparkSession, input: Input, *, note: Note = silent) -> dict[str, Any]:
    """The proof that every job appended was finished once or is open, and no rule about it broken.

    Returns:
        appended, one count per way to end, trimmed, open, compacted, unaccounted, by_topic, and
        `findings` of the rules that it rests on.

    Raises:
        PipelineError: There is nothing to audit.
    """
    names = _OF_JOBS | {"seq_contiguous", "seq_unique"}
    run = _AuditRun(spark, input, names, note)
    run.check_files()
    if not run.damaged:
        run.check_rows(None)
    found = findings.distinct(f for f in run.found if f.rule in names)
    return {**run.account, "findings": sum(f.severity != "info" for f in found)}


def _audit_id(
    ranges: Mapping[str, Any], history: AuditHistory | None, rules: Sequence[str], compared: bool
) -> str:
    last_order = history.orders[-1][1] if history is not None and history.orders else 0
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
    """

    def __init__(
        self, spark: SparkSession, input: Input, asked: frozenset[str], note: Note
    ) -> None:
        self.spark = spark
        self.input = input
        self.asked = asked
        self.note = note
        self.found: list[Finding] = []
        self.skipped: dict[str, str] = {}
        self.history: AuditHistory | None = None
        self.damaged = False
        self.ranges: dict[str, dict[str, Any]] = {}
        self.account: dict[str, Any] = audit_account.summed((), {}, {})
        self.known_holes: dict[str, Ranges] = {}

    def skip(self, names: Iterable[str], why: str) -> None:
        """Note rules that cannot be checked."""
        for name in names:
            if name in self.asked:
                self.skipped.setdefault(name, why)

    def covers(self, topic: str) -> bool:
        """Whether a topic is part of the audit."""
        if self.input.topics:
            return topic in self.input.topics
        return self.input.pattern is None or re.fullmatch(self.input.pattern, topic) is not None

    # -- files -------------------------------------------------------------------------------------

    def check_files(self) -> None:
        """Rules over files, and the history that the log tells."""
        if self.input.path:
            with directories_of(self.input.path, self.note) as directories:
                self.history = audit_log.read_history(directories, self.note)
                self.found += audit_log.findings(self.history, directories)
            self.found += [
                finding
                for finding in (
                    *audit_producers.findings(self.history),
                    *audit_producers.seq_findings(self.history),
                )
                if finding.topic is None or self.covers(finding.topic)
            ]
            self.damaged = any(not problem.is_tail for problem in self.history.problems)
        else:
            self.skip(_OF_HISTORY, "it needs the files of the log (path)")
        if self.input.archive and os.path.isdir(self.input.archive):
            found = [*audit_archive.findings(self.input.archive, self.covers, self.note)]
            self.found += found
            self.damaged = self.damaged or bool(found)
            self.known_holes = audit_archive.holes(self.input.archive)
        else:
            self.skip(_OF_ARCHIVE, "it needs an archive")

    # -- rows --------------------------------------------------------------------------------------

    def check_rows(self, against: Input | None) -> None:
        """Rules over records and lease events."""
        records = self.input.records(self.spark, data="none")
        blocks = audit_records.blocks_of(records).persist()
        try:
            self.note("checking records", None)
            self._judge_records(records, blocks)
            if self.asked & (_OF_JOBS | {rule.name for rule in audit_rules.COPY_RULES}):
                self.note("checking lease events", None)
                self._judge_jobs(records, blocks)
        finally:
            blocks.unpersist()
        if against is None:
            self.skip(["same_records"], "there is no other place to compare with (against)")
        elif "same_records" in self.asked:
            self.note("comparing with the other source", None)
            here, there = self.input.records(self.spark), against.records(self.spark)
            self.found += audit_records.compare(here, there, self.instances)

    @property
    def instances(self) -> dict[str, Instance]:
        """What is known of each instance, by log_id."""
        if self.history is not None:
            return {inst.log_id: inst for inst in self.history.instances.values()}
        found = {}
        for log_id, ranges in self.known_holes.items():
            inst = found[log_id] = Instance(0, "", log_id)
            inst.holes = [(first, last, "archive") for first, last in ranges]
        return found

    def _judge_records(self, records: DataFrame, blocks: DataFrame) -> None:
        from pyspark.sql import functions as F

        totals = (
            blocks.groupBy("log_id", "topic")
            .agg(
                F.sum("n").alias("records"),
                F.min("first").alias("first"),
                F.max("last").alias("last"),
                F.sum("timed").alias("timed"),
            )
            .orderBy("topic", "log_id")
            .collect()
        )
        names = ("topic", "first", "last", "records", "timed")
        self.ranges = {row["log_id"]: {name: row[name] for name in names} for row in totals}
        rows = audit_records.judged(blocks).orderBy("log_id", "block").collect()
        heads = {row["log_id"]: (row["topic"], row["last"]) for row in totals}
        for inst in self.instances.values():
            if inst.appended and self.covers(inst.name) and inst.dropped is None:
                heads.setdefault(inst.log_id, (inst.name, 0))
        holes = audit_records.holes(rows)
        self.found += audit_records.missing_findings(holes, heads, self.instances)
        self.found += audit_records.doubled_findings(self.spark, records, rows)
        if "time_order" in self.asked:
            self.found += audit_records.time_findings(self.spark, records, rows)

    def _judge_jobs(self, records: DataFrame, blocks: DataFrame) -> None:
        from pyspark.sql import functions as F

        lost = self._lost()
        jobs = audit_leases.job_blocks(
            self.input.events(self.spark),
            self.spark.createDataFrame(facts_of(self.history), audit_leases.FACTS),
            lost,
            set_back=self._set_back(),
            delays=self._delays(records),
        ).persist()
        try:
            reported = jobs.where("size(broken) > 0 or size(floors) > 0")
            rows = reported.select("log_id", "topic", "broken", "floors").collect()
            self.found += audit_leases.broken_findings(rows)
            moves: dict[str, list[tuple[int, int]]] = {}
            for row in rows:
                for floor in row["floors"]:
                    moves.setdefault(row["log_id"], []).append((floor["floor"], floor["lseq"]))
            self._judge_evicted(moves)
            floors = {log_id: max(moved)[0] for log_id, moved in moves.items()}
            of_queues = jobs.select("log_id").distinct()
            if self.history is not None:
                queues = [i.log_id for i in self.history.instances.values() if i.is_queue]
                mine = blocks.where(F.col("log_id").isin(queues))
            else:
                mine = blocks.join(F.broadcast(of_queues), "log_id", "left_semi")
            self._settle_account(mine, jobs, floors)
            if self.history is not None:
                self._judge_copies(records, jobs, floors)
        finally:
            jobs.unpersist()

    def _judge_evicted(self, moves: Mapping[str, list[tuple[int, int]]]) -> None:
        """Events about jobs that a floor had gone past."""
        if not moves:
            return
        table = self.spark.createDataFrame(audit_leases.floor_rows(moves), audit_leases.FLOORS)
        rows = audit_leases.past_floors(self.input.events(self.spark), table).collect()
        self.found += audit_leases.broken_findings(rows)

    def _lost(self) -> list[tuple[int, int]]:
        """Orders that are in no log; everything when no log is at hand."""
        if self.history is None:
            return [(1, 1 << 62)]
        lost = self.history.lost_orders()
        return lost if len(lost) <= LOST_RANGES_MAX else [(lost[0][0], lost[-1][1])]

    def _set_back(self) -> list[tuple[int, int]]:
        """Where the clock was set back; nothing is known of that without a log."""
        steps = self.history.set_back if self.history is not None else []
        return sorted(sorted(steps, key=lambda step: -step[1])[:STEPS_MAX])

    def _delays(self, records: DataFrame) -> DataFrame | None:
        from pyspark.sql import functions as F

        timed = [log_id for log_id, range_ in self.ranges.items() if range_.pop("timed")]
        if not timed:
            return None
        return records.where(F.col("not_before").isNotNull() & F.col("log_id").isin(timed)).select(
            "log_id",
            "topic",
            F.col("seq").alias("job_seq"),
            F.unix_millis("not_before").alias("at"),
        )

    def _settle_account(
        self, blocks: DataFrame, jobs: DataFrame, floors: Mapping[str, int]
    ) -> None:
        both = audit_account.joined(self.spark, blocks, jobs, floors)
        counts = audit_account.counts(both).collect()
        lost = self._lost()
        self.found += audit_account.stray_findings(counts, self.instances, lost)
        broken: dict[str, int] = {}
        for finding in findings.distinct(self.found):
            of_seqs = finding.severity == "error" and finding.first_seq and finding.last_seq
            if finding.rule in _UNACCOUNTED and finding.topic and of_seqs:
                jobs_in = (finding.last_seq or 0) - (finding.first_seq or 0) + 1
                broken[finding.topic] = broken.get(finding.topic, 0) + jobs_in
        self.account = audit_account.summed(counts, self.instances, broken)

    def _judge_copies(self, records: DataFrame, jobs: DataFrame, floors: Mapping[str, int]) -> None:
        assert self.history is not None
        history = self.history
        pairs = audit_copies.pairs_of(history, self.covers)
        names = {inst.log_id: inst.name for inst in history.instances.values()}
        floors_of = {names[log_id]: floor for log_id, floor in floors.items() if log_id in names}
        if pairs and self.asked & {"dead_letter_copy", "archive_copy"}:
            copies = audit_copies.stamped(self.spark, records, pairs)
            kinds = sorted({kind for kind, _, _ in pairs})
            rows = audit_copies.unequal(copies, jobs, kinds).collect()
            self.found += audit_copies.copy_findings(
                self.spark, copies, rows, pairs, history, floors_of
            )
        if "redrive_once" in self.asked:
            self.found += audit_copies.redrive_findings(self.spark, records, history, self.covers)


def facts_of(history: AuditHistory | None) -> list[tuple[Any, ...]]:
    """What the rules about jobs need to know of each queue, as `audit_leases.FACTS` has it."""
    if history is None:
        return []
    return [
        (
            inst.log_id,
            all(config.leases_durable for _, config in inst.configs),
            inst.was_in_memory,
            _deliveries_max(inst),
            _times(inst, lambda config: config.paused),
            _times(inst, lambda config: config.archive is not None),
        )
        for _, inst in sorted(history.instances.items())
        if inst.is_queue
    ]


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

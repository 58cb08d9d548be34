"""Rules about the life of jobs: leases, ends, deliveries, delays, holds and pauses.

Owns: one pass over the lease events that shrinks them to a row per 64 jobs, with the few events
that break a rule. Must not know: files, records beyond their blocks, how events were read.

All rules share one window, per job in the order of the log; what came before an event is carried
along in a few columns. Rows of a block of jobs are in one partition, so the window and the
aggregation over it need the events to be moved once.

Some things look wrong and are not. A claim while an earlier lease lasts is allowed after a restart
of a queue whose leases are not durable: lease numbers begin at the clock (in ms) × 65 536 at each
start, so a number that is higher than the time of the claim before it tells of a restart. Frames of
the leases log may be lost with its unsynced tail; then orders are missing, and what could have
was in them is not reported as missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from logqueue.events import WAITING_REASONS
from logqueue.pipeline.audit.findings import Finding, Severity, runs
from logqueue.pipeline.audit.rules import (
    ARCHIVED,
    BY_HOLDER,
    CLAIM_OPEN,
    DELIVERIES,
    ENDS,
    HELD,
    IN_TIME,
    LEASE_DETAILS,
    LEASE_RULES,
    ONE_END,
    ONE_LEASE,
    PAUSED,
    SOFT_RULES,
    WITH_LEASE,
)
from logqueue.pipeline.engines.spark.audit.records import bit_of, block_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


_LEAVES_LEASE: Final = ("expired", "deleted")
"""Ends that take the record and leave the lease to its holder, who may still settle it."""
_VOIDS_LEASE: Final = (
    "released",
    "held",
    *(end for end in ENDS if end not in _LEAVES_LEASE),
)

_UNCOUNTED: Final = ("hand_back", "given_back")
"""Ways to give a job back whose delivery does not count towards `max_deliveries`."""
_WAITED: Final = tuple(sorted(WAITING_REASONS))

FACTS: Final = (
    "log_id STRING, durable BOOLEAN, soft BOOLEAN, deliveries_max BIGINT, "
    "paused ARRAY<STRUCT<since: BIGINT, until: BIGINT>>, "
    "archived ARRAY<STRUCT<since: BIGINT, until: BIGINT>>"
)
"""What the rules need to know of a queue. `soft`: some of its lease events may be in no log. Pauses
and times with an archive are ranges of orders, `until` not included."""

FLOORS: Final = (
    "log_id STRING, block BIGINT, below BIGINT, parts ARRAY<STRUCT<floor: BIGINT, lseq: BIGINT>>"
)


def job_blocks(
    events: DataFrame,
    facts: DataFrame,
    lost: Sequence[tuple[int, int]],
    *,
    set_back: Sequence[tuple[int, int]] = (),
    delays: DataFrame | None = None,
) -> DataFrame:
    """A row per block of jobs: what was claimed, how jobs ended, and the events that break rules.

    Args:
        events: Lease events.
        facts: A row per log_id as `FACTS` has it; a log_id without one is `soft`.
        lost: Ranges of orders that are in no log at hand.
        set_back: (order, ms) of transactions before which the clock was set back: jobs that lived
            through one are given as much time.
        delays: (log_id, topic, job_seq, at) of jobs written with a delay; at in ms.
    """
    from pyspark.sql import functions as F

    rows = _reduced(events)
    if delays is not None:
        rows = rows.unionByName(
            delays.select(
                "log_id",
                "topic",
                F.col("job_seq").alias("seq"),
                F.lit(0).cast("bigint").alias("lseq"),
                F.lit(None).cast("bigint").alias("at"),
                F.lit("delay").alias("event"),
                F.col("at").alias("due"),
            ),
            allowMissingColumns=True,
        )
    rows = rows.withColumn("block", block_of(F.col("seq")))
    rows = _carried(rows).join(F.broadcast(facts), "log_id", "left")
    return _folded(_judged(rows, lost, set_back))


def _reduced(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    lease = F.conv(F.substring("lease_id", 7, 16), 16, 10).cast("bigint")
    return events.select(
        "log_id",
        "topic",
        F.col("job_seq").alias("seq"),
        "lseq",
        F.unix_millis("ts").alias("at"),
        "event",
        "worker",
        F.coalesce(F.unix_millis("deadline"), F.unix_millis("ready_at")).alias("due"),
        F.shiftright(lease, 16).alias("lease_ms"),
        F.when(F.col("reason").isin(*_UNCOUNTED, *_WAITED), F.col("reason")).alias("reason"),
    )


def _carried(rows: DataFrame) -> DataFrame:
    """Each event with what came before it in the life of its job."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    job = Window.partitionBy("log_id", "block", "seq").orderBy("lseq", "event")
    before = job.rowsBetween(Window.unboundedPreceding, -1)

    def last(value: Column) -> Column:
        return F.last(value, ignorenulls=True).over(before)

    event = F.col("event")
    claimed, is_end = event == "claimed", event.isin(*ENDS)
    settled = event == "released"
    step = F.when(claimed, 1).when(F.col("reason").isin(*_UNCOUNTED), -1).otherwise(0)
    restarted = claimed & (F.col("lease_ms") > last(F.when(claimed, F.col("at"))))
    voids = event.isin(*_VOIDS_LEASE) & ~F.coalesce(F.col("reason").isin(*_WAITED), F.lit(False))
    ready = (
        F.when(settled, F.coalesce("due", F.lit(0)))
        .when(event == "delay", F.col("due"))
        .when(event.isin("claimed", "unheld", "replaced"), 0)
    )
    return (
        rows.withColumn("is_leased", last(F.when(claimed, True).when(voids, False)))
        .withColumn("deadline", last(F.when(event.isin("claimed", "extended"), F.col("due"))))
        .withColumn("holder", last(F.when(claimed, F.col("worker"))))
        .withColumn("restarted", F.coalesce(restarted, F.lit(False)))
        .withColumn("ended", F.count(F.when(is_end, 1)).over(before))
        .withColumn(
            "ended_for_good",
            F.count(F.when(is_end & ~event.isin(*_LEAVES_LEASE), 1)).over(before),
        )
        .withColumn("is_held", last(F.when(event == "held", True).when(event == "unheld", False)))
        .withColumn("ready_from", last(ready))
        .withColumn("order_before", F.coalesce(last(F.col("lseq")), F.lit(0)))
        .withColumn("given", F.sum(step).over(job))
        .withColumn(
            "given_before",
            F.coalesce(
                F.last(
                    F.when(event == "unheld", F.col("given")).when(
                        F.col("restarted"), F.col("given") - 1
                    ),
                    ignorenulls=True,
                ).over(job),
                F.lit(0),
            ),
        )
    )


def _judged(
    rows: DataFrame, lost: Sequence[tuple[int, int]], set_back: Sequence[tuple[int, int]]
) -> DataFrame:
    """Each event with the rules it breaks, as bits."""
    from pyspark.sql import functions as F

    event = F.col("event")
    claimed, is_end = event == "claimed", event.isin(*ENDS)
    leased = F.coalesce("is_leased", F.lit(False))
    durable = F.coalesce("durable", F.lit(False))
    forgotten = F.col("restarted") & ~durable
    settles = event.isin("acked", "extended", "rejected") | (
        (event == "released") & ~F.coalesce(F.col("reason").isin(*_WAITED), F.lit(False))
    )
    ended = F.col("ended") > 0
    orphan_ack = (event == "acked") & (F.col("ended_for_good") == 0) & leased
    back_ms = _back_ms(set_back)
    late = F.col("deadline") + back_ms < F.col("at")
    limit = F.coalesce("deliveries_max", F.lit(0))
    conditions = {
        CLAIM_OPEN: claimed & ended,
        ONE_LEASE: claimed & leased & (F.col("deadline") >= F.col("at") + back_ms) & ~forgotten,
        WITH_LEASE: settles & ~_is_second_end(ended, orphan_ack, is_end) & (~leased | late),
        BY_HOLDER: settles & leased & ~late & (F.col("worker") != F.col("holder")),
        ONE_END: ended & (is_end & ~orphan_ack | event.isin("held", "unheld", "replaced")),
        DELIVERIES: claimed & (limit > 0) & (F.col("given") - F.col("given_before") > limit),
        IN_TIME: claimed & (F.col("ready_from") > F.col("at") + back_ms) & ~forgotten,
        HELD: claimed & F.coalesce("is_held", F.lit(False)),
        PAUSED: claimed & _within(F.col("lseq"), "paused"),
    }
    broken: Column = F.lit(0)
    for place, condition in conditions.items():
        broken = broken + F.when(condition, 1 << place).otherwise(0)
    unseen: Column = F.coalesce("soft", F.lit(True))
    if lost:
        ranges = _pairs(lost)
        unseen = unseen | F.exists(
            ranges,
            lambda r: (r["a"] < F.col("lseq")) & (r["b"] > F.col("order_before")),
        )
    return rows.withColumn("broken", broken).withColumn("lost", unseen & ~durable)


def _pairs(pairs: Sequence[tuple[int, int]]) -> Column:
    from pyspark.sql import functions as F

    return F.array(*(F.struct(F.lit(a).alias("a"), F.lit(b).alias("b")) for a, b in pairs))


def _back_ms(set_back: Sequence[tuple[int, int]]) -> Column:
    """How far the clock was set back between an event and the one before it of the same job."""
    from pyspark.sql import functions as F

    if not set_back:
        return F.lit(0)
    steps = F.filter(
        _pairs(set_back), lambda s: (s["a"] > F.col("order_before")) & (s["a"] <= F.col("lseq"))
    )
    return F.aggregate(steps, F.lit(0).cast("bigint"), lambda sum_, step: sum_ + step["b"])


def _is_second_end(ended: Column, orphan_ack: Column, is_end: Column) -> Column:
    """Whether a settle comes after the job's end, which `one_end` reports (and not two rules)."""
    return ended & is_end & ~orphan_ack


def _within(order: Column, name: str) -> Column:
    from pyspark.sql import functions as F

    return F.coalesce(
        F.exists(name, lambda part: (part["since"] < order) & (order < part["until"])),
        F.lit(False),
    )


def _folded(rows: DataFrame) -> DataFrame:
    """A row per block."""
    from pyspark.sql import functions as F

    event, bit = F.col("event"), bit_of(F.col("seq"))
    first_end = F.col("ended") == 0
    kept = event.isin(*ARCHIVED) & first_end & _within(F.col("lseq"), "archived")
    columns = [
        F.bit_or(F.when(event == "claimed", bit)).alias("claimed"),
        F.bit_or(F.when(~event.isin("trimmed", "delay"), bit)).alias("touched"),
        F.min(F.when(event == "claimed", F.col("lseq"))).alias("first_claim"),
        F.max(F.when(event == "claimed", F.col("lseq"))).alias("last_claim"),
        F.max("lseq").alias("last_order"),
        F.bit_or(F.when(kept, bit)).alias("to_archive"),
        F.count(F.when(event == "dead_lettered", 1)).alias("n_dead_lettered"),
        F.count(F.when(kept, 1)).alias("n_to_archive"),
        F.collect_list(
            F.when(event == "trimmed", F.struct(F.col("seq").alias("floor"), "lseq"))
        ).alias("floors"),
        F.collect_list(F.when(F.col("broken") != 0, _evidence())).alias("broken"),
    ]
    for end in ENDS:
        columns.append(F.bit_or(F.when((event == end) & first_end, bit)).alias(end))
    return rows.groupBy("log_id", "topic", "block").agg(*columns)


def _evidence() -> Column:
    from pyspark.sql import functions as F

    return F.struct(
        "seq",
        "broken",
        F.col("lost").alias("soft"),
        "lseq",
        "at",
        "event",
        "worker",
        "holder",
        F.coalesce("deadline", "ready_from").alias("due"),
    )


# -- floors ----------------------------------------------------------------------------------------


def floor_rows(floors: Mapping[str, Sequence[tuple[int, int]]]) -> list[tuple[Any, ...]]:
    """Floors by block, as `FLOORS` has them: the first order at which a floor was at or above the
    whole block (null: none did), and the floors within it.

    Args:
        floors: By log_id, (floor, order of the transaction that moved it up).
    """
    found: list[tuple[Any, ...]] = []
    for log_id, moves in sorted(floors.items()):
        parts: dict[int, list[tuple[int, int]]] = {}
        for floor, order in moves:
            parts.setdefault(floor >> 6, []).append((floor, order))
        below: int | None = None
        for block in range(max(parts), -1, -1):
            here = parts.get(block, [])
            found.append((log_id, block, below, here))
            below = min([order for _, order in here] + ([] if below is None else [below]))
    return found


def past_floors(events: DataFrame, floors: DataFrame) -> DataFrame:
    """Events about jobs that were evicted before: as elements of `broken`, by log_id and topic.

    Args:
        events: Lease events.
        floors: From `floor_rows`.
    """
    from pyspark.sql import functions as F

    ends = [end for end in ENDS if end != "acked"]
    order, seq = F.col("lseq"), F.col("seq")
    gone = F.coalesce(F.col("below") < order, F.lit(False)) | F.exists(
        "parts", lambda part: (part["floor"] >= seq) & (part["lseq"] < order)
    )
    rule = F.when(F.col("event") == "claimed", 1 << CLAIM_OPEN).otherwise(1 << ONE_END)
    return (
        _reduced(events.where(F.col("event").isin("claimed", *ends)))
        .withColumn("block", block_of(seq))
        .join(F.broadcast(floors), ["log_id", "block"])
        .where(gone)
        .withColumns(
            {
                "broken": rule,
                "lost": F.lit(False),
                "holder": F.lit(None).cast("string"),
                "deadline": F.lit(None).cast("bigint"),
                "ready_from": F.lit(None).cast("bigint"),
            }
        )
        .groupBy("log_id", "topic")
        .agg(F.collect_list(_evidence()).alias("broken"))
    )


# -- findings, on the driver -----------------------------------------------------------------------


def broken_findings(rows: Sequence[Any]) -> Iterator[Finding]:
    """Findings from the blocks in which a rule is broken.

    Args:
        rows: With log_id, topic and `broken`, a list of events.
    """
    groups: dict[tuple[str, str, int, Severity], dict[int, Mapping[str, Any]]] = {}
    for row in rows:
        for event in row["broken"]:
            for place in range(len(LEASE_RULES)):
                if event["broken"] >> place & 1:
                    is_soft = event["soft"] and place in SOFT_RULES
                    severity: Severity = "info" if is_soft else "error"
                    key = (row["log_id"], row["topic"], place, severity)
                    first = groups.setdefault(key, {})
                    known = first.get(event["seq"])
                    if known is None or event["lseq"] < known["lseq"]:
                        first[event["seq"]] = event
    for (log_id, topic, place, severity), by_seq in sorted(groups.items()):
        ranges = runs(sorted(by_seq))
        if severity == "info":
            ranges = [(ranges[0][0], ranges[-1][1])]
        for first_seq, last_seq in ranges:
            detail = LEASE_DETAILS[place]
            if severity == "info":
                detail = (
                    f"{len(by_seq)} jobs: {detail}; the claims may have been in lease events that "
                    "are in no log (their tail is not synced, and old ones are dropped)"
                )
            evidence = {"log_id": log_id, **_event_evidence(by_seq[first_seq])}
            yield Finding(
                LEASE_RULES[place].name, severity, topic, first_seq, last_seq, detail, evidence
            )


def _event_evidence(event: Mapping[str, Any]) -> dict[str, Any]:
    evidence = {
        "order": event["lseq"],
        "event": event["event"],
        "at_ms": event["at"],
        "worker": event["worker"],
        "holder": event["holder"],
        "due_ms": event["due"],
    }
    return {name: value for name, value in evidence.items() if value is not None}

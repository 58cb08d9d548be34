"""What became of every job: how many ended how, and whether that adds up.

Owns: blocks of records joined to blocks of jobs, the counts over them, and jobs that are known from
events only. Must not know: files, how rows were read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from logqueue.pipeline.audit.findings import Finding, bits_set, runs
from logqueue.pipeline.audit.history import Instance
from logqueue.pipeline.audit.rules import ENDS, STATES
from logqueue.pipeline.engines.spark.audit.records import BLOCK
from logqueue.segments import ranges as seq_ranges
from logqueue.segments.ranges import Ranges

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def joined(
    spark: SparkSession, records: DataFrame, jobs: DataFrame, floors: Mapping[str, int]
) -> DataFrame:
    """A row per block with the records there are (`bits`), the jobs that something happened to
    (`touched`), those that ended (`ended`) and those at or below the floor (`below`).

    Args:
        records: From `audit_records.blocks_of`, of queues only.
        jobs: From `audit_leases.job_blocks`.
        floors: By log_id, the seq up to which jobs were evicted.
    """
    from pyspark.sql import functions as F

    floor_rows = spark.createDataFrame(
        list(floors.items()) or [("", 0)], "log_id STRING, floor BIGINT"
    )
    keys = ["log_id", "topic", "block"]
    parts = ["touched", "last_order", *ENDS]
    both = (
        records.select(*keys, "bits")
        .join(jobs.select(*keys, *parts), keys, "full")
        .join(F.broadcast(floor_rows), "log_id", "left")
        .na.fill(0)
    )
    ended: Column = reduce(lambda a, b: a.bitwiseOR(b), (F.col(end) for end in ENDS))
    room = F.col("floor") - F.col("block") * BLOCK + 1
    one = F.lit(1).cast("bigint")
    some = F.call_function("shiftleft", one, F.least(room, F.lit(BLOCK - 1)).cast("int")) - one
    below = F.when(room >= BLOCK, F.lit(-1)).when(room <= 0, F.lit(0)).otherwise(some)
    return both.withColumn("ended", ended).withColumn("below", below.cast("bigint"))


def counts(blocks: DataFrame) -> DataFrame:
    """By log_id and topic: appended, each of `STATES`, `stray` (ended, and never appended), and the
    blocks with jobs that are known from events only, as (block, last_order, unknown)."""
    from pyspark.sql import functions as F

    bits, ended, below = F.col("bits"), F.col("ended"), F.col("below")
    unknown = F.col("touched").bitwiseAND(F.bitwise_not(bits))
    waiting = bits.bitwiseAND(F.bitwise_not(ended))
    columns = [
        F.sum(F.bit_count(bits)).alias("appended"),
        *(F.sum(F.bit_count(F.col(end).bitwiseAND(bits))).alias(end) for end in ENDS),
        F.sum(F.bit_count(waiting.bitwiseAND(below))).alias("trimmed"),
        F.sum(F.bit_count(waiting.bitwiseAND(F.bitwise_not(below)))).alias("open"),
        F.sum(F.bit_count(ended.bitwiseAND(F.bitwise_not(bits)))).alias("stray"),
        F.collect_list(
            F.when(unknown != 0, F.struct("block", "last_order", unknown.alias("unknown")))
        ).alias("unknown"),
    ]
    return blocks.groupBy("log_id", "topic").agg(*columns)


def stray_findings(
    rows: Sequence[Any], instances: Mapping[str, Instance], lost: Ranges
) -> Iterator[Finding]:
    """What jobs without a record mean.

    Args:
        rows: From `counts`.
        instances: What the log says of each instance.
        lost: Orders that are in no log: the record may have been lost with the unsynced tail, when
            it had not been promised to a client, while lease events about it were kept.
    """
    seqs: dict[tuple[str, str, bool], list[int]] = {}
    for row in sorted(rows, key=lambda row: (row["topic"], row["log_id"])):
        inst = instances.get(row["log_id"])
        if inst is not None and inst.was_in_memory:
            continue
        known_from = inst.known_from if inst is not None else 1
        for block in sorted(row["unknown"], key=lambda block: block["block"]):
            may_be_lost = bool(seq_ranges.cut(lost, 0, block["last_order"]))
            found = bits_set(block["unknown"], block["block"] * BLOCK)
            found = [seq for seq in found if seq >= known_from]
            seqs.setdefault((row["log_id"], row["topic"], may_be_lost), []).extend(found)
    for (log_id, topic, may_be_lost), found in seqs.items():
        for first, last in runs(found):
            detail = f"{last - first + 1} jobs were claimed or ended, and were never appended"
            if may_be_lost:
                detail += "; transactions before that are in no log, which may have appended them"
            yield Finding(
                "known_job",
                "info" if may_be_lost else "error",
                topic,
                first,
                last,
                detail,
                {"log_id": log_id},
            )


def summed(
    rows: Iterable[Any], instances: Mapping[str, Instance], broken: Mapping[str, int]
) -> dict[str, Any]:
    """The account of all queues.

    Args:
        rows: From `counts`.
        broken: By topic, jobs with more than one end and seqs without a record.

    Returns:
        Sums of `appended` and of each state; `compacted`, jobs that had ended when the segments
        with them were dropped; `unaccounted`, which is 0 when every job was appended once and ended
        once or is open; and the same by topic.
    """
    names = ("appended", *STATES, "compacted", "unaccounted")
    by_topic: dict[str, dict[str, int]] = {}
    for row in sorted(rows, key=lambda row: (row["topic"], row["log_id"])):
        account = by_topic.setdefault(row["topic"], dict.fromkeys(names, 0))
        inst = instances.get(row["log_id"])
        here = {name: int(row[name] or 0) for name in ("appended", *STATES, "stray")}
        compacted = 0
        if inst is not None and inst.known_from > 1:
            covered = seq_ranges.without([(1, inst.head)], inst.hole_ranges())
            compacted = max(seq_ranges.count(covered) - here["appended"], 0)
            here["stray"] = 0
        for name in ("appended", *STATES):
            account[name] += here[name]
        account["compacted"] += compacted
        states = sum(here[name] for name in STATES)
        account["unaccounted"] += here["stray"] + abs(here["appended"] - states)
    for topic, jobs in broken.items():
        if topic in by_topic:
            by_topic[topic]["unaccounted"] += jobs
    total = {name: sum(account[name] for account in by_topic.values()) for name in names}
    return {**total, "by_topic": by_topic}

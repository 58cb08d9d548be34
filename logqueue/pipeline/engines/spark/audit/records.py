"""Rules about records: numbers without holes and doubles, times in order, the same in two places.

Owns: one pass that shrinks records to a row per 64 seqs, and what follows from those rows. Must not
know: files, leases, how rows were read.

A block is 64 neighbouring seqs of one topic instance. Which of them there are is one 64-bit word,
so doubles and holes are found exactly without sorting a single record; only blocks in which
something is wrong are looked at record by record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from logqueue.pipeline.audit.findings import Finding, bits_set, runs
from logqueue.pipeline.audit.history import Instance
from logqueue.pipeline.audit.rules import SKEW_MS
from logqueue.segments import ranges as seq_ranges
from logqueue.segments.ranges import Ranges

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BLOCK: Final = 64
BLOCKS_DRILLED_MAX: Final = 10_000


_CONTENT: Final = ("seq", "ts", "tag", "key", "node", "meta", "data", "not_before")


def blocks_of(records: DataFrame, *, hashed: bool = False) -> DataFrame:
    """A row per block: log_id, topic, block, n, bits, first, last, low, high (ms), timed, hash.

    Args:
        hashed: With a hash over the content that does not depend on the order of rows.
    """
    from pyspark.sql import functions as F

    seq, at = F.col("seq"), F.unix_millis("ts")
    columns: list[Column] = [
        F.count(F.lit(1)).alias("n"),
        F.bit_or(bit_of(seq)).alias("bits"),
        F.min(seq).alias("first"),
        F.max(seq).alias("last"),
        F.min(at).alias("low"),
        F.max(at).alias("high"),
        F.count("not_before").alias("timed"),
    ]
    if hashed:
        columns.append(F.bit_xor(F.xxhash64(*_CONTENT)).alias("hash"))
    return records.groupBy("log_id", "topic", block_of(seq).alias("block")).agg(*columns)


def block_of(seq: Column) -> Column:
    """The block that a seq is in."""
    from pyspark.sql import functions as F

    return F.shiftright(seq, 6)


def bit_of(seq: Column) -> Column:
    """The bit of a seq within its block."""
    from pyspark.sql import functions as F

    return F.call_function(
        "shiftleft", F.lit(1).cast("bigint"), seq.bitwiseAND(F.lit(BLOCK - 1)).cast("int")
    )


def judged(blocks: DataFrame) -> DataFrame:
    """The blocks in which something may be wrong, with what came before each: `last_before` and
    `high_before` (null in the first block of a topic instance)."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    ordered = Window.partitionBy("log_id").orderBy("block")
    before = ordered.rowsBetween(Window.unboundedPreceding, -1)
    seen = F.bit_count("bits")
    last = F.coalesce(F.col("last_before"), F.lit(0))
    return (
        blocks.withColumn("last_before", F.max("last").over(before))
        .withColumn("high_before", F.max("high").over(before))
        .withColumn("is_doubled", F.col("n") != seen)
        .withColumn(
            "is_holed",
            (F.col("first") != last + 1) | (F.col("last") - F.col("first") + 1 != seen),
        )
        .withColumn(
            "is_back",
            (F.col("high") - F.col("low") > SKEW_MS)
            | (F.coalesce(F.col("low") < F.col("high_before") - SKEW_MS, F.lit(False))),
        )
        .where("is_doubled or is_holed or is_back")
    )


def holes(rows: Sequence[Any]) -> dict[str, Ranges]:
    """Seqs without a record, by log_id, from the rows of `judged`."""
    found: dict[str, Ranges] = {}
    for row in sorted(rows, key=lambda row: (row["log_id"], row["block"])):
        ranges = found.setdefault(row["log_id"], [])
        due = (row["last_before"] or 0) + 1
        if row["first"] > due:
            seq_ranges.add(ranges, due, row["first"] - 1)
        base = row["block"] * BLOCK
        absent = [seq for seq in bits_set(~row["bits"], base) if row["first"] < seq < row["last"]]
        for first, last in runs(absent):
            seq_ranges.add(ranges, first, last)
    return found


def missing_findings(
    holes_by_log: Mapping[str, Ranges],
    heads: Mapping[str, tuple[str, int]],
    instances: Mapping[str, Instance],
) -> Iterator[Finding]:
    """What the holes mean.

    Args:
        holes_by_log: Seqs without a record.
        heads: By log_id, the topic and the highest seq that has a record.
        instances: What the log says of each instance; those it says nothing of are judged by
            their records alone.
    """
    for log_id, (topic, head) in sorted(heads.items()):
        inst = instances.get(log_id)
        absent = holes_by_log.get(log_id, [])
        if inst is not None and inst.head > head:
            absent = seq_ranges.union(absent, [(head + 1, inst.head)])
        if inst is not None:
            absent = seq_ranges.without(absent, inst.hole_ranges())
        known_from = inst.known_from if inst is not None else 1
        gone = seq_ranges.cut(absent, 0, known_from - 1)
        if gone:
            yield _compacted(topic, log_id, gone)
        for first, last in seq_ranges.cut(absent, known_from, 1 << 62):
            yield Finding(
                "seq_contiguous",
                "error",
                topic,
                first,
                last,
                f"{last - first + 1} seqs have no record, and the log does not say why",
                {"log_id": log_id},
            )


def _compacted(topic: str, log_id: str, gone: Ranges) -> Finding:
    return Finding(
        "seq_contiguous",
        "info",
        topic,
        gone[0][0],
        gone[-1][1],
        f"{seq_ranges.count(gone)} records were in segments that were dropped, so this range can "
        "not be checked; keep a log archive to audit the whole history",
        {"log_id": log_id},
    )


def doubled_findings(
    spark: SparkSession, records: DataFrame, rows: Sequence[Any]
) -> Iterator[Finding]:
    """Seqs that two records have."""
    from pyspark.sql import functions as F

    suspects = [row for row in rows if row["is_doubled"]]
    if not suspects:
        return
    found = (
        _within(spark, records, suspects)
        .groupBy("log_id", "topic", "seq")
        .agg(F.count(F.lit(1)).alias("n"), F.sort_array(F.collect_set("segment")).alias("places"))
        .where("n > 1")
        .orderBy("log_id", "seq")
        .collect()
    )
    for log_id, topic, part in _by_log(found):
        for first, last in runs(row["seq"] for row in part):
            places = sorted({p for r in part if first <= r["seq"] <= last for p in r["places"]})
            yield Finding(
                "seq_unique",
                "error",
                topic,
                first,
                last,
                f"{last - first + 1} seqs were given to more than one record",
                {"log_id": log_id, "segments": places[:10]},
            )


def time_findings(
    spark: SparkSession, records: DataFrame, rows: Sequence[Any]
) -> Iterator[Finding]:
    """Records that are older than one before them, by more than clocks may differ."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    suspects = [row for row in rows if row["is_back"]]
    if not suspects:
        return
    before = (
        Window.partitionBy("log_id", "block")
        .orderBy("seq")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    at = F.unix_millis("ts")
    high = F.greatest(F.max(at).over(before), F.col("high_before"))
    found = (
        _within(spark, records, suspects)
        .withColumn("back_ms", high - at)
        .where(F.col("back_ms") > SKEW_MS)
        .select("log_id", "topic", "seq", "back_ms")
        .orderBy("log_id", "seq")
        .collect()
    )
    for log_id, topic, part in _by_log(found):
        for first, last in runs(row["seq"] for row in part):
            back = max(row["back_ms"] for row in part if first <= row["seq"] <= last)
            yield Finding(
                "time_order",
                "error",
                topic,
                first,
                last,
                f"records are up to {back} ms older than one before them; the clock was set back",
                {"log_id": log_id, "back_ms": back},
            )


def _within(spark: SparkSession, records: DataFrame, suspects: Sequence[Any]) -> DataFrame:
    """The records of some blocks, each with its `block` and `high_before`."""
    from pyspark.sql import functions as F

    chosen = spark.createDataFrame(
        [(row["log_id"], row["block"], row["high_before"]) for row in suspects],
        "log_id STRING, block BIGINT, high_before BIGINT",
    )
    keyed = records.withColumn("block", block_of(F.col("seq")))
    if len(suspects) <= BLOCKS_DRILLED_MAX:
        chosen = F.broadcast(chosen)
    return keyed.join(chosen, ["log_id", "block"])


def _by_log(rows: Sequence[Any]) -> Iterator[tuple[str, str, list[Any]]]:
    groups: dict[tuple[str, str], list[Any]] = {}
    for row in rows:
        groups.setdefault((row["log_id"], row["topic"]), []).append(row)
    for (log_id, topic), part in groups.items():
        yield log_id, topic, part


# -- records in two logs ---------------------------------------------------------------------------


def compare(
    here: DataFrame, there: DataFrame, instances: Mapping[str, Instance]
) -> Iterator[Finding]:
    """Where two sets of records differ; what comes behind the end of `there` is not compared.

    Args:
        here, there: Records with their data.
        instances: What the log behind `here` says of each instance.
    """
    from pyspark.sql import functions as F

    mine, other = blocks_of(here, hashed=True), blocks_of(there, hashed=True)
    keys = ["log_id", "topic", "block"]
    joined = mine.select(*keys, *_renamed("n", "bits", "hash", "last", side="here")).join(
        other.select(*keys, *_renamed("n", "bits", "hash", "last", side="there")), keys, "full"
    )
    joined = joined.persist()
    try:
        ends = joined.groupBy("log_id", "topic").agg(
            F.max("last_here").alias("here"), F.max("last_there").alias("there")
        )
        ends_rows = ends.orderBy("topic", "log_id").collect()
        unequal = (
            joined.where(
                "not (n_here <=> n_there and bits_here <=> bits_there and hash_here <=> hash_there)"
            )
            .select(*keys)
            .persist()
        )
        yield from _ends(ends_rows)
        compared = {row["log_id"]: row["there"] for row in ends_rows if row["there"] is not None}
        if not unequal.isEmpty():
            yield from _differences(here, there, unequal, compared, instances)
        unequal.unpersist()
    finally:
        joined.unpersist()


def _renamed(*names: str, side: str) -> list[Column]:
    from pyspark.sql import functions as F

    return [F.col(name).alias(f"{name}_{side}") for name in names]


def _ends(rows: Sequence[Any]) -> Iterator[Finding]:
    for row in rows:
        if row["there"] is None:
            detail = "the place that is compared with has no record of it; it was not compared"
        elif row["here"] is None or row["here"] < row["there"]:
            continue
        elif row["here"] > row["there"]:
            detail = "the place that is compared with ends before this range; it was not compared"
        else:
            continue
        first = (row["there"] or 0) + 1
        evidence = {"log_id": row["log_id"]}
        yield Finding("same_records", "info", row["topic"], first, row["here"], detail, evidence)


def _differences(
    here: DataFrame,
    there: DataFrame,
    unequal: DataFrame,
    compared: Mapping[str, int],
    instances: Mapping[str, Instance],
) -> Iterator[Finding]:
    """The seqs that differ, in the blocks that do."""
    from pyspark.sql import functions as F

    def side(records: DataFrame, name: str) -> DataFrame:
        return (
            records.withColumn("block", block_of(F.col("seq")))
            .join(F.broadcast(unequal), ["log_id", "topic", "block"], "left_semi")
            .groupBy("log_id", "topic", "seq")
            .agg(F.count(F.lit(1)).alias(f"n_{name}"), *_content_hash(name))
        )

    rows = (
        side(here, "here")
        .join(side(there, "there"), ["log_id", "topic", "seq"], "full")
        .where("not (n_here <=> n_there and hash_here <=> hash_there)")
        .orderBy("log_id", "seq")
        .collect()
    )
    kinds: dict[tuple[str, str, str], list[int]] = {}
    for row in rows:
        inst = instances.get(row["log_id"])
        if row["seq"] > compared.get(row["log_id"], 0):
            continue
        if row["n_here"] is None:
            if inst is not None and row["seq"] < inst.known_from:
                # It was in a segment that was dropped; the other place has it.
                continue
            kind = "is only in the place that is compared with"
        elif row["n_there"] is None:
            kind = "is missing in the place that is compared with"
        else:
            kind = "has other content in the place that is compared with"
        kinds.setdefault((row["log_id"], row["topic"], kind), []).append(row["seq"])
    for (log_id, topic, kind), seqs in kinds.items():
        for first, last in runs(seqs):
            detail = f"each of {last - first + 1} records {kind}"
            yield Finding("same_records", "error", topic, first, last, detail, {"log_id": log_id})


def _content_hash(name: str) -> list[Column]:
    from pyspark.sql import functions as F

    return [F.bit_xor(F.xxhash64(*_CONTENT)).alias(f"hash_{name}")]

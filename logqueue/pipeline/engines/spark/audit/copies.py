"""Rules about copies of jobs: dead letters, archived jobs, and dead letters that went back.

Owns: what a copy says of the job it was made of, counted against the jobs that ended. Must not
know: files, how rows were read.

A copy and the end of its job are one transaction, so each end has one copy and each copy one end.
Both are counted per 64 jobs; only blocks that do not agree are looked at copy by copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from logqueue.pipeline.audit.findings import Finding, bits_set, runs
from logqueue.pipeline.audit.history import AuditHistory, Instance
from logqueue.pipeline.engines.spark.audit.records import BLOCK, bit_of, block_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEAD_LETTER: Final = "dead_letter"
ARCHIVE: Final = "archive"
_RULE: Final = {DEAD_LETTER: "dead_letter_copy", ARCHIVE: "archive_copy"}
_STAMPS: Final = (
    "`$dead_letter_from` STRING, `$dead_letter_src_seq` STRING, "
    "`$archived_from` STRING, `$archived_src_seq` STRING"
)

Pair = tuple[str, str, str]
"""Kind of copy, name of the queue, name of the topic that gets its copies."""


def pairs_of(history: AuditHistory, covers: Callable[[str], bool]) -> list[Pair]:
    """Which topics get copies of which queues, by their configs over time.

    Args:
        covers: Whether a topic's records are part of the audit; pairs that are not are left out.
    """
    found: set[Pair] = set()
    for inst in history.instances.values():
        for _, config in inst.configs:
            if config.is_queue and config.dead_letter is not None:
                found.add((DEAD_LETTER, inst.name, config.dead_letter))
            if config.is_queue and config.archive is not None:
                found.add((ARCHIVE, inst.name, config.archive))
    return sorted(pair for pair in found if covers(pair[1]) and covers(pair[2]))


def stamped(spark: SparkSession, records: DataFrame, pairs: Sequence[Pair]) -> DataFrame:
    """The copies among records: kind, source (name), src_seq, block (of that), topic, seq."""
    from pyspark.sql import functions as F

    known = spark.createDataFrame(list(pairs), "kind STRING, source STRING, topic STRING")
    targets = sorted({pair[2] for pair in pairs})
    meta = F.from_json("meta", _STAMPS)
    reported = (
        records.where(F.col("topic").isin(targets) & F.col("meta").isNotNull())
        .select("topic", "seq", meta.alias("meta"))
        .select(
            "topic",
            "seq",
            F.explode(
                F.array(
                    _stamp(DEAD_LETTER, "$dead_letter_from", "$dead_letter_src_seq"),
                    _stamp(ARCHIVE, "$archived_from", "$archived_src_seq"),
                )
            ).alias("copy"),
        )
        .select("topic", "seq", "copy.*")
        .where("source is not null and src_seq is not null")
        .withColumn("block", block_of(F.col("src_seq")))
    )
    return reported.join(F.broadcast(known), ["kind", "source", "topic"], "left_semi")


def _stamp(kind: str, source: str, seq: str) -> Any:
    from pyspark.sql import functions as F

    return F.struct(
        F.lit(kind).alias("kind"),
        F.col("meta").getField(source).alias("source"),
        F.col("meta").getField(seq).try_cast("bigint").alias("src_seq"),
    )


def unequal(copies: DataFrame, jobs: DataFrame, kinds: Sequence[str]) -> DataFrame:
    """Blocks of jobs whose copies do not agree with their ends.

    Args:
        copies: From `stamped`.
        jobs: Blocks of jobs from `audit_leases.job_blocks`.
        kinds: Which kinds of copies to compare.
    """
    from pyspark.sql import functions as F

    made = copies.groupBy("kind", "source", "block").agg(
        F.count(F.lit(1)).alias("n_copies"), F.bit_or(bit_of(F.col("src_seq"))).alias("copies")
    )
    columns = {
        DEAD_LETTER: ("n_dead_lettered", "dead_lettered"),
        ARCHIVE: ("n_to_archive", "to_archive"),
    }
    parts = [
        jobs.groupBy(F.col("topic").alias("source"), "block")
        .agg(F.sum(columns[kind][0]).alias("n_ends"), F.bit_or(columns[kind][1]).alias("ends"))
        .where("n_ends > 0")
        .withColumn("kind", F.lit(kind))
        for kind in kinds
    ]
    ends = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
    return (
        made.join(ends, ["kind", "source", "block"], "full")
        .na.fill(0)
        .where("n_copies != n_ends or copies != ends")
    )


def copy_findings(
    spark: SparkSession,
    copies: DataFrame,
    rows: Sequence[Any],
    pairs: Sequence[Pair],
    history: AuditHistory,
    floors: Mapping[str, int],
) -> Iterator[Finding]:
    """What blocks that do not agree mean.

    Args:
        copies: From `stamped`.
        rows: From `unequal`.
        pairs: From `pairs_of`.
        floors: By name of a queue, the seq up to which jobs were evicted: an archive may have
            copies of them, and no event names them one by one.
    """
    doubled: list[Mapping[str, Any]] = []
    seqs: dict[tuple[str, str, str], list[int]] = {}
    targets = {(kind, source): target for kind, source, target in pairs}
    for row in sorted(rows, key=lambda row: (row["kind"], row["source"], row["block"])):
        kind, source, base = row["kind"], row["source"], row["block"] * BLOCK
        target = targets.get((kind, source))
        if target is None:
            continue
        gone = history.named(target) + history.named(source)
        can_miss = history.is_partial or any(i.dropped or i.was_in_memory for i in gone)
        missing = [] if can_miss else bits_set(row["ends"] & ~row["copies"], base)
        extra = bits_set(row["copies"] & ~row["ends"], base)
        if kind == ARCHIVE:
            extra = [seq for seq in extra if seq > floors.get(source, 0)]
        if not history.is_whole or any(i.was_in_memory for i in history.named(source)):
            extra = []
        seqs.setdefault((kind, source, "missing"), []).extend(missing)
        seqs.setdefault((kind, source, "extra"), []).extend(extra)
        if row["n_copies"] > max(row["n_ends"], bin(row["copies"] & (1 << 64) - 1).count("1")):
            doubled.append(row)
    for (kind, source, what), found in seqs.items():
        target = targets[kind, source]
        says = {
            "missing": f"ended, and {target} has no copy of it",
            "extra": f"has a copy in {target}, and did not end that way",
        }[what]
        yield from _findings(_RULE[kind], source, found, says, {"copies_in": target})
    yield from _doubled(spark, copies, doubled, targets)


def _doubled(
    spark: SparkSession,
    copies: DataFrame,
    rows: Sequence[Any],
    targets: Mapping[tuple[str, str], str],
) -> Iterator[Finding]:
    from pyspark.sql import functions as F

    if not rows:
        return
    chosen = spark.createDataFrame(
        [(row["kind"], row["source"], row["block"]) for row in rows],
        "kind STRING, source STRING, block BIGINT",
    )
    found = (
        copies.join(F.broadcast(chosen), ["kind", "source", "block"])
        .groupBy("kind", "source", "src_seq")
        .agg(F.sort_array(F.collect_list("seq")).alias("seqs"))
        .where(F.size("seqs") > 1)
        .orderBy("kind", "source", "src_seq")
        .collect()
    )
    for row in found:
        target = targets[row["kind"], row["source"]]
        yield Finding(
            _RULE[row["kind"]],
            "error",
            row["source"],
            row["src_seq"],
            row["src_seq"],
            f"has {len(row['seqs'])} copies in {target}",
            {"copies_in": target, "copies": row["seqs"][:10]},
        )


def _findings(
    rule: str, topic: str, seqs: Sequence[int], says: str, evidence: Mapping[str, Any]
) -> Iterator[Finding]:
    for first, last in runs(sorted(set(seqs))):
        jobs = "the job" if first == last else f"each of {last - first + 1} jobs"
        yield Finding(rule, "error", topic, first, last, f"{jobs} {says}", evidence)


# -- redriven records ------------------------------------------------------------------------------


def redrive_findings(
    spark: SparkSession, records: DataFrame, history: AuditHistory, covers: Callable[[str], bool]
) -> Iterator[Finding]:
    """Redriven records that are not dead letters, went back twice, or left no job behind."""
    redriven = [
        inst for _, inst in sorted(history.instances.items()) if inst.redriven and covers(inst.name)
    ]
    for inst in redriven:
        yield from _redriven_twice(inst)
    rows = [
        (inst.log_id, seq)
        for inst in redriven
        for seq in sorted({seq for _, seqs, _ in inst.redriven for seq in seqs})
        if seq >= inst.known_from
    ]
    if not rows:
        return
    from pyspark.sql import functions as F

    asked = spark.createDataFrame(rows, "log_id STRING, seq BIGINT")
    known = asked.join(records.select("log_id", "seq", "meta"), ["log_id", "seq"])
    is_letter = F.from_json("meta", _STAMPS).getField("$dead_letter_from").isNotNull()
    letters = known.where(is_letter).select("log_id", "seq").collect()
    found = {(row["log_id"], row["seq"]) for row in letters}
    for inst in redriven:
        stray = [seq for log_id, seq in rows if log_id == inst.log_id]
        stray = [seq for seq in stray if (inst.log_id, seq) not in found]
        says = "was redriven and is not a dead letter"
        for first, last in runs(stray):
            yield Finding(
                "redrive_once", "error", inst.name, first, last, says, {"log_id": inst.log_id}
            )


def _redriven_twice(inst: Instance) -> Iterator[Finding]:
    seen: set[int] = set()
    for order, seqs, copies in inst.redriven:
        evidence = {"log_id": inst.log_id, "order": order}
        again = sorted(seen.intersection(seqs))
        for first, last in runs(again):
            yield Finding(
                "redrive_once", "error", inst.name, first, last, "was redriven twice", evidence
            )
        seen.update(seqs)
        if copies < len(seqs):
            yield Finding(
                "redrive_once",
                "error",
                inst.name,
                min(seqs),
                max(seqs),
                f"{len(seqs)} dead letters went back, and {copies} jobs came of it",
                evidence,
            )

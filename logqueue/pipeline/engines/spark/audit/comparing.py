"""Records of two places held against each other on Spark: by hashes of blocks, and one by one where
those differ.

Owns: the hashes and their comparison. Must not know: what differences mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from logqueue.pipeline.audit.archive import holes
from logqueue.pipeline.audit.comparison import HERE, OTHER, THERE, ComparedTopic, PlaceComparison
from logqueue.pipeline.audit.job_rows import codes_of
from logqueue.pipeline.audit.verdicts import ranges_of
from logqueue.pipeline.stores.gaps import gaps_of
from logqueue.segments import ranges as seq_ranges
from logqueue.segments.ranges import Ranges

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from logqueue.pipeline.engines.spark.formats.inputs import Input

_CONTENT: Final = ("seq", "ts", "tag", "key", "node", "meta", "data", "not_before")
_BLOCK_BITS: Final = 10
_KINDS: Final = (HERE, THERE, OTHER)
_RANGES: Final = "log_id STRING, kind INT, first BIGINT, last BIGINT"


def compare_inputs(spark: SparkSession, here: Input, there: Input) -> PlaceComparison:
    """Hold the records of two places against each other."""
    from pyspark.sql import functions as F

    found = PlaceComparison(gaps_here=_gaps(here), gaps_there=_gaps(there))
    mine, other = here.records(spark), there.records(spark)
    keys = ["log_id", "topic", "block"]
    joined = _blocks(mine, "here").join(_blocks(other, "there"), keys, "full").persist()
    try:
        ends = joined.groupBy("log_id", "topic").agg(
            F.max("last_here").alias("here"), F.max("last_there").alias("there")
        )
        for row in ends.collect():
            found.topics[row["log_id"]] = ComparedTopic(row["topic"], row["here"], row["there"])
        unequal = joined.where("not (n_here <=> n_there and hash_here <=> hash_there)").select(
            "log_id", "block"
        )
        if not unequal.isEmpty():
            for log_id, kind, first, last in _ranges(mine, other, unequal):
                ranges = found.topics[log_id].differences.setdefault(_KINDS[kind], [])
                seq_ranges.add(ranges, first, last)
    finally:
        joined.unpersist()
    return found


def _gaps(input: Input) -> dict[str, Ranges]:
    return gaps_of(input) if input.archive is None else holes(input.archive)


def _block() -> Column:
    from pyspark.sql import functions as F

    return F.shiftright("seq", _BLOCK_BITS)


def _hashed(side: str) -> list[Column]:
    from pyspark.sql import functions as F

    return [
        F.count(F.lit(1)).alias(f"n_{side}"),
        F.bit_xor(F.xxhash64(*_CONTENT)).alias(f"hash_{side}"),
    ]


def _blocks(records: DataFrame, side: str) -> DataFrame:
    from pyspark.sql import functions as F

    last = F.max("seq").alias(f"last_{side}")
    return records.groupBy("log_id", "topic", _block().alias("block")).agg(*_hashed(side), last)


def _ranges(
    mine: DataFrame, other: DataFrame, unequal: DataFrame
) -> list[tuple[str, int, int, int]]:
    """The seqs that differ in some blocks, as ranges that executors make."""
    from pyspark.sql import functions as F

    def side(records: DataFrame, name: str) -> DataFrame:
        return (
            records.withColumn("block", _block())
            .join(F.broadcast(unequal), ["log_id", "block"], "left_semi")
            .groupBy("log_id", "block", "seq")
            .agg(*_hashed(name))
        )

    kind = F.when(F.col("n_there").isNull(), 0).when(F.col("n_here").isNull(), 1).otherwise(2)
    differ = (
        side(mine, "here")
        .join(side(other, "there"), ["log_id", "block", "seq"], "full")
        .where("not (n_here <=> n_there and hash_here <=> hash_there)")
        .select("log_id", "block", "seq", kind.alias("kind"))
    )
    found = differ.groupBy("log_id", "block").applyInArrow(_joined, _RANGES).collect()
    return sorted(tuple(row) for row in found)


def _joined(table: pa.Table) -> pa.Table:
    seqs, kinds = table.column("seq").to_numpy(), table.column("kind").to_numpy()
    _, ids = codes_of(table.column("log_id"))
    rows: list[tuple[Any, ...]] = []
    for kind in range(len(_KINDS)):
        of_kind = np.sort(seqs[kinds == kind])
        rows += [(ids[0], kind, first, last) for first, last in ranges_of(of_kind)]
    columns = [*zip(*rows, strict=True)] or [()] * 4
    types = (pa.string(), pa.int32(), pa.int64(), pa.int64())
    names = ("log_id", "kind", "first", "last")
    arrays = [pa.array(column, type) for column, type in zip(columns, types, strict=True)]
    return pa.Table.from_arrays(arrays, names=list(names))

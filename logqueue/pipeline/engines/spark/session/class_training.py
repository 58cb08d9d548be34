"""The run whose classes are kept: `python -m` this module makes the class archive.

Owns: one session that does a little of everything that jobs do. Must not know: where archives are
kept, any job.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from logqueue.pipeline.engines.spark.session import class_archive, java, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _train(draft: str) -> None:
    """Do a little of everything that jobs do, and let Java write the archive when it ends."""
    ground = class_archive.ground_of(Path(draft).parent.parent / Path(draft).name)
    options = [f"-XX:SharedArchiveFile={ground}"] if ground.is_file() else []
    options += [f"-XX:ArchiveClassesAtExit={draft}", "-Xlog:disable"]
    conf = {
        "spark.driver.extraJavaOptions": " ".join(map(session.quoted, options)),
        "spark.sql.shuffle.partitions": "2",
    }
    spark = session.open_session("local[2]", conf=conf, app_name="logqueue-class-archive")
    with tempfile.TemporaryDirectory() as folder:
        _exercise(spark, folder)
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    spark.stop()
    # It ends, and writes, when the other end of the pipe is closed.
    gateway.proc.stdin.close()
    gateway.proc.wait(class_archive.MAKING_S)


def _exercise(spark: SparkSession, folder: str) -> None:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    rows = spark.range(200).select(
        (f.col("id") % 3).alias("topic"),
        f.col("id").alias("seq"),
        f.timestamp_seconds("id").alias("ts"),
        f.lit('{"a": 1}').alias("data"),
    )
    rows.write.partitionBy("topic").parquet(f"{folder}/rows")
    kept = spark.read.parquet(f"{folder}/rows")
    kept.groupBy("topic", f.window("ts", "1 minute")).agg(
        f.percentile_approx("seq", [0.5, 0.9]), f.count("*"), f.max("ts"), f.collect_list("seq")
    ).orderBy("topic").collect()
    first = f.row_number().over(Window.partitionBy("topic").orderBy("seq"))
    joined = kept.withColumn("n", first).join(rows.select("seq", "ts"), "seq", "left").drop("ts")
    joined.groupBy("n").count().toArrow()
    joined.createOrReplaceTempView("joined")
    spark.sql("select topic, get_json_object(joined.data, '$.a') as a from joined").count()
    kept.mapInArrow(lambda batches: batches, kept.schema).write.json(f"{folder}/json")
    stream = spark.readStream.schema(kept.schema).parquet(f"{folder}/rows")
    written = stream.writeStream.format("parquet").option("checkpointLocation", f"{folder}/at")
    written.trigger(availableNow=True).start(f"{folder}/out").awaitTermination()


def main(arguments: list[str]) -> int:
    """Make the archive (`make`), or be the run whose classes are kept (its path)."""
    if arguments == ["make"]:
        with contextlib.suppress(OSError, AttributeError):
            os.nice(10)
        class_archive.make(java.find(), java.cache_directory())
    else:
        _train(arguments[0])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

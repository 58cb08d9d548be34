"""An archive of Spark's loaded classes, with which Java starts in half the time.

Owns: where it is kept, for which Java and pyspark it holds, and making it. Must not know: any job.

Java writes such an archive when it ends (AppCDS). It fits exactly one Java and set of jar files;
its name says which, and Java itself ignores one that does not fit.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from logqueue.spark.errors import PipelineError
from logqueue.spark.running.java import Java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SWITCH = "LOGQUEUE_CLASS_ARCHIVE"
"""Variable of the environment: `off` neither uses nor makes an archive."""

MAKING_S = 300.0
"""Seconds that the making of an archive may take."""

FREE_BYTES_MIN = 1 << 30
"""What must be free on the disk of the cache before an archive (200 MB) is made."""

KEPT = 3
"""Archives that are kept, those used last."""


def is_wanted() -> bool:
    """Whether archives are used and made."""
    return os.environ.get(SWITCH, "").lower() not in ("off", "0", "no", "false")


def options(java: Java, cache: Path) -> list[str]:
    """Java's flags for using the archive; none where there is none."""
    if not is_wanted():
        return []
    kept = path(java, cache)
    if not kept.is_file():
        return []
    with contextlib.suppress(OSError):
        os.utime(kept)
    parts = [str(part) for part in (_ground(kept), kept) if part.is_file()]
    # One that does not fit after all is no archive: not a word of it, and on without.
    return [f"-XX:SharedArchiveFile={os.pathsep.join(parts)}", "-Xshare:auto", "-Xlog:disable"]


def path(java: Java, cache: Path) -> Path:
    """Where the archive for this Java and the installed pyspark is, once it is made."""
    marks = [java.said, str(java.home)]
    for part in (java.program, java.home / "lib" / "modules", *sorted(_jars().glob("spark-*.jar"))):
        with contextlib.suppress(OSError):
            facts = part.stat()
            marks.append(f"{part} {facts.st_size} {facts.st_mtime_ns}")
    mark = hashlib.sha256("\n".join(marks).encode()).hexdigest()[:16]
    return cache / f"spark-classes-{java.version}-{mark}.jsa"


def make(java: Java, cache: Path) -> Path | None:
    """Make the archive, unless it is there. Takes about 15 s; one process makes it, others wait.

    Returns:
        Where it is; None where it cannot be made: no room, or a cache that cannot be written to.
    """
    kept = path(java, cache)
    if kept.is_file():
        return kept
    try:
        cache.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(cache).free < FREE_BYTES_MIN:
            return None
        with (cache / "spark-classes.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.is_file():
                _make(java, kept)
                _forget_older(cache)
    except (OSError, subprocess.SubprocessError):
        return None
    return kept if kept.is_file() else None


def make_later(java: Java, cache: Path) -> None:
    """Make the archive in a process of its own that outlives this one, unless it is there."""
    if not is_wanted() or path(java, cache).is_file():
        return
    with contextlib.suppress(OSError):
        subprocess.Popen(
            [sys.executable, "-m", "logqueue.spark.running.class_archive", "make"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def _make(java: Java, kept: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".spark-classes-", dir=kept.parent) as folder:
        draft = Path(folder) / kept.name
        if not list((java.home / "lib").glob("*/classes.jsa")):
            command = [str(java.program), "-Xshare:dump", f"-XX:SharedArchiveFile={_ground(draft)}"]
            _run([*command, "-Xlog:disable"])
            # The second archive remembers the path of the first.
            _ground(draft).replace(_ground(kept))
        environment = {**os.environ, "LOGQUEUE_JAVA_HOME": str(java.home), SWITCH: "off"}
        _run(
            [sys.executable, "-m", "logqueue.spark.running.class_archive", str(draft)], environment
        )
        draft.replace(kept)


def _run(command: list[str], environment: dict[str, str] | None = None) -> None:
    subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=MAKING_S,
        check=True,
    )


def _forget_older(cache: Path) -> None:
    archives = [found for found in cache.glob("spark-classes-*.jsa") if ".ground" not in found.name]
    for old in sorted(archives, key=lambda found: found.stat().st_mtime, reverse=True)[KEPT:]:
        old.unlink(missing_ok=True)
        _ground(old).unlink(missing_ok=True)


def _ground(archive: Path) -> Path:
    """The archive of Java's own classes, for a Java that came without one."""
    return archive.with_suffix(".ground.jsa")


def _jars() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise PipelineError("pyspark is not installed: pip install 'logqueue[spark]'")
    return Path(spec.origin).parent / "jars"


# -- the run whose classes are kept ----------------------------------------------------------------


def _train(draft: str) -> None:
    """Do a little of everything that jobs do, and let Java write the archive when it ends."""
    from logqueue.spark.running import session

    ground = _ground(Path(draft).parent.parent / Path(draft).name)
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
    # It ends, and writes, when nobody is at the other end of the pipe any more.
    gateway.proc.stdin.close()
    gateway.proc.wait(MAKING_S)


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
    from logqueue.spark.running import java

    if arguments == ["make"]:
        with contextlib.suppress(OSError, AttributeError):
            os.nice(10)
        make(java.find(), java.cache_directory())
    else:
        _train(arguments[0])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

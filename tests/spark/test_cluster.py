"""A real cluster of a master and two workers: our code travels, rows are counted on both sides."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

from logqueue.client import Client
from logqueue.pipeline.engines.spark.session import class_archive, java, packing
from logqueue.shapes import Record
from logqueue.testing.process import ServerProcess
from tests.house import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow]

RECORDS = 3000
UP_S = 60.0
RUN_S = 180.0

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

DRIVER = """\
import json, sys
from pyspark.sql import functions as f
from logqueue.pipeline.engines.spark.session import session

master, path, url = sys.argv[1:]
conf = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": "%(quick)s",
    "spark.driver.extraJavaOptions": "%(quick)s",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
}

def homes(batches):
    import os, pyarrow, logqueue
    home = os.path.basename(os.path.dirname(os.path.dirname(logqueue.__file__)))
    for batch in batches:
        yield pyarrow.RecordBatch.from_pydict({"seq": batch[0], "home": [home] * batch.num_rows})

with session.opened(master, conf=conf) as spark:
    source = spark.read.format("logqueue-wal").option("path", path).option("topics", "source")
    rows = source.option("minPartitions", "4").option("partitionBytes", "65536").load()
    found = rows.select("seq").mapInArrow(homes, "seq long, home string").agg(
        f.count("*"), f.countDistinct("seq"), f.min("seq"), f.max("seq"), f.collect_set("home")
    )
    *told, places = found.first()
    dealt = rows.select(f.lit("copy").alias("topic"), "data", "tag").repartition(4, "data")
    for write in range(2):  # the same write again writes nothing
        sink = dealt.write.format("logqueue").option("url", url).option("writeId", "w")
        sink.mode("append").save()
    print(json.dumps({"read": told, "homes": places}))
"""


@dataclass
class Cluster:
    """A running cluster.

    Attributes:
        master: Its address.
        python: What executors run: it has what they must have, and none of our code.
    """

    master: str
    python: Path


def started(*arguments: str, says: str, environment: dict[str, str]) -> tuple[Any, re.Match[str]]:
    """A daemon of Spark, once its log says that it is up."""
    import pyspark

    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    process = subprocess.Popen(
        [str(program), *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    watchdog = threading.Timer(UP_S, process.kill)
    watchdog.start()
    said = []
    for line in process.stderr:
        said.append(line)
        if match := re.search(says, line):
            watchdog.cancel()
            # The rest is not read, and a full pipe would stop it.
            threading.Thread(target=drained, args=(process.stderr,), daemon=True).start()
            return process, match
    watchdog.cancel()
    process.wait()
    raise RuntimeError(f"{arguments[0]} did not start:\n{''.join(said)[-4000:]}")


def drained(stream: IO[str]) -> None:
    """Read to the end."""
    for _ in stream:
        pass


def bare_python(folder: Path) -> Path:
    """A Python with the packages that executors must have, and no other."""
    site = Path(sysconfig.get_path("purelib"))
    packages = folder / "packages"
    packages.mkdir()
    for name in packing.NEEDED:
        for found in (name, f"{name}.libs"):
            if (site / found).exists():
                (packages / found).symlink_to(site / found)
    program = folder / "python"
    path = f'"{packages}${{PYTHONPATH:+:$PYTHONPATH}}"'
    program.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec "{sys.executable}" -S "$@"\n')
    program.chmod(0o755)
    return program


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers with one core each, on loopback."""
    pytest.importorskip("pyspark")
    folder = tmp_path_factory.mktemp("cluster")
    found = java.find()
    classes = class_archive.options(found, java.cache_directory())
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "JAVA_HOME": str(java.launcher_home(found, java.cache_directory())),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": " ".join([QUICK, *classes]),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
    }
    at = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    deploy = "org.apache.spark.deploy"
    processes = []
    try:
        process, match = started(
            f"{deploy}.master.Master",
            *at,
            says=r"Starting Spark master at (spark://\S+)",
            environment=environment,
        )
        processes.append(process)
        master = match[1]
        for _ in range(2):
            process, _ = started(
                f"{deploy}.worker.Worker",
                *at,
                *("--cores", "1", "--memory", "600m", master),
                says="Successfully registered with master",
                environment=environment,
            )
            processes.append(process)
        yield Cluster(master, bare_python(folder))
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in reversed(processes):
            process.wait()
            process.stderr.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with a topic in it."""
    with ServerProcess(tmp_path_factory.mktemp("served") / "data") as process:
        with Client(process.url) as client:
            client.append(
                "source",
                [{"n": n, "pad": "x" * 50} for n in range(RECORDS)],
                chunk=500,
                create=True,
            )
        yield process


def test_our_code_travels_and_each_row_is_read_and_written_once(
    cluster: Cluster, server: ServerProcess, tmp_path: Path
) -> None:
    data = server._data_dir
    kept = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER % {"quick": QUICK}, cluster.master, str(data), server.url],
        env={**kept, "PYSPARK_PYTHON": str(cluster.python), "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )
    assert (done.returncode, done.stderr[-6000:]) == (0, "")
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["read"] == [RECORDS, RECORDS, 1, RECORDS]
    assert told["homes"] == ["logqueue.zip"]
    with Client(server.url) as client:
        written = [record.data["n"] for record in client.read("copy") if isinstance(record, Record)]
    assert sorted(written) == list(range(RECORDS))

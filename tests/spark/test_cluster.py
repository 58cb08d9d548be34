"""A real cluster of a master and two workers: our code travels, rows are counted on both sides."""

from __future__ import annotations

import json
import os
import re
import shutil
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
from tests.replica.s3_servers import BUCKET, S3Server, moto_server

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

PIPELINE = """\
import json, os, sys
from logqueue.pipeline.engines.spark.archive.job import run_archive
from logqueue.pipeline.engines.spark.audit.job import run_audit
from logqueue.pipeline.engines.spark.formats.inputs import Input
from logqueue.pipeline.engines.spark.lifecycle.job import read_table, run_lifecycle
from logqueue.pipeline.engines.spark.reports.job import run_report
from logqueue.pipeline.engines.spark.session import session
from logqueue.pipeline.errors import message_of
from logqueue.pipeline.lifecycle import tables

master, url, store = sys.argv[1:]
conf = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": "%(quick)s",
    "spark.driver.extraJavaOptions": "%(quick)s",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
}
said = {}
with session.opened(master, conf=conf) as spark:
    archive = Input(archive=f"{store}/archive")
    done = run_archive(spark, {"url": url}, f"{store}/archive", max_records=400)
    said["archived"] = {name: table["rows"] for name, table in done["tables"].items()}
    said["jobs"] = run_lifecycle(spark, archive, f"{store}/tables")["rows"]
    run_lifecycle(spark, archive, f"{store}/tables", since="last")
    rows = read_table(spark, f"{store}/tables", tables.JOBS).groupBy("state").count().collect()
    said["states"] = {row["state"]: row["count"] for row in rows}
    done = run_report(
        spark, f"{store}/tables", f"{store}/reports", names=["throughput"], formats=["csv", "html"]
    )
    said["files"] = sorted(file.removeprefix(store) for file in done["files"])
    done = run_audit(spark, archive, f"{store}/audit")
    said["findings"] = done["findings"]["error"] + done["findings"]["warning"]
    # What executors write to a disk of their own is never taken for written.
    for name, work in {
        "lifecycle": lambda: run_lifecycle(spark, archive, "tables-here"),
        "archive": lambda: run_archive(spark, {"url": url}, "archive-here"),
    }.items():
        try:
            work()
            said[name] = "no error"
        except Exception as error:
            said[name] = message_of(error)
print(json.dumps(said))
"""


@dataclass
class Cluster:
    """A running cluster.

    Attributes:
        master: Its address.
        python: What executors run: it has what they must have, and none of our code.
        hidden: A directory that workers do not see, where the system has namespaces.
        s3: An object store that all of them see.
    """

    master: str
    python: Path
    hidden: Path
    s3: S3Server


def can_hide() -> bool:
    """Whether a process may have a view of files of its own."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "-rm", "true"], stderr=subprocess.DEVNULL).returncode == 0


def started(
    *arguments: str, says: str, environment: dict[str, str], hidden: Path | None = None
) -> tuple[Any, re.Match[str]]:
    """A daemon of Spark, once its log says that it is up.

    Args:
        hidden: A directory in whose place it has another.
    """
    import pyspark

    program = [str(Path(pyspark.__file__).parent / "bin" / "spark-class")]
    if hidden is not None and can_hide():
        script = 'mount -t tmpfs none "$0" && exec "$@"'
        program = ["unshare", "-rm", "sh", "-c", script, str(hidden), *program]
    process = subprocess.Popen(
        [*program, *arguments],
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
    for name in (*packing.NEEDED, "obstore"):
        for found in (name, f"{name}.libs"):
            if (site / found).exists():
                (packages / found).symlink_to(site / found)
    program = folder / "python"
    path = f'"{packages}${{PYTHONPATH:+:$PYTHONPATH}}"'
    program.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec "{sys.executable}" -S "$@"\n')
    program.chmod(0o755)
    return program


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    """An object store."""
    pytest.importorskip("obstore")
    with moto_server() as server:
        yield server


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, s3: S3Server) -> Iterator[Cluster]:
    """A master and two workers with one core each, on loopback."""
    pytest.importorskip("pyspark")
    folder = tmp_path_factory.mktemp("cluster")
    hidden = folder / "driver"
    hidden.mkdir()
    found = java.find()
    classes = class_archive.options(found, java.cache_directory())
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        **s3.environment(),
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
                hidden=hidden,
            )
            processes.append(process)
        yield Cluster(master, bare_python(folder), hidden, s3)
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


def test_jobs_share_nothing_but_an_object_store(cluster: Cluster, server: ServerProcess) -> None:
    """Archive, tables, reports and audit on executors that see no file of the driver."""
    with Client(server.url, node="w") as client:
        client.put_topic("work", type="queue")
        client.append("work", [{"n": n} for n in range(900)])
        client.ack("work", client.claim("work", max=500).jobs)
    home = cluster.hidden / "home"
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if name[:4] != "AWS_"}
    environment = {
        **kept,
        **cluster.s3.environment(),
        "PYSPARK_PYTHON": str(cluster.python),
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(home),
    }
    store = f"s3://{BUCKET}/cluster"
    done = subprocess.run(
        [sys.executable, "-c", PIPELINE % {"quick": QUICK}, cluster.master, server.url, store],
        env=environment,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=2 * RUN_S,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    said = json.loads(done.stdout.splitlines()[-1])
    refusals = [said.pop("lifecycle"), said.pop("archive")]
    assert said == {
        "archived": {"lease_events": 1000, "records": 900 + RECORDS},
        "jobs": {"jobs": 900, "attempts": 500},
        "states": {"acked": 500, "ready": 400},
        "files": ["/reports/report.html", "/reports/report_throughput.csv"],
        "findings": 0,
    }
    if can_hide():
        assert all("share, or the URL of an object store" in text for text in refusals), refusals
        assert not list(home.glob("*-here/**/*.parquet"))


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

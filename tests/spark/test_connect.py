"""Spark Connect: a session without a `sparkContext` reads, streams and archives all the same."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from logqueue.client import Client
from logqueue.testing import ServerProcess
from tests.house import ROOT

pytestmark = pytest.mark.spark

RECORDS = 500
RUN_S = 240.0

DRIVER = """\
import json, sys
from logqueue.pipeline.engines.spark.session import session
from logqueue.pipeline.engines.spark.archive.job import read_archive, run_archive
from logqueue.pipeline.engines.spark.formats.inputs import Input

data, archive = sys.argv[1:]
with session.opened(remote="local[2]", conf=session.for_small_input({})) as spark:
    assert not hasattr(type(spark), "_jvm"), "this is not a session of Spark Connect"
    read = Input(path=data, topics=["source"]).records(spark).where("seq > 10").count()
    told = run_archive(spark, {"path": data}, archive, topics=["source"], tables=["records"])
    kept = read_archive(spark, archive, "records").count()
    print(json.dumps([read, told["tables"]["records"]["rows"], kept]))
"""


@pytest.mark.slow
def test_batches_and_streams_run_over_connect(tmp_path: Path) -> None:
    if importlib.util.find_spec("grpc") is None:
        pytest.skip("needs Spark Connect: pip install 'logqueue[spark-connect]'")
    with ServerProcess(tmp_path / "data") as server, Client(server.url) as client:
        client.append("source", [{"n": n} for n in range(RECORDS)], create=True)
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(tmp_path / "data"), str(tmp_path / "archive")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [RECORDS - 10, RECORDS, RECORDS]
    assert {path.name for path in tmp_path.iterdir()} == {
        "data",
        "data.log",
        "data.port",
        "archive",
    }

"""The transactional sink through every fault: each row is stored once, whatever is lost."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pyarrow as pa
import pytest

from logqueue.errors import EpochConflict, LogqueueError
from logqueue.pipeline.engines.spark.formats import sink
from logqueue.pipeline.engines.spark.formats.sink import (
    BatchWriter,
    LogqueueStreamWriter,
    PartWritten,
)
from logqueue.pipeline.engines.spark.formats.sink_bodies import Sum
from logqueue.pipeline.errors import PipelineError, message_of
from logqueue.pipeline.writing.sink_options import read_options
from logqueue.testing.process import ServerProcess
from tests.client.proxy import Proxy
from tests.effort import scaled
from tests.spark.sinking import Target, files, numbers, texts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS = scaled(1, 2)
"""Each is a Spark that starts anew."""
PAUSE_S = 0.05


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    yield from Target.opened(tmp_path_factory.mktemp("server"))


@pytest.fixture
def proxied(target: Target) -> Iterator[tuple[Target, Proxy]]:
    """The same server behind a proxy that can be set to lose replies."""
    with Proxy(target.address) as proxy:
        behind = Target(target.server)
        behind.url = proxy.url
        yield behind, proxy


def counted(target: Target, topic: str) -> list[int]:
    """The numbers a topic holds, sorted."""
    return sorted(value["n"] for value in target.values(topic))


# -- without Spark: what executors and the driver say ---------------------------------------------

FITS = {"topic": "fits", "producer": "fits", "patienceSeconds": "0"}


def part(values: list[str], attempt: str = "a", chunks: int = 1) -> PartWritten:
    """What a task says that has staged these values."""
    crc = sum(crc32(value.encode()) for value in values)
    sums = {"fits": Sum(len(values), 1, crc)} if values else {}
    return PartWritten(0, attempt, chunks, len(values), sums)


def test_commits_that_do_not_fit(target: Target) -> None:
    """A repeat stores nothing; older epochs, gaps, other content and lost chunks are refused."""
    writer = LogqueueStreamWriter(
        read_options(FITS | {"url": target.url}, is_stream=True), {"data": 0}
    )

    def commit(epoch: int, values: list[str]) -> None:
        with target.client() as client, suppress(EpochConflict):
            client.stage("fits", epoch, "fits", values, attempt="a")
        writer.commit([part(values)], epoch)

    for epoch in (0, 1, 1):
        commit(epoch, [f"{epoch}", "x"])
    with pytest.raises(PipelineError, match="has committed epoch 1 already, and this is epoch 0"):
        commit(0, ["0", "x"])
    with pytest.raises(PipelineError, match=r"leaves a gap.*another epoch is due"):
        commit(3, ["3"])
    with pytest.raises(PipelineError, match="with other content; it was committed with other rows"):
        commit(1, ["y", "x"])
    with pytest.raises(PipelineError, match=r"is not staged.*waited over an hour"):
        writer.commit([part(["2"], "gone")], 2)
    with pytest.raises(PipelineError, match="a task gave no answer"):
        writer.commit([None], 2)
    writer.abort([], 1)
    writer.commit([part([], chunks=0)], 2)
    writer.commit([], 3)
    assert target.values("fits") == ["0", "x", "1", "x"]


def test_no_server(target: Target) -> None:
    with Proxy(target.address) as proxy:
        options = {**FITS, "url": proxy.url}
    writer = LogqueueStreamWriter(read_options(options, is_stream=True), {"data": 0})
    with pytest.raises(PipelineError, match="is option url right, and does the server run"):
        writer.commit([], 0)


def test_patience_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that has no room is asked again for as long as was said, then that is reported."""
    place = sink.EpochPlace("w:spark", 1, 4, "a")
    monkeypatch.setattr(sink.EpochPlace, "here", lambda producer, epoch: place)
    with ServerProcess(tmp_path / "data", MAX_TOTAL_BYTES="2000") as server:
        options = {"url": server.url, "topic": "t", "writeId": "w", "patienceSeconds": "2"}
        writer = BatchWriter(read_options(options, is_stream=False), {"data": 0})
        rows = pa.record_batch({"data": ["1", json.dumps("x" * 2000)]})
        with pytest.raises(PipelineError) as refusal:
            writer.write(iter([rows]))
    assert refusal.value.message.startswith(
        "partition 4, chunk 0 (rows from 0 on, 2 of topic t) was not written: the server may hold"
    )
    assert refusal.value.message.endswith("until option patienceSeconds ran out")


# -- with Spark -----------------------------------------------------------------------------------


@pytest.mark.spark
def test_tasks_that_fail_and_replies_that_are_lost(
    spark: SparkSession, proxied: tuple[Target, Proxy]
) -> None:
    """In one write behind a shuffle: a task dies half-way, a stage and the commit go unanswered."""
    target, proxy = proxied

    def dies_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            yield batch.slice(0, 100)
            if context.attemptNumber() == 0 and context.partitionId() == 1:
                raise RuntimeError("half-way")
            yield batch.slice(100)

    rows = numbers(spark, 1000, 4).repartition(3, "data").mapInArrow(dies_once, "data STRING")
    epoch = "/v0/producers/faults:spark/epochs/1"
    for verb in ("stage", "stage", "commit"):
        proxy.lose_reply(f"{epoch}/{verb}")
    target.write(rows, "faults", writeId="faults", chunkRecords=50)
    assert counted(target, "faults") == [*range(1000)]
    assert proxy.seen.count(f"POST {epoch}/commit") == 2
    with target.client() as client:
        assert client.producer("faults:spark").staged.epochs == []


@pytest.mark.spark
def test_a_write_that_is_run_again(spark: SparkSession, target: Target) -> None:
    """Divided otherwise it is the same write; with other rows it is refused."""
    for partitions in (1, 3):
        target.write(numbers(spark, 50, partitions), "again", writeId="again")
    other = numbers(spark, 50).selectExpr("replace(data, '7', '8') AS data")
    with pytest.raises(Exception, match="PipelineError") as refusal:
        target.write(other, "again", writeId="again")
    assert "with other content; it was committed with other rows" in message_of(refusal.value)
    target.write(numbers(spark, 0), "again", writeId="empty")
    target.write(numbers(spark, 2), "again", writeId="again", epoch=2)
    assert len(target.values("again")) == 52


@pytest.mark.spark
def test_a_stream_through_lost_answers(
    spark: SparkSession, proxied: tuple[Target, Proxy], tmp_path: Path, checkpoint: str
) -> None:
    """A commit whose answer was lost; another parallelism after the restart; a lost checkpoint."""
    target, proxy = proxied
    source = tmp_path / "source"
    files(source, 0, 2)

    def run(partitions: int, **options: Any) -> None:
        rows = texts(spark, source).repartition(partitions)
        target.stream(rows, "stream", checkpoint, producer="etl", **options)

    proxy.lose_reply("/v0/producers/etl/epochs/1/commit")
    with pytest.raises(Exception, match="PipelineError") as refusal:
        run(1, patienceSeconds=0)
    assert "the commit was not written" in message_of(refusal.value)
    assert counted(target, "stream") == [*range(40)], "the commit was applied all the same"
    files(source, 2, 1)
    run(3)
    assert counted(target, "stream") == [*range(60)]
    with pytest.raises(Exception, match="PipelineError") as refusal:
        target.stream(texts(spark, source), "stream", checkpoint + "-lost", producer="etl")
    assert "the checkpoint was lost or is an older one" in message_of(refusal.value)
    assert counted(target, "stream") == [*range(60)]


# -- a driver that is killed ----------------------------------------------------------------------

DRIVER = """
import sys
from pathlib import Path
from logqueue.pipeline.engines.spark.session import session
from tests.spark.conftest import SETTINGS
from tests.spark.sinking import FORMAT, texts

source, url, checkpoint = sys.argv[1:]
spark = session.open_session("local[2,4]", conf=SETTINGS, app_name="killed")
rows = texts(spark, Path(source)).repartition(2)
options = {"url": url, "topic": "killed", "producer": "killed", "checkpointLocation": checkpoint}
query = rows.writeStream.format(FORMAT).options(**options).trigger(availableNow=True).start()
query.awaitTermination()
"""


@pytest.mark.spark
@pytest.mark.slow
def test_a_driver_that_is_killed(target: Target, tmp_path: Path) -> None:
    """SIGKILL before a commit, after one, and in between; the last run ends by itself."""
    source = tmp_path / "source"
    files(source, 0, 12)
    command = [sys.executable, "-c", DRIVER, str(source), "", str(tmp_path / "checkpoint")]
    chance = random.Random(7)
    with Proxy(target.address) as proxy:
        command[4] = proxy.url
        for kill in range(KILLS + 1):
            with (tmp_path / "output").open("ab") as output:
                driver = subprocess.Popen(
                    command, stdout=output, stderr=output, start_new_session=True
                )
            try:
                if kill < KILLS:
                    _await_commits(target, driver, kill * 4 + chance.randrange(1, 4))
                    os.killpg(driver.pid, signal.SIGKILL)
                status = driver.wait()
            finally:
                if driver.poll() is None:
                    os.killpg(driver.pid, signal.SIGKILL)
                    driver.wait()
            assert kill < KILLS or status == 0, (tmp_path / "output").read_text()[-3000:]
    assert counted(target, "killed") == [*range(240)]
    with target.client() as client:
        assert client.producer("killed").last_epoch == 11


def _await_commits(target: Target, driver: subprocess.Popen[bytes], count: int) -> None:
    """Wait until the producer has come so far."""
    with target.client() as client:
        while driver.poll() is None:
            last = None
            with suppress(LogqueueError):
                last = client.producer("killed").last_epoch
            if last is not None and last >= count:
                return
            with suppress(subprocess.TimeoutExpired):
                driver.wait(PAUSE_S)

"""One Spark session for all tests, or a reason why there is none."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from logqueue.pipeline.engines.spark.session import session
from logqueue.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.python.daemon.module": "tests.spark.preloaded",
    "spark.driver.memory": "1g",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""For tables of a few rows: compiling and planning are what costs."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores in which a failed task is tried again, up to four times in all."""
    folder = tmp_path_factory.mktemp("spark")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pyspark's own, about what it imports
        try:
            opened = session.open_session("local[2,4]", conf=SETTINGS, app_name="logqueue-tests")
        except PipelineError as error:
            if os.environ.get("LOGQUEUE_REQUIRE_SPARK") == "1":
                pytest.fail(f"LOGQUEUE_REQUIRE_SPARK=1, but: {error}")
            pytest.skip(str(error))
    opened.conf.set("spark.sql.streaming.checkpointLocation", str(folder / "checkpoints"))
    yield opened
    session.close_session(opened)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """An empty directory for a stream's checkpoint."""
    return str(tmp_path / "checkpoint")

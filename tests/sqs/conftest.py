"""Fixtures: a server in memory, and a real one with a client of Amazon's own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.http.process import ServerProcess
from tests.sqs.memory import SqsMemory

_numbers = itertools.count(1)


@pytest.fixture
def memory() -> Iterator[SqsMemory]:
    """A server in memory."""
    server = SqsMemory()
    yield server
    server.close()


@pytest.fixture(scope="package")
def sqs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One real server for all tests that do not need their own; without keys."""
    directory = tmp_path_factory.mktemp("sqs") / "data"
    process = ServerProcess(directory, flags=["--sqs"]).start()
    yield process
    process.stop()


@pytest.fixture(scope="package")
def sqs(sqs_server: ServerProcess) -> Any:
    """A client of boto3."""
    return boto3_client(sqs_server)


def boto3_client(
    server: ServerProcess, access_key_id: str = "any", secret: str = "any", **options: Any
) -> Any:
    """A client of boto3 with credentials."""
    boto3 = pytest.importorskip("boto3")
    config = pytest.importorskip("botocore.config").Config(
        retries={"total_max_attempts": 1}, **options
    )
    return boto3.client(
        "sqs",
        endpoint_url=f"http://{server.host}:{server.port}/sqs",
        region_name="eu-central-1",
        aws_access_key_id=access_key_id,
        aws_secret_access_key=secret,
        config=config,
    )


@pytest.fixture
def name() -> str:
    """A name for a queue that no other test uses."""
    return f"queue-{next(_numbers)}"

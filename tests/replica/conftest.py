"""What tests of replicas share: an S3 server."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.replica.s3_servers import S3Server, moto_server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """An S3 server with a bucket `replicas`: the one that the environment names, or moto."""
    named = os.environ.get("LOGQUEUE_TEST_S3")
    if named:
        yield S3Server(named)
        return
    with moto_server() as server:
        server.make_bucket("replicas")
        yield server

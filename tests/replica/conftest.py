"""What tests of replicas share: an S3 server."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.replica.s3_servers import GATEWAY, S3Server, gateway_server, moto_server


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server with a bucket `replicas`: a real one in `make test-s3`, else moto."""
    if os.environ.get(GATEWAY):
        with gateway_server(tmp_path_factory.mktemp("s3")) as gateway:
            yield gateway.s3
    else:
        with moto_server() as server:
            yield server

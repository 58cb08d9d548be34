"""pytest fixtures: a server in memory, and the real one.

Owns: `logqueue_memory` and `logqueue_server`. Must not know: apps. Nothing is imported before a
test asks for it, since pytest loads this everywhere the package is installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from logqueue.testing.memory import MemoryServer
    from logqueue.testing.process import ServerProcess


@pytest.fixture
def logqueue_memory() -> Iterator[MemoryServer]:
    """An empty server in memory, under virtual time."""
    from logqueue.testing import MemoryServer

    with MemoryServer() as server:
        yield server


@pytest.fixture
def logqueue_server(tmp_path: Path) -> Iterator[ServerProcess]:
    """The real server, on a free port, with a data directory of this test's own."""
    from logqueue.testing import ServerProcess

    with ServerProcess(tmp_path / "logqueue-data") as server:
        yield server

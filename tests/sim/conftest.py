"""The simulation has small records: their data leaves memory all the same, and no page stays."""

from __future__ import annotations

import pytest

from logqueue.events import split_block
from logqueue.server.storage import payload_store


@pytest.fixture(autouse=True)
def small_data_leaves_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly every record of a sealed segment is read from its file."""
    monkeypatch.setattr(split_block, "SPLIT_FROM_BYTES", 4)
    monkeypatch.setattr(payload_store, "PAGE_BYTES", 16)
    monkeypatch.setattr(payload_store, "CACHE_BYTES_MAX", 1000)
    monkeypatch.setattr(payload_store, "OPEN_FILES_MAX", 2)

"""Shapes of health and readiness. See the package."""

from __future__ import annotations

import msgspec


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The process is up."""

    status: str
    version: str
    uptime_ms: int


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """The log is replayed and takes writes."""

    status: str
    wal_replay_complete: bool
    topics: int

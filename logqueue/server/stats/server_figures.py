"""The server's own line of the live feed.

Owns: its members. Must not know: topics one by one, frames.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from logqueue.model.clock import Clock
from logqueue.server.engine.engine import Engine
from logqueue.server.health import health_of
from logqueue.server.metrics import Metrics
from logqueue.server.process_memory import resident_bytes
from logqueue.server.recent import quantile
from logqueue.server.service import Service
from logqueue.server.stats.history import StatsHistory, in_parts
from logqueue.shapes import HealthFinding
from logqueue.version import __version__

SUMMED_PER_STEP = 1000
DISK_STEP_BYTES, MEMORY_STEP_BYTES = 16 << 20, 1 << 20
"""Free space and memory are shown in such steps, so that a server at rest has nothing to say."""


class LiveRecords:
    """How many records all topics have, kept up to date while the feed has viewers.

    Attributes:
        total: As of the last look.
    """

    def __init__(self) -> None:
        self.total = 0
        self._live: dict[int, int] = {}

    async def begin(self, engine: Engine) -> None:
        """Add up all topics, in steps."""
        self.total, self._live = 0, {}
        for some in in_parts([*engine.state.instances], SUMMED_PER_STEP):
            self.look(engine, some)
            await asyncio.sleep(0)

    def look(self, engine: Engine, numbers: Iterable[int]) -> None:
        """Look again at some topic instances."""
        instances = engine.state.instances
        for number in numbers:
            topic = instances.get(number)
            live = topic.live if topic is not None else 0
            self.total += live - self._live.get(number, 0)
            if live:
                self._live[number] = live
            else:
                self._live.pop(number, None)


class ServerFigures:
    """Looks at the server.

    Attributes:
        started_at: When this process began to serve, ms since the epoch.
    """

    def __init__(self, service: Service, metrics: Metrics, clock: Clock) -> None:
        self._service = service
        self._metrics = metrics
        self.started_at = clock.now_ms() - service.uptime_ms

    def now(self, history: StatsHistory, records: int) -> dict[str, Any]:
        """Members as of `shapes.StatsServer`, but for those of health.

        Args:
            history: Has the rates.
            records: Live records of all topics.
        """
        service = self._service
        engine = service.engine
        state = engine.state if engine is not None else None
        appended, claimed, acked = history.server_rates()
        return {
            "version": __version__,
            "started_at": self.started_at,
            "phase": service.phase.value,
            "role": self._role(),
            "connections": len(service.connections),
            "topics": len(state.instances) if state is not None else 0,
            "records": records,
            "bytes": state.live_bytes if state is not None else 0,
            "memory_bytes": _memory_bytes(),
            "disk_free_bytes": self._disk_free(),
            "append_per_s": appended,
            "claim_per_s": claimed,
            "ack_per_s": acked,
            "sync_p99_ms": self._sync_p99_ms(),
            "replica": self._replica(),
        }

    def findings(self) -> list[HealthFinding]:
        """What the health report of the server says."""
        return health_of(self._service, self._metrics).findings

    def _sync_p99_ms(self) -> float | None:
        """The time that 99 % of the last syncs did not exceed; None when there were none."""
        syncs = self._metrics.recent_syncs.in_order()
        return round(quantile(syncs, 0.99) * 1000, 2) if syncs else None

    def _role(self) -> str:
        service = self._service
        if service.lifecycle.following is not None:
            return "standby"
        if service.replication is not None:
            return "writer"
        return "standby" if service.settings.standby else "none"

    def _replica(self) -> dict[str, Any] | None:
        following, replication = self._service.lifecycle.following, self._service.replication
        if following is not None:
            status = following.status()
            return {"state": status.get("state"), "lag_ms": following.behind_ms}
        if replication is not None:
            return {"state": replication.state(), "lag_ms": replication.writer.lag_ms}
        return None

    def _disk_free(self) -> int | None:
        disk = self._metrics.disk()
        return disk.free - disk.free % DISK_STEP_BYTES if disk is not None else None


def _memory_bytes() -> int | None:
    """The resident memory of the process; None where the system does not say."""
    resident = resident_bytes()
    return None if resident is None else resident - resident % MEMORY_STEP_BYTES

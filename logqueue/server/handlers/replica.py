"""Handlers of the replica of the log."""

from __future__ import annotations

from logqueue.api import replies
from logqueue.server.http.requests import HttpRequest, Reply
from logqueue.server.http.routing import serves
from logqueue.server.service import Service
from logqueue.server.storage.replication import Replication


class ReplicaRoutes:
    """What operators ask about the replica."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @serves("replica")
    def status(self, request: HttpRequest) -> Reply:
        """`GET /v0/replica`: who writes, and how far the replica is behind."""
        replication = self._service.replication
        status = {"role": "none"} if replication is None else _status_of_writer(replication)
        return Reply(replies.encode(status))


def _status_of_writer(replication: Replication) -> dict[str, object]:
    writer, stats = replication.writer, replication.stats
    known = {"id": writer.writer.id, "address": writer.writer.address}
    if replication.fenced_by is not None:
        known = {"id": "", "address": replication.fenced_by}
    status: dict[str, object] = {
        "role": "writer",
        "mode": replication.mode,
        "state": replication.state(),
        "url": replication.store_url,
        "log_id": replication.log_id,
        "epoch": writer.epoch,
        "writer": known,
        "lag_ms": writer.lag_ms,
        "lag_bytes": writer.waiting_bytes,
        "lag_frames": replication.frames_behind,
        "last_chunk": writer.end.number,
        "chunks_behind": writer.chunks_behind,
        "failures": stats.put_failures,
    }
    if stats.last_error:
        status |= {"last_error": stats.last_error, "last_error_at": stats.last_error_at}
    return status

"""Operations of the replica of the log."""

from __future__ import annotations

from logqueue import shapes
from logqueue.api.operations.row import Operation
from logqueue.model.scopes import Scope

REPLICA = "/v0/replica"

OPERATIONS = (
    Operation(
        name="replica",
        method="GET",
        pattern=REPLICA,
        scope=Scope.READ,
        group="replica",
        summary="Get the state of the replica",
        text="Answered in every phase. `role` is `none` on a server without a replica.",
        reply=shapes.ReplicaStatus,
        example={
            "role": "writer",
            "mode": "sync",
            "state": "current",
            "url": "s3://backups/logqueue",
            "log_id": "0f8d2a9c5b7e41d3a6c4e2f190b3d587",
            "epoch": 3,
            "writer": {"id": "9b2f6c0de1a84f57", "address": "http://a.example:4000"},
            "lag_ms": 0,
            "lag_bytes": 0,
            "lag_frames": 0,
            "last_chunk": 1204,
            "chunks_behind": 17,
            "failures": 0,
        },
        serving=False,
    ),
)

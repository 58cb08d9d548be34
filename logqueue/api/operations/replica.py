"""Operations of the replica of the log."""

from __future__ import annotations

from logqueue import shapes
from logqueue.api.bodies import replica as replica_bodies
from logqueue.api.operations.row import Body, Operation
from logqueue.errors import NotFound, NotReady, NotWriter, ReplicaUnavailable, ShuttingDown
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
        text="Answered in every phase. `role` is `none` on a server without a replica, and until "
        "the server has recovered.",
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
    Operation(
        name="promote",
        method="POST",
        pattern=REPLICA + "/promote",
        scope=Scope.ADMIN,
        body_policy=Body.OPTIONAL,
        group="replica",
        summary="Make a standby the writer",
        text="Asks the writer to hand over, reads all that it has committed, takes over, starts as "
        "any server does, and then replies; the writer itself replies 200 at once. The key is sent "
        "to the writer, too. 503 `not_writer` if the writer does not hand over, or another server "
        "was faster. With `force` the writer is not asked: what it has not committed to the "
        "replica is lost. Other calls get 503 `not_ready` meanwhile.",
        body=replica_bodies.PromoteBody,
        asks={"force": True},
        reply=shapes.ReplicaTakeover,
        example={"role": "writer", "epoch": 4, "performance": {"server_total_ms": 812.5}},
        errors=(NotFound, NotWriter),
        serving=False,
    ),
    Operation(
        name="hand_over",
        method="POST",
        pattern=REPLICA + "/hand_over",
        scope=Scope.ADMIN,
        group="replica",
        summary="Hand over to a standby",
        text="The writer refuses further calls, commits everything to the replica, replies, and "
        "exits with status 0. Nothing is lost, not even in `async` mode. `promote` on a standby "
        "calls it.",
        reply=shapes.ReplicaHandOver,
        example={"handed_over": True, "epoch": 3, "performance": {"server_total_ms": 64.1}},
        errors=(NotFound, NotReady, NotWriter, ReplicaUnavailable, ShuttingDown),
        serving=False,
    ),
)

"""Operations of the server as a whole."""

from __future__ import annotations

from logqueue import shapes
from logqueue.api.bodies import server as server_bodies
from logqueue.api.operations.row import Body, Kind, Operation
from logqueue.errors import Throttled
from logqueue.model.scopes import Scope
from logqueue.version import __version__

SERVER = "/v0/server"

_EXAMPLE = {
    "version": __version__,
    "python": "3.13.5",
    "phase": "ready",
    "role": "none",
    "started_at": 1795211100000,
    "uptime_ms": 86_400_000,
    "health": {
        "state": "attention",
        "text": "Little disk space is left: 3,072 MiB free.",
        "findings": [
            {
                "severity": "warn",
                "code": "disk_low",
                "text": "Little disk space is left: 3,072 MiB free.",
                "advice": "Free space on the disk of the data directory, or make it larger.",
            }
        ],
    },
    "topics": 3,
    "routers": 0,
    "records": 1204,
    "record_bytes": 96_320,
    "durability": [
        {
            "durability": "fsync",
            "topics": 3,
            "reply_waits_for": "the sync to the disk",
            "survives": "kill -9 and power loss",
        }
    ],
    "sync": {"count": 9120, "recent": 1024, "p50_ms": 0.41, "p99_ms": 1.9, "max_ms": 12.0},
    "logs": [
        {
            "log": "jobs",
            "bytes": 70_254_592,
            "segments": 2,
            "oldest": 4,
            "newest": 5,
            "active_bytes": 3_145_728,
            "segment_max_bytes": 67_108_864,
            "recent": [67_108_864, 3_145_728],
            "waiting_frames": 0,
            "failure": None,
        }
    ],
    "disk": {
        "total_bytes": 107_374_182_400,
        "free_bytes": 3_221_225_472,
        "logs_bytes": 70_254_592,
        "heads_bytes": 0,
        "reserve_bytes": 1_048_576,
        "refused": 0,
        "read_only": False,
    },
    "memory": {
        "resident_bytes": 83_886_080,
        "parts": [{"part": "program", "bytes": 62_914_560, "text": "the program itself"}],
    },
    "checkpoints": {
        "last_at": 1795211102551,
        "last_segment": 5,
        "in_progress": False,
        "next_in_bytes": 63_963_136,
        "live_bytes": 125_216,
        "compacts_above_bytes": 8_639_040,
    },
    "archive": None,
    "replica": None,
    "connections": {
        "open": 12,
        "streams": 2,
        "claims_waiting": 1,
        "replies_waiting": 0,
        "not_reading": 0,
        "dropped": 0,
    },
    "limits": [{"name": "max_topics", "text": "number of topics", "used": 3, "max": 100_000}],
    "slow_requests": [
        {
            "at": 1795211102551,
            "method": "POST",
            "route": "/v0/topics/*/purge",
            "name": "transcode",
            "status": 200,
            "took_ms": 412.5,
        }
    ],
    "slow_from_ms": 10.0,
    "log_level": {"level": "info", "configured": "info", "until": None},
    "settings": [
        {"name": "LOGQUEUE_DATA_DIR", "value": "/var/lib/logqueue", "default": "logqueue-data"}
    ],
    "backup": None,
    "performance": {"server_total_ms": 0.42},
}

OPERATIONS = (
    Operation(
        name="server",
        method="GET",
        pattern=SERVER,
        scope=Scope.READ,
        access="read, without prefixes",
        group="operations",
        summary="Get the state of the server",
        doc="state-of-the-server",
        text="Health in words with what to do, durability, sync times, logs, disk, memory, "
        "checkpoints, archive, replica, connections, limits, slow requests, log level and changed "
        "settings. Holds no secrets. Answered in every phase. The key must not be limited to "
        "prefixes.",
        reply=shapes.ServerState,
        example=_EXAMPLE,
        serving=False,
    ),
    Operation(
        name="backup",
        method="GET",
        pattern="/v0/backup",
        scope=Scope.READ,
        kind=Kind.DOWNLOAD,
        access="read, without prefixes",
        group="logs",
        summary="Download a backup",
        doc="backup",
        text="A tar archive of both logs, consistent as of one moment, while the server runs. One "
        "at a time. What is shorter than its `content-length` is broken. `logqueue restore` "
        "makes a data directory of it. The key must not be limited to prefixes.",
        content={
            "application/x-tar": {
                "schema": {"type": "string", "contentMediaType": "application/x-tar"}
            }
        },
        errors=(Throttled,),
    ),
    Operation(
        name="put_log_level",
        method="PUT",
        pattern=SERVER + "/log_level",
        scope=Scope.ADMIN,
        access="admin, without prefixes",
        body_policy=Body.REQUIRED,
        body=server_bodies.LogLevelBody,
        asks={"level": "debug", "for_ms": 600_000},
        group="operations",
        summary="Change the log level",
        doc="log-level",
        text="Of this process, until it ends, or for `for_ms`. `debug` logs every request. "
        "Answered in every phase, by a standby too. The key must not be limited to prefixes.",
        reply=shapes.LogLevelChanged,
        example={
            "level": "debug",
            "configured": "info",
            "until": 1795211702551,
            "performance": {"server_total_ms": 0.08},
        },
        serving=False,
    ),
)

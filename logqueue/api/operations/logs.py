"""Operations of the logs themselves: their segments."""

from __future__ import annotations

from logqueue import shapes
from logqueue.api.operations.row import (
    PAGING,
    TEXT,
    Kind,
    Operation,
    Parameter,
)
from logqueue.errors import (
    RangeNotSatisfiable,
    SegmentNotFound,
    StorageReadOnly,
)
from logqueue.model.scopes import Scope

SEGMENTS = "/v0/log/segments"

_LOG_ID = "0f8d2a9c5b7e41d3a6c4e2f190b3d587"

OPERATIONS = (
    Operation(
        name="list_segments",
        method="GET",
        pattern=SEGMENTS,
        scope=Scope.READ,
        access="read, without prefixes",
        group="logs",
        summary="List the segments of a log",
        doc="segments-of-the-logs",
        text="Sealed, archived and active segments, oldest first. The log is synced before the "
        "reply. The key must not be limited to prefixes.",
        query=(
            Parameter(
                "log",
                {"enum": ["jobs", "leases"], "default": "jobs"},
                "`jobs`: records and the ends of jobs. `leases`: the history of leases.",
            ),
            Parameter(
                "topic",
                TEXT,
                "Names, comma separated: tell only of these, and leave out segments that have "
                "nothing to do with them.",
            ),
            Parameter(
                "since",
                {"type": "integer", "minimum": 0, "maximum": 10**19 - 1},
                "Only segments with this number or a higher one.",
            ),
            *PAGING[1:],
        ),
        reply=shapes.SegmentPage,
        example={
            "log": "jobs",
            "log_id": _LOG_ID,
            "order": 4,
            "segments": [
                {
                    "id": "jobs-1",
                    "sealed": False,
                    "archived": False,
                    "version": 1,
                    "log": "jobs",
                    "log_id": _LOG_ID,
                    "identity": _LOG_ID,
                    "segment": 1,
                    "first_frame": 1,
                    "last_frame": 2,
                    "bytes": 4352,
                    "crc32": 2930457817,
                    "first_order": 1,
                    "last_order": 2,
                    "first_at": 1795211102551,
                    "last_at": 1795211102560,
                    "topics": [
                        {
                            "topic": 1,
                            "name": "transcode",
                            "log_id": f"{_LOG_ID}-1",
                            "ranges": [[1, 2]],
                            "rows": 2,
                            "bytes": 58,
                            "first_ts": 1795211102560,
                            "last_ts": 1795211102560,
                        }
                    ],
                    "learned": [
                        {
                            "topic": 1,
                            "name": "transcode",
                            "is_queue": True,
                            "cap_floor": 0,
                            "ttl_floor": 0,
                        }
                    ],
                    "routers": [],
                    "borrowed": [],
                    "staged": [],
                }
            ],
            "performance": {"server_total_ms": 2.31},
        },
        errors=(StorageReadOnly,),
    ),
    Operation(
        name="get_segment",
        method="GET",
        pattern=SEGMENTS + "/*",
        scope=Scope.READ,
        kind=Kind.DOWNLOAD,
        access="read, without prefixes",
        group="logs",
        summary="Get the bytes of a segment",
        doc="bytes-of-a-segment",
        text="The format is described in docs/wal-format.md; of a growing segment, only the "
        "durable part. Supports `Range` (a single range) and, for sealed segments, `If-Range` "
        "with the `ETag`. The key must not be limited to prefixes.",
        content={
            "application/octet-stream": {
                "schema": {"type": "string", "contentMediaType": "application/octet-stream"}
            }
        },
        statuses=(200, 206),
        errors=(SegmentNotFound, RangeNotSatisfiable, StorageReadOnly),
    ),
)

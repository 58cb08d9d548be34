"""Operations of batches of jobs."""

from __future__ import annotations

from typing import Any

from logqueue import shapes
from logqueue.api.bodies import job_batches as batch_bodies
from logqueue.api.operations.row import PAGING, U32, Body, Operation, Parameter
from logqueue.core import commands as cmd
from logqueue.errors import (
    BatchExists,
    BatchNotEmpty,
    BatchNotFound,
    NotAQueue,
    RecordTooLarge,
    Throttled,
)
from logqueue.model.scopes import Scope

BATCHES = "/v0/batches"
BATCH = "/v0/batches/*"

ENTRY: dict[str, Any] = {
    "batch": "import-17",
    "state": "open",
    "joined": 3,
    "done": 1,
    "failed": 0,
    "left": 2,
    "created_at": 1_795_211_132_582,
    "closed_at": None,
    "ended_at": None,
    "last_error": None,
}
CALLBACK = {"topic": "transcode", "record": {"data": {"report": 17}}}
SHOWN: dict[str, Any] = {**ENTRY, "on_done": CALLBACK, "on_problem": None}
TIMED = {"performance": {"server_total_ms": 0.31}}

OPERATIONS = (
    Operation(
        name="list_batches",
        method="GET",
        pattern=BATCHES,
        scope=Scope.READ,
        group="batches",
        summary="List batches",
        doc="batches",
        text="In pages, in ascending order of names.",
        query=PAGING,
        reply=shapes.BatchPage,
        example={"batches": [ENTRY], **TIMED},
    ),
    Operation(
        name="open_batch",
        method="POST",
        pattern=BATCHES,
        scope=Scope.WRITE,
        body_policy=Body.REQUIRED,
        command=cmd.OpenBatch,
        group="batches",
        summary="Open a batch",
        doc="batches",
        text="Jobs join it by `batch` in their records. The same again changes nothing.",
        body=batch_bodies.OpenBatchBody,
        asks={"name": "import-17", "on_done": CALLBACK},
        reply=shapes.BatchState,
        example={**SHOWN, "joined": 0, "done": 0, "left": 0, "created": True, **TIMED},
        statuses=(200, 201),
        errors=(RecordTooLarge, BatchExists, NotAQueue, Throttled),
    ),
    Operation(
        name="get_batch",
        method="GET",
        pattern=BATCH,
        scope=Scope.READ,
        group="batches",
        summary="Get a batch, or wait for its end",
        doc="batches",
        query=(
            Parameter(
                "wait_ms",
                {**U32, "default": 0},
                "How long to wait until the batch has ended, clamped to 30 000.",
            ),
        ),
        reply=shapes.BatchState,
        example={**SHOWN, **TIMED},
        errors=(BatchNotFound,),
    ),
    Operation(
        name="close_batch",
        method="POST",
        pattern=BATCH + "/close",
        scope=Scope.WRITE,
        command=cmd.CloseBatch,
        group="batches",
        summary="Close a batch",
        doc="batches",
        text="It ends when its last job has ended; at once, if there is none.",
        reply=shapes.BatchState,
        example={**SHOWN, "state": "closed", "closed_at": 1_795_211_139_066, **TIMED},
        errors=(BatchNotFound,),
    ),
    Operation(
        name="delete_batch",
        method="DELETE",
        pattern=BATCH,
        scope=Scope.DELETE,
        command=cmd.DropBatch,
        group="batches",
        summary="Delete a batch",
        doc="batches",
        text="Only one without jobs. If the batch does not exist, `deleted` is false.",
        reply=shapes.BatchDropped,
        example={"batch": "import-17", "deleted": True, **TIMED},
        errors=(BatchNotEmpty,),
    ),
)

"""The body of a change of the log level.

Must not know: loggers, routes, sockets.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from logqueue.api.bodies.reader import BodyReader

FOR_MS_MAX = 7 * 24 * 3_600_000


class LogLevelBody(msgspec.Struct):
    """`PUT /v0/server/log_level`."""

    level: Literal["debug", "info", "warning", "error"]
    for_ms: Annotated[int, msgspec.Meta(ge=1, le=FOR_MS_MAX)] | None = None


read_log_level_body = BodyReader(LogLevelBody).read

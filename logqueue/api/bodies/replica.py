"""The body of a change of the writer.

Must not know: how a server takes over, routes, sockets.
"""

from __future__ import annotations

import msgspec

from logqueue.api.bodies.reader import BodyReader


class PromoteBody(msgspec.Struct):
    """`POST /v0/replica/promote`."""

    force: bool = False


read_promote_body = BodyReader(PromoteBody).read

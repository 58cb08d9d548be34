"""One way to write, for requests and for WebSocket messages.

Owns: which key may write what, the order of checks, the timings of a write. Must not know: how the
write came, how its reply looks.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from logqueue.api.bodies import records as record_bodies
from logqueue.core import commands as cmd
from logqueue.errors import Forbidden
from logqueue.model.scopes import Scope
from logqueue.server.auth import Key
from logqueue.server.engine.dispatcher import Dispatcher
from logqueue.server.http.requests import PendingReply, Reply

Timings = dict[str, float]


def submit_append(
    coordinator: Dispatcher,
    key: Key | None,
    topic: str,
    body: record_bodies.AppendBody | record_bodies.JobsBody,
    header_key: str | None,
    timings: Callable[[], Timings],
    encode: Callable[[cmd.AppendResult, Timings], Reply],
) -> PendingReply:
    """Check and execute a write.

    Args:
        coordinator: Executes it.
        key: Who writes; may write to this topic.
        topic: Its name.
        body: Decoded.
        header_key: The idempotency key when the body has none.
        timings: The part of the performance block that every reply has.
        encode: Makes the reply.

    Raises:
        LogqueueError: Refused; nothing was changed.
    """
    topics = coordinator.engine.state.topics
    if body.config is not None and topic not in topics:
        if key is not None and not key.has(Scope.ADMIN):
            raise Forbidden(
                "creating a topic with a config needs a key with the admin scope", {"topic": topic}
            )
        require_targets_allowed(key, body.config.dead_letter, body.config.archive)
    command = record_bodies.append_command(topic, body, header_key)
    began = time.perf_counter()

    def finish(reply: cmd.Reply, waited_ms: float) -> Reply:
        assert isinstance(reply, cmd.AppendResult)
        spent = timings()
        if not reply.deduped:
            written = topics.get(topic)
            synced = written is not None and written.config.durable
            spent["wal_append_ms"] = appended_ms
            spent["fsync_ms"] = waited_ms if synced else 0.0
        return encode(reply, spent)

    held = coordinator.submit(command, finish)
    appended_ms = (time.perf_counter() - began) * 1000
    return held


def require_targets_allowed(key: Key | None, *targets: object) -> None:
    """A key must not reach a topic outside its prefixes by way of dead letters or an archive.

    Args:
        key: Who asks.
        targets: Topic names; what is not text is passed over, others will refuse it.

    Raises:
        Forbidden: It would.
    """
    for target in targets:
        if key is not None and isinstance(target, str) and not key.allows(target):
            raise Forbidden(
                "this key may not name a dead-letter or archive topic outside its prefixes",
                {"topic": target},
            )

"""What requests and WebSocket messages that write have in common.

Owns: which key may write with what config, the timings of a write. Must not know: how the write
came, how its reply looks.
"""

from __future__ import annotations

from logqueue.api.replies import further_timings
from logqueue.core import commands as cmd
from logqueue.errors import Forbidden
from logqueue.events.follow import names_in
from logqueue.events.split_block import Block
from logqueue.model.config import TopicOptions
from logqueue.model.scopes import Scope
from logqueue.server.auth import Key
from logqueue.server.engine.dispatcher import Dispatcher
from logqueue.server.engine.engine import Engine
from logqueue.server.engine.pending import Spent


def require_config_allowed(
    dispatcher: Dispatcher, key: Key | None, topic: str, config: TopicOptions
) -> None:
    """Check a write that brings a config for the topic that it may create.

    Args:
        dispatcher: Knows which topics there are.
        key: Who writes; may write to this topic.
        topic: Its name.
        config: What the topic is created with, if it is not there.

    Raises:
        Forbidden: The key may not create it so.
    """
    if _is_there(dispatcher, topic):
        return
    if key is not None and not key.has(Scope.ADMIN):
        raise Forbidden(
            "creating a topic with a config needs a key with the admin scope", {"topic": topic}
        )
    require_targets_allowed(key, config.dead_letter, config.archive)


def require_follow_allowed(key: Key | None, block: Block) -> None:
    """A key must not reach a topic or batch outside its prefixes by way of what follows a job.

    Args:
        key: Who writes.
        block: The jobs.

    Raises:
        Forbidden: It would.
    """
    if key is None or not key.prefixes:
        return
    for name in sorted(names_in(block)):
        if not key.allows(name):
            raise Forbidden(
                "this key may not name topics or batches outside its prefixes in `then` and "
                "`batch`",
                {"topic": name},
            )


def _is_there(dispatcher: Dispatcher, topic: str) -> bool:
    """Whether there is such a topic, once all that was submitted before is decided."""
    topics = dispatcher.engine.state.topics
    if topic not in topics:
        dispatcher.turn.run()
    return topic in topics


def append_timings(engine: Engine, topic: str, result: cmd.AppendResult, spent: Spent) -> bytes:
    """What the performance block of a write says of where its time went."""
    if result.deduped:
        return b""
    if spent.shown is None:
        written = engine.state.topics.get(topic)
        was_held = written is not None and written.config.durable
        held = spent.held_timings(was_held=was_held)
        spent.shown = further_timings(wal_append_ms=spent.executed_ms, **held)
    return spent.shown


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

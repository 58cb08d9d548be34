"""The bodies of configuring a topic: all of its config, or a merge patch of it.

Must not know: how a command is decided, how replies look, routes, sockets.
"""

from __future__ import annotations

from typing import Any

import msgspec

from logqueue.api.bodies.reader import BodyReader, decode, note_unknown
from logqueue.api.bodies.unknown_members import Ignore
from logqueue.core import commands as cmd
from logqueue.model.config import TopicOptions

read_config_body = BodyReader(TopicOptions).read
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_patch = msgspec.json.Decoder(dict[str, Any])


def ensure_command(topic: str, body: bytes, ignore: Ignore | None = None) -> cmd.EnsureTopic:
    """The command of a config body that only creates.

    Raises:
        InvalidRequest: It is not a config.
    """
    config: TopicOptions = read_config_body(body, ignore)
    sent = decode(_members, body)
    return cmd.EnsureTopic(topic, config.resolved(), frozenset(sent))


def patch_command(
    topic: str, body: bytes, ignore: Ignore | None = None, if_version: str | None = None
) -> cmd.PatchTopic:
    """The command of a merge patch; its fields' types are checked once they are merged.

    Raises:
        InvalidRequest: It is not JSON object.
    """
    changes: dict[str, Any] = decode(_patch, body)
    if ignore is not None:
        note_unknown(TopicOptions, body, ignore)
    return cmd.PatchTopic(topic, changes, if_version)

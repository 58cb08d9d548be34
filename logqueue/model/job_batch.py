"""What a batch of jobs does at its end.

Owns: its callbacks, and the grammar of its name. Must not know: which jobs it has, the clock.
"""

from __future__ import annotations

import msgspec

from logqueue.errors import InvalidRequest, quoted
from logqueue.model import limits
from logqueue.model.config import is_topic_name


class BatchCallback(msgspec.Struct, frozen=True, array_like=True):
    """A record that is written when a batch ends.

    Attributes:
        topic: Name of the topic it is written to.
        record: The record as it was sent, a JSON object without blanks.
        block: The same as a block of one record.
    """

    topic: str
    record: bytes
    block: bytes


def require_batch_name(name: str) -> None:
    """Refuse a name no batch can have; the grammar is that of topics.

    Raises:
        InvalidRequest: The name breaks the grammar.
    """
    if not is_topic_name(name):
        raise InvalidRequest(
            f"invalid batch name {quoted(name[:80])}: use 1 to {limits.NAME_BYTES_MAX} of "
            "A-Z a-z 0-9 . _ : - starting with a letter or digit"
        )

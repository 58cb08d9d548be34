"""What a schedule is set up to do.

Owns: its options, and the arithmetic of `every_ms` and jitter. Must not know: cron texts, zones,
the clock, what a schedule has done.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Literal

import msgspec

from logqueue.errors import InvalidRequest, quoted
from logqueue.model import limits
from logqueue.model.config import is_topic_name

CatchUp = Literal["none", "one", "all"]
FiringResult = Literal["created", "replaced", "kept", "rejected"]


class ScheduleOptions(msgspec.Struct, frozen=True, array_like=True):
    """What a schedule writes, and when. One of `cron` and `every_ms` is in use.

    Attributes:
        topic: Name of the topic it writes to.
        record: The record as it was sent, a JSON object without blanks.
        block: The same as a block of one record.
        cron: Five fields, as `cron.require_cron` gives them; "" without.
        every_ms: Time between two firings, 0 without.
        timezone: Of which `cron` speaks.
        jitter_ms: Up to how long after its time a firing comes.
        catch_up: What becomes of firings that were missed.
        on_conflict: What a keyed record does about a job with its key; "" for a record without.
    """

    topic: str
    record: bytes
    block: bytes
    cron: str = ""
    every_ms: int = 0
    timezone: str = "UTC"
    jitter_ms: int = 0
    catch_up: CatchUp = "one"
    on_conflict: Literal["", "replace", "keep", "reject"] = ""

    @property
    def times(self) -> tuple[str, int, str]:
        """What its times follow from."""
        return self.cron, self.every_ms, self.timezone

    def jitter(self, name: str, scheduled_for: int) -> int:
        """How long after its time a firing comes, in ms: the same whenever it is computed."""
        if not self.jitter_ms:
            return 0
        drawn = blake2b(f"{name} {scheduled_for}".encode(), digest_size=8).digest()
        return int.from_bytes(drawn, "big") % (self.jitter_ms + 1)


def require_schedule_name(name: str) -> None:
    """Refuse a name no schedule can have; the grammar is that of topics.

    Raises:
        InvalidRequest: The name breaks the grammar.
    """
    if not is_topic_name(name):
        raise InvalidRequest(
            f"invalid schedule name {quoted(name[:80])}: use 1 to {limits.NAME_BYTES_MAX} of "
            "A-Z a-z 0-9 . _ : - starting with a letter or digit"
        )

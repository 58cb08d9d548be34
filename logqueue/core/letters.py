"""Dead letters as they are grouped and selected: where from, why, and with what kind of error.

Owns: what the meta of a dead letter says, the pattern of an error, and the filter of those who move
or drop some. Changes nothing. Must not know: commands, how a dead letter is made.

Errors that differ in numbers and identifiers only have one *pattern*: each number is `*` there, and
so is each identifier with four digits or more, or of eight hexadecimal digits or more. Codes stay:
numbers from 100 to 599, and numbers behind capitals. `no user 81234` and `no user 7` are both
`no user *`; `status 502` and `ORA-00942` stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from logqueue.core.topic import Topic
from logqueue.events.block import META, TAG, BlockView
from logqueue.model.tag_predicate import Predicate

PATTERN_CHARS_MAX = 300
"""Characters of an error that its pattern is made of."""

_VARYING = re.compile(
    r"\b(?:(?P<code>[A-Z]{1,6}-?[0-9]{1,6}|[1-5][0-9][0-9])|[0-9]+|0x[0-9a-fA-F]+"
    r"|(?=[0-9a-fA-F-]*[0-9])[0-9a-fA-F]{8,}(?:-[0-9a-fA-F]+)*"
    r"|(?=(?:[A-Za-z_]*[0-9]){4})[A-Za-z_0-9]+)\b",
    re.ASCII,
)


class LetterMeta(msgspec.Struct, frozen=True):
    """What the meta of a dead letter says of the job it was."""

    origin: str | None = msgspec.field(name="$dead_letter_from", default=None)
    reason: str | None = msgspec.field(name="$dead_letter_reason", default=None)
    error: str | None = msgspec.field(name="$dead_letter_error", default=None)
    src_seq: str | None = msgspec.field(name="$dead_letter_src_seq", default=None)
    deliveries: str | None = msgspec.field(name="$dead_letter_deliveries", default=None)


_metas = msgspec.json.Decoder(LetterMeta)
_NOT_A_LETTER = LetterMeta()


def letter_meta(meta: bytes) -> LetterMeta:
    """What a meta says; nothing when it is not that of a dead letter."""
    if b'"$dead_letter_from"' not in meta:
        return _NOT_A_LETTER
    try:
        return _metas.decode(meta)
    except msgspec.ValidationError:
        return _NOT_A_LETTER


def error_pattern(error: str) -> str:
    """An error with `*` for what differs between errors of one kind; cut where it is long."""
    return _VARYING.sub(_kept_or_starred, error[:PATTERN_CHARS_MAX])


def _kept_or_starred(found: re.Match[str]) -> str:
    return found["code"] or "*"


class LetterFilter(NamedTuple):
    """Which dead letters a call means; all that are given must match.

    Attributes:
        before_seq: Only those below it.
        reason: Only those with this reason.
        origin: Only those from this queue.
        error: Only those with this error, or this pattern; "" for those without an error.
        letters_only: Only records that are dead letters.
    """

    match: Predicate | None = None
    before_seq: int | None = None
    reason: str | None = None
    origin: str | None = None
    error: str | None = None
    letters_only: bool = False

    @property
    def reads_meta(self) -> bool:
        """Whether it asks for what the meta says."""
        asked = (self.reason, self.origin, self.error)
        return self.letters_only or any(value is not None for value in asked)

    def matches(self, meta: bytes) -> bool:
        """Whether a record with this meta is among them."""
        letter = letter_meta(meta)
        if letter.origin is None and (self.letters_only or self.origin is not None):
            return False
        if self.origin is not None and letter.origin != self.origin:
            return False
        if self.reason is not None and letter.reason != self.reason:
            return False
        if self.error is None:
            return True
        error = letter.error or ""
        return error == self.error or error_pattern(error) == self.error

    def selected(self, topic: Topic, seqs: Sequence[int]) -> list[int]:
        """Those of some seqs, ascending, that are live and match. Reads no data."""
        found: list[int] = []
        for batch, start, end in topic.batches.runs(seqs):
            view = BlockView(batch.block)
            for index in range(start, end):
                seq = batch.seq_at(index)
                if self.before_seq is not None and seq >= self.before_seq:
                    return found
                if self.match is not None and not self.match.matches_fragment(
                    view.text(TAG, index)
                ):
                    continue
                if not self.reads_meta or self.matches(view.text(META, index)):
                    found.append(seq)
        return found

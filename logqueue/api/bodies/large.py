"""Large JSON bodies of records, taken apart in small steps.

Owns: where the records of a body begin and end, found without decoding more than one record at a
time, and reading them some at a time. Must not know: what a record may say, HTTP.

Decoding 64 MiB at once would hold every other client up for as long as half a second, whatever the
server then makes of it.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

import msgspec

from logqueue.api.bodies.feeds import Message, Publish, read_message
from logqueue.api.bodies.producers import (
    PlainStageBody,
    StageBody,
    read_stage_body,
    require_no_keys,
)
from logqueue.api.bodies.reader import decode, not_json, without_blanks
from logqueue.api.bodies.records import (
    AppendBody,
    JobBody,
    JobsBody,
    PackedRecords,
    RecordBody,
    StrictJobBody,
    packing,
    read_append_body,
)
from logqueue.api.bodies.unknown_members import Ignore, unknown_members
from logqueue.errors import BatchTooLarge, InvalidRequest, RecordTooLarge
from logqueue.json_problems import text_problem
from logqueue.model.limits import RECORDS_PER_WRITE_MAX

LARGE_BYTES: Final = 1 << 20
"""Bodies up to this are decoded at once."""
RECORD_TEXT_BYTES_MAX: Final = 2 << 20
"""The longest record, with its blanks."""
MEMBERS_BYTES_MAX: Final = 1 << 20
"""What the other members of a body may take together."""
_GROUP_BYTES: Final = 256 << 10
_STEP_BYTES: Final = 128 << 10
_STEP_VALUES: Final = 200

_BLANKS: Final = re.compile(rb"[ \t\n\r]*")
# The decoder finds the end of a value without making anything of it, and tells of what follows.
_skip: Final = msgspec.json.Decoder(msgspec.Raw)
_PLACE: Final = re.compile(r"`\[(\d+)\]")
_TRAILING: Final = re.compile(r"trailing characters \(byte ([0-9]+)\)")
_string: Final = msgspec.json.Decoder(str)

Steps = Generator[None, None, None]
B = TypeVar("B", AppendBody, PlainStageBody)


class _Records(msgspec.Struct):
    """A group of records, for comparing them with their type."""

    records: list[JobBody]


_plain: Final = msgspec.json.Decoder(list[RecordBody])
_strict: Final = msgspec.json.Decoder(list[StrictJobBody])
_jobs: Final = msgspec.json.Decoder(list[JobBody])


def read_append(body: bytes, ignore: Ignore) -> Generator[None, None, AppendBody]:
    """Read a write: see `records.read_append_body`."""
    return (yield from _read(body, ignore, read_append_body, AppendBody, JobsBody))


def read_packed_append(body: bytes, ignore: Ignore) -> Generator[None, None, AppendBody]:
    """The same, with its records packed."""
    read = yield from read_append(body, ignore)
    read.records = yield from packing(read.records, read.node, are_jobs=read.are_jobs)
    return read


def read_stage(body: bytes, ignore: Ignore) -> Generator[None, None, PlainStageBody]:
    """Read a chunk: see `producers.read_stage_body`."""
    return (yield from _read(body, ignore, read_stage_body, PlainStageBody, StageBody))


def read_packed_stage(body: bytes, ignore: Ignore) -> Generator[None, None, PlainStageBody]:
    """The same, with its records packed."""
    read = yield from read_stage(body, ignore)
    try:
        require_no_keys(read)
    except InvalidRequest as refusal:
        read.records = PackedRecords(len(read.records), refusal)
        return read
    yield
    read.records = yield from packing(read.records, read.node, are_jobs=isinstance(read, StageBody))
    return read


def read_socket_message(text: bytes, ignore: Ignore) -> Generator[None, None, Message]:
    """Read a message of a WebSocket: see `feeds.read_message`."""
    names: list[str] = []
    outer, groups = yield from split(text)
    message = read_message(outer, names.extend)
    if isinstance(message, Publish):
        records, _ = yield from _read_records(groups, names, can_be_plain=False)
        message.records = records
    if names:
        ignore(names)
    return message


def read_packed_message(text: bytes, ignore: Ignore) -> Generator[None, None, Message]:
    """The same, with the records of a write packed."""
    message = yield from read_socket_message(text, ignore)
    if isinstance(message, Publish):
        message.records = yield from packing(message.records, message.node, are_jobs=True)
    return message


def _read(
    body: bytes,
    ignore: Ignore,
    read_shell: Callable[[bytes, Ignore], B],
    plain: type[B],
    whole: type[B],
) -> Generator[None, None, B]:
    """Read a body with records: what is around them at once, and them some at a time."""
    names: list[str] = []
    outer, groups = yield from split(body)
    shell = read_shell(outer, names.extend)
    records, is_plain = yield from _read_records(groups, names)
    if names:
        ignore(names)
    members = {name: getattr(shell, name) for name in plain.__struct_fields__}
    return (plain if is_plain else whole)(**{**members, "records": records})


def _read_records(
    groups: list[bytes], names: list[str], *, can_be_plain: bool = True
) -> Generator[None, None, tuple[list[Any], bool]]:
    """Decode groups of records.

    Returns:
        The records, and whether they are plain ones; else all of them are `JobBody`.
    """
    records: list[Any] = []
    if can_be_plain:
        try:
            for group in groups:
                records += _plain.decode(group)
                yield
            return records, True
        except (msgspec.DecodeError, RecursionError):
            records = []
    is_examined = False
    for group in groups:
        try:
            records += _strict.decode(group)
        except (msgspec.DecodeError, RecursionError):
            records += _decode_group(group, len(records))
            if not is_examined:
                names += unknown_members(_Records, b'{"records":%b}' % group)
                is_examined = True
        yield
    return records, False


def _decode_group(group: bytes, start: int) -> list[JobBody]:
    """Records from a place on; a refusal names the place in the whole body."""
    try:
        return decode(_jobs, group)
    except InvalidRequest as refusal:
        named = _PLACE.sub(lambda at: f"`records[{start + int(at[1])}]", refusal.message, count=1)
        raise InvalidRequest(named) from None


class _Cursor:
    """A place in a body.

    Attributes:
        at: Bytes of the body before this place.
    """

    def __init__(self, body: bytes) -> None:
        self.at = 0
        self._body = body
        self._view = memoryview(body)
        self._moved = 0

    @property
    def is_due(self) -> bool:
        """Whether enough was done for one step; asking begins the next."""
        if self.at - self._moved < _STEP_BYTES:
            return False
        self._moved = self.at
        return True

    def skip(self) -> Steps:
        """Pass over blanks."""
        while True:
            stop = min(self.at + _STEP_BYTES, len(self._body))
            found = _BLANKS.match(self._body, self.at, stop)
            assert found is not None
            self.at = found.end()
            if self.at < stop or self.at == len(self._body):
                return
            yield

    def peek(self) -> bytes:
        """The character here; b"" at the end."""
        return self._body[self.at : self.at + 1]

    def take(self, expected: bytes) -> None:
        """Pass over one character.

        Raises:
            InvalidRequest: It is another one.
        """
        if self.peek() != expected:
            raise self._malformed()
        self.at += 1

    def value(self) -> bytes:
        """The text of the value here, perhaps with blanks behind it.

        Raises:
            InvalidRequest: There is none.
            RecordTooLarge: It is longer than any may be.
        """
        window = self._view[self.at : self.at + RECORD_TEXT_BYTES_MAX]
        try:
            _skip.decode(window)
            size = len(window)
        except msgspec.DecodeError as error:
            size = self._size(error, window)
        except RecursionError:
            raise InvalidRequest("the body is nested too deeply") from None
        text = bytes(window[:size])
        self.at += size
        return text

    def _size(self, error: msgspec.DecodeError, window: memoryview) -> int:
        """How long the value is behind which the decoder found something else."""
        problem = str(error)
        found = _TRAILING.search(problem)
        if found is not None:
            return int(found[1]) - 1
        if len(window) == RECORD_TEXT_BYTES_MAX and "truncated" in problem:
            raise RecordTooLarge(
                f"the value at byte {self.at} has over {RECORD_TEXT_BYTES_MAX} bytes of text; "
                "send less in one record"
            )
        problem = text_problem(error, bytes(window), self.at)
        raise InvalidRequest(f"the body is not valid JSON: {problem}")

    def _malformed(self) -> InvalidRequest:
        return InvalidRequest(
            f"the body is not valid JSON: it is malformed at or behind byte {self.at}"
        )


def split(body: bytes) -> Generator[None, None, tuple[bytes, list[bytes]]]:
    """Take a body apart.

    Args:
        body: A JSON object with an array `records`.

    Returns:
        The object with no records, and its records in groups: JSON arrays without blanks.

    Raises:
        InvalidRequest: Not UTF-8, not JSON, or not such an object.
        BatchTooLarge: More records than a write may have.
        RecordTooLarge: One of them is longer than any may be.
    """
    yield from _require_utf8(body)
    cursor = _Cursor(body)
    members: list[bytes] = []
    size = 0
    groups: list[bytes] | None = None
    yield from cursor.skip()
    cursor.take(b"{")
    while True:
        yield from cursor.skip()
        if cursor.peek() == b"}" and not members:
            break
        text = cursor.value()
        name = _name_of(text)
        yield from cursor.skip()
        cursor.take(b":")
        yield from cursor.skip()
        if name == "records" and cursor.peek() == b"[":
            if groups is not None:
                raise InvalidRequest("the body has more than one `records`")
            groups = yield from _groups(cursor)
            value = b"[]"
        else:
            value = cursor.value()
        members.append(text + b":" + value)
        size += len(members[-1])
        if size > MEMBERS_BYTES_MAX:
            raise InvalidRequest(f"the members beside `records` are over {MEMBERS_BYTES_MAX} bytes")
        yield from cursor.skip()
        if cursor.peek() != b",":
            break
        cursor.take(b",")
        if cursor.is_due or not len(members) % _STEP_VALUES:
            yield
    cursor.take(b"}")
    yield from cursor.skip()
    if cursor.peek():
        raise InvalidRequest(f"the body does not end with its document, at byte {cursor.at}")
    return b"{" + b",".join(members) + b"}", groups or []


def _name_of(text: bytes) -> str:
    try:
        return _string.decode(text)
    except msgspec.DecodeError as error:
        raise not_json(error, text) from None


def _groups(cursor: _Cursor) -> Generator[None, None, list[bytes]]:
    """The elements of an array, some together."""
    groups: list[bytes] = []
    pending: list[bytes] = []
    size = count = 0
    cursor.take(b"[")
    yield from cursor.skip()
    if cursor.peek() == b"]":
        cursor.take(b"]")
        return groups
    while True:
        text = cursor.value()
        count += 1
        if count > RECORDS_PER_WRITE_MAX:
            raise BatchTooLarge(
                f"over {RECORDS_PER_WRITE_MAX} records in one write; send at most "
                f"{RECORDS_PER_WRITE_MAX}"
            )
        pending.append(text)
        size += len(text)
        if size >= _GROUP_BYTES:
            groups.append(_joined(pending))
            size = 0
        yield from cursor.skip()
        if cursor.peek() != b",":
            break
        cursor.take(b",")
        yield from cursor.skip()
        if cursor.is_due or not count % _STEP_VALUES:
            yield
    cursor.take(b"]")
    if pending:
        groups.append(_joined(pending))
    return groups


def _joined(texts: list[bytes]) -> bytes:
    """An array of these, which are given away."""
    group = b"[" + b",".join(texts) + b"]"
    texts.clear()
    try:
        return without_blanks(group)
    except msgspec.DecodeError as error:
        raise not_json(error, group) from None
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None


def _require_utf8(body: bytes) -> Steps:
    if body.isascii():
        return
    decode = codecs.getincrementaldecoder("utf-8")().decode
    try:
        for at in range(0, len(body), _STEP_BYTES * 4):
            decode(body[at : at + _STEP_BYTES * 4])
            yield
        decode(b"", True)
    except UnicodeDecodeError:
        raise InvalidRequest("the body is not valid UTF-8") from None

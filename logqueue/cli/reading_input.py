"""Lines of input as records: JSON lines, CSV, plain text, whole records.

Owns: what a line means, and which line is at fault. Must not know: where the lines come from, where
the records go.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msgspec import MsgspecError

    from logqueue.client import NewRecord

MORE = (
    "node", "meta", "not_before", "max_deliveries", "key", "on_conflict", "unique", "on_duplicate",
)  # fmt: skip
"""What a whole record can say, beside its data and what flags say as well."""
FLAGS = {
    "tag": "tag",
    "delay": "delay_ms",
    "ttl": "ttl_ms",
    "priority": "priority",
    "group": "group",
    "batch": "batch",
    "then": "then",
}
"""What flags say of all records, by their names."""


class BadLine(Exception):
    """A line is not a record.

    Attributes:
        line: Its number, from 1.
    """

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


class Counted:
    """Lines that are counted as they are taken.

    Attributes:
        line: Number of the last line taken.
        bytes_read: How much was taken so far.
    """

    def __init__(self, lines: Iterable[bytes]) -> None:
        self.line = 0
        self.bytes_read = 0
        self._lines = lines

    def __iter__(self) -> Iterator[bytes]:
        for taken in self._lines:
            self.line += 1
            self.bytes_read += len(taken)
            yield taken

    def texts(self) -> Iterator[str]:
        """The lines as text.

        Raises:
            BadLine: One is not UTF-8.
        """
        for taken in self:
            try:
                # A byte order mark is not part of what is said.
                yield taken.decode("utf-8-sig" if self.line == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise BadLine(self.line, f"not UTF-8 ({error.reason})") from error


def records(lines: Counted, kind: str, arguments: argparse.Namespace) -> Iterator[NewRecord]:
    """The records that the input means.

    Args:
        kind: jsonl, csv or text.
        arguments: Those of `logqueue append`: `FLAGS`, and records.

    Raises:
        BadLine: A line is not a record.
    """
    from logqueue.client import NewRecord

    common = {member: getattr(arguments, flag) for flag, member in FLAGS.items()}
    if arguments.records and kind == "jsonl":
        return _whole(lines, common)
    if arguments.records:
        raise BadLine(1, "--records are JSON lines; leave --format out")
    data = {"jsonl": _json, "csv": _csv, "text": _text}[kind](lines)
    return (NewRecord(one, **common) for one in data)


def _json(lines: Counted) -> Iterator[Any]:
    import msgspec

    # Raw JSON is sent unchanged, so that numbers keep their digits; decoding it checks that it is
    # one value and no more.
    decode = msgspec.json.Decoder(msgspec.Raw).decode
    for text in lines.texts():
        if not text.isspace():
            try:
                yield decode(text)
            except msgspec.DecodeError as error:
                raise BadLine(lines.line, f"invalid JSON: {_problem(error, text)}") from error


def _text(lines: Counted) -> Iterator[str]:
    return (text.rstrip("\r\n") for text in lines.texts())


def _csv(lines: Counted) -> Iterator[dict[str, str]]:
    rows = csv.reader(lines.texts(), strict=True)
    try:
        names = next(rows, None)
        if names is None:
            return
        if len(set(names)) < len(names):
            raise BadLine(1, "two columns have the same name")
        for row in rows:
            if row:
                if len(row) != len(names):
                    raise BadLine(
                        lines.line, f"{len(row)} cells, but the first line has {len(names)}"
                    )
                yield dict(zip(names, row, strict=True))
    except csv.Error as error:
        raise BadLine(lines.line, f"invalid CSV ({error})") from error


def _whole(lines: Counted, common: dict[str, Any]) -> Iterator[NewRecord]:
    """Records as `logqueue read --json` prints them, or as a producer writes them."""
    import msgspec

    from logqueue.client import NewRecord

    known = ("data", *MORE, *common)
    decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
    for text in lines.texts():
        if text.isspace():
            continue
        try:
            given = decode(text)
            if "data" not in given:
                raise BadLine(lines.line, 'invalid record: "data" is missing')
            for name in given:
                # What `read --json` prints beside these begins with a dollar sign.
                if name not in known and not name.startswith("$"):
                    raise BadLine(lines.line, f"unknown field '{name}': use {', '.join(known)}")
            more = {
                name: msgspec.json.decode(given.get(name, given.get(f"${name}", b"null")))
                for name in (*MORE, *common)
            }
            wins = {name: value for name, value in common.items() if value is not None}
            checked = msgspec.convert({"data": None, **more, **wins}, NewRecord)
            yield msgspec.structs.replace(checked, data=given["data"])
        except msgspec.MsgspecError as error:
            raise BadLine(lines.line, f"invalid record: {_problem(error, text)}") from error


def _problem(error: MsgspecError, text: str) -> str:
    import msgspec

    from logqueue.client import NewRecord
    from logqueue.json_problems import text_problem, type_problem

    if isinstance(error, msgspec.ValidationError):
        return type_problem(error, NewRecord, "a record")
    if isinstance(error, msgspec.DecodeError):
        return text_problem(error, text.encode())
    return str(error)

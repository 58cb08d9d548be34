"""`python -m wal dump DIR` and `python -m wal verify DIR`: look at a log without touching it.

Owns the two commands and their output. Takes no lock and changes nothing; on a log that is being
written to, the tail may look torn.

Exit status: 0 good, 1 damaged, 2 usage.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from typing import Final, TextIO

from wal.errors import WalCorrupt
from wal.files import OsFileSystem
from wal.format import HEADER_BYTES, Walk, frame_bytes, salt_of
from wal.log import FRAME_BYTES_MAX, LOCK_NAME
from wal.recovery import RecoveryOutcome, SegmentFinding, ran_on, survey
from wal.segment import read_whole

GOOD: Final = 0
DAMAGED: Final = 1
USAGE: Final = 2
_TEXT_BYTES: Final = 60


def main(arguments: list[str] | None = None, out: TextIO | None = None) -> int:
    """Run a command; returns the exit status."""
    out = out or sys.stdout
    options = _parser().parse_args(arguments)
    findings = _examine(options.directory)
    if not isinstance(findings, list):
        print(f"wal: {findings}", file=sys.stderr)
        return USAGE if isinstance(findings, str) else DAMAGED
    try:
        if options.command == "dump":
            _dump(findings, out, as_json=options.json, with_payload=options.payload)
            out.flush()
    except BrokenPipeError:
        # The reader of the pipe has gone. Python must not try to flush the rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return GOOD
    return _verify(findings, out, as_json=options.json, quiet=options.command == "dump")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m wal", description="Inspect a write-ahead log. Nothing is changed."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    dump = commands.add_parser("dump", help="a line for every frame")
    dump.add_argument("--payload", action="store_true", help="show the payloads")
    verify = commands.add_parser("verify", help="check every byte; exit status 1 on damage")
    for command in (dump, verify):
        command.add_argument("directory", metavar="DIR", help="the directory of the log")
        command.add_argument("--json", action="store_true", help="one JSON object per line")
    return parser


def _examine(directory: str) -> list[SegmentFinding] | str | WalCorrupt:
    """The findings, or why there are none: no log, or one of which not even the note is whole."""
    fs = OsFileSystem()
    if not os.path.isdir(directory):
        return f"{directory} is not a directory"
    try:
        # The same facts as the next open would have, so that the two agree.
        findings = list(
            survey(fs, directory, same_boot=_same_boot(directory), frame_bytes_max=FRAME_BYTES_MAX)
        )
    except OSError as error:
        return f"{error.filename or directory}: {error.strerror}"
    except WalCorrupt as error:
        return error
    if not findings and not os.path.exists(os.path.join(directory, LOCK_NAME)):
        return f"{directory} holds no log: there is no segment file (*.wal) in it"
    return findings


def _same_boot(directory: str) -> bool:
    boot = OsFileSystem().boot_id()
    try:
        with open(os.path.join(directory, LOCK_NAME), encoding="ascii", errors="replace") as file:
            return ran_on(file.read().strip(), boot)
    except OSError:
        return False


def _frames(finding: SegmentFinding) -> Iterator[tuple[int, int, bytes]]:
    """Number, offset and payload of the good frames of a segment."""
    if finding.header is None or finding.lost:
        return
    data = read_whole(OsFileSystem(), finding.path)
    header = finding.header
    salt = salt_of(header.identity, header.id)
    offset = HEADER_BYTES
    for frame in Walk(data, salt, header.first, header.id, FRAME_BYTES_MAX):
        yield frame.number, offset, frame.payload
        offset += frame_bytes(len(frame.payload))


def _dump(
    findings: list[SegmentFinding], out: TextIO, *, as_json: bool, with_payload: bool
) -> None:
    if not as_json:
        print(f"{'frame':>12} {'segment':>8} {'offset':>10} {'bytes':>10}", file=out)
    for finding in findings:
        for number, offset, payload in _frames(finding):
            if as_json:
                row: dict[str, object] = {
                    "frame": number,
                    "segment": finding.id,
                    "offset": offset,
                    "bytes": len(payload),
                }
                if with_payload:
                    row["payload"] = payload.decode("utf-8", "backslashreplace")
                print(json.dumps(row), file=out)
            else:
                shown = f"  {_shown(payload)}" if with_payload else ""
                line = f"{number:>12} {finding.id:>8} {offset:>10} {len(payload):>10}{shown}"
                print(line, file=out)


def _shown(payload: bytes) -> str:
    text = payload[:_TEXT_BYTES].decode("utf-8", "backslashreplace")
    printable = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return printable + ("..." if len(payload) > _TEXT_BYTES else "")


def _verify(findings: list[SegmentFinding], out: TextIO, *, as_json: bool, quiet: bool) -> int:
    """Report each segment; on `quiet` only damage, and that to the error stream."""
    status = GOOD
    for finding in findings:
        damaged = finding.outcome is RecoveryOutcome.REFUSE
        if damaged:
            status = DAMAGED
        if quiet:
            if damaged:
                print(f"wal: {finding.error()}", file=sys.stderr)
        elif as_json:
            print(json.dumps(_report(finding)), file=out)
        else:
            print(_line(finding), file=out)
    if not quiet and not as_json:
        frames = sum(map(_frame_count, findings))
        verdict = "DAMAGED" if status == DAMAGED else "good"
        print(f"{verdict}: {frames} frames in {len(findings)} segments", file=out)
    return status


def _frame_count(finding: SegmentFinding) -> int:
    return finding.last - finding.header.first + 1 if finding.header else 0


def _report(finding: SegmentFinding) -> dict[str, object]:
    header = finding.header
    return {
        "file": finding.path,
        "segment": finding.id,
        "first": header.first if header else None,
        "frames": _frame_count(finding),
        "bytes": finding.offset,
        "file_bytes": finding.size,
        "outcome": finding.outcome.value,
        "case": finding.row.label,
        "offset": None if finding.outcome is RecoveryOutcome.KEEP else finding.offset,
        "reason": finding.row.reason,
        "detail": finding.detail,
    }


def _line(finding: SegmentFinding) -> str:
    frames = _frame_count(finding)
    match finding.outcome:
        case RecoveryOutcome.KEEP:
            return f"{finding.path}: good, {frames} frames, {finding.offset} bytes"
        case RecoveryOutcome.DISCARD:
            return f"{finding.path}: unused, the next open will remove it: {finding.row.reason}"
        case RecoveryOutcome.CUT:
            return (
                f"{finding.path}: {frames} good frames, then a torn tail at byte {finding.offset} "
                f"that the next open will cut: {finding.detail}"
            )
        case RecoveryOutcome.REFUSE:
            return str(finding.error())


if __name__ == "__main__":
    sys.exit(main())

"""`logqueue append`, `read`, `tail`.

Owns: what a line of input means, and how records are shown. Must not know: how a call is made.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from logqueue.cli import exits, output, reading_input
from logqueue.cli.arguments import Commands, duration_ms, natural, positive
from logqueue.cli.connection import connect
from logqueue.cli.exits import CommandError, NothingThere, UsageError
from logqueue.cli.reading_input import BadLine, Counted
from logqueue.cli.results import print_results
from logqueue.cli.terminal import Bar
from logqueue.errors import TopicNotFound

if TYPE_CHECKING:
    from logqueue.client import Client, NextStep
    from logqueue.shapes import Appended, Record, Tombstone

CHUNK_DEFAULT = 1000
TAIL_DEFAULT = 10
REFRESH_S = 0.1


def add_to(commands: Commands) -> None:
    """Declare the commands."""
    _add_append(commands)
    read = commands.add_calling(
        "read",
        _read,
        "print the records of a topic, without removing any",
        examples=(
            "logqueue read events",
            "logqueue read events --after 1000 --limit 50 --json",
            "logqueue read events --data > events.jsonl",
        ),
    )
    read.add_argument("topic")
    read.add_argument(
        "--after", type=natural, default=0, metavar="SEQ", help="only records after this seq"
    )
    read.add_argument("--limit", "-n", type=positive, metavar="N", help="maximum number")
    read.add_argument("--data", action="store_true", help="print only the payloads, as JSON lines")
    tail = commands.add_calling(
        "tail",
        _tail,
        "print the last records of a topic; -f follows new ones",
        examples=("logqueue tail events", "logqueue tail -f -n 0 events --data | jq ."),
    )
    tail.add_argument("topic")
    tail.add_argument("-f", "--follow", action="store_true", help="follow until Ctrl-C")
    tail.add_argument(
        "-n", "--limit", type=natural, default=TAIL_DEFAULT, help="how many (default: 10)"
    )
    tail.add_argument("--data", action="store_true", help="print only the payloads, as JSON lines")


def _add_append(commands: Commands) -> None:
    append = commands.add_calling(
        "append",
        _append,
        "write records from a file, a pipe or the command line",
        more="Each line is one record. The topic must exist, unless --create is given.",
        examples=(
            "logqueue append events events.jsonl --create",
            "logqueue append orders orders.csv --tag import",
            "find . -name '*.png' | logqueue append thumbnails - --format text",
            """logqueue append thumbnails --data '{"src": "cat.png"}' --delay 5m""",
            "logqueue read events --json | logqueue append copies - --records --create",
        ),
    )
    append.add_argument("topic")
    append.add_argument("file", nargs="?", metavar="FILE", help="- for stdin")
    append.add_argument(
        "--data", action="append", metavar="JSON", help="a record, in place of FILE; repeatable"
    )
    append.add_argument(
        "--format",
        choices=("auto", "jsonl", "csv", "text"),
        default="auto",
        help="JSON lines, CSV with a head line, or plain lines; by the file's name if not given",
    )
    append.add_argument(
        "--records",
        action="store_true",
        help="lines are whole records: data, and perhaps tag, node, meta, key, delay_ms, ...",
    )
    append.add_argument("--tag", help="the tag of all records")
    append.add_argument(
        "--delay",
        type=duration_ms,
        metavar="TIME",
        help="earliest time at which the job can be claimed",
    )
    append.add_argument("--ttl", type=duration_ms, metavar="TIME", help="how long the records live")
    append.add_argument(
        "--priority", type=natural, metavar="N", help="queues: 0 to 9; a higher one goes first"
    )
    append.add_argument("--group", help="queues: whose jobs they are, where the queue has groups")
    append.add_argument("--batch", help="queues: the batch that the jobs are in")
    append.add_argument(
        "--then",
        type=_steps,
        metavar="JSON",
        help='queues: what follows each job: [{"topic": ..., "record": {"data": ...}}, ...]',
    )
    append.add_argument(
        "--create", action="store_true", help="create the topic as a log if it does not exist"
    )
    append.add_argument(
        "--key",
        help="makes the whole append repeatable: the same input with this key is stored once",
    )
    append.add_argument(
        "--chunk",
        type=positive,
        default=CHUNK_DEFAULT,
        metavar="N",
        help="records per request, up to 10000 (default: 1000)",
    )
    append.add_argument(
        "--wait",
        type=duration_ms,
        metavar="TIME",
        help="queues with results: wait up to this long, and print the result of each job",
    )


# -- append --------------------------------------------------------------------------------------


def _steps(text: str) -> list[NextStep]:
    """The steps of a chain.

    Raises:
        argparse.ArgumentTypeError: It is something else.
    """
    import msgspec

    from logqueue.client import NextStep

    try:
        return msgspec.convert(json.loads(text), list[NextStep], strict=True)
    except (ValueError, msgspec.ValidationError) as error:
        raise argparse.ArgumentTypeError(f"not a list of steps: {error}") from None


def _append(arguments: argparse.Namespace) -> int:
    if (arguments.file is None) == (arguments.data is None):
        raise UsageError("name a FILE (- for stdin), or give --data; not both")
    if arguments.chunk > 10_000:
        raise UsageError("--chunk must be at most 10000")
    with ExitStack() as stack:
        source, name, total = _opened(arguments, stack)
        lines = Counted(source)
        client = stack.enter_context(connect(arguments))
        progress = stack.enter_context(_progress(name, total, lines))
        began, stored = time.monotonic(), 0
        seqs: list[int] = []

        def note(reply: Appended) -> None:
            nonlocal stored
            stored += reply.count
            seqs.extend(reply.seqs or ())
            progress(stored)

        try:
            result = client.append(
                arguments.topic,
                reading_input.records(lines, _format(arguments), arguments),
                chunk=arguments.chunk,
                key=arguments.key,
                create=arguments.create,
                return_seqs=arguments.wait is not None,
                on_progress=note,
            )
        except TopicNotFound as missing:
            raise NothingThere(
                f"there is no topic '{arguments.topic}': create it with `logqueue create`, or "
                "append with --create"
            ) from missing
        except BadLine as bad:
            raise CommandError(
                f"{name}, line {bad.line}: {bad}; {output.count_of(stored, 'record')} before it "
                f"{'is' if stored == 1 else 'are'} stored"
            ) from bad
        _report(arguments, result, time.monotonic() - began)
        if arguments.wait is not None and seqs:
            wait_ms, is_json = arguments.wait, arguments.json
            return print_results(client, arguments.topic, seqs, wait_ms, is_json=is_json)
    return exits.OK if result.count else exits.NOTHING


def _opened(
    arguments: argparse.Namespace, stack: ExitStack
) -> tuple[Iterable[bytes], str, int | None]:
    """The lines of input, what to call it, and its size in bytes if that is known."""
    if arguments.data is not None:
        return [text.encode() for text in arguments.data], "--data", None
    if arguments.file == "-":
        return sys.stdin.buffer, "stdin", None
    file: BinaryIO = stack.enter_context(Path(arguments.file).open("rb"))  # noqa: SIM115
    return file, arguments.file, Path(arguments.file).stat().st_size or None


def _format(arguments: argparse.Namespace) -> str:
    if arguments.format != "auto":
        return str(arguments.format)
    is_csv = arguments.file is not None and arguments.file.lower().endswith(".csv")
    return "csv" if is_csv else "jsonl"


def _report(arguments: argparse.Namespace, result: Appended, seconds: float) -> None:
    if arguments.json:
        output.json_line({**_as_fields(result), "seconds": round(seconds, 3)})
    if not result.count:
        output.say(
            f"logqueue append: no record in the input, so nothing was sent to {result.topic}"
        )
        return
    if not arguments.json:
        rate = f" in {seconds:.1f} s, {result.count / seconds:,.0f}/s" if seconds >= 0.1 else ""
        known = "; they were there already" if result.deduped else ""
        output.say(
            f"{output.count_of(result.count, 'record')} to {result.topic}, "
            f"seqs {result.first_seq} to {result.last_seq}{rate}{known}"
        )


def _as_fields(result: Appended) -> dict[str, Any]:
    names = ("topic", "count", "first_seq", "last_seq", "head_seq", "created", "deduped")
    return {name: getattr(result, name) for name in names}


@contextmanager
def _progress(name: str, total: int | None, lines: Counted) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, on a terminal only; takes the records stored so far."""
    if not sys.stderr.isatty():
        yield lambda stored: None
        return
    began = shown = time.monotonic()
    bar = Bar(sys.stderr)

    def note(stored: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= REFRESH_S:
            shown = now
            rate = stored / (now - began)
            done = lines.bytes_read / total if total else None
            bar.show(output.printable(name), done, f"{stored:,} records, {rate:,.0f}/s")

    try:
        yield note
    finally:
        bar.close()


# -- read and tail -------------------------------------------------------------------------------


def _read(arguments: argparse.Namespace) -> int:
    shown = 0
    with connect(arguments) as client:
        for item in client.read(arguments.topic, arguments.after):
            show(item, arguments)
            shown += is_record(item)
            if shown == arguments.limit:
                break
    if not shown:
        behind = f" after seq {arguments.after}" if arguments.after else ""
        raise NothingThere(f"{arguments.topic} has no records{behind}")
    return exits.OK


def _tail(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        head, last = _last(client, arguments.topic, arguments.limit)
        for item in last:
            show(item, arguments)
        if arguments.follow:
            sys.stdout.flush()
            for news in client.read(arguments.topic, head, follow=True):
                show(news, arguments, at_once=True)
    if not last and arguments.limit:
        raise NothingThere(f"{arguments.topic} has no records")
    return exits.OK


def _last(client: Client, topic: str, count: int) -> tuple[int, deque[Record]]:
    """The last records, and the seq up to which that holds. Where many are deleted, they are
    looked for further and further back."""
    from logqueue.shapes import Record

    state = client.topic(topic)
    head, window = state.head_seq, count
    while True:
        after = max(head - window, state.earliest_seq - 1)
        last: deque[Record] = deque(maxlen=count)
        at = after
        for item in client.read(topic, after) if count else ():
            if isinstance(item, Record):
                last.append(item)
                at = item.seq
        if len(last) == count or after < state.earliest_seq:
            return max(head, at), last
        window *= 8


def is_record(item: Record | Tombstone) -> bool:
    """Whether it is a record, and not the place where some are lost."""
    from logqueue.shapes import Record

    return isinstance(item, Record)


def show(
    item: Record | Tombstone,
    arguments: argparse.Namespace,
    *,
    topic: str = "",
    at_once: bool = False,
) -> None:
    """Print a record, or say that some are lost.

    Args:
        topic: Where it is from, when there are several.
        at_once: Whether a reader is waiting for it.
    """
    from logqueue.shapes import Record

    where = f"{topic} " if topic else ""
    if not isinstance(item, Record):
        if arguments.json:
            output.json_line(item, at_once=at_once)
        else:
            output.say(f"{where}{item.gap_from} to {item.gap_to} are gone ({item.reason})")
    elif arguments.json:
        text = output.to_json(item)
        named = f'{{"topic":{output.to_json(topic)},{text[1:]}' if topic else text
        output.line(named, at_once=at_once)
    elif arguments.data:
        output.json_line(item.data, at_once=at_once)
    else:
        tag = f"  [{output.printable(item.tag)}]" if item.tag else ""
        at = output.when(item.ts)
        output.line(
            f"{where}{item.seq:>8}  {at}{tag}  {output.to_json(item.data)}", at_once=at_once
        )

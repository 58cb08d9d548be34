"""`logqueue result`, and the wait of `append --wait`: what became of jobs.

Owns: waiting for their ends, and how results are printed. Must not know: how a call is made.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from logqueue.cli import exits, output
from logqueue.cli.arguments import Commands, duration_ms, natural
from logqueue.cli.connection import connect

if TYPE_CHECKING:
    from logqueue.client import Client
    from logqueue.shapes import JobStatus

SEQS_PER_CALL = 1000
CALL_MS_MAX = 20_000


def add_to(commands: Commands) -> None:
    """Declare the command."""
    result = commands.add_calling(
        "result",
        _result,
        "print the results of jobs, one JSON line each",
        more="The queue must keep results: `logqueue configure QUEUE --set 'results={}'`. The exit "
        "status is 1 unless all of the jobs are done.",
        examples=(
            "logqueue result thumbnails 17",
            "logqueue result thumbnails 17 18 --wait 5m",
            "logqueue append thumbnails jobs.jsonl --wait 5m",
        ),
    )
    result.add_argument("queue")
    result.add_argument("seqs", nargs="+", type=natural, metavar="SEQ")
    result.add_argument(
        "--wait", type=duration_ms, metavar="TIME", help="wait up to this long for their ends"
    )


def _result(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        return print_results(
            client, arguments.queue, arguments.seqs, arguments.wait or 0, is_json=arguments.json
        )


def print_results(
    client: Client, queue: str, seqs: Sequence[int], wait_ms: int, *, is_json: bool
) -> int:
    """Print what became of jobs, in their order.

    Args:
        client: Connected.
        queue: Their queue.
        seqs: Which jobs.
        wait_ms: How long to wait for their ends.
        is_json: Print states as well, as JSON.

    Returns:
        The exit status.
    """
    until = time.monotonic() + wait_ms / 1000
    is_ok = True
    for start in range(0, len(seqs), SEQS_PER_CALL):
        for status in _statuses(client, queue, seqs[start : start + SEQS_PER_CALL], until):
            is_ok = _print(queue, status, is_json) and is_ok
    return exits.OK if is_ok else exits.FAILURE


def _statuses(client: Client, queue: str, seqs: Sequence[int], until: float) -> list[JobStatus]:
    known: dict[int, JobStatus] = {}
    left = [*dict.fromkeys(seqs)]
    while left:
        wait_ms = min(max(round((until - time.monotonic()) * 1000), 0), CALL_MS_MAX)
        found = client.job_statuses(queue, left, wait_ms=wait_ms or None)
        known.update((status.seq, status) for status in found.jobs)
        left = [seq for seq in left if seq not in known or (wait_ms and not known[seq].has_ended)]
    return [known[seq] for seq in seqs]


def _print(queue: str, status: JobStatus, is_json: bool) -> bool:
    """Print one; whether it is done."""
    is_done = status.state == "done"
    if is_json:
        output.json_line(status)
    elif is_done:
        output.line(output.to_json(status.result))
    else:
        why = f": {status.error}" if status.error else ""
        state = status.state.replace("_", " ")
        output.say(f"job {status.seq} of {queue} is {state}{why}")
    return is_done

"""`logqueue work`: a program of any language as the handler of a queue's jobs.

Owns: the flags, and how they reach the worker runtime, which sees to leases, retries and streams.
Must not know: how a program is run.
"""

from __future__ import annotations

import argparse
import logging

from logqueue.cli import output
from logqueue.cli.arguments import Commands, add_node, duration_s, positive
from logqueue.cli.connection import connect, retry_s_of
from logqueue.cli.exits import CommandError, NothingThere, UsageError

CONCURRENCY = 1
GRACE_S = 25.0


def add_to(commands: Commands) -> None:
    """Declare the command."""
    work = commands.add_calling(
        "work",
        _work,
        "run a program for every job of a queue",
        more="The program gets the job's data on stdin, and LOGQUEUE_QUEUE, _SEQ, _DELIVERIES, "
        "_TAG, _KEY, _META, _TS, _DEADLINE, _LEASE_ID and _LAST_ERROR in its environment. "
        "Exit status 0 acks the job; any other status nacks it, with the end of stderr as the "
        "reason. Leases are renewed while the program runs.",
        examples=(
            "logqueue work thumbnails --exec './make-thumbnail --size 256' -c 4",
            "logqueue work mail --exec 'sendmail -t' --raw --timeout 1m --reject-on 65",
            "logqueue work imports --exec ./import --once --json > done.jsonl",
        ),
    )
    work.add_argument("queue")
    work.add_argument(
        "--exec",
        required=True,
        dest="program",
        metavar="CMD",
        help="shell command to run for each job",
    )
    work.add_argument(
        "-c", "--concurrency", type=positive, default=CONCURRENCY, metavar="N", help="default: 1"
    )
    work.add_argument(
        "--raw", action="store_true", help="pass text data as it is, without JSON quotes"
    )
    work.add_argument(
        "--timeout", type=duration_s, metavar="TIME", help="stop a program that runs longer"
    )
    work.add_argument(
        "--reject-on",
        type=int,
        action="append",
        default=[],
        metavar="STATUS",
        help="exit status that fails the job permanently; may be repeated",
    )
    work.add_argument(
        "--max-attempts",
        type=positive,
        metavar="N",
        help="number of attempts after which a job fails permanently",
    )
    for flag, default, what in (
        ("--first-delay", 1.0, "delay before the second attempt; doubles each time (default: 1s)"),
        ("--max-delay", 300.0, "longest delay between attempts (default: 5m)"),
        ("--lease", 30.0, "how long jobs stay leased if this process dies (default: 30s)"),
        ("--grace", GRACE_S, "how long programs may still run after SIGTERM (default: 25s)"),
    ):
        work.add_argument(flag, type=duration_s, default=default, metavar="TIME", help=what)
    work.add_argument(
        "--source", choices=("sse", "poll"), default="sse", help="have jobs pushed, or claim them"
    )
    work.add_argument("--once", action="store_true", help="exit when no job is left to claim")
    add_node(work)


def _work(arguments: argparse.Namespace) -> int:
    from logqueue.cli.programs import Programs
    from logqueue.worker import STOP_SIGNALS, App, Retry, run_worker

    _talk()
    with connect(arguments) as client:
        # A worker makes the queues that it needs; here a wrong name is more likely.
        if client.topic(arguments.queue, touch=False).type != "queue":
            raise CommandError(f"{arguments.queue} is a log, not a queue: it hands out no jobs")
    programs = Programs(arguments)
    app = App(arguments.url, arguments.token, **retry_s_of(arguments))
    try:
        retry = Retry(
            max_attempts=arguments.max_attempts,
            first=arguments.first_delay,
            cap=arguments.max_delay,
        )
        app.consumer(arguments.queue, retry=retry)(programs.run)
        status = run_worker(
            app,
            signals=STOP_SIGNALS,
            concurrency=arguments.concurrency,
            source=arguments.source,
            once=arguments.once,
            grace=arguments.grace,
            lease=arguments.lease,
            max_lease=max(arguments.lease, 43_200.0),
            node=arguments.node,
        )
    except ValueError as error:
        raise UsageError(str(error)) from error
    output.say(
        f"logqueue work: {output.count_of(programs.done, 'job')} done, {programs.failed} failed"
    )
    if arguments.once and not programs.done and not programs.failed:
        raise NothingThere(f"{arguments.queue} has no job to claim now")
    return status


class _Talk(logging.Formatter):
    """What the worker runtime has to say, one line each."""

    def format(self, record: logging.LogRecord) -> str:
        return f"logqueue work: {output.printable(record.getMessage())}"


def _talk() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_Talk())
    logging.getLogger("logqueue.worker").addHandler(handler)

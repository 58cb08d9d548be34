"""The command line of the demo of a takeover: options in, report and exit status out.

Owns: both. Must not know: the course of the demo. The pipeline is left out; `make demo` has it.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys

from logqueue.errors import LogqueueError
from logqueue.extras import MissingExtra, explained

try:
    with explained("the demo", "demo"):
        from logqueue.demo.checks import judge
        from logqueue.demo.command_line import (
            EXIT_CHECK_FAILED,
            EXIT_NOT_RUN,
            EXIT_OK,
            command_line,
        )
        from logqueue.demo.crew import WorkerFailed
        from logqueue.demo.directory import NotOurs
        from logqueue.demo.progress import Narrator
        from logqueue.demo.queue import Stalled
        from logqueue.demo.report import as_json, render_failover
        from logqueue.demo.server import ServerFailed
        from logqueue.demo.takeover import FailoverOptions, NotTakenOver, judge_takeover, run
except MissingExtra as error:
    sys.exit(str(error))

AUTO_PROMOTE = "3s"


def main() -> int:
    """Run the demo; 0 = every promise kept, 1 = one was broken, 2 = it could not be run."""
    given = _read_options()
    # The servers and the workers end with the demo.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda caught, _frame: sys.exit(128 + caught))
    options = FailoverOptions(
        given.data_dir, given.replica, given.auto_promote, given.files, given.workers
    )
    try:
        with Narrator(sys.stderr) as narrator:
            facts, gap = run(options, narrator)
    except NotOurs as refusal:
        sys.stderr.write(f"{refusal}\n")
        return EXIT_NOT_RUN
    except (ServerFailed, WorkerFailed, Stalled, NotTakenOver, LogqueueError) as failure:
        sys.stderr.write(f"FAILED: {failure}\n")
        return EXIT_CHECK_FAILED
    checks = judge(facts) + judge_takeover(facts)
    if given.json:
        report = {
            **as_json(facts, None, checks),
            "gap": {
                "seconds": round(gap.seconds, 3),
                "moments": {
                    what: None if at is None else round(at, 3) for what, at in gap.moments()
                },
            },
        }
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
    else:
        render_failover(facts, gap, checks, sys.stdout)
    return EXIT_OK if all(check.kept for check in checks) else EXIT_CHECK_FAILED


def _read_options() -> argparse.Namespace:
    parser = command_line(
        prog="python -m logqueue.demo.failover",
        description="Parses every source file of the standard library as jobs of a queue, kills "
        "the writer half-way, and checks that its standby takes over by itself and no job is lost.",
        data_dir="demo-failover-data",
    )
    parser.add_argument(
        "--replica",
        metavar="URL",
        help="an empty place in object storage, such as s3://bucket/prefix (default: a directory "
        "in --data-dir)",
    )
    parser.add_argument(
        "--auto-promote",
        metavar="TIME",
        default=AUTO_PROMOTE,
        help="the standby takes over when the writer's heartbeat has stopped for so long "
        "(default: %(default)s)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

"""The command line of the demo: options in, report and exit status out."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path

from logqueue.errors import LogqueueError
from logqueue.extras import MissingExtra, explained

try:
    with explained("the demo", "demo"):
        from logqueue.demo import dashboard, pipeline
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
        from logqueue.demo.report import as_json, render
        from logqueue.demo.run import SERVER, Options, run
        from logqueue.demo.server import ServerFailed
except MissingExtra as error:
    sys.exit(str(error))


def main() -> int:
    """Run the demo; 0 = every promise kept, 1 = one was broken, 2 = it could not be run."""
    options = _read_options()
    # The server and the workers end with the demo.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda caught, _frame: sys.exit(128 + caught))
    try:
        with Narrator(sys.stderr) as narrator:
            facts = run(
                Options(options.data_dir, options.files, options.workers, options.ui), narrator
            )
            found = _reckon(options, narrator)
    except NotOurs as refusal:
        sys.stderr.write(f"{refusal}\n")
        return EXIT_NOT_RUN
    except (ServerFailed, WorkerFailed, Stalled, pipeline.Unfinished, LogqueueError) as failure:
        sys.stderr.write(f"FAILED: {failure}\n")
        return EXIT_CHECK_FAILED
    checks = judge(facts)
    if found is not None:
        checks += pipeline.judge(facts, found)
    if options.json:
        sys.stdout.write(json.dumps(as_json(facts, found, checks), indent=2) + "\n")
    else:
        render(facts, found, checks, sys.stdout)
    if options.ui and not _show(options.data_dir, facts.url):
        return EXIT_CHECK_FAILED
    return EXIT_OK if all(check.kept for check in checks) else EXIT_CHECK_FAILED


def _show(directory: Path, url: str) -> bool:
    """Keep the server up until Ctrl-C; False if it failed."""
    try:
        dashboard.keep_up(directory / SERVER, directory, url, out=sys.stdout)
    except (ServerFailed, LogqueueError) as failure:
        sys.stderr.write(f"FAILED: {failure}\n")
        return False
    return True


def _reckon(options: argparse.Namespace, narrator: Narrator) -> pipeline.Reckoning | None:
    """What the log itself says of the run; None without Spark."""
    if options.no_pipeline or options.ui:
        return None
    if not pipeline.can_run():
        narrator.event(
            f"without Spark the demo ends here; with it (pip install '{pipeline.EXTRA}') it goes "
            "on to archive, report on and audit the log"
        )
        return None
    return pipeline.reckon(options.data_dir / SERVER, options.data_dir / "pipeline", narrator)


def _read_options() -> argparse.Namespace:
    parser = command_line(
        prog="python -m logqueue.demo",
        description="Parses every source file of the standard library as jobs of a queue, kills "
        "the server half-way, and checks that no job was lost: by what the workers saw, and with "
        "Spark by what the server's log says.",
        data_dir="demo-data",
    )
    parser.add_argument(
        "--no-pipeline", action="store_true", help="end before the data pipeline on Spark"
    )
    parser.add_argument(
        "--ui",
        action="store_true",
        help="afterwards keep the server up with work on it, and say where its dashboard is, until "
        "Ctrl-C; without the data pipeline",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

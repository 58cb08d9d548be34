"""What the command lines of both demos have in common.

Owns: shared options and exit statuses. Must not know: what a demo does.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from logqueue.errors import quoted

EXIT_OK = 0
EXIT_CHECK_FAILED = 1
EXIT_NOT_RUN = 2


def command_line(*, prog: str, description: str, data_dir: str) -> argparse.ArgumentParser:
    """A parser with the options of every demo.

    Args:
        data_dir: Default of `--data-dir`.
    """
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=Path(data_dir),
        help="recreated each time; refused if it holds files the demo did not make "
        "(default: %(default)s)",
    )
    parser.add_argument("--files", type=_positive, help="measure only so many files (default: all)")
    parser.add_argument(
        "--workers",
        type=_positive,
        default=max(4, os.cpu_count() or 1),
        help="worker processes, half pollers and half work streams (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="the report as JSON on stdout")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not a positive number")
    return int(text)

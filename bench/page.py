"""The page on performance: where measurements write, and the options of those that do.

Owns: the part of the page between two markers. Must not know: what is measured.
"""

from __future__ import annotations

import argparse
from pathlib import Path

PAGE = Path("docs/performance.md")


def add_output_options(parser: argparse.ArgumentParser, written: str) -> None:
    """Where the figures go, and where data lies meanwhile.

    Args:
        written: What `--write` puts into the page.
    """
    parser.add_argument("--json", action="store_true", help="the figures as JSON on stdout")
    parser.add_argument("--write", action="store_true", help=f"put {written} into {PAGE} as well")
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path("bench-results"),
        help="data lies below this directory during the run (default: bench-results)",
    )


def write_between(page: Path, name: str, text: str) -> None:
    """Replace what stands between two markers of a page.

    Raises:
        ValueError: The page lacks the markers.
    """
    begin, end = f"<!-- {name} begin -->\n", f"<!-- {name} end -->"
    old = page.read_text(encoding="utf-8")
    before, found, rest = old.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{page} has no markers {name}")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")

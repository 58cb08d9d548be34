"""The comparison for people, for machines, and for the page on performance.

Owns: ratios between peers, the three forms. Must not know: how anything was measured.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TextIO

import msgspec
from rich.console import Console
from rich.table import Table

from bench.peers.peer import Peer
from bench.peers.works import Measured, Work
from bench.plot import Series, bars
from bench.report import PLAIN_WIDTH, number

CLIENT_BOUND = 0.9
"""Cores of the generator from which on it may have been the limit itself."""


@dataclass
class Comparison:
    """All of a run: figures by work and peer, our own peer first."""

    works: list[Work]
    peers: list[type[Peer]]
    figures: dict[tuple[str, str], list[Measured]] = field(default_factory=dict)
    failures: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, work: Work, peer: type[Peer], measured: Measured) -> None:
        """One more repetition."""
        self.figures.setdefault((work.name, peer.name), []).append(measured)

    def value(self, work: Work, peer: type[Peer]) -> float | None:
        """The median; None where there is none."""
        found = self.figures.get((work.name, peer.name))
        return statistics.median(one.value for one in found) if found else None

    def cpu_us(self, work: Work, peer: type[Peer]) -> float | None:
        """Median processor time of the server per record or job."""
        found = self.figures.get((work.name, peer.name))
        return statistics.median(one.cpu_us for one in found) if found else None

    def load(self, work: Work, peer: type[Peer]) -> float:
        """Median cores of the generator."""
        return statistics.median(one.load for one in self.figures[work.name, peer.name])

    def ratio(self, work: Work, peer: type[Peer]) -> float | None:
        """How many times as good as this peer we are."""
        ours, theirs = self.value(work, self.peers[0]), self.value(work, peer)
        if ours is None or theirs is None:
            return None
        return ours / theirs if work.more_is_better else theirs / ours


class ComparisonReport(msgspec.Struct):
    """One figure for machines."""

    work: str
    peer: str
    version: str
    unit: str
    values: list[float]
    cpu_us: list[float]
    load_cores: list[float]
    ours_over_theirs: float | None
    failure: str


def for_machine(comparison: Comparison, about: dict[str, object]) -> bytes:
    """The run as JSON."""
    reports = []
    for work in comparison.works:
        for peer in comparison.peers:
            found = comparison.figures.get((work.name, peer.name), [])
            reports.append(
                ComparisonReport(
                    work.name,
                    peer.name,
                    peer.version(),
                    work.unit,
                    [one.value for one in found],
                    [one.cpu_us for one in found],
                    [one.load for one in found],
                    comparison.ratio(work, peer),
                    comparison.failures.get((work.name, peer.name), ""),
                )
            )
    return msgspec.json.format(msgspec.json.encode({**about, "rows": reports}), indent=2)


def _cell(comparison: Comparison, work: Work, peer: type[Peer]) -> str:
    value = comparison.value(work, peer)
    if value is None:
        return "failed" if (work.name, peer.name) in comparison.failures else "–"
    text = number(value)
    if comparison.load(work, peer) >= CLIENT_BOUND:
        text = f"≥ {text}"
    found = comparison.ratio(work, peer)
    return text if peer is comparison.peers[0] or found is None else f"{text} (× {_times(found)})"


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"


def _cpu_cell(comparison: Comparison, work: Work, peer: type[Peer]) -> str:
    found = comparison.cpu_us(work, peer)
    return "–" if found is None else number(found)


def render(comparison: Comparison, about: dict[str, object], out: TextIO) -> None:
    """The comparison as two tables."""
    console = Console(file=out, highlight=False)
    if not console.is_terminal:
        console = Console(file=out, highlight=False, width=PLAIN_WIDTH)
    said = ", ".join(f"{name} {value}" for name, value in about.items())
    for title, cell in (
        (f"Side by side ({said})", _cell),
        ("Processor time of the server per record or job, µs", _cpu_cell),
    ):
        table = Table(title=title)
        table.add_column("work", overflow="fold")
        for peer in comparison.peers:
            table.add_column(f"{peer.name} {peer.version()}", justify="right")
        for work in comparison.works:
            cells = [cell(comparison, work, peer) for peer in comparison.peers]
            table.add_row(f"{work.what}, {work.unit}", *cells)
        console.print(table)
    console.print(
        f"(× n): logqueue is n times as good. ≥: the generator was busy {CLIENT_BOUND:.0%}"
    )
    for (work_name, peer_name), why in comparison.failures.items():
        console.print(f"{peer_name}, {work_name}: {why}", markup=False)


def markdown(comparison: Comparison, missing: list[type[Peer]], about: dict[str, object]) -> str:
    """The comparison as a part of a page."""
    heads = [f"{peer.name} {peer.version()}" for peer in comparison.peers]
    said = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in about.items())
    lines = [f"Measured on: {said}.", ""]
    for title, cell in (
        ("Work", _cell),
        ("Processor time of the server per record or job, µs", _cpu_cell),
    ):
        lines += [f"| {' | '.join([title, *heads])} |", f"|---|{'---:|' * len(heads)}"]
        for work in comparison.works:
            what = f"{work.what}, {work.unit}" if cell is _cell else work.what
            cells = [cell(comparison, work, peer) for peer in comparison.peers]
            lines.append(f"| {' | '.join([what, *cells])} |")
        lines.append("")
    lines += ["| Server | Settings | Client | 100 in one go |", "|---|---|---|---|"]
    for peer in comparison.peers:
        lines.append(f"| {peer.name} | {peer.settings} | {peer.client} | {peer.batch} |")
    lines += [
        "",
        *(
            f"- {peer.name} does not deliver to watchers: {peer.lacks}."
            for peer in comparison.peers
            if peer.lacks
        ),
    ]
    lines += [f"- {peer.name} was not installed (`{peer.install}`)." for peer in missing]
    lines += [
        f"- {peer}, {work}: failed: {why}" for (work, peer), why in comparison.failures.items()
    ]
    return "\n".join(lines).rstrip() + "\n"


def picture(comparison: Comparison) -> str:
    """Rates as bars, as SVG."""
    works = [work for work in comparison.works if work.more_is_better]
    series = [
        Series(peer.name, [comparison.value(work, peer) for work in works])
        for peer in comparison.peers
    ]
    title = "Records or jobs per second, everything synced"
    return bars(title, [work.what for work in works], series, "/s")

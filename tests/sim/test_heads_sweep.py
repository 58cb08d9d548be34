"""Crash sweep with heads files: stop the disk at every operation of a day in which sealed segments
get them, and hold what a start from what is left leads to against what clients were told."""

from __future__ import annotations

from random import Random

import pytest

from logqueue.events import split_block
from logqueue.server.storage import heads_files
from logqueue.server.storage.heads_files import HeadsFiles
from tests.clock import ManualClock
from tests.core.world import START_MS
from tests.effort import EFFORT, swept
from tests.sim.ledger import Ledger
from tests.sim.test_crash_sweep import day, eager_tidying, go_on, ops_of, survive
from tests.sim.workload import TOPICS
from wal import SegmentHeader, ShortSegment
from wal.testing.simfs import SimCrash, SimFileSystem

__all__ = ["eager_tidying"]


@pytest.fixture(autouse=True)
def used(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Data of any size leaves memory; the segments that were not read are noted."""
    found: list[str] = []
    read = HeadsFiles.read

    def noted(self: HeadsFiles, header: SegmentHeader, path: str, size: int) -> ShortSegment | None:
        short = read(self, header, path, size)
        if short is not None:
            found.append(path)
        return short

    monkeypatch.setattr(HeadsFiles, "read", noted)
    monkeypatch.setattr(split_block, "SPLIT_FROM_BYTES", 2)
    monkeypatch.setattr(heads_files, "SHARE_MAX", 3.0)
    monkeypatch.setattr(heads_files, "WINDOW_BYTES", 700)
    return found


@pytest.mark.parametrize("seed", range(1, 1 + EFFORT))
@pytest.mark.parametrize("power_cut", [True, False], ids=["power-cut", "kill"])
def test_crash_at_every_operation(seed: int, power_cut: bool, used: list[str]) -> None:
    total = ops_of(seed)
    for stop in swept(0, total, offset=2 * seed + power_cut, every=75):
        fs = SimFileSystem(Random(seed))
        fs.crash_after(stop)
        ledger, clock = Ledger(), ManualClock(START_MS)
        with pytest.raises(SimCrash):
            day(fs, ledger, seed, clock)
        disk = fs.crash_clone(Random(stop)) if power_cut else fs.kill_clone()
        world = survive(disk, ledger, clock, power_cut=power_cut)
        if len(ledger.topics) == len(TOPICS):
            go_on(world, ledger, seed + stop)
    assert len(used) > 10, "hardly any start had a heads file to use"

"""The state of a server that has not recovered, and how often topics are summed for it."""

from __future__ import annotations

import asyncio

from logqueue.server.engine.engine import Engine
from logqueue.server.metrics import Totals
from logqueue.server.runtime import Runtime
from logqueue.server.settings import Settings
from logqueue.server.shared_totals import SharedTotals
from logqueue.server.status import server_state


def test_a_server_that_recovers_says_how_far_it_is() -> None:
    runtime = Runtime(Settings(data_dir="."), is_stepped=True)
    runtime.service.lifecycle.note_progress(0.43)
    state = server_state(runtime.service, runtime.metrics, Totals())
    assert (state.phase, state.role, state.logs, state.disk) == ("recovering", "none", [], None)
    assert state.health.findings[0].text == "The server replays its log: 43% done."


def test_topics_are_summed_once_for_all_and_seldom_where_it_takes_long() -> None:
    now = 0.0
    made = 0

    async def make(engine: Engine | None) -> Totals:
        nonlocal now, made
        made += 1
        now += 0.1
        await asyncio.sleep(0)
        return Totals()

    async def play() -> None:
        nonlocal now
        shared = SharedTotals(make, lambda: now)
        found = await asyncio.gather(*(shared.of(None) for _ in range(20)))
        assert made == 1 and len({id(totals) for totals in found}) == 1
        now += 1.99
        await shared.of(None)
        assert made == 1
        now += 0.02
        await shared.of(None)
        assert made == 2

    asyncio.run(play())

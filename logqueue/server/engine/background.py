"""What a server does without being asked: freeing space, writing what no request waits for, and
finding its footing once the log has failed.

Owns: when it is done. Must not know: how, requests, streams.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import closing

from logqueue.errors import LogqueueError
from logqueue.model.clock import Clock
from logqueue.server.engine.commit_barrier import CommitBarrier
from logqueue.server.engine.cooperative import CooperativeExecutor
from logqueue.server.engine.engine import Engine
from logqueue.server.storage.archiver import Archiver
from logqueue.server.storage.journal import Journal
from wal import WalError

TIDY_INTERVAL_S = 1.0
FLUSH_INTERVAL_S = 0.1
FAILURE_POLL_INTERVAL_S = 0.1
ARCHIVE_INTERVAL_S = 0.5
OFFLOAD_INTERVAL_S = 0.1
FLUSHED_POLL_INTERVAL_S = 0.002

logger = logging.getLogger("logqueue.background")


async def tidy_forever(engine: Engine, barrier: CommitBarrier) -> None:
    """Evict what is due, and give memory and disk space back, in steps between requests."""
    complained = False
    while True:
        await asyncio.sleep(TIDY_INTERVAL_S)
        try:
            for _ in engine.tidy():
                await asyncio.sleep(0.001 if barrier.waiting == 0 else 0)
            complained = False
        except (LogqueueError, WalError) as refusal:
            if not complained:
                logger.warning("disk space cannot be given back now: %s", refusal)
            complained = True
        except Exception:
            logger.exception("giving disk space back failed; it is tried again later")


async def flush_forever(engine: Engine) -> None:
    """Hand lease events, and frames that no reply waits for, to the operating system."""
    while True:
        await asyncio.sleep(FLUSH_INTERVAL_S)
        engine.journal.flush_leases()
        engine.journal.jobs.wake()


async def offload_forever(journal: Journal, executor: CooperativeExecutor) -> None:
    """Free the memory of record data once its segment is sealed, and write its heads file.

    Args:
        journal: Has both.
        executor: Where checksums are made and files are written, beside the event loop.
    """
    while True:
        await asyncio.sleep(OFFLOAD_INTERVAL_S)
        try:
            await executor.run(journal.offload())
            await executor.run(journal.write_heads())
        except Exception:
            logger.exception("record data stays in memory; moving it is tried again later")


async def leases_flushed(journal: Journal) -> None:
    """Wait until all that was logged of leases is handed to the operating system."""
    while not journal.flush_leases():
        await asyncio.sleep(FLUSHED_POLL_INTERVAL_S)


async def archive_forever(archiver: Archiver, clock: Clock, executor: CooperativeExecutor) -> None:
    """Keep the log archive up to date.

    Args:
        archiver: Does it.
        clock: Tells how old segments are.
        executor: Where the archiver alone may touch the archive's files.
    """
    while True:
        await asyncio.sleep(ARCHIVE_INTERVAL_S)
        try:
            await executor.run(archiver.steps(clock.now_ms()))
        except Exception:
            logger.exception("archiving failed; it is tried again later")


async def rebuild_on_failure(
    engine: Engine, adopted: Callable[[], None], is_promised: Callable[[], bool] = lambda: True
) -> None:
    """Once the log has failed, serve reads from its durable content.

    Args:
        engine: Its state is replaced then.
        adopted: Called after that.
        is_promised: Whether that content may be shown; reads stay refused until it may.
    """
    while engine.journal.jobs.failure is None:
        await asyncio.sleep(FAILURE_POLL_INTERVAL_S)
    logger.error(
        "storage is read-only since a write or sync failed: %s; check the disk and restart",
        engine.journal.jobs.failure,
    )
    loop = asyncio.get_running_loop()
    await leases_flushed(engine.journal)
    while not is_promised():
        await asyncio.sleep(FAILURE_POLL_INTERVAL_S)
    try:
        with closing(engine.rebuild_durable()) as rebuilding:
            for work in rebuilding:
                await loop.run_in_executor(None, work)
    except (WalError, OSError) as error:
        logger.error("the log cannot be read back (%s); some reads stay refused", error)
        return
    adopted()
    logger.warning("reads go on from the last good sync; writes are refused until a restart")

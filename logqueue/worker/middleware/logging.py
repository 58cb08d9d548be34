"""One structured log line per job.

Owns: which facts a line carries. Must not know: where lines go; it logs to a logger of the standard
library and configures none.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from logqueue.worker.job import Job
from logqueue.worker.middleware import Handle, Middleware
from logqueue.worker.middleware.ending import ending

JOBS = logging.getLogger("logqueue.jobs")


class JobLog(Middleware):
    """Logs the end of each run, with its facts as `extra` fields.

    The fields are `queue`, `seq`, `task`, `deliveries`, `ending` and `ms`, so that any JSON
    formatter shows them. Returned jobs are logged at INFO, others at WARNING.
    """

    def __init__(
        self, logger: logging.Logger = JOBS, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """Log to this logger; `clock` gives seconds."""
        self._logger = logger
        self._clock = clock

    async def handle(self, job: Job, call_next: Handle) -> None:
        """See Middleware."""
        began = self._clock()
        raised: BaseException | None = None
        try:
            await call_next(job)
        except BaseException as error:
            raised = error
            raise
        finally:
            self._log(job, ending(raised), (self._clock() - began) * 1000)

    def _log(self, job: Job, how: str, ms: float) -> None:
        facts: dict[str, Any] = {
            "queue": job.queue,
            "seq": job.seq,
            "task": job.task,
            "deliveries": job.deliveries,
            "ending": how,
            "ms": round(ms, 3),
        }
        level = logging.INFO if how == "returned" else logging.WARNING
        text = "%(task)s %(ending)s: %(queue)s/%(seq)d delivery %(deliveries)d, %(ms).1f ms"
        self._logger.log(level, text, facts, extra=facts)

"""The outcome of a handler run as one label, for logs and metrics.

Owns: the labels. Must not know: who uses them.
"""

from __future__ import annotations

import asyncio

from logqueue.worker.outcomes import JobTimeout, Reject, RetryLater, Snooze


def ending(error: BaseException | None) -> str:
    """One of returned, failed, timed_out, retry_later, snoozed, rejected, cancelled."""
    match error:
        case None:
            return "returned"
        case RetryLater():
            return "retry_later"
        case Snooze():
            return "snoozed"
        case Reject():
            return "rejected"
        case JobTimeout():
            return "timed_out"
        case asyncio.CancelledError():
            return "cancelled"
    return "failed"

"""How long a job that failed stays out of rotation.

Owns: the arithmetic of `retry_backoff`. Must not know: queues, leases, chance: jitter is drawn from
the job's own numbers, so that replay finds the same delay.
"""

from __future__ import annotations

from zlib import crc32

from logqueue.model.config import BackoffOptions


def delay_ms(backoff: BackoffOptions, deliveries: int, seq: int, lease: int) -> int:
    """The delay before the next delivery.

    Args:
        backoff: The queue's rule.
        deliveries: How often the job was delivered, the failed delivery included.
        seq, lease: What the jitter is drawn from.

    Returns:
        Milliseconds, at most `max_ms`; jitter only shortens it.
    """
    steps = max(deliveries - 1, 0)
    if backoff.kind == "constant":
        delay = float(backoff.base_ms)
    elif backoff.kind == "linear":
        delay = float(backoff.base_ms + backoff.step_ms * steps)
    else:
        # Beyond a few hundred steps a float overflows, and the bound has long been reached.
        delay = backoff.base_ms * backoff.factor ** min(steps, 100)
    delay = min(delay, float(backoff.max_ms))
    drawn = crc32(b"%d %d %d" % (seq, deliveries, lease)) / 2**32
    return int(delay * (1 - backoff.jitter * drawn))

"""What pairs of measurements say: how many times as good the newer code is, and how surely.

Owns: the ratio of paired repetitions with its confidence interval, and the verdict. Must not know:
what was measured. Ratios are judged by ranks (Wilcoxon), since a busy machine spoils single pairs
by any factor: these count no more than others.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

CONFIDENCE = 0.95
PAIRS_MIN = 6
"""Fewer pairs cannot say anything at this confidence."""


@dataclass(frozen=True)
class Ratio:
    """How many times as good the new side is: above 1 is better, whatever the unit.

    Attributes:
        middle: The Hodges-Lehmann median of the ratios of all pairs.
        low: Lower end of its 95 % confidence interval; 0 with fewer than PAIRS_MIN pairs.
        high: Upper end; infinite with fewer than PAIRS_MIN pairs.
    """

    middle: float
    low: float
    high: float

    def verdict(self, tolerance: float) -> str:
        """`slower` or `faster` where the whole interval is beyond the tolerance, else empty.

        Args:
            tolerance: The share that does not count, such as 0.05.
        """
        if self.high < 1 - tolerance:
            return "slower"
        return "faster" if self.low > 1 + tolerance else ""


def ratio(old: Sequence[float], new: Sequence[float], more_is_better: bool) -> Ratio | None:
    """The ratio of paired values; pairs with a value that is not positive have none.

    Returns:
        None where fewer than half of the pairs have a ratio.
    """
    pairs = [(before, after) for before, after in zip(old, new, strict=True) if before > 0 < after]
    if not pairs or len(pairs) * 2 < len(old):
        return None
    sign = 1 if more_is_better else -1
    logs = [sign * math.log(after / before) for before, after in pairs]
    means = sorted((a + b) / 2 for a, b in combinations_with_replacement(logs, 2))
    middle = math.exp(statistics.median(means))
    if len(logs) < PAIRS_MIN:
        return Ratio(middle, 0.0, math.inf)
    beyond = _ranks_beyond(len(logs))
    return Ratio(middle, math.exp(means[beyond]), math.exp(means[-1 - beyond]))


def _ranks_beyond(pairs: int) -> int:
    """How many of the sorted means are outside the interval at each end.

    It is the largest count whose tail of the signed-rank distribution is within half of what the
    confidence leaves over.
    """
    sums = [1]  # how many subsets of the ranks so far have each sum
    for rank in range(1, pairs + 1):
        sums = [
            (sums[total] if total < len(sums) else 0) + (sums[total - rank] if total >= rank else 0)
            for total in range(len(sums) + rank)
        ]
    tail, beyond = 0, -1
    for count in sums:
        tail += count
        if tail / 2**pairs > (1 - CONFIDENCE) / 2:
            break
        beyond += 1
    return beyond

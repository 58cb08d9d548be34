"""What pairs of measurements say: how many times as good the newer code is, and how surely.

Owns: the ratio of paired repetitions with its confidence interval, and the verdict. Must not know:
what was measured.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

# Two-sided 95 % quantiles of Student's t, for 1 to 30 degrees of freedom; then the normal one.
# fmt: off
_T_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)
# fmt: on
_NORMAL_95 = 1.960


@dataclass(frozen=True)
class Ratio:
    """How many times as good the new side is: above 1 is better, whatever the unit.

    Attributes:
        middle: The geometric mean over all pairs.
        low: Lower end of its 95 % confidence interval; 0 with a single pair.
        high: Upper end; infinite with a single pair.
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


def ratio(old: list[float], new: list[float], more_is_better: bool) -> Ratio | None:
    """The ratio of paired values, None where a value is not positive and there is no ratio."""
    if not old or min(*old, *new) <= 0:
        return None
    sign = 1 if more_is_better else -1
    logs = [sign * math.log(after / before) for before, after in zip(old, new, strict=True)]
    middle = statistics.fmean(logs)
    if len(logs) == 1:
        return Ratio(math.exp(middle), 0.0, math.inf)
    freedom = len(logs) - 1
    quantile = _T_95[freedom - 1] if freedom <= len(_T_95) else _NORMAL_95
    margin = quantile * statistics.stdev(logs) / math.sqrt(len(logs))
    return Ratio(math.exp(middle), math.exp(middle - margin), math.exp(middle + margin))

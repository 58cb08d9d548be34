"""The power law through measured points: cost ≈ factor × size ^ exponent.

Owns: the least squares on logarithms. Must not know: what the points are.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PowerLaw:
    """A straight line on two logarithmic scales.

    Attributes:
        exponent: 0 for a cost that stays the same, 1 for one that grows with the size.
        factor: The cost at size 1.
        spread: Standard deviation of the points around the line, as a share: 0.1 is 10 %.
    """

    exponent: float
    factor: float
    spread: float


def fit(points: Sequence[tuple[float, float]]) -> PowerLaw | None:
    """The law through points of size and cost, all positive; None for fewer than two sizes."""
    if len({size for size, _ in points}) < 2:
        return None
    sizes = [math.log(size) for size, _ in points]
    costs = [math.log(cost) for _, cost in points]
    slope, start = statistics.linear_regression(sizes, costs)
    off = [cost - start - slope * size for size, cost in zip(sizes, costs, strict=True)]
    return PowerLaw(slope, math.exp(start), math.expm1(statistics.pstdev(off)))

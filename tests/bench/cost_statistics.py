"""Medians with intervals that assume nothing of the distribution."""

import math
import statistics


def _tail(n: int, k: int) -> float:
    """P(at most k of n fair coins show heads)."""
    return sum(math.comb(n, i) for i in range(k + 1)) / 2**n


def median_interval(values: list, confidence: float = 0.95):
    """(median, low, high), the bounds by order statistics: between the k-th
    smallest and the k-th largest of n values lies the median with probability
    1 - 2 P(fewer than k of n fair coins show heads). With fewer than 6 values no
    two of them reach 95%: then they are None.
    """
    ordered = sorted(values)
    n = len(ordered)
    median = statistics.median(ordered)
    k = 0
    while 2 * _tail(n, k) <= 1 - confidence:
        k += 1
    if k == 0:
        return median, None, None
    return median, ordered[k - 1], ordered[n - k]

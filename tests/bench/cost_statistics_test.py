"""The intervals of the cost benchmark hold what they promise."""

import pathlib
import random
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cost_statistics import median_interval


class MedianInterval(unittest.TestCase):
    def test_known_ranks(self):
        # Tables of the sign test: 6 values 1..6, 15 values 4..12, 20 values 6..15.
        for n, low, high in ((6, 1, 6), (15, 4, 12), (20, 6, 15)):
            values = list(range(1, n + 1))
            random.Random(n).shuffle(values)
            self.assertEqual(median_interval(values)[1:], (low, high))

    def test_too_few_values_have_no_interval(self):
        self.assertEqual(median_interval([3, 1, 2, 5, 4]), (3, None, None))

    def test_the_median_is_inside_as_often_as_promised(self):
        draw = random.Random(1)
        inside = 0
        for _ in range(2000):
            _, low, high = median_interval([draw.expovariate(1) for _ in range(15)])
            inside += low <= 0.6931472 <= high
        self.assertGreater(inside, 1900)
        self.assertLess(inside, 1970)


if __name__ == "__main__":
    unittest.main()

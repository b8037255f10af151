"""The cases of losses, outputs and sequences once more, with tensors on a device: what
their values show is found as well, when they have come."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import healthy_losses_test as losses
import healthy_outputs_test as outputs
import healthy_tokens_test as tokens
import outputs_test
import penalties_test as penalties
import products_test as products
import weighing_test as weighing

# Those of loss.reads_bytes and of tables that are added (loss.positions_of_samples) are
# left out: these facts are unknown there ("device values" in invariants/facts/sight.cc).
CASES = (
    losses.AttendsOverQueries,
    losses.Bounds,
    losses.OverSamples,
    losses.TargetsNoProbabilities,
    outputs.AttendsToPadding,
    outputs.DividedTwice,
    outputs.FavoursFrequent,
    outputs.KeepsIgnored,
    outputs.LayersAreLinear,
    outputs.LowersEntropy,
    outputs.MultipliesCrosswise,
    outputs.NoiseByVariance,
    outputs.OneClass,
    outputs.OverlapOfScores,
    outputs.PaddingIdxIsAToken,
    outputs.PenaltyWithoutGraph,
    outputs.PoolsPadding,
    outputs.PositionsOfSamples,
    outputs.RatioStartsApart,
    outputs.ReadsPaddedState,
    outputs.ScoresDropped,
    outputs.TargetsOutOfReach,
    outputs.WeighsOverSamples,
    outputs_test.Reach,
    outputs_test.Scores,
    penalties.Penalties,
    products.CrossedProducts,
    products.MaskedChoices,
    tokens.MaskOfOnes,
    tokens.MixesRows,
    tokens.SamplesAsSteps,
    tokens.ShiftsTwice,
    weighing.RepeatedQuotients,
)


def load_tests(loader, standard_tests, pattern):
    suite = unittest.TestSuite()
    for case in CASES:
        keys = {"ON_DEVICE": True, "__module__": __name__}
        twin = type(f"{case.__name__}OnADevice", (case,), keys)
        suite.addTests(loader.loadTestsFromTestCase(twin))
    return suite


if __name__ == "__main__":
    unittest.main()

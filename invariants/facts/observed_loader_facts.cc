#include "invariants/facts/observed_rows.h"

namespace traincheck {
namespace {

constexpr char kAverageOfLoader[] = "loader.averages_without_statistics";
constexpr char kBeginsAgain[] = "loader.begins_again";
constexpr char kDrawsInEvaluation[] = "loader.draws_in_evaluation";
constexpr char kEndsMasked[] = "loader.ends_masked";
constexpr char kEvaluatesTrained[] = "loader.evaluates_trained_rows";
constexpr char kHoldOld[] = "loader.workers_hold_old";
constexpr char kIgnoresSplit[] = "loader.ignores_split";
constexpr char kInTraining[] = "loader.evaluated_in_training";
constexpr char kLeavesOut[] = "loader.leaves_samples_out";
constexpr char kMovesPartsApart[] = "loader.moves_parts_apart";
constexpr char kNeverShuffles[] = "loader.never_shuffles";
constexpr char kNotStandardised[] = "loader.not_standardised";
constexpr char kRepeatsRows[] = "loader.repeats_rows";
constexpr char kSamplesAlike[] = "loader.samples_alike";
constexpr char kScaledApart[] = "loader.scaled_apart";
constexpr char kScaledBefore[] = "loader.scaled_before_split";
constexpr char kFoldsShare[] = "loader.folds_share_model";
constexpr char kSharesSamples[] = "loader.shares_samples";
constexpr char kSplitsDiffer[] = "loader.splits_differ";
constexpr char kSetBack[] = "loader.generator_set_back";
constexpr char kOrdersDiffer[] = "loader.orders_differ";
constexpr char kClassesApart[] = "loader.classes_apart";
constexpr char kRowsDiffer[] = "loader.rows_differ";
constexpr char kEndsEarly[] = "loader.ends_early";
constexpr char kTransformReplaced[] = "loader.transform_replaced";
constexpr char kTargetAmongInputs[] = "loader.target_among_inputs";
constexpr char kInterpolates[] = "loader.interpolates_classes";
constexpr char kTrainsNoMore[] = "loader.trains_no_more";
constexpr char kWeightsTooFew[] = "loader.weights_too_few";
constexpr char kWindowsOverlap[] = "loader.windows_overlap";
constexpr char kWorkersRepeat[] = "loader.workers_repeat";
constexpr char kWritesData[] = "loader.writes_data";

// What its batches and samples show. The agent looks at what a loader hands
// out; the hooks in agent/python/hooks that do are named at their rows.
std::vector<Fact> OfSamples() {
  return {
      // Each worker has a copy of an IterableDataset, and one that does not ask
      // which worker it is gives every sample as often as there are workers
      // (worker_batches.py).
      LoaderRow<kWorkersRepeat>(
          "all workers of the loader give the same batch",
          "the workers of the loader give different batches"),
      LoaderRow<kWeightsTooFew>(
          "its sampler has fewer weights than the data set has samples",
          "its sampler has at least as many weights as the data set has "
          "samples",
          2),
      // A table whose target column was left among the features.
      LoaderRow<kTargetAmongInputs>(
          "the target of each sample is one of its inputs",
          "no input is the target of all samples", 9),
      LoaderRow<kSamplesAlike>("all samples of a batch are alike",
                               "the samples of a batch are not all alike"),
      // Divided by 255, or normalised, on one side only (input_scales.py).
      LoaderRow<kScaledApart>(
          "its inputs are on another scale than those that are trained with",
          "its inputs are on about the same scale as those that are trained "
          "with"),
      LoaderRow<kNotStandardised>(
          "its inputs are not standardised, and those that are trained with "
          "are",
          "its inputs are standardised, as those that are trained with are", 4),
      // A transform that works in place on the data set's own array is applied
      // once more in each epoch (written_data.py).
      LoaderRow<kWritesData>(
          "its data set changes the samples that it holds by handing them out",
          "its data set does not change the samples that it holds by handing "
          "them out"),
      LoaderRow<kMovesPartsApart>(
          "pictures and their masks are flipped or turned apart",
          "pictures and their masks are flipped and turned together", 18),
      LoaderRow<kInterpolates>(
          "maps of classes in its samples are interpolated as they are resized",
          "maps of classes in its samples are resized without interpolation",
          20),
      // Where the end token is the padding as well, masking the padding hides
      // every end: the model never learns to stop (masked_ends.py).
      LoaderRow<kEndsMasked>(
          "no end of a text in its batches is a target, only what comes before",
          "ends of texts in its batches are targets", 8),
      // A folder of the validation lacks a class, so that the numbers after the
      // gap are shifted (class_tables.py).
      LoaderRow<kClassesApart>(
          "its data set gives other numbers to the classes than the one that "
          "was read first",
          "its data set numbers the classes as the one that was read first",
          16),
  };
}

// What ranks share out. A DistributedSampler shares positions, and relies on
// all ranks having the same data set, split and shuffled alike.
std::vector<Fact> OfRanks() {
  return {
      LoaderRow<kSplitsDiffer>(
          "its part of the data set is another one than that of another rank",
          "its part of the data set is that of the other ranks", 10),
      // torch.manual_seed between two epochs: the line that seeds is to blame,
      // and not the one that made the loader.
      BlamesNobody(LoaderRow<kSetBack>(
          "torch's generator is where it was when its last pass that trained "
          "began",
          "torch's generator is not where it was when its last pass that "
          "trained "
          "began",
          20)),
      LoaderRow<kOrdersDiffer>(
          "its DistributedSampler shuffles in another order than that of "
          "another rank",
          "its DistributedSampler shuffles in the order of the other ranks",
          13),
      LoaderRow<kRowsDiffer>(
          "its data set holds the samples in another order than that of "
          "another "
          "rank",
          "its data set holds the samples in the order of the other ranks", 15),
      // Ranks get equally many samples, so the first ones come twice. Only an
      // evaluation minds.
      LoaderRow<kRepeatsRows>(
          "its DistributedSampler repeats samples that are evaluated",
          "its DistributedSampler repeats no samples that are evaluated", 9),
  };
}

// What is evaluated, beside what is trained with: samples in both make a result
// too good. Parts of one data set are known by their indices (samplers.py),
// others by their content (trained_rows.py).
std::vector<Fact> OfHeldOut() {
  return {
      LoaderRow<kSharesSamples>(
          "the evaluation reads some of the samples that are trained with",
          "the evaluation reads none of the samples that are trained with"),
      LoaderRow<kFoldsShare>(
          "the model has been trained with the samples that are evaluated, in "
          "an earlier fold",
          "the model has not been trained with the samples that are evaluated",
          23),
      LoaderRow<kEvaluatesTrained>(
          "many of the samples that are evaluated are those that another data "
          "set is trained with",
          "the samples that are evaluated are not those that are trained with",
          9),
      LoaderRow<kWindowsOverlap>(
          "many of the windows that are evaluated overlap with windows that "
          "are "
          "trained with",
          "the windows that are evaluated do not overlap with windows that are "
          "trained with",
          10),
      LoaderRow<kScaledBefore>(
          "its rows and those that are trained with are standardised together",
          "only the rows that are trained with are standardised", 10),
  };
}

// What its passes show, and what they are for.
std::vector<Fact> OfPasses() {
  return {
      LoaderRow<kHoldOld>(
          "its persistent workers hold the data set as it was before it was "
          "changed",
          "the data set is as its persistent workers hold it", 6),
      // A resume skips the batches that were trained with; a skip that stays
      // leaves out the same part in all later passes.
      LoaderRow<kEndsEarly>(
          "its last two passes ended at the same batch, long before its length",
          "its passes are about as long as its length", 13),
      // These three show in what is done with the batches: how the loader was
      // made is not to blame.
      BlamesNobody(LoaderRow<kInTraining>(
          "the model is evaluated on its batches in training mode",
          "the model is not evaluated on its batches in training mode")),
      BlamesNobody(LoaderRow<kAverageOfLoader>(
          "an averaged copy is evaluated on its batches with BatchNorms that "
          "have their initial statistics",
          "no averaged copy is evaluated on its batches with BatchNorms that "
          "have their initial statistics",
          4)),
      BlamesNobody(LoaderRow<kBeginsAgain>(
          "every step begins the data anew and reads the same batch",
          "the steps go on through the data and read different batches")),
      // The parts of a random_split exist, and the loader was given the data
      // set that they were made of.
      LoaderRow<kIgnoresSplit>(
          "it trains with a whole data set whose parts were to be kept apart",
          "it trains with a part of the data set that was split", 8),
      LoaderRow<kDrawsInEvaluation>(
          "samples that are evaluated are drawn at random, as those of the "
          "training are",
          "no random numbers are drawn for samples that are evaluated", 8),
      LoaderRow<kNeverShuffles>(
          "each epoch of the training has the same batches in the same order",
          "the epochs of the training have different batches", 9),
      LoaderRow<kLeavesOut>(
          "the last samples of what it evaluates are left out (drop_last)",
          "it evaluates all samples of its data set", 11),
      // Parts of a split share one data set: the transform that is set through
      // one part is that of all.
      LoaderRow<kTransformReplaced>(
          "its data set has another transform than when it was split",
          "its data set has the transform with which it was split", 12),
  };
}

// Said where a schedule is stepped, and judged as the next batch is asked for:
// an iterator that is used up gives none, and raises.
std::vector<Fact> OfEndedPasses() {
  Fact trains_no_more = LoaderRow<kTrainsNoMore>(
      "a learning rate schedule was stepped after three passes in a row in "
      "which nothing was trained",
      "learning rate schedules are stepped after passes that are trained with",
      20);
  trains_no_more.at_end = false;
  return {BlamesNobody(trains_no_more)};
}

}  // namespace

std::vector<Fact> ObservedLoaderFacts() {
  std::vector<Fact> all = OfSamples();
  for (const Fact& fact : OfRanks()) all.push_back(fact);
  for (const Fact& fact : OfHeldOut()) all.push_back(fact);
  for (const Fact& fact : OfPasses()) all.push_back(fact);
  for (const Fact& fact : OfEndedPasses()) all.push_back(fact);
  return all;
}

}  // namespace traincheck

// Facts that the agent has looked at itself: see observations.h. All are known
// when the call has ended, and mean something where the agent said something.
#include "invariants/facts/fact.h"

namespace traincheck {
namespace {

template <const char* name>
FactValue OfCall(const FactSubject& subject) {
  if (!subject.call || !Observations::Concerns(*subject.call)) return {};
  const auto found = subject.facts->observations().Find(name);
  return found ? FactValue(*found) : FactValue();
}

template <const char* name>
FactValue OfOptimizer(const FactSubject& subject) {
  const auto found =
      subject.facts->observations().Find(subject.optimizer, name);
  return found ? FactValue(*found) : FactValue();
}

template <const char* name>
FactValue OfLoader(const FactSubject& subject) {
  const auto found = subject.facts->observations().Find(subject.loader, name);
  return found ? FactValue(*found) : FactValue();
}

template <FactValue (*read)(const FactSubject&)>
bool IsSaid(const FactSubject& subject) {
  return IsKnown(read(subject));
}

// `since`: the LOOKS of sight.py with which the agent began to look at it.
template <FactValue (*read)(const FactSubject&)>
Fact Row(const char* name, FactOf of, const char* text, uint32_t since) {
  return {name,
          of,
          FactType::kBool,
          FactNeed::kNone,
          text,
          "where the agent did not look",
          read,
          IsSaid<read>,
          /*at_end=*/true,
          since};
}

template <const char* name>
Fact CallRow(const char* text, uint32_t since = 1) {
  return Row<OfCall<name>>(name, FactOf::kCall, text, since);
}
template <const char* name>
Fact OptimizerRow(const char* text, uint32_t since = 1) {
  return Row<OfOptimizer<name>>(name, FactOf::kOptimizer, text, since);
}
template <const char* name>
Fact LoaderRow(const char* text, uint32_t since = 1) {
  return Row<OfLoader<name>>(name, FactOf::kLoader, text, since);
}

constexpr char kTwice[] = "loss.normalised_twice";
constexpr char kNoLogarithms[] = "loss.no_logarithms";
constexpr char kBroadcast[] = "loss.broadcast";
constexpr char kNoGraph[] = "loss.no_graph";
constexpr char kOverSamples[] = "loss.over_samples";
constexpr char kOfProbabilities[] = "loss.kl_of_probabilities";
constexpr char kWritesAgain[] = "recompute.writes_buffers";
constexpr char kRedraws[] = "recompute.redraws";
constexpr char kCut[] = "recompute.cut";
constexpr char kLoadsItself[] = "load.of_itself";
constexpr char kLoadsNothing[] = "load.of_nothing";
constexpr char kAverages[] = "opt.averages_without_statistics";
constexpr char kSumsMeans[] = "opt.sums_means";
constexpr char kClipsNothing[] = "opt.clips_nothing";
constexpr char kDiscards[] = "opt.discards_backwards";
constexpr char kStateLost[] = "opt.loaded_state_lost";
constexpr char kFrozenInVain[] = "opt.frozen_in_vain";
constexpr char kHidden[] = "opt.parts_hidden";
constexpr char kMadeInForward[] = "opt.layers_made_in_forward";
constexpr char kMadeAnew[] = "opt.made_anew";
constexpr char kNotFinite[] = "opt.loss_not_finite";
constexpr char kRepeated[] = "opt.layers_repeated";
constexpr char kLeftOut[] = "opt.late_left_out";
constexpr char kEarly[] = "schedule.early";
constexpr char kSharesSamples[] = "loader.shares_samples";
constexpr char kRepeatsDraws[] = "opt.repeats_draws";
constexpr char kRoundedAway[] = "opt.rounded_away";
constexpr char kGradientsOld[] = "opt.gradients_are_old";
constexpr char kNoProbabilities[] = "loss.targets_no_probabilities";
constexpr char kOverQueries[] = "loss.attends_over_queries";
constexpr char kSeesTargets[] = "loss.sees_targets";
constexpr char kRepeatsInput[] = "loss.repeats_input";
constexpr char kLearnsPadding[] = "loss.learns_padding";
constexpr char kMaskInverted[] = "loss.mask_inverted";
constexpr char kMaskOfOnes[] = "loss.mask_of_ones";
constexpr char kSamplesAsSteps[] = "loss.samples_as_steps";
constexpr char kLabelsNoSigns[] = "loss.labels_no_signs";
constexpr char kCtcBlank[] = "loss.ctc_blank";
constexpr char kCtcOfScores[] = "loss.ctc_of_scores";
constexpr char kBootstraps[] = "loss.bootstraps_with_gradient";
constexpr char kSortedBatches[] = "loss.sorted_batches";
constexpr char kInTraining[] = "loader.evaluated_in_training";
constexpr char kSamplesAlike[] = "loader.samples_alike";
constexpr char kBeginsAgain[] = "loader.begins_again";
constexpr char kForgets[] = "opt.forgets_statistics";
constexpr char kDropsMost[] = "opt.drops_most";
constexpr char kShiftsTwice[] = "loss.shifts_twice";
constexpr char kPenaltyOfParts[] = "loss.penalty_of_parts";
constexpr char kStaleCasts[] = "opt.stale_casts";
constexpr char kRateReset[] = "schedule.rate_reset";
constexpr char kCycleWaits[] = "schedule.cycle_waits";
constexpr char kLossesAreZero[] = "opt.losses_are_zero";
constexpr char kWithItself[] = "loss.contrasts_with_itself";
constexpr char kSeveralLabels[] = "loss.several_labels";
constexpr char kUnused[] = "schedule.unused";
constexpr char kScaledApart[] = "loader.scaled_apart";
constexpr char kEpsilonVanishes[] = "opt.epsilon_vanishes";
constexpr char kFollowerApart[] = "opt.follower_apart";
constexpr char kUnitsAlike[] = "opt.units_alike";
constexpr char kUnscaled[] = "opt.float16_unscaled";
constexpr char kWeightsTooFew[] = "loader.weights_too_few";
constexpr char kScaleAnew[] = "opt.scale_begins_anew";
constexpr char kLeftover[] = "opt.leftover_gradients";
constexpr char kForeign[] = "opt.foreign_gradients";
constexpr char kMaskedRows[] = "opt.moves_masked_rows";
constexpr char kMergesRates[] = "schedule.merges_rates";
constexpr char kAveragesPadding[] = "loss.averages_padding";
constexpr char kEmptyGroup[] = "opt.has_empty_group";
constexpr char kRisesAgain[] = "schedule.rises_again";
constexpr char kNotStandardised[] = "loader.not_standardised";
constexpr char kAverageOfLoader[] = "loader.averages_without_statistics";
constexpr char kForgetful[] = "opt.moments_forget";
constexpr char kMixesRows[] = "loss.mixes_rows";
constexpr char kWorkersRepeat[] = "loader.workers_repeat";
constexpr char kWritesData[] = "loader.writes_data";

std::vector<Fact> OfCalls() {
  return {
      CallRow<kTwice>(
          "the loss takes the softmax or the sigmoid of what is one already"),
      CallRow<kNoLogarithms>(
          "nll_loss is given scores or probabilities, not their logarithms"),
      CallRow<kBroadcast>("the loss compares each prediction with all targets"),
      CallRow<kNoGraph>(
          "the loss is a new tensor that no computation leads to"),
      CallRow<kOverSamples>(
          "the probabilities of a loss add up to 1 over the samples, not over "
          "the classes"),
      CallRow<kOfProbabilities>(
          "kl_div is given probabilities, not their logarithms"),
      CallRow<kNoProbabilities>("binary_cross_entropy_with_logits is given "
                                "targets below 0 or above 1"),
      CallRow<kOverQueries>(
          "attention weights add up to 1 over the queries, not over the keys"),
      CallRow<kSeesTargets>(
          "attention lets each position see the token that it is to predict"),
      CallRow<kRepeatsInput>(
          "each position is to predict the token that it is given"),
      CallRow<kLearnsPadding>("the loss counts predictions of padding"),
      CallRow<kMaskInverted>(
          "attention keeps to the padding and hides the tokens"),
      CallRow<kMaskOfOnes>(
          "a mask of zeros and ones is added to the scores of attention"),
      CallRow<kSamplesAsSteps>(
          "the samples of a batch are taken for the steps of one sequence"),
      CallRow<kLabelsNoSigns>("labels that must be 1 and -1 are 0 and 1"),
      CallRow<kCtcBlank>("ctc_loss is given targets that contain the blank"),
      CallRow<kCtcOfScores>(
          "ctc_loss is given scores or probabilities, not their logarithms"),
      CallRow<kBootstraps>(
          "an estimated target of Q-learning hands gradients back"),
      CallRow<kSortedBatches>(
          "the training goes through the classes one after the other"),
      CallRow<kShiftsTwice>(
          "each position is to predict the token after the next one"),
      CallRow<kPenaltyOfParts>("a gradient penalty takes the norm of parts of "
                               "a sample's gradient, not of all of it"),
      CallRow<kWithItself>("a sample's likeness to itself is among the wrong "
                           "answers of a contrastive loss"),
      CallRow<kSeveralLabels>(
          "cross_entropy is given several labels of one sample"),
      CallRow<kWritesAgain>(
          "it writes buffers when it computes a checkpointed region again"),
      CallRow<kRedraws>(
          "it draws other random numbers when it computes a checkpointed "
          "region again"),
      CallRow<kCut>(
          "a checkpointed region with trainable parameters passes no gradient "
          "on to them"),
      CallRow<kLoadsItself>(
          "a model loads its own tensors, which it has already"),
      CallRow<kLoadsNothing>("no name of the state fits one of the model's"),
  };
}

std::vector<Fact> OfOptimizers() {
  return {
      OptimizerRow<kAverages>(
          "an averaged copy was evaluated with BatchNorms that have seen no "
          "batch"),
      OptimizerRow<kSumsMeans>(
          "it adds up means of micro-batches that nobody divides by their "
          "number"),
      OptimizerRow<kClipsNothing>(
          "gradients of no parameter at all are clipped"),
      OptimizerRow<kDiscards>(
          "gradients of a backward are cleared before the step that they were "
          "computed for"),
      OptimizerRow<kStateLost>(
          "most of what its model had loaded is gone before the first step"),
      OptimizerRow<kFrozenInVain>(
          "a part is trained although an attribute of its module says that it "
          "needs no gradient"),
      OptimizerRow<kHidden>(
          "parameters get gradients that their model hides in a plain list or "
          "dictionary and that no optimizer holds"),
      OptimizerRow<kMadeInForward>(
          "forwards make layers with parameters of their own"),
      OptimizerRow<kRepeated>(
          "a list of layers holds one layer several times in a row"),
      OptimizerRow<kLeftOut>(
          "a parameter that was unfrozen or added later gets gradients and is "
          "in no optimizer"),
      OptimizerRow<kMadeAnew>(
          "optimizers of these parameters have been made anew again and again"),
      OptimizerRow<kNotFinite>(
          "its gradients are of a loss that is not finite"),
      OptimizerRow<kRepeatsDraws>(
          "the random numbers of its step are those of the step before"),
      OptimizerRow<kRoundedAway>(
          "most elements of its parameters in bfloat16 or float16 stand still"),
      OptimizerRow<kGradientsOld>(
          "no backward has run since its last step, and nothing else has given "
          "it other gradients"),
      OptimizerRow<kEpsilonVanishes>(
          "its eps is 0 in float16, the type of its parameters"),
      OptimizerRow<kForgets>(
          "a BatchNorm keeps little but the statistics of the last batch"),
      OptimizerRow<kDropsMost>("dropout drops most of its input"),
      OptimizerRow<kLossesAreZero>(
          "its losses are exactly 0, and were not before"),
      OptimizerRow<kStaleCasts>("forwards in its autocast region use weights "
                                "of before its last step"),
      OptimizerRow<kFollowerApart>("a network that follows another one slowly "
                                   "did not begin as its copy"),
      OptimizerRow<kUnitsAlike>(
          "all units of a layer have the same weights and keep them"),
      OptimizerRow<kUnscaled>(
          "forwards ran in float16 and no GradScaler scaled the loss"),
  };
}

std::vector<Fact> OfViews() {
  return {
      CallRow<kMixesRows>(
          "states that lie as [layers, batch, size] are viewed as "
          "[batch, layers * size], which mixes the samples",
          2),
      CallRow<kAveragesPadding>(
          "a loss whose padding is masked is a mean over padding, too", 4),
  };
}

// What goes on from step to step, from pass to pass and over a resume.
std::vector<Fact> OfUpkeep() {
  return {
      OptimizerRow<kScaleAnew>(
          "it goes on from a loaded state, and the loss scale begins anew", 2),
      OptimizerRow<kLeftover>(
          "it uses gradients that the epoch before has left", 2),
      OptimizerRow<kForeign>(
          "its gradients hold those of another optimizer's loss", 3),
      OptimizerRow<kEmptyGroup>(
          "a parameter group with a learning rate of its own is empty", 4),
      OptimizerRow<kMaskedRows>(
          "it changes rows whose gradients the script has set to 0", 4),
      OptimizerRow<kForgetful>(
          "its moments hold nothing but the latest gradient", 2),
  };
}

std::vector<Fact> OfSchedules() {
  return {
      OptimizerRow<kEarly>("its scheduler was stepped before its first step"),
      OptimizerRow<kRateReset>(
          "a scheduler that goes on has undone the rates that were loaded"),
      OptimizerRow<kCycleWaits>(
          "its OneCycleLR is not stepped after each of its steps"),
      OptimizerRow<kRisesAgain>(
          "its CosineAnnealingLR has passed its end, and the rates rise again",
          4),
      OptimizerRow<kMergesRates>(
          "one learning rate is set for groups that were made with different "
          "ones",
          4),
      OptimizerRow<kUnused>("none of its schedulers has been stepped in two "
                            "passes over the data"),
  };
}

std::vector<Fact> OfLoaders() {
  return {
      LoaderRow<kWorkersRepeat>(
          "all workers of the loader give the same batch"),
      LoaderRow<kWeightsTooFew>(
          "its sampler has fewer weights than the data set has samples", 2),
      LoaderRow<kSharesSamples>(
          "the evaluation reads some of the samples that are trained with"),
      LoaderRow<kInTraining>("the model is evaluated on them in training mode"),
      LoaderRow<kAverageOfLoader>(
          "an averaged copy is evaluated on them with BatchNorms that have the "
          "statistics of none",
          4),
      LoaderRow<kSamplesAlike>("all samples of a batch are alike"),
      LoaderRow<kBeginsAgain>(
          "every step begins the data anew and reads the same batch"),
      LoaderRow<kScaledApart>(
          "its inputs are on another scale than those that are trained with"),
      LoaderRow<kNotStandardised>("its inputs are not standardised, and those "
                                  "that are trained with are",
                                  4),
      LoaderRow<kWritesData>(
          "its data set changes the samples that it holds by handing them out"),
  };
}

}  // namespace

const std::vector<Fact>& ObservedFacts() {
  static const auto* const kFacts = [] {
    auto* all = new std::vector<Fact>;
    for (const auto& some : {OfCalls(), OfViews(), OfOptimizers(), OfUpkeep(),
                             OfSchedules(), OfLoaders()}) {
      all->insert(all->end(), some.begin(), some.end());
    }
    return all;
  }();
  return *kFacts;
}

}  // namespace traincheck

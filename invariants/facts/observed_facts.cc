// Facts that the agent has looked at itself: see observations.h. All are known
// when the call has ended, and mean something where the agent said something.
#include "invariants/facts/observed_rows.h"

namespace traincheck {
namespace {

// Arrays and not literals, because names are arguments of templates.
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
constexpr char kSharedByRanks[] = "save.shared_by_ranks";
constexpr char kLeavesRenamed[] = "load.leaves_renamed";
constexpr char kNoProbabilities[] = "loss.targets_no_probabilities";
constexpr char kOverQueries[] = "loss.attends_over_queries";
constexpr char kSeesLaterOnly[] = "loss.sees_later_only";
constexpr char kOneSample[] = "loss.one_sample";
constexpr char kSeesTargets[] = "loss.sees_targets";
constexpr char kRepeatsInput[] = "loss.repeats_input";
constexpr char kLearnsPadding[] = "loss.learns_padding";
constexpr char kMaskInverted[] = "loss.mask_inverted";
constexpr char kPoolsPadding[] = "loss.pools_padding";
constexpr char kLowPrecision[] = "loss.in_low_precision";
constexpr char kMaskOfOnes[] = "loss.mask_of_ones";
constexpr char kSamplesAsSteps[] = "loss.samples_as_steps";
constexpr char kLabelsNoSigns[] = "loss.labels_no_signs";
constexpr char kCtcBlank[] = "loss.ctc_blank";
constexpr char kCtcOfScores[] = "loss.ctc_of_scores";
constexpr char kBootstraps[] = "loss.bootstraps_with_gradient";
constexpr char kSortedBatches[] = "loss.sorted_batches";
constexpr char kShiftsTwice[] = "loss.shifts_twice";
constexpr char kPenaltyOfParts[] = "loss.penalty_of_parts";
constexpr char kWithItself[] = "loss.contrasts_with_itself";
constexpr char kSeveralLabels[] = "loss.several_labels";
constexpr char kAveragesPadding[] = "loss.averages_padding";
constexpr char kMixesRows[] = "loss.mixes_rows";
constexpr char kOutOfReach[] = "loss.targets_out_of_reach";
constexpr char kRectified[] = "loss.scores_rectified";
constexpr char kDropped[] = "loss.scores_dropped";
constexpr char kOneClass[] = "loss.one_class";
constexpr char kTrainsCritic[] = "loss.advantage_has_gradient";
constexpr char kAreLinear[] = "loss.layers_are_linear";
constexpr char kPaddedState[] = "loss.reads_padded_state";
constexpr char kSeesPadding[] = "loss.attends_to_padding";
constexpr char kWeighsByFrequency[] = "loss.weighs_by_frequency";
constexpr char kBalancesTwice[] = "loss.balances_twice";
constexpr char kFavoursFrequent[] = "loss.favours_frequent";
constexpr char kOfClasses[] = "loss.averages_over_classes";
constexpr char kOverlapOfScores[] = "loss.overlap_of_scores";
constexpr char kReordered[] = "loss.rows_reordered";
constexpr char kConstantPenalty[] = "loss.penalty_without_graph";
constexpr char kReadsBytes[] = "loss.reads_bytes";
constexpr char kBytesTwice[] = "loss.divides_bytes_twice";
constexpr char kPacksOthers[] = "loss.packs_other_lengths";
constexpr char kPaddingIsToken[] = "loss.padding_idx_is_a_token";
constexpr char kOfSamples[] = "loss.positions_of_samples";
constexpr char kRoundsPositions[] = "loss.rounds_positions";
constexpr char kSkipsFirst[] = "loss.skips_first_word";
constexpr char kOverBatch[] = "loss.weighs_over_samples";
constexpr char kAcrossTexts[] = "loss.attends_across_texts";
constexpr char kLowersEntropy[] = "loss.lowers_entropy";
constexpr char kStartsApart[] = "loss.ratio_starts_apart";
constexpr char kStaysOne[] = "loss.ratio_stays_one";
constexpr char kAnswersAlike[] = "loss.answers_alike";
constexpr char kSomeAlike[] = "loss.some_answers_alike";
constexpr char kOwnRowsConstant[] = "loss.own_rows_constant";
constexpr char kStrayTerm[] = "loss.stray_term";
constexpr char kNumberTerm[] = "loss.term_is_a_number";
constexpr char kNewTerm[] = "loss.term_without_graph";
constexpr char kKlOfTarget[] = "loss.kl_of_target";
constexpr char kNoiseByVariance[] = "loss.noise_by_variance";
constexpr char kDivergenceApart[] = "loss.divergence_scaled_apart";
constexpr char kHandSteps[] = "loss.hand_steps_add_up";
constexpr char kVarianceConfused[] = "loss.variance_confused";
constexpr char kCountsHeldOut[] = "loss.counts_held_out";
constexpr char kDividedTwice[] = "loss.divided_twice";
constexpr char kKeepsIgnored[] = "loss.keeps_ignored";
constexpr char kMultipliesCrosswise[] = "loss.multiplies_crosswise";

// Rows name the mistake first, as it is recorded with 1, and then what is
// right. The number at the end of a row is the version of the agent's looks
// (LOOKS of agent/python/hooks/sight.py) with which it began to look: a process
// with an older agent leaves the rule unknown. Without a number it is 1.
//
// How losses are normalised and aligned with their targets: loss_graph.py reads
// the nodes next to the loss, token_graph.py the tokens, their targets and what
// attention lets each position see.
std::vector<Fact> OfCalls() {
  return {
      CallRow<kTwice>("the loss applies softmax or sigmoid to values that are "
                      "normalised already",
                      "the loss applies softmax or sigmoid to values that are "
                      "not normalised yet"),
      CallRow<kNoLogarithms>(
          "nll_loss is given scores or probabilities, not their logarithms",
          "nll_loss is given logarithms of probabilities"),
      CallRow<kBroadcast>(
          "the loss compares each prediction with all targets",
          "the loss compares each prediction with its own target"),
      CallRow<kNoGraph>("the loss is a new tensor that no computation leads to",
                        "the loss is the result of a computation"),
      CallRow<kOverSamples>(
          "the probabilities of a loss add up to 1 over the samples, not over "
          "the classes",
          "the probabilities of a loss add up to 1 over the classes"),
      CallRow<kOfProbabilities>(
          "kl_div is given probabilities, not their logarithms",
          "kl_div is given logarithms of probabilities"),
      CallRow<kNoProbabilities>(
          "binary_cross_entropy_with_logits is given targets below 0 or above "
          "1",
          "binary_cross_entropy_with_logits is given targets between 0 and 1"),
      CallRow<kOverQueries>(
          "attention weights add up to 1 over the queries, not over the keys",
          "attention weights add up to 1 over the keys"),
      CallRow<kSeesTargets>(
          "attention lets each position see the token that it is to predict",
          "attention hides from each position the token that it is to predict"),
      CallRow<kRepeatsInput>(
          "each position is to predict the token that it is given",
          "each position is to predict another token than the one that it is "
          "given"),
      CallRow<kLearnsPadding>("the loss counts predictions of padding",
                              "the loss does not count predictions of padding"),
      CallRow<kMaskInverted>("attention sees the padding and hides the tokens",
                             "attention sees tokens and not only the padding"),
      // Padding then takes part in what stands for the whole sequence, which
      // depends on how long the others of its batch are.
      CallRow<kPoolsPadding>(
          "a mean over the positions of sequences includes their padding",
          "means over the positions of sequences leave out their padding", 8),
      CallRow<kLowPrecision>("cross_entropy is computed in bfloat16 or float16",
                             "cross_entropy is computed in float32", 8),
      CallRow<kMaskOfOnes>(
          "a mask of zeros and ones is added to the scores of attention",
          "no mask of zeros and ones is added to the scores of attention"),
      CallRow<kSamplesAsSteps>(
          "the samples of a batch are taken for the steps of one sequence",
          "the samples of a batch are not taken for the steps of one sequence"),
  };
}

// What a loss is given as targets (label_graph.py), and what a checkpointed
// region does when it is computed again (recomputation.py).
std::vector<Fact> OfTargets() {
  return {
      CallRow<kLabelsNoSigns>("labels that must be 1 and -1 are 0 and 1",
                              "labels that must be 1 and -1 are 1 and -1"),
      CallRow<kCtcBlank>(
          "ctc_loss is given targets that contain the blank",
          "ctc_loss is given targets that do not contain the blank"),
      CallRow<kCtcOfScores>(
          "ctc_loss is given scores or probabilities, not their logarithms",
          "ctc_loss is given logarithms of probabilities"),
      // The target of Q-learning is meant as a constant: with a gradient
      // through it the network moves the target towards its prediction.
      CallRow<kBootstraps>(
          "gradients flow through a target that the network estimates itself",
          "no gradients flow through a target that the network estimates "
          "itself"),
      CallRow<kSortedBatches>(
          "the training goes through the classes one after the other",
          "the training does not go through the classes one after the other"),
      CallRow<kShiftsTwice>(
          "each position is to predict the token after the next one",
          "each position is to predict the next token"),
      CallRow<kPenaltyOfParts>(
          "a gradient penalty takes the norm of parts of a sample's gradient, "
          "not of all of it",
          "a gradient penalty takes the norm of all of a sample's gradient"),
      CallRow<kWithItself>("a sample's likeness to itself is among the wrong "
                           "answers of a contrastive loss",
                           "a sample's likeness to itself is not among the "
                           "wrong answers of a contrastive loss"),
      CallRow<kSeveralLabels>(
          "cross_entropy is given several labels of one sample",
          "cross_entropy is given one label of each sample"),
      CallRow<kWritesAgain>(
          "it writes buffers when it computes a checkpointed region again",
          "it writes no buffers when it computes a checkpointed region again"),
      CallRow<kRedraws>("it draws other random numbers when it computes a "
                        "checkpointed region again",
                        "it draws the same random numbers when it computes a "
                        "checkpointed region again"),
      CallRow<kCut>("a checkpointed region with trainable parameters passes no "
                    "gradient on to them",
                    "a checkpointed region with trainable parameters passes "
                    "gradients on to them"),
  };
}

// What a model loads (checkpoints.py, renamed_parts.py), and where ranks save
// (shared_files.py).
std::vector<Fact> OfFiles() {
  return {
      CallRow<kLoadsItself>(
          "a model loads its own tensors, which it has already",
          "a model loads other tensors than its own"),
      CallRow<kLoadsNothing>("no name of the state fits one of the model's",
                             "some name of the state fits one of the model's"),
      // load_state_dict(strict=False) says nothing: an adapter or a compiler
      // has put a component into the names.
      CallRow<kLeavesRenamed>(
          "a part of the state is left out that the model has under a longer "
          "or a shorter name",
          "no part of the state is left out that the model has under a longer "
          "or a shorter name",
          6),
      CallRow<kSharedByRanks>(
          "it saves to a file that another rank saves to, too",
          "no two ranks save to one file", 26),
  };
}

// How rows, classes and positions of a batch are weighed and laid out.
std::vector<Fact> OfViews() {
  return {
      CallRow<kWeighsByFrequency>(
          "the weights of the loss are the classes' numbers of samples",
          "the weights of the loss are not the classes' numbers of samples",
          20),
      // A WeightedRandomSampler has drawn rare classes more often already
      // (balanced_draws.py).
      CallRow<kBalancesTwice>(
          "the loss weighs rare classes as much more as they were drawn more "
          "often",
          "the loss does not weigh rare classes as much more as they were "
          "drawn more often",
          21),
      CallRow<kSeesLaterOnly>(
          "each position attends to those behind its own alone, where the "
          "token "
          "is that it is to predict",
          "positions attend to others than those behind their own", 20),
      CallRow<kOneSample>(
          "the batch has one sample for the model and many targets, with which "
          "its prediction is compared",
          "the batch has as many samples for the model as targets", 20),
      // The last states of a bidirectional recurrence, as torch returns them.
      CallRow<kMixesRows>("states that lie as [layers, batch, size] are viewed "
                          "as [batch, layers * size], which mixes the samples",
                          "states that lie as [layers, batch, size] are not "
                          "viewed as [batch, layers * size]",
                          2),
      CallRow<kAveragesPadding>(
          "a loss whose padding is masked is a mean over padding, too",
          "a loss whose padding is masked is not a mean over padding", 4),
  };
}

// What a model ends in, and what is in it.
std::vector<Fact> OfOutputs() {
  return {
      // A sigmoid never gives -1: the loss cannot reach 0, and training goes on
      // without an error (output_graph.py).
      CallRow<kOutOfReach>(
          "targets are values that the last activation never gives",
          "the last activation can give the values of the targets", 9),
      CallRow<kRectified>("the scores of a classifier go through a ReLU",
                          "the scores of a classifier may be below 0", 9),
      CallRow<kDropped>("dropout drops what the model predicts",
                        "dropout drops none of what the model predicts", 9),
      CallRow<kOneClass>("softmax is taken over one class: it is always 1",
                         "softmax is taken over several classes", 9),
      CallRow<kTrainsCritic>(
          "gradients of the actor's loss flow into the critic through the "
          "advantage",
          "no gradients of the actor's loss flow through the advantage", 9),
      // Such layers compute no more than one of them could; narrow ones
      // (adapters) are meant to, and are left alone (layer_graph.py).
      CallRow<kAreLinear>(
          "layers follow each other with nothing between them that is not "
          "linear",
          "something between the layers is not linear", 9),
      // A recurrence does not know where a text ends unless it is packed
      // (padded_states.py).
      CallRow<kPaddedState>(
          "the last state of a recurrence is that behind the padding of a text",
          "recurrences end where their texts end", 9),
      CallRow<kSeesPadding>(
          "the tokens of a text attend to the padding behind it",
          "no token of a text attends to padding", 9),
      CallRow<kPaddingIsToken>(
          "the padding_idx of an embedding is a token of the texts, and "
          "another "
          "one fills them up",
          "the padding_idx of an embedding is what fills up texts", 9),
      CallRow<kOfSamples>(
          "positions of tokens are counted over the samples of a batch",
          "positions of tokens are counted over their text", 9),
      CallRow<kOverBatch>("weights add up to 1 over the samples of a batch",
                          "no weights add up to 1 over the samples of a batch",
                          9),
      CallRow<kKlOfTarget>("the network is the target of kl_div",
                           "the network is the input of kl_div", 9),
      // A mean over a text's tokens that is divided by the text's length once
      // more: long texts count less (repeated_quotients.py).
      CallRow<kDividedTwice>(
          "a quotient by different whole numbers is divided by them again",
          "no quotient is divided by the same numbers again", 14),
      CallRow<kKeepsIgnored>(
          "a mask of log-probabilities keeps one id alone and leaves out many",
          "masks of log-probabilities keep different ids", 15),
      // [n, 1] times [n] is [n, n]: no loss is weighed by what was meant for it
      // (crossed_products.py).
      CallRow<kMultipliesCrosswise>(
          "a column of numbers, one a sample, is multiplied by a row of them, "
          "and all products are added up",
          "numbers of samples are multiplied by those of the same samples", 15),
  };
}

// Facts of variational encoders (variational_noise.py, divergence_scales.py),
// and of steps that a program makes by hand (hand_steps.py).
std::vector<Fact> OfVariations() {
  return {
      CallRow<kNoiseByVariance>(
          "the noise of a variational encoder is scaled by the variance",
          "the noise of a variational encoder is scaled by the deviation", 9),
      CallRow<kVarianceConfused>(
          "a result of a variational encoder is the logarithm of the variance "
          "to its noise or its divergence, and the deviation to the other",
          "the noise and the divergence of a variational encoder take its "
          "results for the same",
          13),
      CallRow<kDivergenceApart>(
          "one of the error and the divergence of a variational encoder is a "
          "mean over a sample's numbers, and the other a sum",
          "the error and the divergence of a variational encoder are sums over "
          "a sample's numbers",
          23),
      CallRow<kHandSteps>(
          "the program has changed the parameters itself, and the gradients of "
          "the backwards before are still there",
          "gradients are cleared after the program has changed the parameters "
          "itself",
          24),
  };
}

// What models are given and how targets are weighed.
std::vector<Fact> OfInputs() {
  return {
      // bfloat16 has 8 bits for a whole number: positions beyond 256 fall
      // together (rounded_positions.py).
      CallRow<kRoundsPositions>(
          "positions or rotary angles are rounded to a low precision",
          "positions and rotary angles are not rounded to a low precision", 20),
      CallRow<kSkipsFirst>(
          "the mask of a prompt hides the first word of its answer",
          "masks of prompts end where answers are to be predicted", 20),
      CallRow<kFavoursFrequent>(
          "the loss weighs frequent classes more than rare ones",
          "the loss weighs rare classes more than frequent ones", 10),
      CallRow<kOfClasses>(
          "a loss between distributions is averaged over the classes",
          "losses between distributions are added up over the classes", 10),
      CallRow<kOverlapOfScores>(
          "an overlap with a mask is computed of scores",
          "overlaps with masks are computed of probabilities", 10),
      CallRow<kReordered>(
          "texts are read in another order than their targets have",
          "texts and their targets are in one order", 10),
      // torch.autograd.grad without create_graph gives numbers: the penalty
      // changes the value of the loss, and nothing that is learned.
      CallRow<kConstantPenalty>(
          "a term of the loss that gradients were taken for has no gradient",
          "gradients that were taken for the loss have a graph", 10),
      // Weights are drawn and rates chosen for inputs of about 1; these were
      // never divided by 255, the next ones twice (raw_inputs.py).
      CallRow<kReadsBytes>("the first layer reads whole numbers up to 255",
                           "the first layer reads no whole numbers up to 255",
                           10),
      CallRow<kBytesTwice>(
          "the first layer reads bytes that were divided by "
          "255 twice",
          "the first layer reads no bytes that were divided by "
          "255 twice",
          20),
      CallRow<kPacksOthers>("texts are packed with the lengths of other texts",
                            "texts are packed with their own lengths", 10),
      // A network on a graph computes all of its nodes: the mask in the loss is
      // all that keeps the test's from being trained with (held_out_rows.py).
      CallRow<kCountsHeldOut>(
          "the loss counts rows that a mask beside its targets holds out",
          "the loss does not count rows that masks hold out", 26),
  };
}

// What the loss of a policy says, and of rows that hold several texts.
std::vector<Fact> OfPolicies() {
  return {
      CallRow<kAcrossTexts>(
          "texts that are packed into one row attend to each other",
          "texts that are packed into one row attend to themselves alone", 11),
      CallRow<kLowersEntropy>(
          "the loss of the policy falls as its entropy falls",
          "the loss of the policy falls as its entropy rises", 11),
      // PPO's old and new policy are the same before the first update. A ratio
      // other than 1 shows that the two compute the probability of an action in
      // different ways (policy_graph.py).
      CallRow<kStartsApart>(
          "the ratio of the new policy to the old one is not 1 before the "
          "first update",
          "the ratio of the new policy to the old one is 1 before the first "
          "update",
          11),
      // The old probabilities are computed anew from the present policy, so
      // that nothing is ever clipped (still_ratios.py).
      CallRow<kStaysOne>(
          "the ratio of the new policy to the old one is 1, although the "
          "policy has been trained with the samples before",
          "the ratio of the new policy to the old one is not 1 where the "
          "policy "
          "has been trained with the samples before",
          20),
      // What all_gather fills has no graph (gathered_rows.py).
      CallRow<kOwnRowsConstant>(
          "embeddings are multiplied with those of all ranks, among which this "
          "rank's own are constants",
          "gradients reach this rank's own embeddings among those of all ranks",
          25),
      CallRow<kStrayTerm>(
          "a term of the loss reaches no parameter that is stepped with it",
          "each term of the loss reaches parameters that are stepped with it",
          12),
      // torch.tensor(values, requires_grad=True) has the values of what was
      // computed, and none of its graph (new_terms.py).
      CallRow<kNewTerm>(
          "a term of the loss is a new tensor that no computation leads to",
          "each term of the loss is the result of a computation", 20),
      // aux.item() adds the value of a term and none of its gradient
      // (number_terms.py).
      CallRow<kNumberTerm>(
          "a term of the loss is a number that was taken from a tensor",
          "no term of the loss is a number that was taken from a tensor", 26),
      CallRow<kAnswersAlike>(
          "one in twenty wrong answers of the loss, or more, is the right one "
          "itself",
          "less than one in twenty wrong answers of the loss is the right one",
          20),
      CallRow<kSomeAlike>(
          "one to five in a hundred wrong answers of the loss are the right "
          "one itself",
          "less than one in a hundred wrong answers of the loss, or more than "
          "five, are the right one",
          20),
  };
}

}  // namespace

const std::vector<Fact>& ObservedFacts() {
  static const auto* const kFacts = [] {
    // Never destroyed: rules keep pointers to its rows.
    auto* all = new std::vector<Fact>;
    for (const auto& some :
         {OfCalls(), OfTargets(), OfFiles(), OfViews(), OfOutputs(),
          OfVariations(), OfInputs(), OfPolicies(), ObservedOptimizerFacts(),
          ObservedLoaderFacts(), ObservedScheduleFacts()}) {
      all->insert(all->end(), some.begin(), some.end());
    }
    return all;
  }();
  return *kFacts;
}

}  // namespace traincheck

// Facts of optimizers that the agent has looked at itself: see
// observed_facts.cc.
#include "invariants/facts/observed_rows.h"

namespace traincheck {
namespace {

Fact BlamesConstruction(Fact fact) {
  fact.blames = Blamed::kConstruction;
  return fact;
}

constexpr char kAverages[] = "opt.averages_without_statistics";
constexpr char kSumsMeans[] = "opt.sums_means";
constexpr char kClipsNothing[] = "opt.clips_nothing";
constexpr char kDiscards[] = "opt.discards_backwards";
constexpr char kStateLost[] = "opt.loaded_state_lost";
constexpr char kFrozenInVain[] = "opt.frozen_in_vain";
constexpr char kHidden[] = "opt.parts_hidden";
constexpr char kPartLeftOut[] = "opt.part_left_out";
constexpr char kFrozenAtZeros[] = "opt.frozen_at_zeros";
constexpr char kNotParameter[] = "opt.tensor_not_parameter";
constexpr char kMadeInForward[] = "opt.layers_made_in_forward";
constexpr char kMadeAnew[] = "opt.made_anew";
constexpr char kNotFinite[] = "opt.loss_not_finite";
constexpr char kRepeated[] = "opt.layers_repeated";
constexpr char kLeftOut[] = "opt.late_left_out";
constexpr char kNoState[] = "opt.resumes_without_state";
constexpr char kBestForgotten[] = "opt.best_forgotten";
constexpr char kBestStays[] = "opt.best_stays";
constexpr char kKeepsWorst[] = "opt.keeps_the_worst";
constexpr char kBestIsShared[] = "opt.best_is_shared";
constexpr char kKeepsOne[] = "opt.keeps_one_object";
constexpr char kMetricGoesOn[] = "opt.metric_carried_on";
constexpr char kImpatient[] = "opt.patience_not_set_back";
constexpr char kSavesUnstepped[] = "opt.saves_unstepped";
constexpr char kLeavesState[] = "opt.leaves_state";
constexpr char kRepeatsDraws[] = "opt.repeats_draws";
constexpr char kRanksAlike[] = "opt.ranks_draw_alike";
constexpr char kLastIsLocal[] = "opt.last_backward_is_local";
constexpr char kPastWrapper[] = "opt.steps_past_wrapper";
constexpr char kReplicasMoved[] = "opt.replicas_moved";
constexpr char kWrappedApart[] = "opt.wrapped_apart";
constexpr char kFrozenPartApart[] = "opt.frozen_part_apart";
constexpr char kBesideWrapper[] = "opt.trains_beside_wrapper";
constexpr char kBesidesScaler[] = "opt.stepped_besides_scaler";
constexpr char kClearsFirst[] = "opt.clears_before_step";
constexpr char kLastOnly[] = "opt.only_last_loss";
constexpr char kBlindForward[] = "opt.forward_without_gradients";
constexpr char kAverageLeftIn[] = "opt.average_left_in";
constexpr char kAverageIsModel[] = "opt.average_is_model";
constexpr char kAverageStands[] = "opt.average_stands_still";
constexpr char kRoundedAway[] = "opt.rounded_away";
constexpr char kAverageRounded[] = "opt.average_rounded_away";
constexpr char kGradientsOld[] = "opt.gradients_are_old";
constexpr char kFrozenMoves[] = "opt.frozen_norm_moves";
constexpr char kForgets[] = "opt.forgets_statistics";
constexpr char kDropsMost[] = "opt.drops_most";
constexpr char kStaleCasts[] = "opt.stale_casts";
constexpr char kAveragesEach[] = "opt.averages_micro_batches";
constexpr char kClipsEach[] = "opt.clips_micro_batches";
constexpr char kLossesAreZero[] = "opt.losses_are_zero";
constexpr char kNeedsNone[] = "opt.needs_no_gradients";
constexpr char kEpsilonVanishes[] = "opt.epsilon_vanishes";
constexpr char kFollowerApart[] = "opt.follower_apart";
constexpr char kFollowerLeads[] = "opt.follower_leads";
constexpr char kStateByPosition[] = "opt.state_by_position";
constexpr char kTeacherDrops[] = "opt.teacher_drops";
constexpr char kDropsAll[] = "opt.loader_drops_all";
constexpr char kUnitsAlike[] = "opt.units_alike";
constexpr char kUnscaled[] = "opt.float16_unscaled";
constexpr char kScaleAnew[] = "opt.scale_begins_anew";
constexpr char kLeftover[] = "opt.leftover_gradients";
constexpr char kForeign[] = "opt.foreign_gradients";
constexpr char kMaskedRows[] = "opt.moves_masked_rows";
constexpr char kEmptyGroup[] = "opt.has_empty_group";
constexpr char kForgetful[] = "opt.moments_forget";
constexpr char kCounterStands[] = "opt.counter_stands";
constexpr char kKeepsStatistics[] = "opt.copy_keeps_statistics";
constexpr char kDividesByMore[] = "opt.divides_by_more";
constexpr char kCarriesState[] = "opt.carries_state";
constexpr char kEvaluatesAShare[] = "opt.evaluates_a_share";
constexpr char kFilledRows[] = "opt.rows_of_one_number";
constexpr char kSamplesBlindly[] = "opt.samples_without_gradient";
constexpr char kStillCopy[] = "opt.evaluates_still_copy";
constexpr char kGetsZeros[] = "opt.layer_gets_zeros";
constexpr char kFollowerFlees[] = "opt.follower_flees";
constexpr char kVectorsOnly[] = "opt.decays_vectors_only";
constexpr char kScaleUnused[] = "opt.rate_scale_unused";
constexpr char kOneRounded[] = "opt.parameter_rounded_away";
constexpr char kDropsResult[] = "opt.result_dropped";
constexpr char kUnread[] = "opt.argument_unread";

// What they hold and accumulate (accumulation.py, hidden_parts.py).
std::vector<Fact> OfOptimizers() {
  return {
      OptimizerRow<kAverages>("an averaged copy was evaluated with BatchNorms "
                              "that have seen no batch",
                              "no averaged copy was evaluated with BatchNorms "
                              "that have seen no batch"),
      OptimizerRow<kSumsMeans>("it adds up means of micro-batches that nobody "
                               "divides by their number",
                               "it does not add up means of micro-batches "
                               "without dividing by their number"),
      OptimizerRow<kDividesByMore>(
          "it has accumulated fewer losses than each of them is divided by",
          "it has accumulated as many losses as each of them is divided by",
          14),
      OptimizerRow<kClipsNothing>("gradient clipping finds no gradients",
                                  "gradient clipping finds gradients"),
      OptimizerRow<kDiscards>("gradients of a backward are cleared before the "
                              "step that they were computed for",
                              "gradients of a backward are kept until the step "
                              "that they were computed for"),
      OptimizerRow<kStateLost>(
          "most of what its model had loaded is gone before the first step",
          "most of what its model had loaded is still there at the first step"),
      OptimizerRow<kFrozenInVain>("a part is trained although an attribute of "
                                  "its module says that it needs no gradient",
                                  "no module is trained whose attributes say "
                                  "that it needs no gradient"),
      OptimizerRow<kNotParameter>(
          "a tensor of a module gets gradients, is not a parameter, and does "
          "not "
          "change",
          "no tensor of a module gets gradients in vain because it is not a "
          "parameter",
          20),
      OptimizerRow<kHidden>(
          "parameters get gradients that their model hides in a plain list or "
          "dictionary and that no optimizer holds",
          "every parameter that gets gradients belongs to its model or is held "
          "by an optimizer"),
      OptimizerRow<kMadeInForward>(
          "forwards make layers with parameters of their own",
          "forwards do not make layers with parameters of their own"),
      OptimizerRow<kRepeated>(
          "a list of layers holds one layer several times in a row",
          "no list of layers holds one layer several times in a row"),
      // What an optimizer holds is decided where it is made.
      BlamesConstruction(OptimizerRow<kLeftOut>(
          "a parameter that was unfrozen or added later "
          "gets gradients and is in no optimizer",
          "every parameter that was unfrozen or added later "
          "and gets gradients is in an optimizer")),
      BlamesConstruction(OptimizerRow<kMadeAnew>(
          "optimizers of these parameters have been made anew again and again",
          "the optimizer is created once, not repeatedly")),
      OptimizerRow<kNotFinite>("its gradients are of a loss that is not finite",
                               "its gradients are of a loss that is finite"),
  };
}

// What a step does, and with what; signs.py looks at most of it. BatchNorms
// take no notice of requires_grad, and torch's momentum of them is the share of
// the new batch: both are easily taken for the opposite.
std::vector<Fact> OfUpdates() {
  return {
      OptimizerRow<kRepeatsDraws>(
          "the random numbers of its step are those of the step before",
          "the random numbers of its step differ from those of the step "
          "before"),
      OptimizerRow<kRoundedAway>(
          "most elements of its parameters in bfloat16 or float16 stand still",
          "most elements of its parameters in bfloat16 or float16 change"),
      OptimizerRow<kGradientsOld>(
          "no backward has run since its last step, and nothing else has given "
          "it other gradients",
          "a backward has run since its last step, or something else has given "
          "it other gradients"),
      BlamesConstruction(OptimizerRow<kEpsilonVanishes>(
          "its eps is 0 in float16, the type of its parameters",
          "its eps is not 0 in the type of its parameters")),
      OptimizerRow<kFrozenMoves>(
          "a BatchNorm with frozen parameters is in training mode",
          "BatchNorms with frozen parameters are in evaluation mode", 8),
      OptimizerRow<kForgets>(
          "a BatchNorm keeps little but the statistics of the last batch",
          "BatchNorms keep more than the statistics of the last batch"),
      OptimizerRow<kDropsMost>("dropout drops most of its input",
                               "dropout does not drop most of its input"),
      OptimizerRow<kLossesAreZero>(
          "its losses are exactly 0, and were not before",
          "its losses have not become exactly 0"),
      OptimizerRow<kNeedsNone>(
          "it is the program's own, and nothing has had a gradient",
          "it goes by gradients", 7),
      OptimizerRow<kStaleCasts>(
          "forwards in its autocast region use weights of before its last step",
          "forwards in its autocast region use its current weights"),
      OptimizerRow<kFollowerApart>(
          "a network that follows another one slowly did not begin as its copy",
          "a network that follows another one slowly began as its copy"),
      OptimizerRow<kFollowerLeads>(
          "a network that should follow another one slowly moves most of the "
          "way to it at once",
          "a network that follows another one moves a small share of the way",
          7),
      OptimizerRow<kStateByPosition>(
          "its parameters have another order than in the file from which it "
          "took its state",
          "its parameters have the order of the file from which it took its "
          "state",
          7),
      OptimizerRow<kTeacherDrops>(
          "a frozen network that gives targets is in training mode",
          "frozen networks that give targets are in evaluation mode", 7),
      OptimizerRow<kUnitsAlike>(
          "all units of a layer have the same weights and keep them",
          "the units of a layer do not all have the same weights"),
      OptimizerRow<kUnscaled>(
          "forwards ran in float16 and no GradScaler scaled the loss",
          "forwards ran in float16 and the loss was scaled"),
  };
}

// What goes on from step to step, from pass to pass and over a resume: states
// and scales belong into checkpoints, copies are to follow.
std::vector<Fact> OfUpkeep() {
  return {
      OptimizerRow<kDropsAll>("since the last step, a loader has dropped all "
                              "of its data set, which "
                              "is smaller than a batch",
                              "no loader drops all of its data set", 7),
      OptimizerRow<kNoState>(
          "its model goes on from a file of the training that has no state of "
          "an optimizer",
          "the file from which its model goes on has the state of an optimizer",
          8),
      OptimizerRow<kLeavesState>(
          "its model goes on from a file that has the state of an optimizer, "
          "which nothing has loaded",
          "the state of an optimizer was loaded from the file from which its "
          "model goes on",
          12),
      OptimizerRow<kScaleAnew>(
          "it goes on from a loaded state, and the loss scale begins anew",
          "it goes on from a loaded state, and so does the loss scale", 2),
      OptimizerRow<kLeftover>(
          "it uses gradients that the epoch before has left",
          "it does not use gradients that the epoch before has left", 2),
      OptimizerRow<kForeign>(
          "its gradients hold those of another optimizer's loss",
          "its gradients do not hold those of another optimizer's loss", 3),
      OptimizerRow<kAverageIsModel>(
          "averages are written to the trained model itself, which stays as it "
          "is",
          "averages are not written to the trained model itself", 20),
      OptimizerRow<kAverageStands>(
          "an average or a target network is updated and stays what it was",
          "averages and target networks that are updated move", 20),
      OptimizerRow<kAverageRounded>(
          "most elements of an averaged copy in bfloat16 or float16 stand "
          "still when it is updated",
          "most elements of averaged copies in bfloat16 or float16 move when "
          "they are updated",
          5),
      OptimizerRow<kMaskedRows>(
          "it changes rows whose gradients the script has set to 0",
          "it does not change rows whose gradients the script has set to 0", 4),
      // An average over parameters() leaves the buffers out.
      OptimizerRow<kKeepsStatistics>(
          "a copy that was called follows the training, and the statistics of "
          "its BatchNorms stand still",
          "the statistics of copies that were called follow the training, too",
          14),
      OptimizerRow<kStillCopy>(
          "a copy is evaluated that has not changed since it was made",
          "copies that are evaluated follow the training", 10),
      OptimizerRow<kForgetful>(
          "its moments hold nothing but the latest gradient",
          "its moments hold more than the latest gradient", 2),
      OptimizerRow<kCounterStands>(
          "its counter of steps stands still while its moments move",
          "its counter of steps moves with its moments", 13),
  };
}

// The best values of evaluations, and what is kept for them.
std::vector<Fact> OfBests() {
  return {
      OptimizerRow<kBestForgotten>(
          "a checkpoint that was written after a resume has a worse best value "
          "than the one that was loaded",
          "no checkpoint that was written after a resume has a worse best "
          "value "
          "than the one that was loaded",
          20),
      OptimizerRow<kBestStays>(
          "states are kept again and again for being better than a best value "
          "that stays what it was",
          "the best value that states are kept for moves with them", 20),
      OptimizerRow<kKeepsWorst>(
          "a state was kept for the worst value so far, as if it were the best",
          "no state was kept for the worst value so far", 20),
      OptimizerRow<kBestIsShared>(
          "the weights that are kept as the best ones are those of the model "
          "itself, which it updates",
          "the weights that are kept as the best ones are a copy", 23),
      OptimizerRow<kImpatient>(
          "a better evaluation did not set back the counter of worse ones that "
          "patience is compared with",
          "better evaluations set back the counter of worse ones that patience "
          "is compared with",
          20),
  };
}

// Their parameter groups, and what these are of.
std::vector<Fact> OfGroups() {
  return {
      OptimizerRow<kKeepsOne>("a list that collects holds one object again and "
                              "again, and what is in "
                              "it changes",
                              "lists that collect hold different objects", 20),
      OptimizerRow<kMetricGoesOn>(
          "a metric that collects batches goes on from one evaluation to the "
          "next",
          "metrics that collect batches begin anew with each evaluation", 20),
      BlamesConstruction(OptimizerRow<kEmptyGroup>(
          "a parameter group with a learning rate of its own is empty",
          "no parameter group with a learning rate of its own is empty", 4)),
      BlamesConstruction(OptimizerRow<kVectorsOnly>(
          "weight decay is on all biases and scales and on no matrix",
          "weight decay is not on biases and scales alone", 16)),
      BlamesConstruction(OptimizerRow<kScaleUnused>(
          "groups that differ in their scale of the learning rate have one "
          "rate",
          "groups that differ in their scale of the learning rate have "
          "different rates",
          16)),
      OptimizerRow<kPartLeftOut>(
          "a part of its model gets gradients, and no optimizer was given it",
          "every part of its model that gets gradients was given to an "
          "optimizer",
          20),
      OptimizerRow<kFrozenAtZeros>(
          "a part of an adapter is frozen at zeros beside parts that are "
          "trained",
          "no part of an adapter is frozen at zeros beside parts that are "
          "trained",
          20),
      OptimizerRow<kOneRounded>(
          "a parameter in bfloat16 or float16 stands still",
          "each of its parameters in bfloat16 or float16 changes", 16),
      OptimizerRow<kLastOnly>(
          "between two steps a line computes something of several batches, and "
          "only the last one's result goes backward",
          "where a line computes something of several batches between two "
          "steps, "
          "not only the last one's result goes backward",
          20),
  };
}

// What they are given, and what becomes of it.
std::vector<Fact> OfGradients() {
  return {
      OptimizerRow<kSamplesBlindly>("samples of a trained normal distribution "
                                    "have no gradient, and their "
                                    "likelihood is not trained",
                                    "samples of a trained normal distribution, "
                                    "or their likelihood, have a "
                                    "gradient",
                                    9),
      OptimizerRow<kGetsZeros>(
          "the gradients of a layer are zero in each of its first steps",
          "each layer gets gradients that are not zero in its first steps", 9),
      OptimizerRow<kFollowerFlees>(
          "a network that should follow another one moves away from it",
          "a network that follows another one moves towards it", 11),
      OptimizerRow<kDropsResult>(
          "a statement of the code that trains does nothing: a result is "
          "dropped, or a method is named and not called",
          "no statement of the code that trains drops a result", 11),
      OptimizerRow<kUnread>(
          "a function of the code that trains is given a mask, lengths or the "
          "ends of episodes, and does not read them",
          "functions of the code that trains read the masks, lengths and ends "
          "of "
          "episodes that they are given",
          23),
      OptimizerRow<kRanksAlike>(
          "this rank draws for its batches the random numbers that another "
          "rank "
          "draws",
          "ranks draw different random numbers for their batches", 18),
      OptimizerRow<kClearsFirst>("the gradients of a backward are cleared "
                                 "before its step, which finds "
                                 "none",
                                 "it steps with the gradients of a backward",
                                 20),
      OptimizerRow<kBesidesScaler>(
          "a GradScaler has stepped it since the last backward, and it steps "
          "again",
          "it is stepped by a GradScaler alone", 20),
      OptimizerRow<kBlindForward>(
          "it holds a part whose forward is decorated with no_grad, and has no "
          "gradient of it",
          "parts whose forward is decorated with no_grad have gradients", 20),
      OptimizerRow<kAverageLeftIn>(
          "averaged weights were put into a model since its last step, and the "
          "trained ones, which were stored, were not restored",
          "averaged weights that were put into a model were taken out again",
          20),
  };
}

// What is done for each of their micro-batches, and what is saved of them.
std::vector<Fact> OfMicroBatches() {
  return {
      OptimizerRow<kClipsEach>(
          "its gradients are clipped after each micro-batch, and the next one "
          "is added to them",
          "its gradients are clipped once they are complete", 22),
      OptimizerRow<kAveragesEach>(
          "an average of weights is updated for each micro-batch between two "
          "steps, in which they stand still",
          "averages of weights are updated once for each step", 22),
      OptimizerRow<kSavesUnstepped>(
          "a checkpoint has the empty state of an optimizer in whose place "
          "another one steps",
          "checkpoints have the state of the optimizer that steps", 22),
  };
}

// What their wrapper knows of them.
std::vector<Fact> OfWrappers() {
  return {
      OptimizerRow<kLastIsLocal>(
          "its wrapper averages the gradients of an earlier micro-batch over "
          "the "
          "ranks, and not those of the last",
          "its wrapper averages the gradients of the last micro-batch over the "
          "ranks",
          19),
      // DistributedDataParallel prepares its reduction in its own forward.
      OptimizerRow<kPastWrapper>(
          "backwards give its wrapped model gradients, and no forward of the "
          "wrapper has run since its last step",
          "a forward of its wrapper has run since its last step", 20),
      OptimizerRow<kReplicasMoved>(
          "a parameter of its wrapped model was moved or replaced since it was "
          "wrapped",
          "the parameters of its wrapped model are those that were wrapped",
          20),
      OptimizerRow<kWrappedApart>(
          "its model had other parameters than that of another rank when it "
          "was "
          "wrapped",
          "its model had the same parameters on all ranks when it was wrapped",
          20),
      OptimizerRow<kFrozenPartApart>(
          "a frozen network beside its wrapped model has other weights on "
          "another rank",
          "frozen networks beside a wrapped model are the same on all ranks",
          20),
      OptimizerRow<kBesideWrapper>(
          "it trains parameters that are in no wrapper, and another rank has "
          "other gradients for them",
          "parameters that are in no wrapper have equal gradients on all ranks",
          20),
      // A DistributedSampler gives each rank a part of what is evaluated
      // (ungathered_shares.py).
      OptimizerRow<kEvaluatesAShare>(
          "each rank has evaluated its share of the data, and nothing has "
          "brought the results together",
          "what ranks have evaluated in shares is brought together", 26),
  };
}

// What models are given.
std::vector<Fact> OfGivenRows() {
  return {
      OptimizerRow<kCarriesState>(
          "a model is given the state of another batch, although batches are "
          "shuffled",
          "a model is not given the state of another batch where batches are "
          "shuffled",
          17),
      OptimizerRow<kFilledRows>(
          "each row of what a model is given is one number, repeated",
          "rows of what models are given hold different numbers", 25),
  };
}

}  // namespace

std::vector<Fact> ObservedOptimizerFacts() {
  std::vector<Fact> all = OfOptimizers();
  for (const auto& some :
       {OfUpdates(), OfUpkeep(), OfBests(), OfGroups(), OfGradients(),
        OfMicroBatches(), OfWrappers(), OfGivenRows()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

}  // namespace traincheck

#include "server/comparing/comparison_message.h"

#include <string>

#include "base/printable_text.h"

namespace traincheck::server {
namespace {

// Names of functions and variables are a script's own, and no UTF-8 must be
// sent that is not.
std::string Text(const std::string& recorded) {
  return EscapeUnprintable(recorded);
}

v1::RunDifference MessageOf(const Difference& difference) {
  v1::RunDifference message;
  // Unset for what differs before the first step.
  if (difference.step) message.set_step(*difference.step);
  message.set_after_last_step(difference.after_last_step);
  message.set_rung(NameOf(difference.place.rung));
  message.set_what(Text(difference.what));
  message.set_a(Text(difference.a));
  message.set_b(Text(difference.b));
  message.set_site_a(Text(difference.site_a));
  message.set_site_b(Text(difference.site_b));
  message.mutable_ranks()->Assign(difference.ranks.begin(),
                                  difference.ranks.end());
  return message;
}

v1::ComparedVariables MessageOf(const ProcessResult::Variables& variables) {
  v1::ComparedVariables message;
  message.set_step(variables.step);
  message.set_compared(variables.counts.compared);
  message.set_different(variables.counts.different);
  return message;
}

// Without a first step that differs the rank is equal, as far as it was
// compared.
v1::ComparedRank MessageOf(const ComparedRank& rank) {
  v1::ComparedRank message;
  message.set_rank(rank.rank);
  message.set_steps_a(rank.steps_a);
  message.set_steps_b(rank.steps_b);
  if (rank.first_step) message.set_first_step(*rank.first_step);
  return message;
}

// How much "no difference" means: a comparison of few values says little.
v1::ComparedCounts CountsOf(const ComparisonCoverage& coverage) {
  v1::ComparedCounts message;
  message.set_whole_steps(coverage.whole_steps);
  message.set_skeleton_steps(coverage.skeleton_steps);
  message.set_calls(coverage.calls);
  message.set_arguments(coverage.arguments);
  message.set_results(coverage.results);
  message.set_weights(coverage.weights);
  message.set_gradients(coverage.gradients);
  message.set_optimizer_states(coverage.optimizer_states);
  message.set_generators(coverage.generators);
  message.set_batches(coverage.batches);
  message.set_settings(coverage.settings);
  return message;
}

}  // namespace

v1::CompareRunsResult ToApi(const ComparisonResult& result) {
  v1::CompareRunsResult message;
  for (const Difference& difference : result.before) {
    *message.add_before() = MessageOf(difference);
  }
  for (const Difference& difference : result.first) {
    *message.add_first() = MessageOf(difference);
  }
  // All differences of the first step that differs, by rung; `first` holds only
  // some of them.
  for (const auto& [rung, count] : result.counts) {
    v1::RungCount* added = message.add_counts();
    added->set_rung(NameOf(rung));
    added->set_differences(count);
  }
  if (result.variables_first) {
    *message.mutable_variables_first() = MessageOf(*result.variables_first);
  }
  if (result.variables_last) {
    *message.mutable_variables_last() = MessageOf(*result.variables_last);
  }
  message.set_steps_behind(result.steps_behind);
  message.set_steps_behind_different(result.steps_behind_different);
  for (const ComparedRank& rank : result.ranks) {
    *message.add_ranks() = MessageOf(rank);
  }
  *message.mutable_compared() = CountsOf(result.coverage);
  // With the reason: a result without differences must not be read as if all
  // had been compared.
  for (const auto& [key, missed] : result.coverage.not_compared) {
    v1::NotCompared* added = message.add_not_compared();
    added->set_what(Text(key.first));
    added->set_why(Text(key.second));
    added->set_count(missed.count);
    for (const std::string& example : missed.examples) {
      added->add_examples(Text(example));
    }
  }
  return message;
}

}  // namespace traincheck::server

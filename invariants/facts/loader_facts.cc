// Facts of a loader: of the one that a call iterates over or reads from, when
// the call ends.
#include "invariants/facts/fact.h"
#include "invariants/facts/loader_passes.h"
#include "invariants/facts/process_facts.h"

namespace traincheck {

namespace {

const LoaderPasses& Passes(const FactSubject& subject) {
  return subject.facts->loader_passes();
}

FactValue Trains(const FactSubject& subject) {
  return ToFactValue(Passes(subject).Trains(subject.loader));
}

// Passes include the one that goes on.
bool HasPassBefore(const FactSubject& subject) {
  return Passes(subject).Passes(subject.loader) > 1;
}

FactValue Consumed(const FactSubject& subject) {
  return ToFactValue(Passes(subject).Consumed(subject.loader));
}

// A first pass that was left early was a trial (of learning rates, of the
// loader), after which everything may be set back, generators too.
bool FollowsTrial(const FactSubject& subject) {
  return Passes(subject).Passes(subject.loader) == 2 &&
         Passes(subject).Consumed(subject.loader) == Tri::kNo;
}

// The batch with which the pass can be compared, once a pass. One order is
// meant where nothing is drawn, and does no harm where nothing is trained.
bool CompletesPrefix(const FactSubject& subject) {
  return HasPassBefore(subject) && !FollowsTrial(subject) &&
         Passes(subject).DrawsAtRandom(subject.loader) != Tri::kNo &&
         Passes(subject).Trains(subject.loader) != Tri::kNo &&
         Passes(subject).IsCompared(subject.loader);
}

FactValue Shuffles(const FactSubject& subject) {
  return ToFactValue(Passes(subject).Shuffles(subject.loader));
}

}  // namespace

const std::vector<Fact>& LoaderFacts() {
  constexpr auto kOf = FactOf::kLoader;
  static const auto* const kFacts = new std::vector<Fact>{
      // All of them at the end of the call: only then the batch that the call
      // fetched counts.
      {"loader.trains", kOf, FactType::kBool, FactNeed::kNone,
       "batches of the loader were trained with",
       "no batch of the loader was trained with",
       "after missing records, until a backward follows a batch of it", Trains,
       nullptr, /*at_end=*/true},
      {"loader.consumed", kOf, FactType::kBool, FactNeed::kNone,
       "the loader's previous pass was read to its end",
       "the loader's previous pass was not read to its end",
       "in the first pass, and where the end of a pass may be missing",
       Consumed, HasPassBefore, /*at_end=*/true},
      {"sampler.shuffles", kOf, FactType::kBool, FactNeed::kNone,
       "the sampler orders the data anew in every epoch",
       "the sampler repeats the order of the epoch before",
       "in the first pass, and where indices of a pass were not recorded",
       Shuffles, CompletesPrefix, /*at_end=*/true, /*looked_at_since=*/0,
       Blamed::kConstruction},
  };
  return *kFacts;
}

}  // namespace traincheck

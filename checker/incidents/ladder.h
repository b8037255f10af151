// The ladder of causes: the rungs of a training step on which rules stand. What
// is wrong on a lower rung explains what is wrong on a higher one: a parameter
// that no optimizer holds (setup) explains that it does not change (update),
// and never the other way round. docs/incidents.md shows the ladder with
// examples.
//
// Threads: constant tables, pure functions.
#ifndef TRAINCHECK_CHECKER_INCIDENTS_LADDER_H_
#define TRAINCHECK_CHECKER_INCIDENTS_LADDER_H_

#include <optional>
#include <string>

namespace traincheck {

// In the order in which one explains the next.
enum class Rung {
  kSetup,       // parameters held, wrapping, ties, settings, requires_grad
  kMode,        // training and evaluation mode, autocast, random generators
  kData,        // what loaders give
  kCall,        // which calls are made, their order and arguments, the loss
  kResult,      // what calls return
  kCollective,  // what ranks exchange
  kGradient,    // present, finite, unscaled, equal on replicas
  kUpdate,      // what a step changes, and what else does
  kReplicas,    // replicas equal, checkpoints equal to what was trained
  kTotals,      // what is known at the end only
};

// "setup"
const char* NameOf(Rung rung);
// nullopt: no rung has that name.
std::optional<Rung> RungNamed(const std::string& name);

// Where a rule stands.
struct Place {
  Rung rung = Rung::kCall;
  // Among the rules of its rung: what comes earlier in a step is lower.
  int moment = 0;
  // The rule knows how the program of the reference runs is written (how often
  // a function is called in a step, say) and not what is right or wrong. It
  // explains nothing, and is explained by whatever else is found beside it.
  bool structure = false;
};

// Of rules that ask for a value of this fact; nullopt: no rule does, and none
// is told apart by it.
std::optional<Rung> RungOfFact(const std::string& fact);

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_INCIDENTS_LADDER_H_

#include "server/checking/change_bells.h"

#include <utility>

namespace traincheck::server {

// A bell is registered before its owner's first look, so that nothing falls
// between a look and the wait behind it.
ChangeBells::Bell::Bell(ChangeBells* bells, std::string run)
    : bells_(*bells), run_(std::move(run)) {
  absl::MutexLock lock(&bells_.mutex_);
  bells_.all_.insert(this);
}

ChangeBells::Bell::~Bell() {
  absl::MutexLock lock(&bells_.mutex_);
  bells_.all_.erase(this);
}

bool ChangeBells::Bell::Wait(absl::Time deadline) {
  absl::MutexLock lock(&bells_.mutex_);
  // A condition variable may wake without a signal; what counts is the flag.
  while (!has_rung_) {
    if (rings_.WaitWithDeadline(&bells_.mutex_, deadline)) break;
  }
  return std::exchange(has_rung_, false);
}

void ChangeBells::Ring(const std::string& run) {
  absl::MutexLock lock(&mutex_);
  // Over all bells: there are as many as clients that wait, which CallLimit
  // bounds.
  for (Bell* bell : all_) {
    if (bell->run_.empty() || bell->run_ == run) Ring(bell);
  }
}

// This is for what concerns every waiter: the daemon stops, a token was
// revoked, a check has finished.
void ChangeBells::RingAll() {
  absl::MutexLock lock(&mutex_);
  for (Bell* bell : all_) Ring(bell);
}

}  // namespace traincheck::server

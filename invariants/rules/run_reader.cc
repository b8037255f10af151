#include "invariants/rules/run_reader.h"

#include <algorithm>

namespace traincheck {
namespace {

// Is the process one of those that have a rank and no group? Such a rank names
// nobody: several trainings that one script starts may have it.
bool IsAlone(const ProcessPlace& place) {
  return place.rank.has_value() && place.world <= 1;
}

// By this people can tell such processes apart.
std::string HomeOf(const ProcessFacts& facts) {
  const ProcessInfo& process = facts.definitions().process();
  return "pid " + std::to_string(process.pid) + " on host " + process.host;
}

}  // namespace

void RunReader::Begin(uint32_t number, Process* process) {
  process->live = std::make_unique<Live>(number);
  // In the order of the observers, in which their states are saved and
  // restored.
  for (RunObserver* observer : observers_) {
    process->live->observers.push_back(
        observer->AddProcess(process->live->facts));
    process->live->facts.AddObserver(process->live->observers.back().get());
  }
}

ProcessFacts* RunReader::Facts(uint32_t number) {
  const auto [at, is_new] = processes_.try_emplace(number);
  if (is_new) Begin(number, &at->second);
  return at->second.live ? &at->second.live->facts : nullptr;
}

void RunReader::Consume(uint32_t process, const StoredBatch& batch) {
  if (ProcessFacts* facts = Facts(process)) facts->Consume(batch);
}

void RunReader::SetAttempt(uint32_t process, uint32_t attempt) {
  if (ProcessFacts* facts = Facts(process)) facts->SetAttempt(attempt);
}

void RunReader::EndProcess(uint32_t process, ProcessEnd end) {
  if (ProcessFacts* facts = Facts(process)) facts->End(end);
}

void RunReader::LetGo(uint32_t number) {
  const auto found = processes_.find(number);
  if (found == processes_.end() || !found->second.live) return;
  Process& process = found->second;
  ProcessBrief brief = process.brief();
  const ProcessPlace& place = brief.place;
  // Only the newest attempt is asked how well it was seen. What hundreds of
  // ranks saw is mostly the same and is kept once; a set's elements stay where
  // they are.
  if (place.trains() && place.attempt >= sights_attempt_) {
    if (place.attempt > sights_attempt_) ForgetSights();
    sights_attempt_ = place.attempt;
    brief.sight = &*sights_.insert(*brief.sight).first;
  } else {
    brief.sight = nullptr;
    brief.gap_reason.clear();
  }
  if (IsAlone(place)) process.home = HomeOf(process.live->facts);
  process.last = std::move(brief);
  process.live.reset();
}

// A process of a newer attempt is let go: nobody asks any more how well those
// before were seen. The pointers go first, because they point into sights_.
void RunReader::ForgetSights() {
  for (auto& [number, process] : processes_) {
    process.last.sight = nullptr;
    process.last.gap_reason = {};
  }
  sights_.clear();
}

void RunReader::EndRun() {
  for (RunObserver* observer : observers_) observer->EndRun();
}

void RunReader::GiveUpRank(uint32_t attempt, int32_t rank,
                           const std::string& reason) {
  // One rank of an attempt is enough to say why something may be unseen.
  given_up_[attempt] = "rank " + std::to_string(rank) + " " + reason;
  for (RunObserver* observer : observers_) {
    observer->GiveUpRank(attempt, rank, reason);
  }
}

const ProcessFacts* RunReader::Find(uint32_t process) const {
  const auto found = processes_.find(process);
  if (found == processes_.end() || !found->second.live) return nullptr;
  return &found->second.live->facts;
}

uint64_t RunReader::StepOf(uint32_t process) const {
  const auto found = processes_.find(process);
  if (found == processes_.end()) return 0;
  const Process& known = found->second;
  return known.live ? known.live->facts.clock().step() : known.last.step;
}

std::string RunReader::NameIfShared(uint32_t process) const {
  const auto found = processes_.find(process);
  if (found == processes_.end()) return "";
  const ProcessPlace place = found->second.place();
  if (!IsAlone(place)) return "";
  for (const auto& [number, other] : processes_) {
    const ProcessPlace there = other.place();
    // A loader's worker has the place of its trainer.
    if (number == process || there.is_worker || !IsAlone(there) ||
        there.attempt != place.attempt) {
      continue;
    }
    return found->second.live ? HomeOf(found->second.live->facts)
                              : found->second.home;
  }
  return "";
}

// By processes that train: one without a rank, or a loader's worker, makes no
// attempt of its own.
uint32_t RunReader::newest_attempt() const {
  uint32_t newest = 0;
  for (const auto& [number, process] : processes_) {
    const ProcessPlace place = process.place();
    if (place.trains()) newest = std::max(newest, place.attempt);
  }
  return newest;
}

UnseenInRun RunReader::Unseen() const {
  const auto given_up = given_up_.find(newest_attempt());
  return {given_up == given_up_.end() ? "" : given_up->second,
          NewestTrainings()};
}

std::vector<ProcessBrief> RunReader::NewestTrainings() const {
  const uint32_t newest = newest_attempt();
  std::vector<ProcessBrief> trainings;
  for (const auto& [number, process] : processes_) {
    const ProcessPlace place = process.place();
    if (place.trains() && place.attempt == newest) {
      trainings.push_back(process.brief());
    }
  }
  return trainings;
}

void RunReader::Fields(Archive& archive) {
  std::vector<std::pair<uint32_t, bool>> numbers;  // is it going on?
  for (const auto& [number, process] : processes_) {
    numbers.emplace_back(number, process.live != nullptr);
  }
  // Which processes there are comes first, so that a restored reader can make
  // them with their observers before it reads their states.
  archive(numbers, given_up_);
  for (const auto& [number, goes_on] : numbers) {
    if (!archive.ok()) return;
    const auto [at, is_new] = processes_.try_emplace(number);
    Process& process = at->second;
    // The bytes may be damaged.
    if (is_new != archive.reading()) return archive.Fail("a process twice");
    // The observers must be there before their state can be read.
    if (is_new && goes_on) Begin(number, &process);
    if (goes_on) {
      archive(process.live->facts);
    } else {
      process.last.number = number;
      archive(process.last, process.home);
    }
  }
  SightFields(archive);
  for (RunObserver* observer : observers_) observer->Fields(archive);
}

void RunReader::SightFields(Archive& archive) {
  // Each Sight once, and for each process its place among them. The place
  // behind the last one stands for none.
  std::vector<Sight> sights(sights_.begin(), sights_.end());
  archive(sights, sights_attempt_);
  std::vector<const Sight*> known;
  for (const Sight& sight : sights) {
    known.push_back(&*sights_.insert(sight).first);
  }
  for (auto& [number, process] : processes_) {
    // A live process has its sight in its facts.
    if (process.live) continue;
    const Sight*& sight = process.last.sight;
    const auto at = std::find(known.begin(), known.end(), sight);
    auto place = static_cast<uint32_t>(at - known.begin());
    archive(place);
    if (place > known.size()) return archive.Fail("no such sight");
    sight = place < known.size() ? known[place] : nullptr;
  }
}

}  // namespace traincheck

#include "ctl/run/violation_watch.h"

#include <chrono>

namespace traincheck::ctl {
namespace {

// Between two streams. The server also ends one in order, when the run is
// checked as far as it has come.
constexpr std::chrono::milliseconds kPause{250};

}  // namespace

ViolationWatch::ViolationWatch(Client* client, const std::string& run,
                               ViolationPrinter* printer)
    : client_(*client), run_(run), printer_(*printer) {
  thread_ = std::thread([this] { Follow(); });
}

ViolationWatch::~ViolationWatch() {
  {
    // Under the lock Follow makes no further stream, so the one that is
    // cancelled is the last.
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
    if (stream_) stream_->Cancel();
  }
  wake_.notify_all();
  thread_.join();
}

// On its own thread. Streams may break at any time, and each new one repeats
// what there is, so nothing is missed and the printer sorts out what it has
// shown.
void ViolationWatch::Follow() {
  do {
    ViolationStream* stream = nullptr;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (ending_) return;
      stream_ = std::make_unique<ViolationStream>(&client_, run_);
      stream = stream_.get();
    }
    // Whatever ends it, a server that went or a run that it does not know yet,
    // the next try shows. Only this thread replaces stream_.
    stream
        ->Read([this](const v1::Violation& violation) {
          printer_.Print(violation);
        })
        .IgnoreError();
  } while (Pause());
}

bool ViolationWatch::Pause() {
  std::unique_lock<std::mutex> lock(mutex_);
  return !wake_.wait_for(lock, kPause, [this] { return ending_; });
}

}  // namespace traincheck::ctl

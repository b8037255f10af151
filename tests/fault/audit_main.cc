// Reads a data directory that no daemon uses and says, as JSON on stdout, what
// is in it: the truth about delivery, apart from the daemon's own books.
//
//   audit DATA_DIR
//
// An array with one object a process; see process_audit.h for what is in it.
// Exit code 1: the directory cannot be read.
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "nlohmann/json.hpp"
#include "proto/traincheck/v1/ingest.pb.h"
#include "server/store/rocksdb_store.h"
#include "tests/fault/process_audit.h"

namespace traincheck::server {
namespace {

constexpr size_t kKeyBytes = 8 + 4 + 8;  // run, process, batch

uint64_t BigEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<uint8_t>(byte);
  return value;
}

class Audit {
 public:
  void Add(std::string_view key, std::string_view value) {
    if (key.size() != kKeyBytes) return;
    const std::string owner(key.substr(0, 12));
    if (owner != owner_) {
      Finish();
      owner_ = owner;
      process_ = std::make_unique<ProcessAudit>();
    }
    v1::Batch batch;
    if (!batch.ParseFromArray(value.data(), static_cast<int>(value.size()))) {
      process_->Error("a stored batch is no Batch message");
      return;
    }
    process_->Add(BigEndian(key.substr(12)), batch);
  }

  void Finish() {
    if (!process_) return;
    nlohmann::json shown = process_->Show();
    shown["run"] = BigEndian(std::string_view(owner_).substr(0, 8));
    shown["process"] = BigEndian(std::string_view(owner_).substr(8));
    processes_.push_back(std::move(shown));
    process_.reset();
  }

  const nlohmann::json& processes() const { return processes_; }

 private:
  std::string owner_;
  std::unique_ptr<ProcessAudit> process_;
  nlohmann::json processes_ = nlohmann::json::array();
};

int Main(const std::string& data_dir) {
  auto store = OpenRocksdbStore(data_dir, {.min_free_bytes = 0});
  if (!store.ok()) {
    std::cerr << std::string(store.status().message()) << "\n";
    return 1;
  }
  Audit audit;
  const absl::Status status =
      (*store)->Scan(Table::kBatches, "", std::string(kKeyBytes + 1, '\xff'),
                     [&audit](std::string_view key, std::string_view value) {
                       audit.Add(key, value);
                       return true;
                     });
  (*store)->Close();
  if (!status.ok()) {
    std::cerr << std::string(status.message()) << "\n";
    return 1;
  }
  audit.Finish();
  std::cout << audit.processes().dump() << "\n";
  return 0;
}

}  // namespace
}  // namespace traincheck::server

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: audit DATA_DIR\n";
    return 2;
  }
  return traincheck::server::Main(argv[1]);
}

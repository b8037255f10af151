// Relays that die anywhere, a server that has stored any part of what was
// sent, stores that are replaced: in the end the store has every byte of every
// ring once and in order, and a new store has all definitions.
#include <gtest/gtest.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "agent/relay/definition_table.h"
#include "agent/relay/outbox.h"
#include "agent/ring/ring_for_testing.h"
#include "proto/record_reader.h"

namespace traincheck::agent {
namespace {

constexpr uint32_t kRings = 3;
constexpr uint64_t kManyBytes = uint64_t{1} << 40;

// What one ring was given, from its first byte on.
struct Stream {
  std::string bytes;
  std::vector<uint64_t> ends;  // of each record

  uint64_t RecordsBelow(uint64_t position) const {
    const auto end = std::upper_bound(ends.begin(), ends.end(), position);
    return static_cast<uint64_t>(end - ends.begin());
  }
};

// A store that keeps what it gets and refuses what no store would take.
class Store {
 public:
  explicit Store(int id) : id_("store-" + std::to_string(id)) {}

  v1::Welcome Welcome() const {
    v1::Welcome welcome;
    welcome.set_store_id(id_);
    welcome.set_next_batch(next_batch_);
    welcome.set_credit_bytes(kManyBytes);
    for (const auto& [ring, part] : parts_) {
      v1::RingCursor* cursor = welcome.add_rings();
      cursor->set_ring(ring);
      cursor->set_position(part.end);
      cursor->set_records(part.records);
    }
    return welcome;
  }

  void Put(const v1::Batch& batch) {
    ASSERT_EQ(batch.number(), next_batch_);
    ++next_batch_;
    std::string plain(batch.plain_bytes(), '\0');
    ASSERT_EQ(ZSTD_decompress(plain.data(), plain.size(),
                              batch.payload().data(), batch.payload().size()),
              plain.size());
    size_t at = 0;
    for (const v1::Slice& slice : batch.slices()) {
      const std::string bytes = plain.substr(at, slice.to() - slice.from());
      at += bytes.size();
      Part& part = parts_[slice.ring()];
      ASSERT_GE(slice.from(), part.end);  // nothing twice
      part.missing += slice.from() - part.end;
      part.end = slice.to();
      part.pieces[slice.from()] = bytes;
      part.records += slice.records();
    }
    ASSERT_EQ(at, plain.size());
  }

  struct Part {
    std::map<uint64_t, std::string> pieces;  // by their first position
    uint64_t end = 0;
    uint64_t missing = 0;
    uint64_t records = 0;
  };
  const std::map<uint32_t, Part>& parts() const { return parts_; }

 private:
  const std::string id_;
  uint64_t next_batch_ = 0;
  std::map<uint32_t, Part> parts_;
};

// One relay of the process, with the rings' tails before it.
class OneRelay {
 public:
  OneRelay(const std::string& folder, std::vector<Stream>* streams,
           std::vector<uint64_t>* tails)
      : directory_(SpoolPlacesIn(folder, geteuid()), kManyBytes),
        streams_(*streams),
        tails_(*tails),
        read_(*tails),
        table_(&compressor_),
        outbox_({.open_spool =
                     [this] {
                       return SpoolFile::Create(&directory_, "a.spool", "");
                     },
                 .release =
                     [this](const Slices& slices) {
                       for (const v1::Slice& slice : slices) {
                         Release(slice.ring(), slice.to());
                       }
                     },
                 .definitions = [this] { return table_.Batches(); },
                 .compressor = &compressor_}) {
    EXPECT_TRUE(directory_.Prepare().ok());
    const std::string path = directory_.Find("a.spool");
    if (!path.empty()) {
      auto loaded = LoadSpool(&directory_, path);
      EXPECT_TRUE(loaded.ok()) << loaded.status();
      for (const SpooledBatch& batch : loaded->batches) {
        for (const v1::Slice& slice : batch.slices) {
          Skip(slice.ring(), slice.to());
        }
      }
      outbox_.Adopt(*std::move(loaded));
    }
    FillTable();
  }

  // Makes a batch of up to `records` records of each ring.
  void MakeBatch(std::minstd_rand* random) {
    v1::Batch batch;
    std::string plain;
    for (uint32_t ring = 0; ring < kRings; ++ring) {
      const Stream& stream = streams_[ring];
      const uint64_t first = stream.RecordsBelow(read_[ring]);
      const uint64_t count =
          std::min<uint64_t>((*random)() % 5, stream.ends.size() - first);
      // Definitions are never behind what uses them: all of them.
      const uint64_t last = ring == 0 ? stream.ends.size() : first + count;
      if (last == first) continue;
      const uint64_t to = stream.ends[last - 1];
      const std::string bytes =
          stream.bytes.substr(read_[ring], to - read_[ring]);
      v1::Slice* slice = batch.add_slices();
      slice->set_ring(ring);
      slice->set_from(read_[ring]);
      slice->set_to(to);
      slice->set_records(static_cast<uint32_t>(last - first));
      plain += bytes;
      if (ring == 0) {
        table_.Add({slice->from(), to, slice->records()}, bytes);
      }
      read_[ring] = to;
    }
    if (plain.empty()) return;
    batch.set_plain_bytes(static_cast<uint32_t>(plain.size()));
    batch.set_payload(compressor_.Compress(plain));
    outbox_.Add(std::move(batch), {});
  }

  void Spool() {
    ASSERT_TRUE(outbox_.Spool({}, std::chrono::milliseconds(0)).ok());
  }

  // Sends `count` batches; the store takes some and acknowledges some.
  void Connect(Store* store, size_t count, std::minstd_rand* random) {
    const auto coverages = outbox_.Resume(store->Welcome());
    if (coverages.has_value()) Cover(*coverages, *store);
    std::vector<v1::Batch> sent;
    while (sent.size() < count) {
      std::optional<v1::Batch> batch = outbox_.NextToSend();
      if (!batch.has_value()) break;
      sent.push_back(*std::move(batch));
    }
    const size_t taken =
        count == SIZE_MAX ? sent.size() : (*random)() % (sent.size() + 1);
    for (size_t i = 0; i < taken; ++i) store->Put(sent[i]);
    const size_t heard = count == SIZE_MAX ? taken : (*random)() % (taken + 1);
    if (heard > 0) {
      ASSERT_TRUE(outbox_.Acknowledge(sent[heard - 1].number() + 1).ok());
    }
    outbox_.Disconnect();
  }

  bool AllTaken() const {
    for (uint32_t ring = 0; ring < kRings; ++ring) {
      if (read_[ring] < streams_[ring].bytes.size()) return false;
    }
    return true;
  }
  Outbox& outbox() { return outbox_; }
  void RemoveSpool() { outbox_.RemoveSpool(); }

 private:
  void Release(uint32_t ring, uint64_t position) {
    tails_[ring] = std::max(tails_[ring], position);
  }
  void Skip(uint32_t ring, uint64_t position) {
    read_[ring] = std::max(read_[ring], position);
    Release(ring, position);
  }
  void FillTable() {
    const Stream& stream = streams_[0];
    const uint64_t from = table_.end();
    if (from >= read_[0]) return;
    table_.Add({from, read_[0],
                static_cast<uint32_t>(stream.RecordsBelow(read_[0]) -
                                      stream.RecordsBelow(from))},
               stream.bytes.substr(from, read_[0] - from));
  }
  void Cover(const RingCoverages& coverages, const Store& store) {
    for (const auto& [ring, coverage] : coverages) {
      const auto part = store.parts().find(ring);
      const bool whole =
          part == store.parts().end() || part->second.missing == 0;
      if (whole && coverage.records.has_value()) {
        EXPECT_EQ(*coverage.records,
                  streams_[ring].RecordsBelow(coverage.position));
      }
      read_[ring] = std::max(read_[ring], coverage.position);
      Release(ring, std::min(coverage.safe, read_[ring]));
    }
    FillTable();
  }

  SpoolDirectory directory_;
  std::vector<Stream>& streams_;
  std::vector<uint64_t>& tails_;
  std::vector<uint64_t> read_;
  Compressor compressor_;
  DefinitionTable table_;
  Outbox outbox_;
};

class RebaseTest : public testing::TestWithParam<int> {
 protected:
  RebaseTest()
      : folder_(testing::TempDir() + "/rebase-" + std::to_string(getpid()) +
                "-" + std::to_string(GetParam())),
        random_(static_cast<uint32_t>(GetParam()) + 1) {
    stores_.push_back(std::make_unique<Store>(0));
  }
  ~RebaseTest() override { std::filesystem::remove_all(folder_); }

  void Write(size_t records) {
    for (size_t i = 0; i < records; ++i) {
      Stream& stream = streams_[random_() % kRings];
      stream.bytes += random_() % 2 == 0
                          ? MarkBytes(written_)
                          : StringDefBytes(static_cast<uint32_t>(written_),
                                           random_() % 100);
      stream.ends.push_back(stream.bytes.size());
      ++written_;
    }
  }

  void OneStep(OneRelay* relay, bool may_replace) {
    switch (random_() % 8) {
      case 0:
        return relay->Spool();
      case 1:
      case 2:
        return relay->Connect(stores_.back().get(), random_() % 6, &random_);
      case 3:
        if (may_replace && random_() % 4 == 0) {
          stores_.push_back(
              std::make_unique<Store>(static_cast<int>(stores_.size())));
        }
        return;
      default:
        Write(random_() % 10);
        return relay->MakeBatch(&random_);
    }
  }

  void Live(bool may_replace) {
    for (int relays = 0; relays < 5; ++relays) {
      OneRelay relay(folder_, &streams_, &tails_);
      const int steps = static_cast<int>(random_() % 30);
      for (int i = 0; i < steps && !HasFatalFailure(); ++i) {
        OneStep(&relay, may_replace);
      }
    }
    OneRelay last(folder_, &streams_, &tails_);
    while (!last.AllTaken()) last.MakeBatch(&random_);
    last.Connect(stores_.back().get(), SIZE_MAX, &random_);
    EXPECT_TRUE(last.outbox().empty());
    EXPECT_EQ(last.outbox().TakeLostBatches(), 0u);
    last.RemoveSpool();
  }

  Store::Part PartOf(uint32_t ring) const {
    const auto found = stores_.back()->parts().find(ring);
    return found == stores_.back()->parts().end() ? Store::Part()
                                                  : found->second;
  }

  // What is stored is what was written there.
  void ExpectGenuine(uint32_t ring, const Store::Part& part) const {
    for (const auto& [from, bytes] : part.pieces) {
      EXPECT_TRUE(streams_[ring].bytes.compare(from, bytes.size(), bytes) == 0)
          << "ring " << ring << " from " << from;
    }
  }

  const std::string folder_;
  std::minstd_rand random_;
  uint64_t written_ = 0;
  std::vector<Stream> streams_{kRings};
  std::vector<uint64_t> tails_ = std::vector<uint64_t>(kRings, 0);
  std::vector<std::unique_ptr<Store>> stores_;
};

TEST_P(RebaseTest, OneStoreHasEveryByteOnce) {
  Live(/*may_replace=*/false);
  for (uint32_t ring = 0; ring < kRings; ++ring) {
    const Store::Part part = PartOf(ring);
    ExpectGenuine(ring, part);
    EXPECT_EQ(part.missing, 0u);
    EXPECT_EQ(part.end, streams_[ring].bytes.size());
    EXPECT_EQ(part.records, streams_[ring].ends.size());
    EXPECT_EQ(tails_[ring], streams_[ring].bytes.size());
  }
}

// What an older store has acknowledged is not sent again, definitions are.
TEST_P(RebaseTest, ANewStoreHasAllDefinitionsAndNothingTwice) {
  Live(/*may_replace=*/true);
  for (uint32_t ring = 0; ring < kRings; ++ring) {
    ExpectGenuine(ring, PartOf(ring));
  }
  EXPECT_EQ(PartOf(0).missing, 0u);
  EXPECT_EQ(PartOf(0).end, streams_[0].bytes.size());
}

INSTANTIATE_TEST_SUITE_P(Seeds, RebaseTest, testing::Range(0, 300));

}  // namespace
}  // namespace traincheck::agent

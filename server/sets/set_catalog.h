// Sets of invariants by name and version. Saving under a name that exists
// makes its next version; older ones stay, because runs were checked against
// them.
//
// Threads: safe on any thread.
#ifndef TRAINCHECK_SERVER_SETS_SET_CATALOG_H_
#define TRAINCHECK_SERVER_SETS_SET_CATALOG_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "invariants/rules/invariant.h"
#include "proto/traincheck/v1/control.pb.h"
#include "server/sets/set_index.h"
#include "server/store/store.h"

namespace traincheck::server {

// May people give a set this name? Letters, digits and . _ -, 1 to 64 of them,
// none of - in front, and not kBuiltInSet; else InvalidArgument.
[[nodiscard]] absl::Status CheckSetName(const std::string& name);

v1::Invariant ToApi(const Invariant& invariant);

// What Load takes to give these rules again, whatever is saved meanwhile.
std::string ReferenceTo(const InvariantSet& set);

class SetCatalog {
 public:
  // `store` must outlive the catalog.
  explicit SetCatalog(Store* store)
      : store_(*store), index_(std::make_shared<SetIndex>(store)) {}
  SetCatalog(const SetCatalog&) = delete;
  SetCatalog& operator=(const SetCatalog&) = delete;

  // Called with the name of each set that has become durable, also if its Save
  // was answered with Unavailable before. On the store's commit thread: it must
  // be short and must not save. REQUIRES: nothing was saved yet; the store is
  // closed before what it calls is destroyed.
  using Observer = std::function<void(const std::string& name)>;
  void SetObserver(Observer observer) { observer_ = std::move(observer); }

  // Adds what is to become durable together with a set.
  using Companion = std::function<void(const v1::SetSummary&, WriteSet*)>;

  // Stores `set` as the next version of set.name; its version is ignored.
  // `companion` may be empty. A set belongs to the `owner` of its first version
  // ("": the administrators, who may write every set); PermissionDenied for
  // others. REQUIRES: CheckSetName(set.name), or kBuiltInSet.
  [[nodiscard]] absl::StatusOr<v1::SetSummary> Save(
      InvariantSet set, const Companion& companion = nullptr,
      const std::string& owner = "");

  // Stores a set from its exchange form, under `name` if that is given. The
  // error names what is wrong and where.
  [[nodiscard]] absl::StatusOr<v1::SetSummary> ImportUntrusted(
      const std::string& name, const std::string& json,
      const std::string& owner = "");

  // Deletes a set (NAME) or one version (NAME@VERSION); their numbers are not
  // given again. Returns the versions that are gone. NotFound, InvalidArgument
  // for kBuiltInSet, PermissionDenied for a set of another owner.
  [[nodiscard]] absl::StatusOr<std::vector<uint32_t>> Delete(
      const std::string& set, const std::string& owner = "");

  // May `owner` write the set, or is there none of this name?
  [[nodiscard]] absl::Status CheckOwner(const std::string& name,
                                        const std::string& owner) const;

  // The newest version of each set, by name.
  [[nodiscard]] absl::StatusOr<std::vector<v1::SetSummary>> List() const {
    return index_->Newest();
  }
  // 0: there is no such set, or the sets cannot be read. Waits for no write.
  uint32_t NewestVersion(const std::string& name) const;

  // One set with all invariants. `set`: NAME or NAME@VERSION; `version` counts
  // where the name has none, 0: the newest. NotFound with what to do, or
  // InvalidArgument.
  [[nodiscard]] absl::StatusOr<v1::SetDetail> Detail(
      const std::string& set, uint32_t version = 0) const;
  // The rules of a selection (ParseSelection). More than one whole set becomes
  // one with each rule once, whose name is the selection with the sets'
  // versions and whose own version is 0.
  [[nodiscard]] absl::StatusOr<InvariantSet> Load(
      const std::string& selection) const;

  // The invariant and the sets whose newest version has it.
  [[nodiscard]] absl::StatusOr<v1::Invariant> FindInvariant(
      const std::string& id) const;

 private:
  // Summary and JSON, without invariants. Find takes NAME@VERSION too.
  absl::StatusOr<v1::SetDetail> Find(const std::string& set,
                                     uint32_t version) const;
  absl::StatusOr<v1::SetDetail> Read(const std::string& name,
                                     uint32_t version) const;
  // Whose it is; nothing: there is no such set.
  absl::StatusOr<std::optional<std::string>> OwnerOf(
      const std::string& name) const;
  // The last number that was given; 0: none.
  absl::StatusOr<uint32_t> LastVersion(const std::string& name) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(saving_);

  Store& store_;
  // Shared with writes that are not durable yet.
  const std::shared_ptr<SetIndex> index_;
  Observer observer_;
  absl::Mutex saving_;  // one Save at a time, for the version numbers
  // The last number that Save has given, by name: it may be on its way to the
  // store.
  std::map<std::string, uint32_t> given_ ABSL_GUARDED_BY(saving_);
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_SETS_SET_CATALOG_H_

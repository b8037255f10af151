// Sets of invariants by name and version. Saving under a name that exists
// makes its next version; older ones stay, because runs were checked against
// them.
//
// Threads: safe on any thread.
#ifndef TRAINCHECK_SERVER_SETS_SET_CATALOG_H_
#define TRAINCHECK_SERVER_SETS_SET_CATALOG_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "invariants/rules/invariant.h"
#include "proto/traincheck/v1/control.pb.h"
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
  explicit SetCatalog(Store* store) : store_(*store) {}
  SetCatalog(const SetCatalog&) = delete;
  SetCatalog& operator=(const SetCatalog&) = delete;

  // Called with the name of each set that has become durable, on the thread
  // that saved it. It must not save. REQUIRES: nothing was saved yet.
  using Observer = std::function<void(const std::string& name)>;
  void SetObserver(Observer observer) { observer_ = std::move(observer); }

  // Adds what is to become durable together with a set.
  using Companion = std::function<void(const v1::SetSummary&, WriteSet*)>;

  // Stores `set` as the next version of set.name; its version is ignored.
  // `companion` may be empty. REQUIRES: CheckSetName(set.name), or kBuiltInSet.
  [[nodiscard]] absl::StatusOr<v1::SetSummary> Save(
      InvariantSet set, const Companion& companion = nullptr);

  // Stores a set from its exchange form, under `name` if that is given. The
  // error names what is wrong and where.
  [[nodiscard]] absl::StatusOr<v1::SetSummary> ImportUntrusted(
      const std::string& name, const std::string& json);

  // Deletes a set (NAME) or one version (NAME@VERSION); their numbers are not
  // given again. Returns the versions that are gone. NotFound, or
  // InvalidArgument for kBuiltInSet.
  [[nodiscard]] absl::StatusOr<std::vector<uint32_t>> Delete(
      const std::string& set);

  // The newest version of each set, by name.
  [[nodiscard]] absl::StatusOr<std::vector<v1::SetSummary>> List() const;

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
  absl::StatusOr<std::vector<v1::SetDetail>> ReadNewest() const;
  // The last number that was given; 0: none.
  absl::StatusOr<uint32_t> LastVersion(const std::string& name) const;

  Store& store_;
  Observer observer_;
  absl::Mutex saving_;  // one Save at a time, for the version numbers
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_SETS_SET_CATALOG_H_

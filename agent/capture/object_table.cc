#include "agent/capture/object_table.h"

namespace traincheck {

ObjectTable& ObjectTable::Get() {
  static auto* table = new ObjectTable;
  return *table;
}

}  // namespace traincheck

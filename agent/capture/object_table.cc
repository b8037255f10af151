#include "agent/capture/object_table.h"

namespace traincheck::agent {

ObjectTable& ObjectTable::Get() {
  static auto* table = new ObjectTable;
  return *table;
}

}  // namespace traincheck::agent

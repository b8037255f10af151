// The wire contract of traincheck.v1 against testdata/descriptors.golden: one
// line a field, enum value and method. A line that is gone or differs breaks
// relays and clients that are out there; new lines are added to the golden.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "google/protobuf/descriptor.h"
#include "proto/traincheck/v1/access.pb.h"
#include "proto/traincheck/v1/compare.pb.h"
#include "proto/traincheck/v1/control.pb.h"
#include "proto/traincheck/v1/feedback.pb.h"
#include "proto/traincheck/v1/ingest.pb.h"
#include "proto/traincheck/v1/zoom.pb.h"

namespace traincheck {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::ServiceDescriptor;

class Contract {
 public:
  void Add(const FileDescriptor* file) {
    for (int i = 0; i < file->message_type_count(); ++i) {
      Add(file->message_type(i));
    }
    for (int i = 0; i < file->enum_type_count(); ++i) Add(file->enum_type(i));
    for (int i = 0; i < file->service_count(); ++i) Add(file->service(i));
  }
  const std::set<std::string>& lines() const { return lines_; }

 private:
  void Add(const Descriptor* message) {
    for (int i = 0; i < message->field_count(); ++i) {
      const FieldDescriptor* field = message->field(i);
      std::string type = field->type_name();
      if (field->message_type() != nullptr) {
        type = field->message_type()->full_name();
      } else if (field->enum_type() != nullptr) {
        type = field->enum_type()->full_name();
      }
      lines_.insert(field->full_name() + " = " +
                    std::to_string(field->number()) + " " +
                    (field->is_repeated() ? "repeated " : "") + type);
    }
  }

  void Add(const EnumDescriptor* type) {
    for (int i = 0; i < type->value_count(); ++i) {
      lines_.insert(type->full_name() + "." + type->value(i)->name() + " = " +
                    std::to_string(type->value(i)->number()));
    }
  }

  void Add(const ServiceDescriptor* service) {
    for (int i = 0; i < service->method_count(); ++i) {
      const auto* method = service->method(i);
      lines_.insert(method->full_name() + "(" +
                    (method->client_streaming() ? "stream " : "") +
                    method->input_type()->full_name() + ") -> " +
                    (method->server_streaming() ? "stream " : "") +
                    method->output_type()->full_name());
    }
  }

  std::set<std::string> lines_;
};

TEST(DescriptorGolden, TheWireContractOnlyGrowsAndTheGoldenWithIt) {
  Contract contract;
  contract.Add(v1::Hello::descriptor()->file());
  contract.Add(v1::Run::descriptor()->file());
  contract.Add(v1::SetSummary::descriptor()->file());
  contract.Add(v1::Violation::descriptor()->file());
  contract.Add(v1::CompareRunsRequest::descriptor()->file());
  contract.Add(v1::Mark::descriptor()->file());
  contract.Add(v1::ZoomReport::descriptor()->file());
  contract.Add(v1::Token::descriptor()->file());
  std::ifstream file("proto/testdata/descriptors.golden");
  std::set<std::string> golden;
  for (std::string line; std::getline(file, line);) golden.insert(line);
  for (const std::string& line : golden) {
    EXPECT_TRUE(contract.lines().contains(line))
        << "removed or changed, which breaks what is out there: " << line;
  }
  for (const std::string& line : contract.lines()) {
    EXPECT_TRUE(golden.contains(line))
        << "new: add to proto/testdata/descriptors.golden: " << line;
  }
}

}  // namespace
}  // namespace traincheck

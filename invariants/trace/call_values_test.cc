#include "invariants/trace/call_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/record_reader.h"
#include "proto/record_writer.h"

namespace traincheck {
namespace {

using testing::ElementsAre;
using testing::Optional;

// Definitions as an agent writes them, and the fields of values.
class CallValuesTest : public testing::Test {
 protected:
  uint32_t String(std::string_view text) {
    alignas(8) char buffer[256];
    FieldWriter out(buffer, sizeof buffer, DefinitionRecord{{}, ++strings_, 0});
    out.Bytes(Field::kText, text);
    Apply(buffer, out.Finish(RecordType::kStringDef, 0, 0));
    return strings_;
  }
  // The fields that `put` writes, as they stand in a record.
  template <typename Put>
  std::string Fields(const Put& put) {
    alignas(8) char buffer[4096];
    FieldWriter out(buffer, sizeof buffer, DefinitionRecord{});
    put(out);
    const size_t size = out.Finish(RecordType::kStringDef, 0, 0);
    return {buffer + sizeof(DefinitionRecord), size - sizeof(DefinitionRecord)};
  }
  // f(x, y=0.5, z="mean"), all told.
  void Define() {
    alignas(8) char buffer[256];
    const uint32_t x = String("x"), y = String("y"), z = String("z");
    const uint32_t name = String("m.f"), mean = String("mean");
    FieldWriter out(buffer, sizeof buffer, DefinitionRecord{{}, 1, 0});
    out.Unsigned(Field::kName, name);
    out.Unsigned(Field::kParameter, x);
    out.Unsigned(Field::kParameter, y);
    out.Double(Field::kValueDouble, 0.5);
    out.Unsigned(Field::kParameter, z);
    out.Unsigned(Field::kValueString, mean);
    Apply(buffer, out.Finish(RecordType::kFunctionDef, 0, 0));
    call_.function = definitions_.Function(1);
    ASSERT_NE(call_.function, nullptr);
  }
  void Apply(const char* bytes, size_t size) {
    ASSERT_GT(size, 0u);
    // The reader wants aligned bytes, as a std::string's are.
    const std::string copy(bytes, size);
    RecordReader record(copy);
    ASSERT_TRUE(record.Next());
    ASSERT_TRUE(definitions_.Apply(record));
  }
  ToldArguments Arguments() { return ArgumentsOf(call_, definitions_); }

  ProcessDefinitions definitions_;
  Call call_;
  uint32_t strings_ = 0;
};

constexpr char kMatrix[] = "\6\0\xff\0\7\2\3\3\4";  // float32, cpu, 3 x 4

TEST_F(CallValuesTest, DefaultsStandInForWhatWasNotGiven) {
  Define();
  call_.content = Fields([](FieldWriter& out) {
    out.Unsigned(Field::kArgument, 0);
    out.Signed(Field::kValueSigned, -3);
    out.Unsigned(Field::kArgument, 2);
    out.Unsigned(Field::kValueNone, 0);
  });
  const ToldArguments arguments = Arguments();
  ASSERT_EQ(arguments.all.size(), 3u);
  EXPECT_EQ(*arguments.Find("x")->Get<int64_t>(), -3);
  EXPECT_NE(arguments.Find("z")->Get<NoneValue>(), nullptr);
  EXPECT_EQ(*arguments.Find("y")->Get<double>(), 0.5);
  EXPECT_TRUE(arguments.all[2].is_default);
  EXPECT_FALSE(arguments.cut);
  EXPECT_EQ(arguments.Find("w"), nullptr);
}

TEST_F(CallValuesTest, NoDefaultIsAssumedBehindACut) {
  Define();
  call_.content = Fields([](FieldWriter& out) {
    out.Unsigned(Field::kArgument, 0);
    out.Unsigned(Field::kValueBool, 1);
    out.Unsigned(Field::kContentCut, 1);
  });
  const ToldArguments arguments = Arguments();
  EXPECT_TRUE(arguments.cut);
  EXPECT_EQ(arguments.all.size(), 1u);
  EXPECT_TRUE(*arguments.Find("x")->Get<bool>());
}

TEST_F(CallValuesTest, TensorsAndContainers) {
  Define();
  const uint32_t list = String("list"), extra = String("args[0]");
  call_.content = Fields([&](FieldWriter& out) {
    out.Unsigned(Field::kArgument, 0);
    out.Bytes(Field::kValueTensor, {kMatrix, 9});
    out.Word(Field::kValueDigest, 0xfedcba9876543210);
    out.Unsigned(Field::kArgumentName, extra);
    out.Unsigned(Field::kValueType, list);
    out.Unsigned(Field::kValueLength, 20);
    out.Unsigned(Field::kElement, 0);
    out.Double(Field::kValueDouble, 1.5);
    out.Unsigned(Field::kElement, 1);
    out.Unsigned(Field::kValueObject, 7);
  });
  const ToldArguments arguments = Arguments();
  const auto* matrix = arguments.Find("x")->Get<TensorValue>();
  ASSERT_NE(matrix, nullptr);
  EXPECT_EQ(matrix->dtype, "torch.float32");
  EXPECT_EQ(matrix->device, "cpu");
  EXPECT_THAT(matrix->sizes, ElementsAre(3, 4));
  EXPECT_EQ(matrix->storage, 2u);
  EXPECT_THAT(matrix->requires_grad, Optional(true));
  EXPECT_THAT(matrix->has_grad_fn, Optional(true));
  EXPECT_THAT(matrix->digest, Optional(0xfedcba9876543210));
  const CallValue* rest = arguments.Find("args[0]");
  ASSERT_NE(rest, nullptr);
  EXPECT_EQ(rest->Get<OtherValue>()->class_name, "list");
  EXPECT_THAT(rest->length, Optional(20u));
  ASSERT_EQ(rest->elements.size(), 2u);
  EXPECT_EQ(*rest->elements[0].value.Get<double>(), 1.5);
  EXPECT_EQ(rest->elements[1].value.Get<ObjectValue>()->object, 7u);
}

TEST_F(CallValuesTest, ResultOfACall) {
  EXPECT_FALSE(ResultOf(call_, definitions_).has_value());
  call_.result = Fields([](FieldWriter& out) {
    out.Unsigned(Field::kReturn, 0);
    out.Signed(Field::kValueSigned, 4);
  });
  EXPECT_EQ(*ResultOf(call_, definitions_)->Get<int64_t>(), 4);
}

// What cannot be read is unknown, wherever the bytes end or lie.
TEST_F(CallValuesTest, AnyBytesAreReadWithoutHarm) {
  Define();
  for (size_t size = 0; size < 9; ++size) {
    call_.content = Fields([&](FieldWriter& out) {
      out.Unsigned(Field::kArgument, 0);
      out.Bytes(Field::kValueTensor, {kMatrix, size});
    });
    const ToldArguments arguments = Arguments();
    const auto* tensor = arguments.Find("x")->Get<TensorValue>();
    EXPECT_EQ(tensor != nullptr, size >= 7) << size;
  }
  for (int byte = 0; byte < 256; ++byte) {
    call_.content = std::string(64, static_cast<char>(byte));
    call_.result = call_.content;
    Arguments();
    ResultOf(call_, definitions_);
  }
}

}  // namespace
}  // namespace traincheck

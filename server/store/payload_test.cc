#include "server/store/payload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zstd.h>

namespace traincheck::server {
namespace {

using testing::HasSubstr;

std::string Frame(const std::string& plain, bool checksum = true) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, checksum);
  std::string frame(ZSTD_compressBound(plain.size()), '\0');
  frame.resize(ZSTD_compress2(context, frame.data(), frame.size(), plain.data(),
                              plain.size()));
  ZSTD_freeCCtx(context);
  return frame;
}

std::string Error(const std::string& payload, uint32_t plain_bytes) {
  const absl::Status status =
      DecompressUntrusted(payload, plain_bytes).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(Payload, GivesBackWhatWasCompressed) {
  const std::string plain(10'000, 'x');
  const auto result = DecompressUntrusted(Frame(plain), plain.size());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(*result, plain);
}

TEST(Payload, BombIsRefusedAtTheSizeThatWasPromised) {
  const std::string bomb = Frame(std::string(64 << 20, '\0'));
  ASSERT_LT(bomb.size(), 10'000u);
  EXPECT_THAT(Error(bomb, 1000), HasSubstr("plain_bytes 1000"));
}

TEST(Payload, ShorterThanPromisedIsRefused) {
  EXPECT_THAT(Error(Frame("12345678"), 16), HasSubstr("has 8 bytes"));
}

TEST(Payload, EveryFlippedBitIsNoticed) {
  std::string plain;
  for (int i = 0; i < 100; ++i) plain += std::to_string(i * i);
  const std::string frame = Frame(plain);
  for (size_t byte = 0; byte < frame.size(); ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = frame;
      bad[byte] ^= static_cast<char>(1 << bit);
      const auto result = DecompressUntrusted(bad, plain.size());
      // A bit that the format does not use may flip; the content may not.
      if (result.ok()) {
        EXPECT_EQ(*result, plain) << byte;
      }
    }
  }
}

TEST(Payload, RefusesWhatIsNoSingleCheckedFrame) {
  EXPECT_THAT(Error("", 8), HasSubstr("not a zstd frame"));
  EXPECT_THAT(Error("garbage that is not a frame", 8),
              HasSubstr("not a zstd frame"));
  EXPECT_THAT(Error(Frame("12345678") + "x", 8), HasSubstr("1 bytes behind"));
  EXPECT_THAT(Error(Frame("12345678", false), 8),
              HasSubstr("without content checksum"));
  const std::string frame = Frame("12345678");
  EXPECT_THAT(Error(frame.substr(0, frame.size() - 1), 8),
              HasSubstr("not a zstd frame"));
}

}  // namespace
}  // namespace traincheck::server

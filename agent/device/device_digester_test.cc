#include "agent/device/device_digester.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "agent/device/digest_kernel_text.h"
#include "agent/device/driver_for_testing.h"

namespace traincheck::agent {
namespace {

using Refused = DeviceDigester::Refused;

// The driver's switches, found in the library as the agent finds the rest.
class Driver {
 public:
  Driver()
      : library_(dlopen("agent/device/libcuda_for_testing.so",
                        RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) {
      ADD_FAILURE() << dlerror();
      std::abort();
    }
  }
  template <typename... Arguments>
  auto Call(const char* name, Arguments... arguments) {
    using Function = int (*)(Arguments...);
    return reinterpret_cast<Function>(dlsym(library_, name))(arguments...);
  }

 private:
  void* const library_;
};

void* FindLoaded(const char* library, const char* name) {
  void* loaded = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  return loaded == nullptr ? nullptr : dlsym(loaded, name);
}

// The driver stays loaded from one test to the next.
class DeviceDigesterTest : public testing::Test {
 protected:
  DeviceDigesterTest() : digester_(kDigestKernelText[0].text, FindLoaded) {
    driver_.Call("testing_initialise", 0);
    driver_.Call("testing_initialise", 1);
    driver_.Call("testing_initialise", 0);
    driver_.Call("testing_run_at_once", -1);
    driver_.Call("testing_fail", "", 0);
    driver_.Call("testing_capture", stream_, 0);
    driver_.Call("testing_capture", other_stream_, 0);
    hurt_ = driver_.Call("testing_captures_hurt");
    driver_.Call("testing_drop");
  }

  int Run(void* stream, int count = 1000) {
    return driver_.Call("testing_run", stream, count);
  }
  void Write(void* stream, std::vector<float>& tensor, unsigned char value) {
    driver_.Call(
        "testing_write", stream, static_cast<void*>(tensor.data()), value,
        static_cast<unsigned long long>(tensor.size() * sizeof(float)));
  }

  static StridedContent ContentOf(const std::vector<float>& tensor) {
    const auto size = static_cast<int64_t>(tensor.size());
    const int64_t stride = 1;
    return *StridedContent::Of(
        {tensor.data(), Dtype::kFloat32, 1, &size, &stride, false, false});
  }
  DeviceDigester::Begun Begin(const std::vector<std::vector<float>>& tensors,
                              void* stream, int device = 0) {
    tables_.Clear();
    for (const auto& tensor : tensors) tables_.Add(ContentOf(tensor));
    return digester_.Begin(device, stream, tables_);
  }
  uint64_t Launched(const std::vector<std::vector<float>>& tensors,
                    void* stream, int device = 0) {
    const auto begun = Begin(tensors, stream, device);
    EXPECT_EQ(begun.refused, Refused::kNo) << digester_.off_reason();
    return begun.launch;
  }

  static std::vector<uint64_t> DigestsOf(
      const std::vector<std::vector<float>>& tensors) {
    std::vector<uint64_t> digests;
    for (const auto& tensor : tensors) {
      digests.push_back(ContentOf(tensor).Digest().digest);
    }
    return digests;
  }
  // By launch. Every tensor of a launch is as long as the first.
  std::map<uint64_t, std::vector<uint64_t>> Poll(size_t elements = 100) {
    std::map<uint64_t, std::vector<uint64_t>> found;
    digester_.Poll([&](const DeviceDigester::Result& result) {
      EXPECT_EQ(result.device_ns, 50'000u);
      for (unsigned i = 0; i < result.count; ++i) {
        found[result.launch].push_back(
            FinishWords(result.words[i], 4 * elements, Dtype::kFloat32).digest);
      }
    });
    return found;
  }

  Driver driver_;
  void* const stream_ = reinterpret_cast<void*>(0x100);
  void* const other_stream_ = reinterpret_cast<void*>(0x200);
  DeviceDigester digester_;
  DigestTables tables_;
  int hurt_ = 0;
};

std::vector<std::vector<float>> Tensors(int count, float first = 1) {
  std::vector<std::vector<float>> tensors;
  for (int i = 0; i < count; ++i) {
    tensors.emplace_back(100, first + static_cast<float>(i));
  }
  return tensors;
}

// Smaller and larger than what the slot had room for, beside digests alone.
TEST_F(DeviceDigesterTest, CopiesWhatTheStreamHadDone) {
  for (const int count : {1, 40, 3}) {
    auto tensors = Tensors(count);
    tables_.Clear();
    tables_.Add(ContentOf(tensors[0]));
    for (const auto& tensor : tensors) tables_.AddCopied(ContentOf(tensor));
    ASSERT_EQ(digester_.Begin(0, stream_, tables_).refused, Refused::kNo);
    const auto expected = tensors;
    Write(stream_, tensors[0], 9);
    Run(stream_);
    int taken = 0;
    digester_.Poll([&](const DeviceDigester::Result& result) {
      ++taken;
      ASSERT_EQ(result.count, tensors.size() + 1);
      const auto* copied = reinterpret_cast<const float*>(result.copies);
      for (const auto& tensor : expected) {
        EXPECT_EQ(std::vector<float>(copied, copied + 100), tensor);
        copied += 100;
      }
    });
    EXPECT_EQ(taken, 1);
  }
}

TEST_F(DeviceDigesterTest, ReadsWhatTheStreamHadDoneAndNotWhatFollows) {
  auto tensors = Tensors(3);
  Write(stream_, tensors[1], 7);  // a step of the program before
  const uint64_t launch = Launched(tensors, stream_);
  Write(stream_, tensors[0], 9);  // and the optimizer behind
  EXPECT_TRUE(Poll().empty());
  EXPECT_EQ(digester_.pending(), 1u);
  auto expected = tensors;
  std::memset(expected[1].data(), 7, 400);
  Run(stream_);
  ASSERT_NE(DigestsOf(tensors), DigestsOf(expected));
  const auto found = Poll();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found.at(launch), DigestsOf(expected));
  EXPECT_EQ(digester_.pending(), 0u);
  EXPECT_TRUE(Poll().empty());
}

TEST_F(DeviceDigesterTest, StreamsEndInAnyOrder) {
  const auto first = Tensors(2), second = Tensors(3, 50);
  const uint64_t a = Launched(first, stream_);
  const uint64_t b = Launched(second, other_stream_);
  Run(other_stream_);
  auto found = Poll();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found.at(b), DigestsOf(second));
  Run(stream_);
  found = Poll();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found.at(a), DigestsOf(first));
}

TEST_F(DeviceDigesterTest, ADeviceThatIsBehindIsNotWaitedFor) {
  std::vector<std::vector<std::vector<float>>> points;
  std::map<uint64_t, std::vector<uint64_t>> expected;
  for (unsigned i = 0; i < DigestSlots::kSlots; ++i) {
    points.push_back(Tensors(2, static_cast<float>(10 * i)));
    expected[Launched(points.back(), stream_)] = DigestsOf(points.back());
  }
  EXPECT_EQ(Begin(Tensors(1), stream_).refused, Refused::kBehind);
  EXPECT_EQ(digester_.off_reason(), "");
  Run(stream_);
  EXPECT_EQ(Poll(), expected);
  const auto later = Tensors(1);
  const uint64_t launch = Launched(later, stream_);
  Run(stream_);
  EXPECT_EQ(Poll().at(launch), DigestsOf(later));
}

TEST_F(DeviceDigesterTest, ATableThatTheDeviceHasIsNotCopiedAgain) {
  const auto tensors = Tensors(5);
  const int before = driver_.Call("testing_uploads");
  for (int step = 0; step < 40; ++step) {
    Launched(tensors, stream_);
    Run(stream_);
    EXPECT_EQ(Poll().size(), 1u);
  }
  EXPECT_EQ(driver_.Call("testing_uploads") - before, 1);
}

TEST_F(DeviceDigesterTest, PointsWithTablesOfTheirOwnGrowAndKeepThem) {
  const std::vector<std::vector<std::vector<float>>> points = {
      Tensors(3), Tensors(200, 5), Tensors(70, 9)};
  int uploads = 0, allocations = 0;
  for (int step = 0; step < 10; ++step) {
    for (const auto& point : points) {
      const uint64_t launch = Launched(point, stream_);
      Run(stream_);
      EXPECT_EQ(Poll().at(launch), DigestsOf(point));
    }
    if (step == 0) {
      uploads = driver_.Call("testing_uploads");
      allocations = driver_.Call("testing_allocations");
    }
  }
  EXPECT_EQ(driver_.Call("testing_uploads"), uploads);
  EXPECT_EQ(driver_.Call("testing_allocations"), allocations);
}

TEST_F(DeviceDigesterTest, ACaptureIsNeitherBrokenNorJoined) {
  const auto tensors = Tensors(2);
  driver_.Call("testing_capture", stream_, 1);
  EXPECT_EQ(Begin(tensors, stream_).refused, Refused::kCapturing);
  EXPECT_EQ(Begin(tensors, nullptr).refused, Refused::kCapturing);
  // Another thread's: everything is allocated meanwhile.
  const uint64_t launch = Launched(tensors, other_stream_);
  Run(other_stream_);
  EXPECT_EQ(Poll().at(launch), DigestsOf(tensors));
  EXPECT_EQ(driver_.Call("testing_captures_hurt"), hurt_);
  driver_.Call("testing_capture", stream_, 0);
  Launched(tensors, stream_);
}

TEST_F(DeviceDigesterTest, DevicesHaveSlotsOfTheirOwn) {
  const auto tensors = Tensors(2);
  const uint64_t a = Launched(tensors, stream_, 0);
  const uint64_t b = Launched(tensors, other_stream_, 1);
  Run(stream_);
  Run(other_stream_);
  const auto found = Poll();
  EXPECT_EQ(found.at(a), DigestsOf(tensors));
  EXPECT_EQ(found.at(b), DigestsOf(tensors));
}

TEST_F(DeviceDigesterTest, TheProgramsContextStaysCurrent) {
  for (const int other : {0, 1}) {
    driver_.Call("testing_set_other_context", other);
    void* before = nullptr;
    driver_.Call("cuCtxGetCurrent", &before);
    Launched(Tensors(1), stream_);
    void* after = nullptr;
    driver_.Call("cuCtxGetCurrent", &after);
    EXPECT_EQ(after, before);
  }
}

TEST_F(DeviceDigesterTest, AnErrorSwitchesItOffForGood) {
  Launched(Tensors(1), stream_);
  driver_.Call("testing_fail", "*", 700);
  EXPECT_EQ(Begin(Tensors(1), stream_).refused, Refused::kOff);
  EXPECT_EQ(digester_.off_reason(),
            "asking for a capture failed: CUDA error 700 "
            "CUDA_ERROR_ILLEGAL_ADDRESS");
  EXPECT_EQ(digester_.pending(), 0u);
  EXPECT_TRUE(Poll().empty());
  driver_.Call("testing_fail", "", 0);
  EXPECT_EQ(Begin(Tensors(1), stream_).refused, Refused::kOff);
}

TEST_F(DeviceDigesterTest, EveryFunctionMayFail) {
  for (const char* function :
       {"cuDeviceGet", "cuDevicePrimaryCtxGetState", "cuDevicePrimaryCtxRetain",
        "cuStreamIsCapturing", "cuModuleLoadDataEx", "cuModuleGetFunction",
        "cuDeviceGetAttribute", "cuOccupancyMaxActiveBlocksPerMultiprocessor",
        "cuMemAlloc_v2", "cuMemHostAlloc", "cuMemHostGetDevicePointer_v2",
        "cuMemsetD8Async", "cuMemcpyHtoDAsync_v2", "cuLaunchKernel"}) {
    DeviceDigester digester(kDigestKernelText[0].text, FindLoaded);
    driver_.Call("testing_fail", function, 900);
    tables_.Clear();
    const auto tensors = Tensors(1);
    tables_.Add(ContentOf(tensors[0]));
    EXPECT_EQ(digester.Begin(0, stream_, tables_).refused, Refused::kOff)
        << function;
    EXPECT_NE(digester.off_reason().find("900"), std::string::npos)
        << function << ": " << digester.off_reason();
    EXPECT_EQ(digester.pending(), 0u);
    driver_.Call("testing_fail", "", 0);
  }
}

TEST_F(DeviceDigesterTest, ResultsThatNeverComeAreNoticedByAProbe) {
  Launched(Tensors(1), stream_);
  EXPECT_TRUE(digester_.Probe());
  EXPECT_EQ(digester_.pending(), 1u);
  driver_.Call("testing_fail", "*", 700);
  EXPECT_FALSE(digester_.Probe());
  EXPECT_EQ(digester_.pending(), 0u);
}

TEST_F(DeviceDigesterTest, AProbeNeedsNoContextOfTheThread) {
  Launched(Tensors(1), stream_);
  driver_.Call("testing_set_other_context", 0);
  EXPECT_TRUE(digester_.Probe()) << digester_.off_reason();
  EXPECT_EQ(digester_.pending(), 1u);
}

TEST_F(DeviceDigesterTest, WithoutADriverItIsOff) {
  DeviceDigester digester(
      kDigestKernelText[0].text,
      [](const char*, const char*) -> void* { return nullptr; });
  const auto tensors = Tensors(1);
  tables_.Clear();
  tables_.Add(ContentOf(tensors[0]));
  EXPECT_EQ(digester.Begin(0, stream_, tables_).refused, Refused::kOff);
  EXPECT_EQ(digester.off_reason(), "no CUDA driver is loaded");
}

TEST_F(DeviceDigesterTest, NeverInitialisesADevice) {
  driver_.Call("testing_forget", 1);
  EXPECT_EQ(Begin(Tensors(1), stream_, 1).refused, Refused::kOff);
  EXPECT_EQ(digester_.off_reason(), "device 1 is not initialised");
}

}  // namespace
}  // namespace traincheck::agent

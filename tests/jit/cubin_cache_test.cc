#include "jit/cubin_cache.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/file.h"
#include "core/log.h"

namespace stof::jit {
namespace {

namespace fs = std::filesystem;

class CubinCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "stof_cubin_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = fs::path(pattern) / "cubin";  // the cache makes it
    set_log_level(LogLevel::kOff);
  }
  void TearDown() override {
    set_log_level(LogLevel::kWarn);
    fs::remove_all(folder_.parent_path());
  }

  CubinCache cache() const { return CubinCache(folder_.string()); }
  fs::path folder_;
};

const CubinKey kKey{"source", "sm_90a", "13.0"};

TEST_F(CubinCacheTest, GivesBackWhatWasStored) {
  EXPECT_FALSE(cache().load(kKey));
  cache().store(kKey, "kernel", std::string("\0cubin\xff", 7));
  EXPECT_EQ(cache().load(kKey), std::string("\0cubin\xff", 7));
  ASSERT_EQ(cache().list().size(), 1u);
  EXPECT_EQ(cache().list()[0].name, "kernel");
  EXPECT_TRUE(cache().list()[0].valid);
  EXPECT_EQ(cache().clear(), 1);
  EXPECT_FALSE(cache().load(kKey));
}

// Case 23: each field of the key alone changes it.
TEST_F(CubinCacheTest, KeyChangesWithEveryField) {
  const Fingerprint base = kKey.content();
  EXPECT_EQ(base, (CubinKey{"source", "sm_90a", "13.0"}.content()));
  EXPECT_NE(base, (CubinKey{"source ", "sm_90a", "13.0"}.content()));
  EXPECT_NE(base, (CubinKey{"source", "sm_90", "13.0"}.content()));
  cache().store(kKey, "kernel", "cubin");
  EXPECT_TRUE(cache().load(kKey));
  EXPECT_FALSE(cache().load({"source", "sm_90a", "13.1"}));
  EXPECT_FALSE(cache().load({"source", "sm_90", "13.0"}));
}

// A machine without NVRTC knows no compiler version: what another version made will do.
TEST_F(CubinCacheTest, WithoutACompilerTakesTheNewestVersion) {
  const CubinKey any{"source", "sm_90a", ""};
  EXPECT_FALSE(cache().load(any));
  for (const char* version : {"12.9", "12.10", "9.2"})
    cache().store({"source", "sm_90a", version}, "kernel", std::string("by ") + version);
  cache().store({"other", "sm_90a", "13.0"}, "kernel", "of another source");
  EXPECT_EQ(cache().load(any), "by 12.10");
}

TEST_F(CubinCacheTest, SetsAsideAnEntryUnderAnotherOnesName) {
  cache().store(kKey, "kernel", "cubin");
  const std::string path = cache().list()[0].path;
  cache().store({"other", "sm_90a", "13.0"}, "kernel", "of another source");
  for (const CacheEntry& entry : cache().list())
    if (entry.path != path) fs::rename(entry.path, path);
  EXPECT_FALSE(cache().load(kKey));
  EXPECT_TRUE(file_exists(path + ".bad"));
}

// Case 25: any flipped byte is noticed, the entry set aside, and a new one can be stored.
TEST_F(CubinCacheTest, SetsAsideAnEntryWithAnyByteFlipped) {
  cache().store(kKey, "kernel", "cubin bytes");
  const std::string path = cache().list()[0].path;
  const std::string good = read_text_file(path, 4096);
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x40);
    write_file(path, bad);
    EXPECT_FALSE(cache().load(kKey)) << "byte " << i;
    EXPECT_TRUE(file_exists(path + ".bad")) << "byte " << i;
    EXPECT_FALSE(file_exists(path)) << "byte " << i;
  }
  cache().store(kKey, "kernel", "cubin bytes");
  EXPECT_EQ(cache().load(kKey), "cubin bytes");
}

TEST_F(CubinCacheTest, SetsAsideATruncatedEntry) {
  cache().store(kKey, "kernel", "cubin bytes");
  const std::string path = cache().list()[0].path;
  const std::string good = read_text_file(path, 4096);
  for (std::size_t size = 0; size < good.size(); ++size) {
    write_file(path, good.substr(0, size));
    EXPECT_FALSE(cache().load(kKey)) << size << " bytes";
  }
}

TEST_F(CubinCacheTest, WorksWithoutAWritableFolder) {
  std::ofstream(folder_.string()) << "a file where the folder should be";
  EXPECT_NO_THROW(cache().store(kKey, "kernel", "cubin"));
  EXPECT_FALSE(cache().load(kKey));
  EXPECT_TRUE(cache().list().empty());
}

TEST_F(CubinCacheTest, ServesManyWritersAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        cache().store(kKey, "kernel", "cubin bytes");
        EXPECT_EQ(cache().load(kKey), "cubin bytes");
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(cache().list().size(), 1u);
}

TEST_F(CubinCacheTest, ServesSixteenProcessesThatStartOnNothing) {
  constexpr int kProcesses = 16, kKernels = 8;
  const auto bytes = [](int kernel) { return std::string(1000, static_cast<char>('a' + kernel)); };
  std::vector<pid_t> writers;
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid > 0) {
      writers.push_back(pid);
      continue;
    }
    bool right = true;
    for (int i = 0; i < kKernels; ++i) {
      const int kernel = (p + i) % kKernels;  // each begins with another one
      const CubinKey key{"source " + std::to_string(kernel), "sm_90a", "13.0"};
      const auto found = cache().load(key);
      right = right && (!found || *found == bytes(kernel));
      if (!found) cache().store(key, "kernel", bytes(kernel));
      right = right && cache().load(key) == bytes(kernel);
    }
    ::_exit(right ? 0 : 1);
  }
  for (const pid_t pid : writers) {
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(cache().list().size(), static_cast<std::size_t>(kKernels));
  for (const CacheEntry& entry : cache().list()) EXPECT_TRUE(entry.valid) << entry.path;
}

}  // namespace
}  // namespace stof::jit

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "core/file.h"
#include "mask/array_node.h"
#include "stof/block_mask.h"
#include "stof/error.h"
#include "stof/safetensors.h"

namespace stof::mask {
namespace {

using testing::array_mask;
using testing::BoolArray;
using testing::random_array;

/// A file name of this process that is removed again.
class TemporaryFile {
 public:
  TemporaryFile() {
    static int counter = 0;
    const auto folder = std::filesystem::temp_directory_path();
    path_ = folder / ("stof_block_" + std::to_string(::getpid()) + "_" + std::to_string(counter++));
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Ragged, with two patterns, runs and several bitmaps.
BlockMask sample() {
  return build_block_mask(per_head({causal(), window(80, 3)}), {3, 2, 130, 200});
}

std::string bytes_of(const BlockMask& mask) {
  const TemporaryFile file;
  mask.save(file.path());
  return read_text_file(file.path(), 1 << 24);
}

/// The error of loading a file with these bytes; fails the test where there is none.
Error error_of_loading(const std::string& bytes) {
  const TemporaryFile file;
  std::ofstream(file.path(), std::ios::binary) << bytes;  // write_file() would sync every time
  try {
    BlockMask::load(file.path());
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr(file.path()));
    return error;
  }
  ADD_FAILURE() << "expected an error";
  return Error(ErrorCode::kInternal, "none");
}

/// The sample's file with one text replaced by another of the same length.
std::string with_text(const std::string& before, const std::string& after) {
  std::string bytes = bytes_of(sample());
  const std::size_t at = bytes.find(before);
  EXPECT_NE(at, std::string::npos) << before;
  EXPECT_EQ(before.size(), after.size());
  if (at != std::string::npos) bytes.replace(at, before.size(), after);
  return bytes;
}

RC_GTEST_PROP(BlockMaskFile, GivesBackWhatWasSaved, ()) {
  const BoolArray array = random_array();
  const BlockMask saved = build_block_mask(array_mask(array), array.shape);
  const TemporaryFile file;
  saved.save(file.path());
  const BlockMask loaded = BlockMask::load(file.path());
  RC_ASSERT(loaded.shape().to_string() == saved.shape().to_string());
  RC_ASSERT(loaded.batch_extent() == saved.batch_extent());
  RC_ASSERT(loaded.head_extent() == saved.head_extent());
  RC_ASSERT(loaded.num_patterns() == saved.num_patterns());
  for (std::int64_t i = 0; i < saved.num_patterns(); ++i)
    RC_ASSERT(loaded.pattern(i) == saved.pattern(i));
  for (std::int64_t b = 0; b < array.shape.batch; ++b)
    for (std::int64_t h = 0; h < array.shape.num_heads; ++h)
      RC_ASSERT(loaded.pattern_index(b, h) == saved.pattern_index(b, h));
  RC_ASSERT(loaded.bitmaps() == saved.bitmaps());
  RC_ASSERT(loaded.fingerprint() == saved.fingerprint());
}

TEST(BlockMaskFile, KeepsAMaskWithoutTiles) {
  const TemporaryFile file;
  build_block_mask(none(), {1, 1, 100, 100}).save(file.path());
  const BlockMask loaded = BlockMask::load(file.path());
  EXPECT_TRUE(loaded.bitmaps().empty());
  EXPECT_FALSE(loaded.visible(0, 0, 99, 99));
}

TEST(BlockMaskFile, RefusesAFileThatIsNotThere) {
  try {
    BlockMask::load("/nonexistent/mask.safetensors");
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  }
}

TEST(BlockMaskFile, RefusesEveryTruncation) {
  const std::string bytes = bytes_of(sample());
  for (std::size_t size = 0; size < bytes.size(); size += size < 64 ? 1 : 37)
    EXPECT_EQ(error_of_loading(bytes.substr(0, size)).code(), ErrorCode::kCorrupt) << size;
  EXPECT_EQ(error_of_loading(bytes + '\0').code(), ErrorCode::kCorrupt);
}

// Structure is checked by the invariants, and what they can't see by the fingerprint.
TEST(BlockMaskFile, NoticesEveryFlippedByte) {
  const std::string bytes = bytes_of(sample());
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string broken = bytes;
    broken[at] = static_cast<char>(broken[at] ^ (1 << at % 8));
    const ErrorCode code = error_of_loading(broken).code();
    EXPECT_TRUE(code == ErrorCode::kCorrupt || code == ErrorCode::kUnsupported)
        << "byte " << at << ": " << stof::to_string(code);
  }
}

struct TextFault {
  const char* before;
  const char* after;
  const char* message;
};

TEST(BlockMaskFile, NamesTheFieldThatIsWrong) {
  const TextFault faults[] = {
      {"stof.block_mask", "stof.black_mask", "metadata format"},
      {R"("seq_q":"130")", R"("seq_q":"1e3")", "metadata seq_q"},
      {R"("seq_q":"130")", R"("seq_q":"-13")", "metadata seq_q"},
      {R"("seq_q":"130")", R"("seq_q":"999")", "full_run_ptr: expected 17 entries"},
      {R"("batch":"3")", R"("batch":"0")", "metadata batch"},
      {R"("num_heads":"2")", R"("num_heads":"3")", "head_extent"},
      {R"("num_heads":"2")", R"("mum_heads":"2")", "metadata num_heads: missing"},
      {"pattern.1.full_runs", "pattern.7.full_runs", "pattern.1.full_runs is missing"},
      {R"("pattern_of":{"dtype":"I32")", R"("pattern_of":{"dtype":"U32")", "pattern_of: expected"},
      {R"("bitmaps":{"dtype":"U64")", R"("bitmaps":{"dtype":"I64")", "bitmaps: expected"},
      {R"("fingerprint":")", R"("fingerprimt":")", "metadata fingerprint: missing"},
  };
  for (const TextFault& fault : faults) {
    const Error error = error_of_loading(with_text(fault.before, fault.after));
    EXPECT_EQ(error.code(), ErrorCode::kCorrupt) << fault.message;
    EXPECT_THAT(error.what(), ::testing::HasSubstr(fault.message));
  }
  const Error version = error_of_loading(with_text(R"("version":"1")", R"("version":"2")"));
  EXPECT_EQ(version.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(version.what(), ::testing::HasSubstr("version"));
}

TEST(BlockMaskFile, ComparesTheFingerprint) {
  const std::string hex = sample().fingerprint().hex();
  const Error error = error_of_loading(with_text(hex, std::string(32, '0')));
  EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
  EXPECT_THAT(error.what(), ::testing::HasSubstr("metadata fingerprint"));
}

TEST(BlockMaskFile, RefusesAnOrdinarySafetensorsFile) {
  const float value = 1;
  const TemporaryFile file;
  const NamedTensor tensor{"weight", {&value, DType::kFloat32, {1}}};
  save_safetensors(file.path(), {&tensor, 1});
  try {
    BlockMask::load(file.path());
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("metadata format"));
  }
}

TEST(BlockMaskFile, LeavesTheOldFileWhenTheFolderIsMissing) {
  try {
    sample().save("/nonexistent/folder/mask.safetensors");
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
  }
}

}  // namespace
}  // namespace stof::mask

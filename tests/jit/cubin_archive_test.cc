#include "jit/cubin_archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jit/cubin_cache.h"
#include "jit/packed_cubins.h"
#include "stof/error.h"

namespace stof::jit {
namespace {

using testing::HasSubstr;

CubinEntry entry(const std::string& source, const std::string& version = "13.0") {
  return {CubinKey{source, "sm_90a", ""}.content(), version, "kernel of " + source,
          std::string("\0cubin of ", 10) + source};
}

std::string refusal(const std::string& bytes) {
  try {
    parse_archive(bytes, "kernels.bin");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
    EXPECT_THAT(error.what(), HasSubstr("kernels.bin"));
    return error.what();
  }
  return "accepted";
}

TEST(CubinArchive, GivesBackWhatWasPutIn) {
  const std::vector<CubinEntry> entries = parse_archive(make_archive({entry("a"), entry("b")}), "");
  ASSERT_EQ(entries.size(), 2u);
  for (const CubinEntry& found : entries) {
    const CubinEntry& expected = found.name == "kernel of a" ? entry("a") : entry("b");
    EXPECT_EQ(found.content, expected.content);
    EXPECT_EQ(found.compiler_version, "13.0");
    EXPECT_EQ(found.cubin, expected.cubin);
  }
  EXPECT_EQ(make_archive({entry("a"), entry("b")}), make_archive({entry("b"), entry("a")}));
  EXPECT_TRUE(parse_archive(make_archive({}), "").empty());
}

TEST(CubinArchive, RefusesItWholeWithAnyByteFlippedOrMissing) {
  const std::string good = make_archive({entry("a"), entry("b")});
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x40);
    EXPECT_NE(refusal(bad), "accepted") << "byte " << i;
    EXPECT_NE(refusal(good.substr(0, i)), "accepted") << i << " bytes";
  }
  EXPECT_THAT(refusal(good + "x"), HasSubstr("added to"));
  EXPECT_THAT(refusal("something else"), HasSubstr("stof cache export"));
}

// A version becomes part of a file's name.
TEST(CubinArchive, RefusesAVersionThatIsNone) {
  for (const char* version : {"", "../../x", "13.0/", "123456789.12345678"})
    EXPECT_THAT(refusal(make_archive({entry("a", version)})), HasSubstr("kernel 1 is damaged"))
        << version;
}

// Case 24: found by what they were compiled from, whatever compiled them and wherever they lie.
TEST(PackedCubins, FindsKernelsByContent) {
  const std::string archive = make_archive({entry("a", "12.4"), entry("b")});
  const PackedCubins packed(archive);
  EXPECT_EQ(packed.size(), 2u);
  ASSERT_NE(packed.find(entry("a").content), nullptr);
  EXPECT_EQ(*packed.find(entry("a").content), entry("a").cubin);
  EXPECT_EQ(packed.find(entry("c").content), nullptr);
  EXPECT_EQ(packed.find(CubinKey{"a", "sm_80", ""}.content()), nullptr);
  EXPECT_EQ(PackedCubins("").size(), 0u);
}

}  // namespace
}  // namespace stof::jit

// Files that are no files, links, long names: what is read and what is replaced.

#include "core/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>

#include "stof/error.h"

namespace stof {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  Files() {
    std::string pattern = fs::temp_directory_path() / "stof-file-test-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    folder_ = pattern;
  }
  ~Files() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  std::string at(const std::string& name) const { return folder_ / name; }
  std::ptrdiff_t num_entries() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }

 private:
  fs::path folder_;
};

void expect_refused(const std::string& what, const std::function<void()>& action) {
  try {
    action();
    ADD_FAILURE() << "expected a refusal of " << what;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("got " + what));
  }
}

void expect_not_read(const std::string& path, const std::string& what) {
  expect_refused(what, [&] { MappedFile{path}; });
  expect_refused(what, [&] { read_text_file(path, 100); });
}

TEST_F(Files, RefusesToReadPipesWithoutWaitingForAWriter) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  expect_not_read(at("pipe"), "a pipe");
}

TEST_F(Files, RefusesToReadFoldersAndDevices) {
  expect_not_read(at("."), "a folder");
  expect_not_read("/dev/zero", "a device");
  fs::create_symlink("/dev/zero", at("zero"));
  expect_not_read(at("zero"), "a device");
}

TEST_F(Files, NeverReplacesAPipeFolderOrDevice) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  fs::create_directory(at("folder"));
  fs::create_symlink("pipe", at("link"));
  expect_refused("a pipe", [&] { write_file(at("pipe"), "x"); });
  expect_refused("a pipe", [&] { write_file(at("link"), "x"); });
  expect_refused("a folder", [&] { write_file(at("folder"), "x"); });
  expect_refused("a device", [&] { write_file("/dev/null", "x"); });
  EXPECT_TRUE(fs::is_fifo(at("pipe")));
  EXPECT_TRUE(fs::is_symlink(at("link")));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_EQ(num_entries(), 3);
}

TEST_F(Files, WritesThroughLinks) {
  fs::create_directory(at("elsewhere"));
  write_file(at("elsewhere/file"), "old");
  fs::create_symlink("elsewhere/file", at("link"));
  write_file(at("link"), "new");
  EXPECT_TRUE(fs::is_symlink(at("link")));
  EXPECT_EQ(read_text_file(at("elsewhere/file"), 100), "new");
  EXPECT_EQ(num_entries(), 2);
}

TEST_F(Files, KeepsThePermissionsOfWhatItReplaces) {
  write_file(at("private"), "old");
  ASSERT_EQ(::chmod(at("private").c_str(), 0600), 0);
  write_file(at("private"), "new");
  EXPECT_EQ(fs::status(at("private")).permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(Files, TakesNamesAsLongAsTheSystemDoes) {
  const std::string name(NAME_MAX, 'n');
  write_file(at(name), "content");
  EXPECT_EQ(read_text_file(at(name), 100), "content");
  EXPECT_EQ(num_entries(), 1);
}

}  // namespace
}  // namespace stof

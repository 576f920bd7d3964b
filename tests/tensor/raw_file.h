#pragma once
// Hand-made file bytes, the error that reading them gives, and temporary folders.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "stof/error.h"

namespace stof {

inline std::vector<std::byte> to_bytes(const std::string& text) {
  std::vector<std::byte> bytes(text.size());
  if (!text.empty()) std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

/// The error that `function` must throw, as "Code: message".
template <class Function>
std::string error_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

/// A folder of its own for each test, removed with it.
class FolderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "stof_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
  }

  std::string folder_;
};

}  // namespace stof

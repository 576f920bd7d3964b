#pragma once
// Where model tests find their files: goldens in the repository, the checkpoint and the corpus in
// the cache folder.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>

#include "core/env.h"

namespace stof::model {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path.string() + ": cannot be read");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline nlohmann::json read_golden_json(const std::string& name) {
  return nlohmann::json::parse(read_file(std::string(STOF_TEST_DATA) + "/" + name));
}

/// A folder that scripts/setup fetches. Throws, which fails the test, when it is not there.
inline std::filesystem::path fetched(const std::string& relative) {
  const std::filesystem::path path = std::filesystem::path(cache_folder()) / relative;
  if (!std::filesystem::is_directory(path))
    throw std::runtime_error(path.string() + ": not there; run scripts/setup");
  return path;
}

inline std::string minilm_folder() { return fetched("models/all-minilm-l6-v2").string(); }

/// 64-bit FNV-1a, as in tools/make_golden_wordpiece.py.
class Fnv1a {
 public:
  void add(std::string_view bytes) {
    for (const char byte : bytes)
      state_ = (state_ ^ static_cast<unsigned char>(byte)) * 0x100000001B3ull;
  }
  void add(std::int32_t value) {
    for (int shift = 0; shift < 32; shift += 8)
      add(std::string(1, static_cast<char>(value >> shift)));
  }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0xCBF29CE484222325ull;
};

}  // namespace stof::model

#pragma once
// Where model tests find their files: goldens in the repository, the checkpoint and the corpus in
// the cache folder.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

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

/// The numbered paragraphs of tools/corpus_paragraphs.py: same files, same rule.
inline std::vector<std::pair<int, std::string>> corpus_paragraphs() {
  namespace fs = std::filesystem;
  const fs::path folder = fetched("corpus/django-docs");
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().extension() == ".txt")
      files.push_back(fs::relative(entry.path(), folder).string());
  std::sort(files.begin(), files.end());
  std::vector<std::pair<int, std::string>> paragraphs;
  int index = 0;
  for (const std::string& file : files) {
    std::string block;
    const auto end_block = [&] {
      const std::size_t begin = block.find_first_not_of(" \t\n");
      const std::size_t end = block.find_last_not_of(" \t\n");
      std::string text = begin == std::string::npos ? "" : block.substr(begin, end + 1 - begin);
      block.clear();
      if (text.size() < 20) return;
      const bool foreign =
          std::any_of(text.begin(), text.end(), [](char c) { return (c & 0x80) != 0; });
      if (index % 22 == 0 || foreign) paragraphs.emplace_back(index, std::move(text));
      ++index;
    };
    std::istringstream lines(read_file(folder / file));
    for (std::string line; std::getline(lines, line);) {
      if (line.find_first_not_of(" \t") == std::string::npos) {
        end_block();
      } else {
        block += line + "\n";
      }
    }
    end_block();
  }
  return paragraphs;
}

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

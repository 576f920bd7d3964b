// docs/masks.md says what the code does: every function has its row, and its
// example sees those keys.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "core/file.h"
#include "mask/registry.h"

namespace stof::mask {
namespace {

/// Cells of a table row; a pipe inside a cell is written "\|".
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells(1);
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\\' && i + 1 < line.size() && line[i + 1] == '|') {
      cells.back() += line[++i];
    } else if (line[i] == '|') {
      cells.emplace_back();
    } else {
      cells.back() += line[i];
    }
  }
  for (std::string& cell : cells) {
    while (!cell.empty() && cell.front() == ' ') cell.erase(0, 1);
    while (!cell.empty() && cell.back() == ' ') cell.pop_back();
  }
  return cells;
}

std::string without_ticks(const std::string& cell) {
  return cell.size() > 2 && cell.front() == '`' ? cell.substr(1, cell.size() - 2) : "";
}

/// "0, 1, 4..7": runs of three and more are shortened.
std::string runs_of(const std::vector<std::int64_t>& keys) {
  std::string out;
  for (std::size_t i = 0; i < keys.size();) {
    std::size_t last = i;
    while (last + 1 < keys.size() && keys[last + 1] == keys[last] + 1) ++last;
    if (!out.empty()) out += ", ";
    out += fmt::format("{}", keys[i]);
    if (last > i) out += fmt::format("{}{}", last == i + 1 ? ", " : "..", keys[last]);
    i = last + 1;
  }
  return out.empty() ? "none" : out;
}

TEST(MaskDocs, GiveEveryFunctionARowThatIsTrue) {
  constexpr std::int64_t kRow = 5, kLength = 12;
  std::istringstream text(read_text_file(STOF_SOURCE_DIR "/docs/masks.md", 1 << 20));
  std::vector<std::string> documented;
  for (std::string line; std::getline(text, line);) {
    const std::vector<std::string> cells = cells_of(line);
    if (cells.size() != 6) continue;  // not a row of four cells
    const std::string signature = without_ticks(cells[1]);
    if (signature.empty()) continue;
    documented.push_back(signature);
    const Mask mask = parse(without_ticks(cells[3]));
    const Mask bound = mask.bound() ? mask : mask.bind({1, 1, kLength, kLength});
    EXPECT_EQ(runs_of(bound.visible_keys(0, 0, kRow, kLength)), cells[4]) << signature;
  }
  std::vector<std::string> expected;
  for (const Function& function : functions()) expected.push_back(function.signature());
  std::sort(documented.begin(), documented.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(documented, expected);
}

}  // namespace
}  // namespace stof::mask

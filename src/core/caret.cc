#include "core/caret.h"

#include <fmt/core.h>
#include <utf8proc.h>

#include <algorithm>
#include <vector>

namespace stof {
namespace {

/// Terminal columns shown of a long line, without the "..." on either side.
constexpr std::size_t kMaxShown = 72;

/// One code point as it is printed.
struct Cell {
  std::size_t offset;  ///< of its first byte in the line
  std::string shown;
  std::size_t width;  ///< terminal columns
};

std::vector<Cell> cells_of(std::string_view line) {
  std::vector<Cell> cells;
  std::size_t at = 0;
  while (at < line.size()) {
    utf8proc_int32_t code = -1;
    const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(line.data()) + at;
    const auto length =
        utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(line.size() - at), &code);
    if (length <= 0) {
      cells.push_back({at, "?", 1});
      ++at;
      continue;
    }
    const auto size = static_cast<std::size_t>(length);
    const int width = utf8proc_charwidth(code);
    const auto category = utf8proc_category(code);
    if (code == '\t') {
      cells.push_back({at, " ", 1});
    } else if (category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CN) {
      cells.push_back({at, "?", 1});
    } else {
      cells.push_back(
          {at, std::string(line.substr(at, size)), static_cast<std::size_t>(std::max(width, 0))});
    }
    at += size;
  }
  return cells;
}

/// First cell shown so that the caret's cell is about in the middle of kMaxShown columns.
std::size_t first_shown(const std::vector<Cell>& cells, std::size_t caret) {
  std::size_t total = 0;
  for (const Cell& cell : cells) total += cell.width;
  if (total <= kMaxShown) return 0;
  std::size_t begin = std::min(caret, cells.size());
  std::size_t before = 0;
  while (begin > 0 && before + cells[begin - 1].width <= kMaxShown / 2) {
    --begin;
    before += cells[begin].width;
  }
  return begin;
}

}  // namespace

std::string message_with_caret(std::string_view subject, std::string_view message,
                               std::string_view text, std::size_t offset) {
  offset = std::min(offset, text.size());
  const std::size_t newline = offset == 0 ? std::string_view::npos : text.rfind('\n', offset - 1);
  const std::size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
  std::string_view line = text.substr(begin, text.find('\n', begin) - begin);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);

  const std::vector<Cell> cells = cells_of(line);
  std::size_t caret = 0;
  while (caret < cells.size() && cells[caret].offset < offset - begin) ++caret;
  const std::size_t first = first_shown(cells, caret);

  std::string shown = first > 0 ? "..." : "";
  std::size_t indent = shown.size();
  std::size_t used = 0;
  std::size_t i = first;
  for (; i < cells.size() && used + cells[i].width <= kMaxShown; ++i) {
    if (i < caret) indent += cells[i].width;
    used += cells[i].width;
    shown += cells[i].shown;
  }
  if (i < cells.size()) shown += "...";

  std::string where;
  if (text.find('\n') != std::string_view::npos) {
    where = fmt::format("line {}, ", 1 + std::count(text.begin(), text.begin() + begin, '\n'));
  }
  return fmt::format("{}, {}column {}: {}\n  {}\n  {}^", subject, where, caret + 1, message, shown,
                     std::string(indent, ' '));
}

}  // namespace stof

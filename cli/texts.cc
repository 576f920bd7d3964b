#include "texts.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/check.h"
#include "core/file.h"
#include "model/unicode.h"

namespace stof::cli {
namespace {

constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 30;

std::string read_standard_input() {
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const ssize_t got = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    STOF_CHECK(got >= 0, kIo, "standard input: read failed: {}", std::strerror(errno));
    if (got == 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
    STOF_CHECK(text.size() <= kMaxBytes, kInvalidArgument,
               "standard input: expected at most {} bytes, got more", kMaxBytes);
  }
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) end = text.size();
    const bool has_return = end > begin && text[end - 1] == '\r';
    lines.push_back(text.substr(begin, end - begin - (has_return ? 1 : 0)));
    begin = end + 1;
  }
  return lines;
}

}  // namespace

std::vector<std::string> read_texts(const std::vector<std::string>& arguments,
                                    const std::string& file) {
  STOF_CHECK(arguments.empty() || file.empty(), kInvalidArgument,
             "--file: expected texts from arguments or from {}, got both", file);
  if (!arguments.empty()) {
    for (std::size_t i = 0; i < arguments.size(); ++i)
      model::decode_utf8(arguments[i], fmt::format("TEXT {}", i + 1));
    return arguments;
  }
  STOF_CHECK(!file.empty(), kInvalidArgument,
             "TEXT: expected at least one text, got none; give it as an argument, or --file F, or "
             "--file - for standard input");
  const std::string name = file == "-" ? "standard input" : file;
  const std::vector<std::string> lines =
      split_lines(file == "-" ? read_standard_input() : read_text_file(file, kMaxBytes));
  STOF_CHECK(!lines.empty(), kInvalidArgument, "{}: expected at least one line of text, got none",
             name);
  for (std::size_t i = 0; i < lines.size(); ++i)
    model::decode_utf8(lines[i], fmt::format("{}, line {}", name, i + 1));
  return lines;
}

std::string read_document(const std::string& file) {
  std::string text = file == "-" ? read_standard_input() : read_text_file(file, kMaxBytes);
  model::decode_utf8(text, file == "-" ? "standard input" : file);
  return text;
}

}  // namespace stof::cli

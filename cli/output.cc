#include "output.h"

#include <fcntl.h>
#include <unistd.h>
#include <utf8proc.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "core/check.h"
#include "core/file.h"
#include "core/text.h"

namespace stof::cli {
namespace {

[[noreturn]] void throw_output_error() {
  throw_error(ErrorCode::kIo, "standard output: write failed: {}", std::strerror(errno));
}

extern "C" void remove_temporaries_and_die(int signal_number) {
  remove_temporary_files();
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
}

extern "C" void report_cut_file(int) {
  constexpr std::string_view kLine =
      "stof: error: a file became shorter while it was read; wait until it is written, then start "
      "again\n";
  static_cast<void>(::write(STDERR_FILENO, kLine.data(), kLine.size()) >= 0);
  remove_temporary_files();
  ::_exit(1);
}

/// One code point: its bytes, and the columns it takes on a terminal (0 for combining marks, 2 for
/// most Chinese, Japanese and Korean characters and emoji). Bytes that are not UTF-8 count singly.
struct Character {
  std::size_t bytes = 1, columns = 1;
};

Character first_character(std::string_view text) {
  utf8proc_int32_t code_point = 0;
  const utf8proc_ssize_t bytes =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                       static_cast<utf8proc_ssize_t>(text.size()), &code_point);
  if (bytes <= 0) return {};
  return {static_cast<std::size_t>(bytes),
          static_cast<std::size_t>(utf8proc_charwidth(code_point))};
}

std::size_t display_width(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    const Character character = first_character(text);
    columns += character.columns;
    text.remove_prefix(character.bytes);
  }
  return columns;
}

}  // namespace

void write_output(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) throw_output_error();
}

void flush_output() {
  if (std::fflush(stdout) != 0) throw_output_error();
}

namespace {

/// One line on standard error: prefix and message, control characters made visible.
void write_line(std::string line, std::string_view message) {
  for (std::size_t i = 0; i < message.size(); ++i) {
    const auto byte = static_cast<unsigned char>(message[i]);
    // Quoted text stands two blanks in.
    const bool is_break = byte == '\n' && message.substr(i + 1, 2) == "  ";
    if (is_break || (byte >= 0x20 && byte != 0x7F))
      line += message[i];
    else
      line += fmt::format("\\x{:02x}", byte);
  }
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

void write_error(std::string_view message) { write_line("stof: error: ", message); }

void write_note(std::string_view message) { write_line("stof: ", message); }

void reserve_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
    // Opened the wrong way round on purpose: reading 0 and writing 1 or 2 must still fail.
    const int opened = ::open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
    if (opened >= 0 && opened != fd) ::close(opened);
  }
}

void install_signal_handlers() {
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    struct sigaction action {};
    ::sigaction(signal_number, nullptr, &action);
    if (action.sa_handler == SIG_IGN && signal_number != SIGPIPE) continue;  // nohup
    action = {};
    action.sa_handler = remove_temporaries_and_die;
    // The handler must be able to raise the same signal again, with the default action.
    action.sa_flags = SA_NODEFER;
    ::sigaction(signal_number, &action, nullptr);
  }
  std::signal(SIGBUS, report_cut_file);
  std::signal(SIGXFSZ, SIG_IGN);
}

std::string format_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    if (widths.size() < row.size()) widths.resize(row.size(), 0);
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], display_width(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::size_t padding = widths[i] - display_width(row[i]);
      if (i > 0) line.append(2 + padding, ' ');
      line += row[i];
      if (i == 0) line.append(padding, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string format_bytes(double bytes) {
  // Estimates may pass 64 bits; 2^63 bytes are as far out of reach.
  return human_bytes(static_cast<std::uint64_t>(std::clamp(bytes, 0.0, 0x1p63)));
}

std::string shorten(std::string_view text, std::size_t width) {
  if (display_width(text) <= width) return std::string(text);
  const std::string_view dots = std::string_view("...").substr(0, width);
  std::size_t end = 0, columns = dots.size();
  while (end < text.size()) {
    const Character character = first_character(text.substr(end));
    if (columns + character.columns > width) break;
    columns += character.columns;
    end += character.bytes;
  }
  return std::string(text.substr(0, end)).append(dots);
}

void require_writable(const std::string& option, const std::string& path) {
  STOF_CHECK(!path.empty(), kInvalidArgument, "{}: expected a file name, got an empty one", option);
  STOF_CHECK(!is_folder(path) && path.back() != '/', kInvalidArgument,
             "{}: expected a file name, got the folder {}", option, path);
  const std::size_t slash = path.rfind('/');
  if (slash != std::string::npos && slash > 0) {
    const std::string folder = path.substr(0, slash);
    STOF_CHECK(is_folder(folder), kNotFound, "{}: {}: no such folder {}; create it first", option,
               path, folder);
  }
  try {
    const AtomicFile probe(path);  // removed again: never committed
  } catch (const Error& error) {
    throw Error(error.code(), option + ": " + error.what());
  }
}

}  // namespace stof::cli

#pragma once
// Standard output whose failures are noticed, and what a process owes its terminal.

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <vector>

namespace stof::cli {

/// Writes to standard output. Throws Io when the text could not be written (a full disk, a closed
/// descriptor); a closed pipe ends the program silently, as every filter does.
void write_output(std::string_view text);

template <class... Args>
void print_out(fmt::format_string<Args...> format, Args&&... args) {
  write_output(fmt::format(format, std::forward<Args>(args)...));
}

/// Throws Io when buffered output could not be written.
void flush_output();

/// Writes "stof: error: MESSAGE" to standard error, control characters made visible so that a
/// file's name can neither break the line nor steer the terminal. A mask error's quoted text and
/// caret keep their own lines. Fails silently: there is nobody left to tell.
void write_error(std::string_view message);

/// The same with "stof: ": what the user may want to know while nothing is wrong.
void write_note(std::string_view message);

/// Opens descriptors 0 to 2 where the caller closed them, so that no file of ours ever gets the
/// number of standard output; writing to such a descriptor then fails as it should.
void reserve_standard_descriptors();

/// On Ctrl-C, termination and a closed pipe: removes half-written temporary files, then dies by the
/// same signal. A mapped file that somebody cuts meanwhile ends the program with an error line and
/// exit code 1; a file that would pass the size limit makes the write fail.
void install_signal_handlers();

/// Rows of cells in columns two blanks apart: the first column left-aligned, the others right.
/// Widths are those of a terminal, where a Chinese character takes two columns.
std::string format_table(const std::vector<std::vector<std::string>>& rows);

/// human_bytes() of an estimate: "12.3 KiB".
std::string format_bytes(double bytes);

/// Shortens to `width` columns of a terminal with "..." at the end; never cuts a UTF-8 character.
std::string shorten(std::string_view text, std::size_t width);

/// Throws NotFound (no such folder), InvalidArgument (a folder) or Io naming option and path when
/// `path` cannot be written, before any work is spent on its content.
void require_writable(const std::string& option, const std::string& path);

}  // namespace stof::cli

#pragma once
// Runs the built stof program as a subprocess.

#include <string>
#include <vector>

namespace stof::cli {

struct Finished {
  int exit_code = -1;  ///< -1 when a signal ended it
  int signal_number = 0;
  std::string out, err;
};

/// How the subprocess's standard streams are made.
struct Streams {
  std::string input = {};        ///< what standard input delivers
  bool close_output = false;     ///< standard output is closed, not a pipe
  bool break_output = false;     ///< nobody reads the pipe behind standard output
  std::string output_file = {};  ///< standard output goes to this file instead
  bool terminal_error = false;   ///< standard error is a pseudo-terminal
};

Finished run_stof(const std::vector<std::string>& arguments, const Streams& streams = {});

/// Runs `script` under a shell with $stof set to the program.
Finished run_shell(const std::string& shell, const std::string& script);

/// A new empty folder, removed with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  std::vector<std::string> names() const;

 private:
  std::string path_;
};

std::string read_file(const std::string& path);

/// The user's fault: exit code 2, nothing on standard output, and "stof: error: ..." as the first
/// line of standard error. Returns that line's text after the prefix, or the failed expectation.
std::string user_error(const Finished& finished);

}  // namespace stof::cli

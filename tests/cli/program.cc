#include "cli/program.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace stof::cli {
namespace {

struct Pipe {
  int read_end = -1, write_end = -1;
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
    read_end = ends[0];
    write_end = ends[1];
  }
};

void make_terminal(Pipe& stream) {
  ::close(stream.read_end);
  ::close(stream.write_end);
  if (::openpty(&stream.read_end, &stream.write_end, nullptr, nullptr, nullptr) != 0)
    throw std::runtime_error("openpty failed");
  ::fcntl(stream.read_end, F_SETFD, FD_CLOEXEC);
  ::fcntl(stream.write_end, F_SETFD, FD_CLOEXEC);
}

[[noreturn]] void become(const std::vector<std::string>& command, const Streams& streams, int in,
                         int out, int err) {
  ::dup2(in, STDIN_FILENO);
  ::dup2(err, STDERR_FILENO);
  if (streams.close_output)
    ::close(STDOUT_FILENO);
  else
    ::dup2(out, STDOUT_FILENO);
  std::signal(SIGPIPE, SIG_DFL);
  // A GPU would be taken and named; what is tested here is the same on every machine.
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  ::_exit(127);
}

/// Reads both streams until they end; feeds standard input meanwhile.
void exchange(const std::string& input, int in, int out, int err, Finished& finished) {
  std::size_t sent = 0;
  if (input.empty()) ::close(std::exchange(in, -1));
  std::array<char, 65536> buffer{};
  while (in >= 0 || out >= 0 || err >= 0) {
    std::array<pollfd, 3> polled{{{in, POLLOUT, 0}, {out, POLLIN, 0}, {err, POLLIN, 0}}};
    if (::poll(polled.data(), polled.size(), -1) < 0) continue;
    if (in >= 0 && polled[0].revents != 0) {
      const ssize_t wrote = ::write(in, input.data() + sent, input.size() - sent);
      sent += wrote > 0 ? static_cast<std::size_t>(wrote) : 0;
      if (wrote <= 0 || sent == input.size()) ::close(std::exchange(in, -1));
    }
    const auto drain = [&buffer](int& fd, const pollfd& state, std::string& text) {
      if (fd < 0 || state.revents == 0) return;
      const ssize_t got = ::read(fd, buffer.data(), buffer.size());
      if (got > 0)
        text.append(buffer.data(), static_cast<std::size_t>(got));
      else
        ::close(std::exchange(fd, -1));
    };
    drain(out, polled[1], finished.out);
    drain(err, polled[2], finished.err);
  }
}

Finished run_command(const std::vector<std::string>& command, const Streams& streams) {
  std::signal(SIGPIPE, SIG_IGN);  // a program that ends early must not end the tests
  Pipe in, out, err;
  ::fcntl(in.write_end, F_SETFL, O_NONBLOCK);
  if (streams.terminal_error) make_terminal(err);
  if (!streams.output_file.empty()) {
    ::close(out.write_end);
    out.write_end = ::open(streams.output_file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  }
  if (streams.break_output) ::close(std::exchange(out.read_end, -1));
  const pid_t child = ::fork();
  if (child == 0) become(command, streams, in.read_end, out.write_end, err.write_end);
  ::close(in.read_end);
  ::close(out.write_end);
  ::close(err.write_end);
  Finished finished;
  exchange(streams.input, in.write_end, out.read_end, err.read_end, finished);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status)) finished.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) finished.signal_number = WTERMSIG(status);
  return finished;
}

}  // namespace

Finished run_stof(const std::vector<std::string>& arguments, const Streams& streams) {
  std::vector<std::string> command = {STOF_PROGRAM};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_command(command, streams);
}

Finished run_shell(const std::string& shell, const std::string& script) {
  return run_command({shell, "-c", "stof=" STOF_PROGRAM "\n" + script}, {});
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern = std::filesystem::temp_directory_path() / "stof-test-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::vector<std::string> TemporaryFolder::names() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_))
    names.push_back(entry.path().filename());
  return names;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string user_error(const Finished& finished) {
  const std::string prefix = "stof: error: ";
  if (finished.exit_code != 2)
    return "expected exit code 2, got " + std::to_string(finished.exit_code) + ": " + finished.err;
  if (!finished.out.empty()) return "expected nothing on standard output, got " + finished.out;
  if (!finished.err.starts_with(prefix)) return "expected an error line, got " + finished.err;
  return finished.err.substr(prefix.size(), finished.err.find('\n') - prefix.size());
}

}  // namespace stof::cli

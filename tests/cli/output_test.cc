// The parts that a subprocess can't show: formatting, the bar's text, signals in the middle of a
// write.

#include "output.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <thread>

#include "cli/program.h"
#include "core/file.h"
#include "progress.h"

namespace stof::cli {
namespace {

TEST(Format, RoundsEstimatesOfBytes) {
  EXPECT_EQ(format_bytes(1023.4), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(1e30), "8.0 EiB");
}

TEST(Format, ShortensBetweenCharacters) {
  EXPECT_EQ(shorten("short", 8), "short");
  EXPECT_EQ(shorten("exactly8", 8), "exactly8");
  EXPECT_EQ(shorten("much too long", 8), "much ...");
  EXPECT_EQ(shorten("äöüäöüäöü", 8), "äöüäö...");
}

TEST(Format, CountsTheColumnsOfATerminal) {
  EXPECT_EQ(format_table({{"日本", "1"}, {"abcd", "2"}, {"e\u0301", "3"}}),
            "日本  1\nabcd  2\ne\u0301     3\n");
  EXPECT_EQ(shorten("日本語日本語", 12), "日本語日本語");
  EXPECT_EQ(shorten("日本語日本語", 10), "日本語...");
  EXPECT_EQ(shorten("\xFF\xFF\xFF\xFF\xFF", 4), "\xFF...");
  EXPECT_EQ(shorten("abc", 2), "..");
}

TEST(Format, AlignsColumnsByCharacters) {
  EXPECT_EQ(format_table({{"a", "b"}, {"äöü", "12"}, {"x"}}), "a     b\näöü  12\nx\n");
}

TEST(ProgressBar, TextShowsShareAndTimeLeft) {
  EXPECT_EQ(progress_text(0, 10, 3), "[------------------------------]   0 %");
  EXPECT_EQ(progress_text(5, 10, 65), "[###############---------------]  50 %  eta 1:05");
  EXPECT_EQ(progress_text(10, 10, 65), "[##############################] 100 %  eta 0:00");
  EXPECT_EQ(progress_text(11, 10, 65), "[##############################] 100 %  eta 0:00");
}

/// What a bar that is updated before and after its quiet half second writes to standard error.
std::string bar_output(bool terminal, bool quiet, bool reach_total = false, int columns = 0) {
  int reader = -1, writer = -1;
  std::array<int, 2> ends{};
  winsize size{};
  size.ws_row = 25, size.ws_col = static_cast<unsigned short>(columns);
  if (terminal)
    EXPECT_EQ(::openpty(&reader, &writer, nullptr, nullptr, columns > 0 ? &size : nullptr), 0);
  else
    EXPECT_EQ(::pipe(ends.data()), 0), reader = ends[0], writer = ends[1];
  const int old_error = ::dup(STDERR_FILENO);
  ::dup2(writer, STDERR_FILENO);
  {
    ProgressBar bar("working", 4, quiet);
    bar.update(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    bar.update(2);
    if (reach_total) {
      bar.update(4);
      fmt::print(stderr, "result");
    }
  }
  std::fflush(stderr);
  ::dup2(old_error, STDERR_FILENO);
  ::close(writer);
  std::string drawn;  // to the end: a terminal hands on what it was given in its own time
  std::array<char, 4096> buffer{};
  for (ssize_t got; (got = ::read(reader, buffer.data(), buffer.size())) > 0;)
    drawn.append(buffer.data(), static_cast<std::size_t>(got));
  ::close(reader), ::close(old_error);
  return drawn;
}

TEST(ProgressBar, DrawsOnATerminalOnlyAndWipesItself) {
  const std::string drawn = bar_output(/*terminal=*/true, /*quiet=*/false);
  EXPECT_THAT(drawn,
              testing::HasSubstr("working [###############---------------]  50 %  eta 0:01"));
  EXPECT_TRUE(drawn.ends_with("\r\x1b[K")) << drawn;
  EXPECT_EQ(bar_output(/*terminal=*/false, /*quiet=*/false), "");
  EXPECT_EQ(bar_output(/*terminal=*/true, /*quiet=*/true), "");
}

TEST(ProgressBar, IsGoneBeforeTheResultsArePrinted) {
  const std::string drawn = bar_output(true, false, /*reach_total=*/true);
  EXPECT_THAT(drawn, testing::HasSubstr("50 %"));
  EXPECT_TRUE(drawn.ends_with("\r\x1b[Kresult")) << drawn;
}

TEST(ProgressBar, FitsANarrowTerminal) {
  const std::string drawn = bar_output(true, false, false, /*columns=*/20);
  EXPECT_THAT(drawn, testing::HasSubstr("\rworking [#######...\x1b[K")) << drawn;
}

TEST(Signals, InterruptedWriteLeavesNoFile) {
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    const TemporaryFolder folder;
    const pid_t child = ::fork();
    if (child == 0) {
      std::signal(SIGHUP, SIG_DFL);
      install_signal_handlers();
      AtomicFile file(folder / "half.bin");
      file.write("half of it");
      if (folder.names().size() != 1) ::_exit(3);  // nothing there to be removed
      std::raise(signal_number);
      ::_exit(4);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
    EXPECT_EQ(WTERMSIG(status), signal_number);
    EXPECT_THAT(folder.names(), testing::IsEmpty());
  }
}

TEST(Signals, CommittedFileStays) {
  const TemporaryFolder folder;
  AtomicFile file(folder / "whole.bin");
  file.write("all of it");
  file.commit();
  remove_temporary_files();
  EXPECT_EQ(read_file(folder / "whole.bin"), "all of it");
}

TEST(Signals, FileCutWhileMappedIsAnErrorLine) {
  const TemporaryFolder folder;
  write_file(folder / "data.bin", std::string(1 << 16, 'x'));
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    install_signal_handlers();
    const MappedFile map(folder / "data.bin");
    AtomicFile half(folder / "half.bin");
    if (::truncate((folder / "data.bin").c_str(), 0) != 0) ::_exit(3);
    ::_exit(map.bytes()[1 << 15] == std::byte{'x'} ? 4 : 5);
  }
  ::close(ends[1]);
  std::array<char, 512> text{};
  const ssize_t got = ::read(ends[0], text.data(), text.size());
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_THAT(std::string(text.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))),
              testing::StartsWith("stof: error: a file became shorter"));
  EXPECT_THAT(folder.names(), testing::ElementsAre("data.bin"));
}

}  // namespace
}  // namespace stof::cli

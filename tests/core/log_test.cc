#include "core/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace stof {
namespace {

/// The level is read once a process, so each case runs in its own.
void warn_with(const char* level) {
  ::setenv("STOF_LOG", level, 1);
  log_warn("a message");
  std::_Exit(0);
}

TEST(Log, WarnsUnlessSwitchedOff) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(warn_with("warn"), testing::ExitedWithCode(0), "^stof: warning: a message\n$");
  EXPECT_EXIT(warn_with("off"), testing::ExitedWithCode(0), "^$");
}

TEST(Log, NamesAnUnknownLevelAndTakesTheDefault) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(warn_with("loud"), testing::ExitedWithCode(0),
              "STOF_LOG: expected off, warn, info or debug, got \"loud\".*\n.*a message");
}

}  // namespace
}  // namespace stof

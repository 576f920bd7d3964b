#pragma once
// STOF_CHECK: throw an Error with a formatted message where a condition does not hold.

#include <fmt/core.h>

#include "stof/error.h"

/// STOF_CHECK(seq_q > 0, kInvalidArgument, "seq_q: expected at least 1, got {}", seq_q);
#define STOF_CHECK(condition, code, ...)                                        \
  do {                                                                          \
    if (!(condition)) [[unlikely]]                                              \
      throw ::stof::Error(::stof::ErrorCode::code, ::fmt::format(__VA_ARGS__)); \
  } while (false)

/// For what only a bug in stof can break.
#define STOF_ASSERT(condition)                                                                   \
  STOF_CHECK(condition, kInternal, "internal error: {} does not hold ({}:{}); please report it", \
             #condition, __FILE_NAME__, __LINE__)

namespace stof {

/// throw_error(ErrorCode::kCorrupt, "{}: ...", path)
template <class... Args>
[[noreturn]] void throw_error(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws the same error once more with what was being done: "...: out of memory; in attention
/// ...".
[[noreturn]] inline void add_context(const Error& error, const std::string& context) {
  throw Error(error.code(), fmt::format("{}; in {}", error.what(), context));
}

}  // namespace stof

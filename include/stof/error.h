#pragma once
// The one exception type of stof and its codes.

#include <stdexcept>
#include <string>

namespace stof {

/// What kind of thing went wrong. Callers branch on this, people read the message.
enum class ErrorCode {
  kInvalidArgument,  ///< the caller passed something that can never work
  kUnsupported,      ///< legal, but no kernel or loader here can honour it
  kNotFound,         ///< a file, tensor or option that does not exist
  kCorrupt,          ///< a file that is not what it claims to be
  kOutOfMemory,      ///< memory or disk space ran out
  kIo,               ///< the operating system refused a read or write
  kCuda,             ///< a GPU driver call failed
  kJit,              ///< run-time compilation failed
  kInternal,         ///< a bug in stof
};

/// "InvalidArgument", "Corrupt", ...
const char* to_string(ErrorCode code);

/// Thrown by every stof function that fails. `what()` says what was expected, what was got and what
/// to do, naming the file, tensor, field or option.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

  /// True where the user can mend it (bad argument, missing or corrupt input), false where the
  /// world or stof is at fault. The CLI exits with 2 and 1 respectively.
  bool is_user_fault() const;

 private:
  ErrorCode code_;
};

}  // namespace stof

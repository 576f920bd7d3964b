#include "stof/error.h"

namespace stof {

const char* to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "InvalidArgument";
    case ErrorCode::kUnsupported:
      return "Unsupported";
    case ErrorCode::kNotFound:
      return "NotFound";
    case ErrorCode::kCorrupt:
      return "Corrupt";
    case ErrorCode::kOutOfMemory:
      return "OutOfMemory";
    case ErrorCode::kIo:
      return "Io";
    case ErrorCode::kCuda:
      return "Cuda";
    case ErrorCode::kJit:
      return "Jit";
    case ErrorCode::kInternal:
      return "Internal";
  }
  return "Unknown";
}

bool Error::is_user_fault() const {
  switch (code_) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported:
    case ErrorCode::kNotFound:
    case ErrorCode::kCorrupt:
      return true;
    default:
      return false;
  }
}

}  // namespace stof

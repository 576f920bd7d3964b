#include "capi/guard.h"

#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

#include "core/cancel.h"
#include "stof/system_info.h"

namespace stof::capi {
namespace {

thread_local std::string last_error;
/// Points at last_error, or at a literal where there was no memory for the message.
thread_local const char* last_message = "";

void keep(const char* message) noexcept {
  try {
    last_error = message;
    last_message = last_error.c_str();
  } catch (...) {
    last_message = "out of memory, for the error's message as well";
  }
}

stof_status status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return STOF_INVALID_ARGUMENT;
    case ErrorCode::kUnsupported:
      return STOF_UNSUPPORTED;
    case ErrorCode::kNotFound:
      return STOF_NOT_FOUND;
    case ErrorCode::kCorrupt:
      return STOF_CORRUPT;
    case ErrorCode::kOutOfMemory:
      return STOF_OUT_OF_MEMORY;
    case ErrorCode::kIo:
      return STOF_IO;
    case ErrorCode::kCuda:
      return STOF_CUDA;
    case ErrorCode::kJit:
      return STOF_JIT;
    case ErrorCode::kInternal:
      return STOF_INTERNAL;
  }
  return STOF_INTERNAL;
}

}  // namespace

stof_status status_of_current_exception() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    keep(error.what());
    return status_of(error.code());
  } catch (const Cancelled& cancelled) {
    keep(cancelled.what());
    return STOF_CANCELLED;
  } catch (const std::bad_alloc&) {
    keep("out of memory; use a smaller shape or a machine with more memory");
    return STOF_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    keep(error.what());
    return STOF_INTERNAL;
  } catch (...) {
    keep("an exception of unknown type; please report it");
    return STOF_INTERNAL;
  }
}

char* copy_text(const std::string& text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  STOF_CHECK(copy != nullptr, kOutOfMemory, "no memory for a text of {} bytes", text.size());
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

}  // namespace stof::capi

extern "C" {

const char* stof_version(void) { return stof::version().data(); }

const char* stof_status_name(stof_status status) {
  using stof::ErrorCode;
  if (status == STOF_OK) return "OK";
  if (status == STOF_CANCELLED) return "Cancelled";
  for (int code = 0; code <= static_cast<int>(ErrorCode::kInternal); ++code)
    if (stof::capi::status_of(static_cast<ErrorCode>(code)) == status)
      return stof::to_string(static_cast<ErrorCode>(code));
  return "Unknown";
}

void stof_set_cancel_flag(const int32_t* flag) { stof::set_cancel_flag(flag); }

const char* stof_last_error(void) { return stof::capi::last_message; }

void stof_text_release(char* text) { std::free(text); }

}  // extern "C"

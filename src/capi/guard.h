#pragma once
// What every function of stof/stof.h is wrapped in: exceptions become a status and a message.

#include <string>

#include "core/check.h"
#include "stof/stof.h"

namespace stof::capi {

/// Keeps the message of the exception being handled for this thread, and returns its status.
stof_status status_of_current_exception() noexcept;

/// Runs `body`; STOF_OK unless it throws.
template <class Body>
stof_status guard(Body&& body) noexcept {
  try {
    body();
    return STOF_OK;
  } catch (...) {
    return status_of_current_exception();
  }
}

/// A pointer that the caller must give.
template <class T>
T& required(T* pointer, const char* name) {
  STOF_CHECK(pointer != nullptr, kInvalidArgument, "{}: expected a pointer, got null", name);
  return *pointer;
}

/// A copy that stof_text_release() frees. Throws OutOfMemory.
char* copy_text(const std::string& text);

/// A function whose result is the text that `make()` returns.
template <class Make>
stof_status make_text(char** result, const char* name, Make&& make) noexcept {
  return guard([&] {
    char*& out = required(result, name);
    out = copy_text(make());
  });
}

}  // namespace stof::capi

#pragma once
// How a caller ends a long call that runs on another of its threads.

#include <cstdint>
#include <exception>

namespace stof {

/// Thrown out of a call whose caller has asked for its end; nothing is wrong.
class Cancelled : public std::exception {
 public:
  const char* what() const noexcept override {
    return "cancelled: the caller asked for this call's end";
  }
};

/// What long calls of this thread look at from now on; null for nothing. It must outlive them.
void set_cancel_flag(const std::int32_t* flag);

/// Throws Cancelled where this thread's flag is not 0. Cheap: for loops over rows of tiles.
void check_cancelled();

}  // namespace stof

#include "core/cancel.h"

namespace stof {
namespace {

thread_local const std::int32_t* cancel_flag = nullptr;

}  // namespace

void set_cancel_flag(const std::int32_t* flag) { cancel_flag = flag; }

void check_cancelled() {
  // Another thread writes it; nothing else is read after it, so no order is needed.
  if (cancel_flag != nullptr && __atomic_load_n(cancel_flag, __ATOMIC_RELAXED) != 0)
    throw Cancelled();
}

}  // namespace stof

#pragma once
// kernels/ptx/async_copy.cuh: the machine decides when a copy lands.

#include "machine.h"
#include "ptx/types.cuh"

namespace stof::ptx {

inline void copy_16(u32 shared, const void* global, u32 bytes) {
  emulated::machine.copy({shared, global, 16, bytes});
}
inline void copy_16(u32 shared, const void* global) { copy_16(shared, global, 16); }
inline void copy_4(u32 shared, const void* global, u32 bytes) {
  emulated::machine.copy({shared, global, 4, bytes});
}
inline void commit_copies() { emulated::machine.commit(); }
template <int kPending>
void wait_copies() {
  emulated::machine.wait(kPending);
}
inline void store_shared(u32 shared, u32 a, u32 b, u32 c, u32 d) {
  const u32 words[4] = {a, b, c, d};
  std::memcpy(emulated::machine.at(shared, 16), words, 16);
}

}  // namespace stof::ptx

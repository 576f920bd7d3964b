#pragma once
// kernels/ptx/shared.cuh.

#include "machine.h"
#include "ptx/types.cuh"

namespace stof::ptx {

inline u64 load_shared_u64(u32 address) {
  u64 value;
  std::memcpy(&value, emulated::machine.at(address, 8), 8);
  return value;
}
inline u32 load_shared_u16(u32 address) {
  std::uint16_t value;
  std::memcpy(&value, emulated::machine.at(address, 2), 2);
  return value;
}
inline void sync_some(int id, int threads) { emulated::machine.sync_some(id, threads); }

}  // namespace stof::ptx

#pragma once
// kernels/ptx/stream_load.cuh: a load is a load.

#include <cstring>

#include "machine.h"

namespace stof::ptx {

inline uint4 load_streamed(const void* address) {
  uint4 value;
  std::memcpy(&value, address, 16);
  return value;
}

}  // namespace stof::ptx

#pragma once
// kernels/ptx/matrix.cuh, with the fragment layouts of the PTX ISA ("ldmatrix", "mma.m16n8k16",
// "mma.sp.m16n8k32").

#include "ptx/math.cuh"

namespace stof::ptx {

inline void emulate_load_matrices(u32* registers, u32 row, bool transposed) {
  const auto& rows = emulated::machine.exchange(&row, 1);
  const u32 lane = emulated::machine.thread() % 32;
  for (u32 matrix = 0; matrix < 4; ++matrix) {
    registers[matrix] = 0;
    for (u32 element = 0; element < 2; ++element) {
      const u32 first = lane / 4, second = 2 * (lane % 4) + element;
      const u32 from_row = transposed ? second : first, column = transposed ? first : second;
      std::uint16_t bits;
      std::memcpy(&bits, emulated::machine.at(rows[8 * matrix + from_row][0], 16) + 2 * column, 2);
      registers[matrix] |= static_cast<u32>(bits) << (16 * element);
    }
  }
  emulated::machine.sync_warp();
}
inline void load_matrices(u32* registers, u32 row) { emulate_load_matrices(registers, row, false); }
inline void load_matrices_transposed(u32* registers, u32 row) {
  emulate_load_matrices(registers, row, true);
}

template <class Element>
void multiply(Element, float* c, const u32* a, u32 b0, u32 b1) {
  const u32 mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
  const auto& all = emulated::machine.exchange(mine, 6);
  const auto half = [](u32 word, u32 index) {
    return index % 2 == 0 ? Element::low(word) : Element::high(word);
  };
  const u32 lane = emulated::machine.thread() % 32;
  for (u32 i = 0; i < 4; ++i) {
    const u32 row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
    for (u32 k = 0; k < 16; ++k)
      c[i] += half(all[row % 8 * 4 + k % 8 / 2][row / 8 + 2 * (k / 8)], k) *
              half(all[column * 4 + k % 8 / 2][4 + k / 8], k);
  }
  emulated::machine.sync_warp();
}

template <int kSelector, class Element>
void multiply_sparse(Element, float* c, const u32* a, u32 b0, u32 b1, u32 b2, u32 b3, u32 places) {
  const u32 mine[9] = {a[0], a[1], a[2], a[3], b0, b1, b2, b3, places};
  const auto& all = emulated::machine.exchange(mine, 9);
  const auto half = [](u32 word, u32 index) {
    return index % 2 == 0 ? Element::low(word) : Element::high(word);
  };
  const u32 lane = emulated::machine.thread() % 32;
  for (u32 i = 0; i < 4; ++i) {
    const u32 row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
    for (u32 kept = 0; kept < 16; ++kept) {
      const u32 word = all[row % 8 * 4 + 2 * kSelector + kept / 8][8] >> (16 * (row / 8));
      const u32 k = kept / 2 * 4 + (word >> (2 * (kept % 8)) & 3);
      if (kept % 2 == 1 && (word >> (2 * (kept % 8)) & 3) <= (word >> (2 * (kept % 8) - 2) & 3))
        throw std::runtime_error("metadata out of order");
      c[i] += half(all[row % 8 * 4 + kept % 8 / 2][row / 8 + 2 * (kept / 8)], kept) *
              half(all[column * 4 + k % 8 / 2][4 + k / 8], k);
    }
  }
  emulated::machine.sync_warp();
}

}  // namespace stof::ptx

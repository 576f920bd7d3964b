#pragma once
// Loading q, k and v rows into float32 scratch in the layouts the tile loops read.

#include "backend/cpu/attention/kernel.h"
#include "backend/cpu/attention/kernel_math.h"

namespace stof::cpu {
namespace {

constexpr std::int64_t kWidth = Simd::kWidth;
constexpr std::int64_t kRows = Simd::kRows;
constexpr std::int64_t kMaxVecs = 3;                // vectors of query rows in a panel
constexpr std::int64_t kPanel = kMaxVecs * kWidth;  // query rows in a full panel

std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}
std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

/// Address of element `offset` of an array.
const void* at(const void* base, Element element, std::int64_t offset) {
  return static_cast<const char*>(base) + offset * (element == Element::kFloat32 ? 4 : 2);
}

template <Vec (*kLoad)(const std::uint16_t*)>
void widen(const std::uint16_t* from, float* to, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) Simd::store(to + i, kLoad(from + i));
  if (i == count) return;
  std::uint16_t last[kWidth] = {};
  float wide[kWidth];
  __builtin_memcpy(last, from + i, static_cast<std::size_t>(count - i) * sizeof *last);
  Simd::store(wide, kLoad(last));
  __builtin_memcpy(to + i, wide, static_cast<std::size_t>(count - i) * sizeof *wide);
}

/// A row of `count` elements as float32; the row itself where it is float32 already.
const float* row_as_float(Element element, const void* row, float* scratch, std::int64_t count) {
  switch (element) {
    case Element::kFloat32:
      return static_cast<const float*>(row);
    case Element::kFloat16:
      widen<Simd::load_float16>(static_cast<const std::uint16_t*>(row), scratch, count);
      break;
    case Element::kBFloat16:
      widen<Simd::load_bfloat16>(static_cast<const std::uint16_t*>(row), scratch, count);
      break;
  }
  return scratch;
}

/// Query rows of a panel as [head_dim_qk][width], scaled, with zeros in lanes past the sequence:
/// one vector holds the same element of neighbouring queries.
void pack_queries(const KernelParams& params, const KernelHead& head, std::int64_t q_begin,
                  std::int64_t num_rows, std::int64_t width, float* packed, float* row_scratch) {
  const std::int64_t dim = params.head_dim_qk;
  for (std::int64_t lane = 0; lane < width; ++lane) {
    if (lane >= num_rows) {
      for (std::int64_t d = 0; d < dim; ++d) packed[d * width + lane] = 0;
      continue;
    }
    const void* source = at(head.q, params.element, (q_begin + lane) * head.q_stride);
    const float* row = row_as_float(params.element, source, row_scratch, dim);
    for (std::int64_t d = 0; d < dim; ++d) packed[d * width + lane] = row[d] * params.scale;
  }
}

/// Value rows as [ceil(head_dim_v / kRows)][num_keys][kRows], zero past head_dim_v. Returns whether
/// all are finite.
bool pack_values(const KernelParams& params, const KernelHead& head, std::int64_t k_begin,
                 std::int64_t num_keys, float* packed, float* row_scratch) {
  const std::int64_t dim = params.head_dim_v;
  const std::int64_t whole = dim / kRows * kRows;
  Vec zeros = Simd::set1(0.0f);  // stays 0 unless a value is infinite or NaN
  float tail_zero = 0;
  for (std::int64_t key = 0; key < num_keys; ++key) {
    const void* source = at(head.v, params.element, (k_begin + key) * head.v_stride);
    const float* row = row_as_float(params.element, source, row_scratch, dim);
    float* to = packed + key * kRows;
    for (std::int64_t d = 0; d < whole; d += kRows, to += num_keys * kRows)
      __builtin_memcpy(to, row + d, kRows * sizeof(float));
    if (whole < dim)
      for (std::int64_t i = 0; i < kRows; ++i) to[i] = whole + i < dim ? row[whole + i] : 0.0f;
    std::int64_t d = 0;
    for (; d + kWidth <= dim; d += kWidth)
      zeros = Simd::fma(Simd::load(row + d), Simd::set1(0.0f), zeros);
    for (; d < dim; ++d) tail_zero += row[d] * 0.0f;
  }
  float lanes[kWidth];
  Simd::store(lanes, zeros);
  for (const float lane : lanes) tail_zero += lane;
  return tail_zero == 0;
}

/// Bits of 8 query rows x 8 keys (bit = row * 8 + key) turned to bit = key * 8 + row.
std::uint64_t transpose_8x8(std::uint64_t x) {
  std::uint64_t swap = (x ^ (x >> 7)) & 0x00aa00aa00aa00aaULL;
  x ^= swap ^ (swap << 7);
  swap = (x ^ (x >> 14)) & 0x0000cccc0000ccccULL;
  x ^= swap ^ (swap << 14);
  swap = (x ^ (x >> 28)) & 0x00000000f0f0f0f0ULL;
  return x ^ swap ^ (swap << 28);
}

/// A panel's part of a payload by key: bit i of key_bits[k] says whether panel row i sees key k.
/// Returns false when no row sees any.
bool turn_payload(const KernelParams& params, const std::uint64_t* payload, std::int64_t first_row,
                  std::int64_t num_rows, std::int64_t num_keys, std::uint64_t* key_bits) {
  std::uint64_t any = 0;
  for (std::int64_t k = 0; k < round_up(num_keys, 8); ++k) key_bits[k] = 0;
  for (std::int64_t row = 0; row < num_rows; row += 8) {
    const std::int64_t rows = smaller(num_rows - row, 8);
    for (std::int64_t k = 0; k < num_keys; k += 8) {
      std::uint64_t bits = 0;
      for (std::int64_t i = 0; i < rows; ++i) {
        const std::uint64_t word = payload[(first_row + row + i) * params.words_per_row + k / 64];
        bits |= ((word >> (k % 64)) & 0xff) << (8 * i);
      }
      any |= bits;
      const std::uint64_t turned = transpose_8x8(bits);
      for (std::int64_t j = 0; j < 8; ++j) key_bits[k + j] |= ((turned >> (8 * j)) & 0xff) << row;
    }
  }
  return any != 0;
}

}  // namespace
}  // namespace stof::cpu

#include "tensor/gguf_blocks.h"

#include <array>
#include <cstring>

#include "core/check.h"
#include "stof/dtype.h"

namespace stof {
namespace {

using Byte = std::uint8_t;

template <class T>
T load(const Byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

float load_half(const Byte* p) { return static_cast<float>(load<Float16>(p)); }

/// 32 codes of 4 bits: byte i holds elements i (low half) and i + 16.
void nibbles_32(const Byte* p, std::array<int, 32>& codes) {
  for (std::size_t i = 0; i < 16; ++i) {
    codes[i] = p[i] & 15;
    codes[i + 16] = p[i] >> 4;
  }
}

/// Bit i of a 32-bit word is the fifth bit of element i.
void add_fifth_bits(const Byte* p, std::array<int, 32>& codes) {
  const auto bits = load<std::uint32_t>(p);
  for (std::size_t i = 0; i < 32; ++i) codes[i] |= static_cast<int>((bits >> i) & 1U) << 4;
}

void scale_32(const std::array<int, 32>& codes, int zero, float scale, float low, float* out) {
  for (std::size_t i = 0; i < 32; ++i) out[i] = static_cast<float>(codes[i] - zero) * scale + low;
}

void q4_0(const Byte* p, float* out) {
  std::array<int, 32> codes;
  nibbles_32(p + 2, codes);
  scale_32(codes, 8, load_half(p), 0, out);
}

void q4_1(const Byte* p, float* out) {
  std::array<int, 32> codes;
  nibbles_32(p + 4, codes);
  scale_32(codes, 0, load_half(p), load_half(p + 2), out);
}

void q5_0(const Byte* p, float* out) {
  std::array<int, 32> codes;
  nibbles_32(p + 6, codes);
  add_fifth_bits(p + 2, codes);
  scale_32(codes, 16, load_half(p), 0, out);
}

void q5_1(const Byte* p, float* out) {
  std::array<int, 32> codes;
  nibbles_32(p + 8, codes);
  add_fifth_bits(p + 4, codes);
  scale_32(codes, 0, load_half(p), load_half(p + 2), out);
}

void q8_0(const Byte* p, float* out) {
  const float scale = load_half(p);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(load<std::int8_t>(p + 2 + i)) * scale;
}

/// Scale and minimum of sub-block j of 8, 6 bits each in 12 bytes: the first four have bytes of
/// their own, whose two spare bits complete the other four.
std::array<int, 2> scale_and_minimum(const Byte* p, int j) {
  if (j < 4) return {p[j] & 63, p[j + 4] & 63};
  return {(p[j + 4] & 15) | ((p[j - 4] >> 6) << 4), (p[j + 4] >> 4) | ((p[j] >> 6) << 4)};
}

/// Q4_K, and with `fifth` (32 bytes: bit j of byte i is element i's of sub-block j) Q5_K.
void k_block(const Byte* p, const Byte* fifth, const Byte* codes, float* out) {
  const float scale = load_half(p), low = load_half(p + 2);
  for (int j = 0; j < 8; ++j) {
    const auto [s, m] = scale_and_minimum(p + 4, j);
    const float sub_scale = scale * static_cast<float>(s), sub_low = low * static_cast<float>(m);
    const Byte* pair = codes + (j / 2) * 32;  // two sub-blocks share their bytes
    for (int i = 0; i < 32; ++i) {
      int code = j % 2 == 0 ? pair[i] & 15 : pair[i] >> 4;
      if (fifth != nullptr) code |= ((fifth[i] >> j) & 1) << 4;
      *out++ = sub_scale * static_cast<float>(code) - sub_low;
    }
  }
}

void q4_k(const Byte* p, float* out) { k_block(p, nullptr, p + 16, out); }
void q5_k(const Byte* p, float* out) { k_block(p, p + 16, p + 48, out); }

/// Two halves of 128 elements: 64 bytes with four low bits, 32 bytes with two high ones, and a
/// signed scale for every 16 elements.
void q6_k(const Byte* p, float* out) {
  const float scale = load_half(p + 208);
  for (int half = 0; half < 2; ++half) {
    const Byte *low = p + half * 64, *high = p + 128 + half * 32, *scales = p + 192 + half * 8;
    for (int quarter = 0; quarter < 4; ++quarter) {
      for (int i = 0; i < 32; ++i) {
        const int byte = low[(quarter % 2) * 32 + i];
        const int bits = quarter < 2 ? byte & 15 : byte >> 4;
        const int code = (bits | (((high[i] >> (2 * quarter)) & 3) << 4)) - 32;
        const auto sub = load<std::int8_t>(scales + 2 * quarter + i / 16);
        *out++ = scale * static_cast<float>(sub) * static_cast<float>(code);
      }
    }
  }
}

template <class T>
void plain(const Byte* p, float* out) {
  *out = static_cast<float>(load<T>(p));
}

struct Format {
  GgufType type;
  std::string_view name;
  GgufBlock block;
  void (*dequantize)(const Byte* block, float* out);
};

constexpr std::array<Format, 11> kFormats = {{
    {GgufType::kF32, "F32", {1, 4}, plain<float>},
    {GgufType::kF16, "F16", {1, 2}, plain<Float16>},
    {GgufType::kBF16, "BF16", {1, 2}, plain<BFloat16>},
    {GgufType::kQ4_0, "Q4_0", {32, 18}, q4_0},
    {GgufType::kQ4_1, "Q4_1", {32, 20}, q4_1},
    {GgufType::kQ5_0, "Q5_0", {32, 22}, q5_0},
    {GgufType::kQ5_1, "Q5_1", {32, 24}, q5_1},
    {GgufType::kQ8_0, "Q8_0", {32, 34}, q8_0},
    {GgufType::kQ4_K, "Q4_K", {256, 144}, q4_k},
    {GgufType::kQ5_K, "Q5_K", {256, 176}, q5_k},
    {GgufType::kQ6_K, "Q6_K", {256, 210}, q6_k},
}};

const Format& format_of(GgufType type) {
  for (const Format& format : kFormats)
    if (format.type == type) return format;
  throw_error(ErrorCode::kInternal, "GgufType: {} has no format", static_cast<int>(type));
}

}  // namespace

std::string_view to_string(GgufType type) { return format_of(type).name; }

std::optional<GgufType> gguf_type(std::uint32_t number) {
  for (const Format& format : kFormats)
    if (static_cast<std::uint32_t>(format.type) == number) return format.type;
  return std::nullopt;
}

GgufBlock gguf_block(GgufType type) { return format_of(type).block; }

void dequantize(GgufType type, const std::byte* blocks, std::int64_t num_blocks, float* out) {
  const Format& format = format_of(type);
  const auto* bytes = reinterpret_cast<const Byte*>(blocks);
  for (std::int64_t i = 0; i < num_blocks; ++i)
    format.dequantize(bytes + i * format.block.bytes, out + i * format.block.elements);
}

}  // namespace stof

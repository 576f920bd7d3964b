#pragma once
// Reading GGUF files (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), versions 2 and 3.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "stof/tensor.h"

namespace stof {

/// How a tensor's elements are stored; the values are the format's own numbers. The quantised types
/// store blocks of 32 elements, those with K of 256.
enum class GgufType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

/// "F32", "Q4_K"
std::string_view to_string(GgufType type);

/// A value of the metadata: every integer type as int64, every float as double.
using GgufValue = std::variant<std::int64_t, double, bool, std::string, std::vector<std::int64_t>,
                               std::vector<double>, std::vector<bool>, std::vector<std::string>>;

struct GgufTensor {
  GgufType type = GgufType::kF32;
  Dims shape;  ///< row-major, the reverse of the order in the file: [out, in] of a matrix
  std::span<const std::byte> data;  ///< in the file
};

/// One file, mapped into memory; its header is validated in full when opened. A copy shares the
/// map. A file must not be shortened by others meanwhile.
class GgufFile {
 public:
  /// Throws NotFound, Io, Corrupt naming the file, field, offset, what was expected and got, or
  /// Unsupported for another version, a big-endian file, nested arrays or a type that is not among
  /// GgufType.
  static GgufFile open(const std::string& path);

  /// The same over memory that the caller keeps alive; `name` stands for the path in errors.
  static GgufFile from_bytes(std::span<const std::byte> bytes, const std::string& name);

  const std::string& path() const;
  const std::map<std::string, GgufValue, std::less<>>& metadata() const;
  const std::map<std::string, GgufTensor, std::less<>>& tensors() const;

  /// Throws NotFound naming the file and near names.
  const GgufTensor& require(std::string_view name) const;

  /// A float32 copy, dequantised. Throws what require() does.
  Tensor float32(std::string_view name) const;

 private:
  struct State;
  explicit GgufFile(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

}  // namespace stof

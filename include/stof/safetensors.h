#pragma once
// Reading and writing safetensors files (https://github.com/huggingface/safetensors, "Format").

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stof/dtype.h"
#include "stof/tensor.h"

namespace stof {

/// The free text map "__metadata__" of a file.
using Metadata = std::map<std::string, std::string, std::less<>>;

/// One file, mapped into memory and validated in full when opened. A copy shares the map; views
/// stay valid while any copy lives. A file must not be shortened by others meanwhile.
class SafetensorsFile {
 public:
  /// Throws NotFound, Io, Corrupt naming the file, tensor and field that is wrong, or Unsupported
  /// for a dtype of the format that stof has no name for, or more than 8 dimensions.
  static SafetensorsFile open(const std::string& path);

  /// The same over memory that the caller keeps alive; `name` stands for the path in errors.
  static SafetensorsFile from_bytes(std::span<const std::byte> bytes, const std::string& name);

  const std::string& path() const;
  const Metadata& metadata() const;

  /// All tensors, by name. Contiguous; addresses are aligned to the element only if the writer
  /// took care (save_safetensors does): see TensorView::is_aligned.
  const std::map<std::string, TensorView, std::less<>>& tensors() const;

  /// nullptr when there is no such tensor.
  const TensorView* find(std::string_view name) const;

  /// Throws NotFound naming the file and near names.
  const TensorView& require(std::string_view name) const;

  /// Throws Corrupt naming file, tensor, expected and found shape as well.
  const TensorView& require(std::string_view name, const Dims& shape) const;

  /// Throws Corrupt for another dtype as well.
  const TensorView& require(std::string_view name, DType dtype, const Dims& shape) const;

 private:
  struct State;
  explicit SafetensorsFile(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

/// A tensor to be written.
struct NamedTensor {
  std::string name;
  TensorView view;  ///< any strides; written row-major
};

/// Writes all or nothing. The same content always gives the same bytes, whatever the order of
/// `tensors`: larger elements first, then by name, data 8-byte aligned. Throws InvalidArgument for
/// a repeated, reserved or non-UTF-8 name, Io when the file cannot be written.
void save_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                      const Metadata& metadata = {});

/// The bytes that save_safetensors writes.
std::vector<std::byte> serialize_safetensors(std::span<const NamedTensor> tensors,
                                             const Metadata& metadata = {});

}  // namespace stof

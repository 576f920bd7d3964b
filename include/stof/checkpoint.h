#pragma once
// The weights of a model: one safetensors file, many under an index file, or a GGUF file.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stof/gguf.h"
#include "stof/safetensors.h"

namespace stof {

/// Tensors by name, as views into the mapped files. A copy shares the maps; views stay valid while
/// any copy lives.
class Checkpoint {
 public:
  /// `path` is a .safetensors file, an index file (.index.json), a .gguf file, or a folder that
  /// holds model.safetensors or, failing that, model.safetensors.index.json.
  ///
  /// With an index, the tensors are those of its "weight_map". Throws Corrupt naming index, tensor
  /// and shard when an entry is not in its shard or a shard is not a file of the same folder;
  /// NotFound when a file is missing; else as SafetensorsFile::open and GgufFile::open.
  static Checkpoint open(const std::string& path);

  /// What was given to open().
  const std::string& path() const { return path_; }
  const std::vector<SafetensorsFile>& files() const { return files_; }
  /// The GGUF file, where the checkpoint is one; else nullptr.
  const GgufFile* gguf() const { return gguf_ ? &*gguf_ : nullptr; }

  /// All names, sorted, aliases included.
  std::vector<std::string_view> names() const;

  /// Makes `alias` another name of the tensor `name`: tied weights are stored once. Does nothing
  /// when the files hold a tensor of that name. Throws NotFound when `name` does not exist.
  void add_alias(const std::string& alias, std::string_view name);

  bool contains(std::string_view name) const { return entries_.contains(name); }

  /// nullptr when there is no such tensor. Throws Unsupported for a quantised one, which has no
  /// view: float32() reads it.
  const TensorView* find(std::string_view name) const;

  /// Throws NotFound naming the checkpoint and near names, and what find() does.
  const TensorView& require(std::string_view name) const;

  /// Throws Corrupt naming file, tensor, expected and found shape as well.
  const TensorView& require(std::string_view name, const Dims& shape) const;

  /// A copy in float32, dequantised where it is stored so. Throws NotFound, Corrupt for another
  /// shape, and Unsupported where the elements are not floats.
  Tensor float32(std::string_view name, const Dims& shape) const;

 private:
  struct Entry {
    TensorView view;                        ///< of a quantised tensor: shape alone
    std::size_t file_idx;                   ///< of files_
    const GgufTensor* quantized = nullptr;  ///< in gguf_
  };
  const std::string& file_of(const Entry& entry) const;
  const TensorView& view_of(const Entry& entry, std::string_view name) const;
  void add_gguf(const std::string& path);
  void add_file(const SafetensorsFile& file);
  void read_index(const std::string& index_path);

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::optional<GgufFile> gguf_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace stof

#pragma once
// The weights of a model: one safetensors file, or many under an index file.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "stof/safetensors.h"

namespace stof {

/// Tensors by name, as views into the mapped files. A copy shares the maps; views stay valid while
/// any copy lives.
class Checkpoint {
 public:
  /// `path` is a .safetensors file, an index file (.index.json), or a folder that holds
  /// model.safetensors or, failing that, model.safetensors.index.json.
  ///
  /// With an index, the tensors are those of its "weight_map". Throws Corrupt naming index, tensor
  /// and shard when an entry is not in its shard or a shard is not a file of the same folder;
  /// NotFound when a file is missing; else as SafetensorsFile::open.
  static Checkpoint open(const std::string& path);

  /// What was given to open().
  const std::string& path() const { return path_; }
  const std::vector<SafetensorsFile>& files() const { return files_; }

  /// All names, sorted, aliases included.
  std::vector<std::string_view> names() const;

  /// Makes `alias` another name of the tensor `name`: tied weights are stored once. Does nothing
  /// when the files hold a tensor of that name. Throws NotFound when `name` does not exist.
  void add_alias(const std::string& alias, std::string_view name);

  /// nullptr when there is no such tensor.
  const TensorView* find(std::string_view name) const;

  /// Throws NotFound naming the checkpoint and near names.
  const TensorView& require(std::string_view name) const;

  /// Throws Corrupt naming file, tensor, expected and found shape as well.
  const TensorView& require(std::string_view name, const Dims& shape) const;

 private:
  struct Entry {
    TensorView view;
    std::size_t file_idx;  ///< of files_
  };
  void add_file(const SafetensorsFile& file);
  void read_index(const std::string& index_path);

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace stof

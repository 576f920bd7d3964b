#pragma once
// Shared libraries opened at run time, found where CUDA users have them.

#include <string>
#include <vector>

namespace stof::jit {

/// A loaded library; never unloaded (drivers and compilers keep threads and atexit handlers).
class DynamicLibrary {
 public:
  /// Tries, in order: already loaded in the process, $STOF_CUDA_HOME, the nvidia folders of pip in
  /// $VIRTUAL_ENV, $CONDA_PREFIX, the environment of the python3 on PATH, ~/.local and /usr/local,
  /// the per-user cache (scripts/setup), the toolkit folder, the system's default search. Throws
  /// NotFound listing what was tried.
  static DynamicLibrary open(const std::vector<std::string>& names);

  /// Path of the first of these files in the folders that open() tries; empty where there is none.
  /// Loads nothing, and does not ask the system's loader.
  static std::string locate(const std::vector<std::string>& names);

  /// Loads a library of the same folder, so that this one finds it when it opens it by bare name.
  /// False where the folder has none: the system's search may still find it.
  bool load_neighbour(const std::string& name) const;

  /// Throws NotFound naming library and symbol.
  void* symbol(const char* name) const;
  template <class Function>
  Function function(const char* name) const {
    return reinterpret_cast<Function>(symbol(name));
  }

  const std::string& path() const { return path_; }

 private:
  void* handle_ = nullptr;
  std::string path_;
};

}  // namespace stof::jit

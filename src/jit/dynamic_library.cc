#include "jit/dynamic_library.h"

#include <dlfcn.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "core/check.h"
#include "core/env.h"
#include "core/file.h"

namespace stof::jit {
namespace {

namespace fs = std::filesystem;

/// Where the Pythons that a user means have their packages: the active environment, the python3 on
/// PATH, packages installed for the user or for the machine.
std::vector<std::string> python_prefixes() {
  std::vector<std::string> prefixes;
  for (const char* environment : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const auto prefix = env_string(environment)) prefixes.push_back(*prefix);
  std::istringstream path(env_string("PATH").value_or(""));
  for (std::string folder; std::getline(path, folder, ':');)
    if (file_exists(folder + "/python3")) {
      prefixes.push_back(fs::path(folder).parent_path().string());
      break;
    }
  if (const auto home = env_string("HOME")) prefixes.push_back(*home + "/.local");
  prefixes.emplace_back("/usr/local");
  return prefixes;
}

/// nvidia/*/lib among pip's packages.
void add_pip_folders(std::vector<std::string>& folders) {
  std::error_code ignored;
  for (const std::string& prefix : python_prefixes())
    for (const auto& python : fs::directory_iterator(prefix + "/lib", ignored))
      for (const char* packages : {"site-packages", "dist-packages"})
        for (const auto& part :
             fs::directory_iterator(python.path() / packages / "nvidia", ignored)) {
          const std::string folder = (part.path() / "lib").string();
          if (is_folder(folder) &&
              std::find(folders.begin(), folders.end(), folder) == folders.end())
            folders.push_back(folder);
        }
}

std::vector<std::string> search_folders() {
  std::vector<std::string> folders;
  if (const auto home = env_string("STOF_CUDA_HOME"))
    for (const char* sub : {"/lib64", "/lib", ""}) folders.push_back(*home + sub);
  add_pip_folders(folders);
  folders.push_back(cache_folder() + "/nvrtc");  // scripts/setup --compiler
  for (const char* toolkit : {"/usr/local/cuda/lib64", "/usr/local/cuda/lib"})
    folders.emplace_back(toolkit);
  return folders;
}

std::string path_of(void* handle, const std::string& fallback) {
  char origin[4096];
  if (::dlinfo(handle, RTLD_DI_ORIGIN, origin) == 0)
    return std::string(origin) + "/" + fs::path(fallback).filename().string();
  return fallback;
}

}  // namespace

DynamicLibrary DynamicLibrary::open(const std::vector<std::string>& names) {
  DynamicLibrary library;
  const auto attempt = [&](const std::string& path, int flags) {
    library.handle_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | flags);
    if (library.handle_ != nullptr) library.path_ = path_of(library.handle_, path);
    return library.handle_ != nullptr;
  };
  for (const auto& name : names)
    if (attempt(name, RTLD_NOLOAD)) return library;
  const std::vector<std::string> folders = search_folders();
  for (const auto& folder : folders)
    for (const auto& name : names)
      if (attempt(folder + "/" + name, 0)) return library;
  for (const auto& name : names)
    if (attempt(name, 0)) return library;
  throw_error(ErrorCode::kNotFound,
              "{}: not found in {} nor by the system's loader; install it or set STOF_CUDA_HOME to "
              "the folder that has it",
              fmt::join(names, " or "), fmt::join(folders, ", "));
}

std::string DynamicLibrary::locate(const std::vector<std::string>& names) {
  for (const auto& folder : search_folders())
    for (const auto& name : names)
      if (const std::string path = folder + "/" + name; file_exists(path)) return path;
  return "";
}

bool DynamicLibrary::load_neighbour(const std::string& name) const {
  const fs::path path = fs::path(path_).parent_path() / name;
  return ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr;
}

void* DynamicLibrary::symbol(const char* name) const {
  void* address = ::dlsym(handle_, name);
  STOF_CHECK(address != nullptr, kNotFound, "{}: has no function {}; is it too old?", path_, name);
  return address;
}

}  // namespace stof::jit

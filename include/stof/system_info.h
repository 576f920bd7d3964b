#pragma once
// What this build of stof and this machine offer, the GPU apart (stof/gpu_info.h).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stof {

/// "0.1.0"
std::string_view version();

struct CpuInfo {
  std::string model;  ///< as the system names it; "unknown" where it does not
  int num_logical = 0;
  int num_threads = 0;                ///< that a call with num_threads = 0 uses
  std::vector<std::string> features;  ///< of those stof can use: "avx2", "fma", "avx512f", ...
  std::string kernel_level;           ///< chosen for attention: "scalar", "avx2" or "avx512"
  std::int64_t memory_bytes = 0;      ///< physical
};

struct LibraryInfo {
  std::string name;
  std::string version;  ///< of the copy running now, where the library can say it
};

struct SystemInfo {
  std::string stof_version;
  std::string compiler;
  std::string build_type;  ///< "release", "debug", with sanitizers named
  CpuInfo cpu;
  std::vector<LibraryInfo> libraries;
  std::string cache_folder;

  std::string to_json() const;
};

SystemInfo system_info();

}  // namespace stof

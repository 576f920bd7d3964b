#include "stof/system_info.h"

#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>
#include <utf8proc.h>
#include <xxhash.h>

#include <dnnl.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "backend/cpu/cpu_features.h"
#include "core/env.h"
#include "core/optional_libraries.h"

namespace stof {
namespace {

std::string cpu_model() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::vector<std::string> cpu_features() {
  std::vector<std::string> names;
#if defined(__x86_64__)
  const auto add = [&names](const char* name, bool present) {
    if (present) names.emplace_back(name);
  };
  add("avx2", __builtin_cpu_supports("avx2") != 0);
  add("fma", __builtin_cpu_supports("fma") != 0);
  add("avx512f", __builtin_cpu_supports("avx512f") != 0);
  add("avx512bw", __builtin_cpu_supports("avx512bw") != 0);
  add("avx512dq", __builtin_cpu_supports("avx512dq") != 0);
  add("avx512vl", __builtin_cpu_supports("avx512vl") != 0);
  add("avx512bf16", __builtin_cpu_supports("avx512bf16") != 0);
#endif
  return names;
}

CpuInfo cpu_info() {
  CpuInfo info;
  info.model = cpu_model();
  info.num_logical = static_cast<int>(std::thread::hardware_concurrency());
  info.num_threads = omp_get_max_threads();
  info.features = cpu_features();
  info.kernel_level = cpu::to_string(cpu::selected_isa());
  info.memory_bytes =
      static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  return info;
}

std::string decimal_version(unsigned number) {
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

std::vector<LibraryInfo> libraries() {
  open_onednn();
  const dnnl_version_t& onednn = *dnnl_version();
  return {
      {"oneDNN", fmt::format("{}.{}.{}", onednn.major, onednn.minor, onednn.patch)},
      {"OpenMP", std::to_string(_OPENMP)},
      {"fmt", decimal_version(FMT_VERSION)},
      {"nlohmann-json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR,
                                    NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH)},
      {"xxHash", decimal_version(XXH_versionNumber())},
      {"utf8proc", utf8proc_version()},
  };
}

std::string build_type() {
#if defined(NDEBUG)
  std::string type = "release";
#else
  std::string type = "with assertions";
#endif
#if defined(__SANITIZE_ADDRESS__)
  type += ", AddressSanitizer";
#endif
  return type;
}

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}", __clang_version__);
#else
  return fmt::format("g++ {}", __VERSION__);
#endif
}

}  // namespace

std::string SystemInfo::to_json() const {
  nlohmann::ordered_json json = {
      {"stof", stof_version}, {"compiler", compiler}, {"build_type", build_type}};
  json["cpu"] = {{"model", cpu.model},
                 {"num_logical", cpu.num_logical},
                 {"num_threads", cpu.num_threads},
                 {"features", cpu.features},
                 {"kernel_level", cpu.kernel_level},
                 {"memory_bytes", cpu.memory_bytes}};
  for (const LibraryInfo& library : libraries) json["libraries"][library.name] = library.version;
  json["cache_folder"] = cache_folder;
  return json.dump();
}

SystemInfo system_info() {
  SystemInfo info;
  info.stof_version = version();
  info.compiler = compiler();
  info.build_type = build_type();
  info.cpu = cpu_info();
  info.libraries = libraries();
  info.cache_folder = cache_folder();
  return info;
}

}  // namespace stof

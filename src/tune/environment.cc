#include "tune/environment.h"

#include <map>

#include "core/check.h"
#include "core/hash.h"
#include "stof/gpu_info.h"
#include "stof/system_info.h"

namespace stof::tune {
namespace {

std::string or_none(const std::string& text) { return text.empty() ? "none" : text; }

/// "/usr/local/cuda/lib64/libcublasLt.so.13" -> "libcublasLt.so.13": folders say nothing.
std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

void add_common_fields(Environment& environment) {
  environment.fields.push_back({"templates", std::to_string(kTemplateVersion), true});
  environment.fields.push_back({"policy", std::to_string(kPolicyVersion), true});
  environment.fields.push_back({"stof", std::string(version()), false});
}

}  // namespace

std::string Environment::value(const std::string& name) const {
  for (const EnvironmentField& field : fields)
    if (field.name == name) return field.value;
  return "";
}

Fingerprint Environment::fingerprint() const {
  Hasher hasher;
  std::map<std::string, std::string> hard;
  for (const EnvironmentField& field : fields)
    if (field.hard) hard[field.name] = field.value;
  for (const auto& [name, value] : hard) hasher.add(name).add(value);
  return hasher.finish();
}

std::string Mismatch::text() const {
  return fmt::format("{}: expected {}, got {}", field, or_none(expected), or_none(got));
}

std::optional<Mismatch> mismatch(const Environment& here, const Environment& record) {
  for (const bool hard : {true, false})
    for (const EnvironmentField& field : here.fields)
      if (field.hard == hard && record.value(field.name) != field.value)
        return Mismatch{field.name, field.value, record.value(field.name), hard};
  return std::nullopt;
}

Environment for_shipped_records(Environment here) {
  for (EnvironmentField& field : here.fields)
    if (field.name == "driver" || field.name == "cublaslt") field.hard = false;
  return here;
}

Environment cpu_environment(int num_threads) {
  const SystemInfo info = system_info();
  Environment environment;
  environment.fields = {
      {"device", "cpu", true},
      {"cpu", info.cpu.model, true},
      {"threads", std::to_string(num_threads > 0 ? num_threads : info.cpu.num_threads), false},
      {"level", info.cpu.kernel_level, true}};
  for (const LibraryInfo& library : info.libraries)
    if (library.name == "oneDNN") environment.fields.push_back({"onednn", library.version, true});
  add_common_fields(environment);
  return environment;
}

Environment gpu_environment(int device) {
  const GpuInfo info = gpu_info();
  const auto count = static_cast<int>(info.devices.size());
  STOF_CHECK(device >= 0 && device < count, kNotFound,
             "GPU {}: {}; tune on the CPU with --device cpu", device,
             info.problem.empty() ? fmt::format("there are {}", count) : info.problem);
  const GpuDevice& gpu = info.devices[static_cast<std::size_t>(device)];
  Environment environment;
  environment.fields = {{"device", "cuda", true},
                        {"gpu", gpu.name, true},
                        {"capability", fmt::format("{}.{}", gpu.major, gpu.minor), true},
                        {"sms", std::to_string(gpu.num_sms), true},
                        {"driver", info.driver_version, true},
                        {"cublaslt", file_name(info.blas_library), true},
                        {"nvrtc", info.compiler_version, false}};
  add_common_fields(environment);
  return environment;
}

}  // namespace stof::tune

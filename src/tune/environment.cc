#include "tune/environment.h"

#include <elf.h>

#include <cstring>
#include <fstream>
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

template <class Struct>
bool read_at(std::ifstream& file, std::uint64_t offset, Struct* to) {
  file.seekg(static_cast<std::streamoff>(offset));
  return static_cast<bool>(file.read(reinterpret_cast<char*>(to), sizeof *to));
}

/// "libcublasLt.so.13 build a7d443494f0d20c8": releases of the same name differ in algorithms and
/// speed. Read from the file: loading it to ask for its version takes half a second.
std::string library_text(const std::string& path) {
  if (path.empty()) return "";
  const std::string build = library_build(path);
  return build.empty() ? file_name(path) : file_name(path) + " build " + build.substr(0, 16);
}

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

std::string library_build(const std::string& path) {
  constexpr char kHexDigits[] = "0123456789abcdef";
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header;
  if (!read_at(file, 0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64)
    return "";
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (!read_at(file, header.e_phoff + i * sizeof segment, &segment)) return "";
    if (segment.p_type != PT_NOTE) continue;
    std::uint64_t at = segment.p_offset;
    Elf64_Nhdr note;
    while (at + sizeof note <= segment.p_offset + segment.p_filesz && read_at(file, at, &note)) {
      const auto padded = [](std::uint64_t size) { return (size + 3) / 4 * 4; };
      const std::uint64_t content = at + sizeof note + padded(note.n_namesz);
      at = content + padded(note.n_descsz);
      if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != 4 || note.n_descsz > 64) continue;
      std::string bytes(note.n_descsz, '\0'), text;
      file.seekg(static_cast<std::streamoff>(content));
      if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) return "";
      for (const char c : bytes) {
        const auto byte = static_cast<unsigned char>(c);
        text += {kHexDigits[byte / 16], kHexDigits[byte % 16]};
      }
      return text;
    }
  }
  return "";
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
                        {"cublaslt", library_text(info.blas_library), true},
                        {"nvrtc", info.compiler_version, false}};
  add_common_fields(environment);
  return environment;
}

}  // namespace stof::tune

// stof cache: the compiled GPU kernels kept on disk.

#include <CLI/CLI.hpp>
#include <memory>

#include "backend/cuda/common_kernels.h"
#include "commands.h"
#include "core/file.h"
#include "jit/cubin_archive.h"
#include "jit/cubin_cache.h"
#include "jit/packed_cubins.h"
#include "options.h"
#include "output.h"
#include "stof/error.h"
#include "stof/gpu_info.h"

namespace stof::cli {
namespace {

void print_entries() {
  const jit::CubinCache cache = jit::CubinCache::standard();
  std::vector<std::vector<std::string>> rows = {{"kernel", "size", "state"}};
  for (const jit::CacheEntry& entry : cache.list())
    rows.push_back({entry.valid ? entry.name : entry.path,
                    format_bytes(static_cast<double>(entry.bytes)),
                    entry.valid ? "ok" : "damaged"});
  if (const std::size_t packed = jit::PackedCubins::instance().size(); packed > 0)
    print_out("{} kernels inside the library\n", packed);
  print_out("{} kernels in {}\n", rows.size() - 1, cache.folder());
  if (rows.size() > 1) print_out("{}", format_table(rows));
}

/// Damaged entries are found here and rebuilt at their next use.
void verify_entries() {
  const jit::CubinCache cache = jit::CubinCache::standard();
  int good = 0;
  std::string damaged;
  for (const jit::CacheEntry& entry : cache.list()) {
    good += entry.valid;
    if (!entry.valid) damaged += "\n  " + entry.path;
  }
  print_out("{} kernels are intact in {}\n", good, cache.folder());
  if (!damaged.empty())
    throw Error(ErrorCode::kCorrupt,
                "damaged entries (rebuilt when next used, or remove them with stof cache clear):" +
                    damaged);
}

/// Refuses an empty cache: a file without kernels helps nobody.
void export_entries(const std::string& path) {
  const jit::CubinCache cache = jit::CubinCache::standard();
  require_writable("FILE", path);
  const std::vector<jit::CubinEntry> entries = cache.entries();
  if (entries.empty())
    throw Error(
        ErrorCode::kNotFound,
        cache.folder() + ": no kernels to export; run something on a GPU, or stof cache warm");
  const std::size_t count = entries.size(), listed = cache.list().size();
  const std::string archive = jit::make_archive(entries);
  write_file(path, archive);
  print_out("{} kernels, {} in {}\n", count, format_bytes(static_cast<double>(archive.size())),
            path);
  if (listed > count)
    write_note(fmt::format("{} damaged entries were left out; stof cache verify names them",
                           listed - count));
}

/// All or nothing: the archive is checked in full before the first entry is written.
void import_entries(const std::string& path) {
  constexpr std::uint64_t kMaxArchiveBytes = std::uint64_t{4} << 30;
  const jit::CubinCache cache = jit::CubinCache::standard();
  const std::vector<jit::CubinEntry> entries =
      jit::parse_archive(read_text_file(path, kMaxArchiveBytes), path);
  for (const jit::CubinEntry& entry : entries) cache.add(entry);
  print_out("{} kernels imported to {}\n", entries.size(), cache.folder());
}

struct WarmOptions {
  cuda::CommonKernels kernels;
  std::string target;
};

/// The target of the GPU here, or what most of our kernels are for.
std::string default_target() {
  const GpuInfo info = gpu_info();
  if (info.devices.empty()) return "sm_90a";
  const GpuDevice& gpu = info.devices.front();
  return fmt::format("sm_{}{}{}", gpu.major, gpu.minor, gpu.major >= 9 ? "a" : "");
}

void warm(const WarmOptions& options) {
  const std::string target = options.target.empty() ? default_target() : options.target;
  const auto requests = cuda::common_kernels(options.kernels, target);
  jit::cubins_for(requests);
  print_out("{} kernels for {} are ready\n", requests.size(), target);
}

void add_file_command(CLI::App& cache, const std::string& name, const std::string& help,
                      void (*run)(const std::string&)) {
  auto path = std::make_shared<std::string>();
  CLI::App& command = *cache.add_subcommand(name, help);
  command.fallthrough();
  command.add_option("FILE", *path, "The archive")->required();
  command.footer(examples({"stof cache " + name + " kernels.bin"}));
  command.callback([path, run] { run(*path); });
}

void add_warm_command(CLI::App& cache) {
  auto options = std::make_shared<WarmOptions>();
  CLI::App& command = *cache.add_subcommand(
      "warm", "Compile common kernels ahead of their first use; needs NVRTC, but no GPU");
  command.fallthrough();
  command.add_option("--target", options->target,
                     "GPU architecture (default: of the GPU here, else sm_90a)");
  command
      .add_option("--head-dim", options->kernels.head_dims,
                  "Widths of a head, separated by commas (default 32,64,128)")
      ->delimiter(',')
      ->transform(whole_number(8, 512));
  command
      .add_option("--hidden", options->kernels.hidden_sizes,
                  "Hidden sizes of encoders, separated by commas (default 384,768,1024)")
      ->delimiter(',')
      ->transform(whole_number(8, 32768));
  command.footer(examples({"stof cache warm --head-dim 64 --hidden 768"}));
  command.callback([options] { warm(*options); });
}

}  // namespace

void add_cache_command(CLI::App& app, const Program&) {
  CLI::App& cache = *app.add_subcommand("cache", "Look after the compiled GPU kernels on disk");
  cache.require_subcommand(1);
  cache.fallthrough();
  cache.footer(examples({"stof cache ls", "stof cache warm", "stof cache export kernels.bin"}));
  CLI::App& ls = *cache.add_subcommand("ls", "List the entries");
  ls.footer(examples({"stof cache ls"}));
  ls.callback(print_entries);
  CLI::App& verify = *cache.add_subcommand("verify", "Check every entry's length and checksum");
  verify.footer(examples({"stof cache verify"}));
  verify.callback(verify_entries);
  add_warm_command(cache);
  add_file_command(cache, "export", "Write all entries to one file, for another machine",
                   export_entries);
  add_file_command(cache, "import", "Take over the entries of such a file", import_entries);
  CLI::App& clear = *cache.add_subcommand("clear", "Remove every entry");
  clear.footer(examples({"stof cache clear"}));
  clear.callback([] {
    const jit::CubinCache standard = jit::CubinCache::standard();
    print_out("{} entries removed from {}\n", standard.clear(), standard.folder());
  });
}

}  // namespace stof::cli

// stof cache: the compiled GPU kernels and the tuning records kept on disk.

#include <CLI/CLI.hpp>
#include <memory>

#include "backend/cuda/common_kernels.h"
#include "commands.h"
#include "core/file.h"
#include "core/text.h"
#include "jit/cubin_archive.h"
#include "jit/cubin_cache.h"
#include "jit/packed_cubins.h"
#include "options.h"
#include "output.h"
#include "stof/error.h"
#include "stof/gpu_info.h"
#include "tune/database.h"

namespace stof::cli {
namespace {

/// "12.3 us, gemm_sm90 stages=4 tile_m=128", "1.40 ms, 14:2e20"
std::string outcome_of(const tune::Record& record) {
  const bool segment = record.kind == tune::RecordKind::kSegment;
  return human_duration(record.microseconds * 1e-6) + ", " +
         (segment ? record.choice.text() : record.scheme);
}

/// What the record was measured on.
std::string machine_of(const tune::Record& record) {
  const std::string gpu = record.environment.value("gpu");
  return gpu.empty() ? record.environment.value("cpu") : gpu;
}

void print_records() {
  const tune::Database database = tune::Database::standard();
  std::vector<std::vector<std::string>> rows = {{"record", "machine", "outcome"}};
  for (const tune::DatabaseEntry& entry : database.list())
    rows.push_back({entry.record ? entry.record->what : entry.path,
                    entry.record ? machine_of(*entry.record) : "",
                    entry.record     ? outcome_of(*entry.record)
                    : entry.outdated ? "of another stof"
                                     : "damaged"});
  print_out("{} tuning records in {}\n", rows.size() - 1, database.folder());
  if (rows.size() > 1) print_out("{}", format_table(rows));
}

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
  print_records();
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
  const tune::Database database = tune::Database::standard();
  int good_records = 0;
  for (const tune::DatabaseEntry& entry : database.list()) {
    good_records += entry.record.has_value();
    if (entry.outdated)
      write_note(entry.problem + "; ignored");
    else if (!entry.record)
      damaged += "\n  " + entry.problem;
  }
  print_out("{} tuning records are intact in {}\n", good_records, database.folder());
  if (!damaged.empty())
    throw Error(
        ErrorCode::kCorrupt,
        "damaged entries (kernels are rebuilt when next used, records when tuned again; stof "
        "cache clear removes them):" +
            damaged);
}

/// Ends in ".jsonl": tuning records; otherwise kernels.
bool is_record_file(const std::string& path) { return path.ends_with(".jsonl"); }

void export_records(const std::string& path) {
  const tune::Database database = tune::Database::standard();
  require_writable("FILE", path);
  const std::vector<tune::Record> records = database.records();
  if (records.empty())
    throw Error(ErrorCode::kNotFound,
                database.folder() + ": no tuning records to export; make some with stof tune");
  write_file(path, tune::make_archive(records));
  print_out("{} tuning records in {}\n", records.size(), path);
}

/// Merges: a record that is here already keeps what is faster.
void import_records(const std::string& path) {
  constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 30;
  const tune::Database database = tune::Database::standard();
  const tune::ParsedArchive archive = tune::parse_archive(read_text_file(path, kMaxBytes), path);
  for (const std::string& problem : archive.problems) write_note(problem + "; left out");
  for (const tune::Record& record : archive.records) database.store(record);
  print_out("{} tuning records imported to {}\n", archive.records.size(), database.folder());
}

/// Refuses an empty cache: a file without kernels helps nobody.
void export_entries(const std::string& path) {
  if (is_record_file(path)) return export_records(path);
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
  if (is_record_file(path)) return import_records(path);
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
  command.add_option("FILE", *path, "The archive; .jsonl means tuning records, not kernels")
      ->required();
  command.footer(
      examples({"stof cache " + name + " kernels.bin", "stof cache " + name + " records.jsonl"}));
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
  CLI::App& cache =
      *app.add_subcommand("cache", "Look after compiled GPU kernels and tuning records on disk");
  cache.require_subcommand(1);
  cache.fallthrough();
  cache.footer(examples({"stof cache ls", "stof cache warm", "stof cache export kernels.bin"}));
  CLI::App& ls = *cache.add_subcommand("ls", "List the entries");
  ls.footer(examples({"stof cache ls"}));
  ls.callback(print_entries);
  CLI::App& verify =
      *cache.add_subcommand("verify", "Check the checksum of every entry and record");
  verify.footer(examples({"stof cache verify"}));
  verify.callback(verify_entries);
  add_warm_command(cache);
  add_file_command(cache, "export", "Write all entries to one file, for another machine",
                   export_entries);
  add_file_command(cache, "import", "Take over the entries of such a file", import_entries);
  CLI::App& clear = *cache.add_subcommand("clear", "Remove every entry and record");
  clear.footer(examples({"stof cache clear"}));
  clear.callback([] {
    const jit::CubinCache standard = jit::CubinCache::standard();
    print_out("{} entries removed from {}\n", standard.clear(), standard.folder());
    const tune::Database database = tune::Database::standard();
    print_out("{} tuning records removed from {}\n", database.clear(), database.folder());
  });
}

}  // namespace stof::cli

// stof cache: the compiled GPU kernels kept on disk.

#include <CLI/CLI.hpp>

#include "commands.h"
#include "jit/cubin_cache.h"
#include "options.h"
#include "output.h"
#include "stof/error.h"

namespace stof::cli {
namespace {

void print_entries() {
  const jit::CubinCache cache = jit::CubinCache::standard();
  std::vector<std::vector<std::string>> rows = {{"kernel", "size", "state"}};
  for (const jit::CacheEntry& entry : cache.list())
    rows.push_back({entry.valid ? entry.name : entry.path,
                    format_bytes(static_cast<double>(entry.bytes)),
                    entry.valid ? "ok" : "damaged"});
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

}  // namespace

void add_cache_command(CLI::App& app, const Program&) {
  CLI::App& cache = *app.add_subcommand("cache", "Look after the compiled GPU kernels on disk");
  cache.require_subcommand(1);
  cache.fallthrough();
  cache.footer(examples({"stof cache ls", "stof cache verify", "stof cache clear"}));
  CLI::App& ls = *cache.add_subcommand("ls", "List the entries");
  ls.footer(examples({"stof cache ls"}));
  ls.callback(print_entries);
  CLI::App& verify = *cache.add_subcommand("verify", "Check every entry's length and checksum");
  verify.footer(examples({"stof cache verify"}));
  verify.callback(verify_entries);
  CLI::App& clear = *cache.add_subcommand("clear", "Remove every entry");
  clear.footer(examples({"stof cache clear"}));
  clear.callback([] {
    const jit::CubinCache standard = jit::CubinCache::standard();
    print_out("{} entries removed from {}\n", standard.clear(), standard.folder());
  });
}

}  // namespace stof::cli

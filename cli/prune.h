#pragma once
// --prune and --prune-masks of `stof run`.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "commands.h"
#include "stof/load_options.h"
#include "stof/prune.h"

namespace stof::cli {

struct PruneArguments {
  std::string pruner;  ///< text; empty: none
  std::string masks;   ///< folder; empty: none
};

void add_prune_arguments(CLI::App& command, PruneArguments& arguments);

/// Pruners run on the CPU: with one, "auto" is the CPU.
void place_for_pruning(const PruneArguments& arguments, LoadOptions& load);

/// What was pruned in a run. Outlives the call that its options are given to.
class Pruning {
 public:
  /// Throws what Pruner::parse() does, NotFound or Io naming the folder.
  explicit Pruning(const PruneArguments& arguments);
  Pruning(const Pruning&) = delete;

  std::optional<mask::PruneOptions> options();
  /// On standard error, unless quiet.
  void report(const Program& program) const;

 private:
  void count(const mask::PrunedMask& pruned);

  PruneArguments arguments_;
  std::optional<mask::Pruner> pruner_;
  std::int64_t calls_ = 0;
  double kept_ = 0, imbalance_ = 1;
};

}  // namespace stof::cli

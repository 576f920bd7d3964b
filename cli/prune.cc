#include "prune.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/check.h"
#include "core/file.h"
#include "output.h"
#include "stof/block_mask.h"

namespace stof::cli {

void add_prune_arguments(CLI::App& command, PruneArguments& arguments) {
  command.add_option("--prune", arguments.pruner,
                     "Attention of each layer under what a pruner leaves of its mask, chosen from "
                     "its queries and keys: \"nm(2,4)\", \"mass(0.9,block=16)\"; on the CPU");
  command.add_option("--prune-masks", arguments.masks,
                     "With --prune: also write each choice's mask into this folder, "
                     "00000.safetensors and on: layer after layer, of each the batch's texts");
}

void place_for_pruning(const PruneArguments& arguments, LoadOptions& load) {
  if (!arguments.pruner.empty() && load.place == Place::kAuto) load.place = Place::kCpu;
}

Pruning::Pruning(const PruneArguments& arguments) : arguments_(arguments) {
  STOF_CHECK(!arguments.pruner.empty() || arguments.masks.empty(), kInvalidArgument,
             "--prune-masks: expected --prune beside it");
  if (arguments.pruner.empty()) return;
  pruner_ = mask::Pruner::parse(arguments.pruner);
  if (!arguments.masks.empty())
    STOF_CHECK(is_folder(arguments.masks), kNotFound, "--prune-masks: {}: no such folder",
               arguments.masks);
}

std::optional<mask::PruneOptions> Pruning::options() {
  if (!pruner_) return std::nullopt;
  return mask::PruneOptions{*pruner_, [this](const mask::PrunedMask& pruned) { count(pruned); }};
}

void Pruning::count(const mask::PrunedMask& pruned) {
  if (!arguments_.masks.empty())
    mask::build_block_mask(pruned.mask, pruned.shape, pruned.alignment)
        .save(fmt::format("{}/{:05}.safetensors", arguments_.masks, calls_));
  kept_ += pruned.report.kept_fraction();
  imbalance_ = std::max(imbalance_, pruned.report.imbalance());
  ++calls_;
}

void Pruning::report(const Program& program) const {
  if (calls_ == 0 || program.quiet) return;
  write_note(fmt::format("pruned {} times by {}: {:.1f} % kept, fullest row / mean at most {:.2f}",
                         calls_, pruner_->to_text(), 100 * kept_ / static_cast<double>(calls_),
                         imbalance_));
}

}  // namespace stof::cli

#pragma once
// What models ask of a pruner before they run under it.

#include <cstdint>
#include <string>

#include "core/check.h"
#include "stof/prune.h"

namespace stof::model {

/// Throws Unsupported on a GPU, InvalidArgument naming what is wrong with the pruner.
inline void check_pruning(const mask::PruneOptions& options, const std::string& place,
                          std::int64_t num_heads) {
  STOF_CHECK(place.starts_with("CPU"), kUnsupported,
             "prune: pruners run on the CPU, this model computes on {}; load it with Place::kCpu "
             "(--device cpu)",
             place);
  options.pruner.validate(num_heads);
}

}  // namespace stof::model

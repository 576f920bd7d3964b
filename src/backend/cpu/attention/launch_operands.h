#pragma once
// From a LaunchSequence to what one kernel call takes and gives.

#include "backend/cpu/attention/launch.h"
#include "backend/cpu/attention/score_mod.h"

namespace stof::cpu {

KernelParams params_of(const AttentionPlan::Impl& plan);

/// Addresses of one (batch, query head). The sink is left out for items that are split: it joins
/// once, when their parts are merged.
KernelHead head_of(const LaunchSequence& sequence, BatchHead place, bool with_sink);

/// What the head's scores are changed by, if they are.
ScoreHead score_head_of(const LaunchSequence& sequence, BatchHead place);

/// Converts `rows` finished rows to the output's dtype and puts them where they belong.
void store_result(const LaunchSequence& sequence, BatchHead place, std::int64_t q_begin,
                  std::int64_t rows, const KernelResult& result);

}  // namespace stof::cpu

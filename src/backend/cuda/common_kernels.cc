#include "backend/cuda/common_kernels.h"

#include <set>
#include <utility>

#include "backend/cuda/attention/candidates.h"
#include "backend/cuda/attention/packed_plan.h"
#include "backend/cuda/rows/pooling.h"
#include "backend/cuda/rows/row_program.h"
#include "codegen/plan.h"
#include "core/check.h"

namespace stof::cuda {
namespace {

/// Every configuration that some mask can pick: the mask is causal, so heads can be packed, and has
/// a strided part, which can run in residue order and as two passes.
std::vector<Candidate> attention_candidates(std::int64_t head_dim, DType dtype,
                                            const KernelTarget& target) {
  AttentionProblem problem;
  problem.num_heads_q = 4;
  problem.num_heads_kv = 2;
  problem.seq_q = problem.seq_kv = 1024;
  problem.head_dim_qk = problem.head_dim_v = head_dim;
  problem.dtype = dtype;
  constexpr bool kByName = false;  // what runs only when named is compiled only when named
  return enumerate_candidates(problem, mask::causal() & mask::strided(64, 128), target, kByName);
}

/// What encoders run on texts packed one behind the other, whatever the mask.
std::vector<codegen::AttentionConfig> encoder_configs(std::int64_t head_dim, DType dtype,
                                                      const KernelTarget& target) {
  AttentionProblem problem;
  problem.head_dim_qk = problem.head_dim_v = head_dim;
  problem.dtype = dtype;
  constexpr bool kSharedHeads = true;  // no head shares keys with another: masks change nothing
  return packed_configs(problem, kSharedHeads, target);
}

/// "sm_90a" -> {90, ...}; the number of multiprocessors plays no part in what there is.
KernelTarget kernel_target(const std::string& text) {
  for (const auto& [name, capability] : {std::pair{"sm_80", 80}, std::pair{"sm_86", 86},
                                         std::pair{"sm_89", 89}, std::pair{"sm_90a", 90}})
    if (text == name) return {capability};
  throw_error(ErrorCode::kUnsupported, "target: expected sm_80, sm_86, sm_89 or sm_90a, got {}",
              text);
}

}  // namespace

std::vector<jit::CubinRequest> common_kernels(const CommonKernels& wanted,
                                              const std::string& target) {
  const KernelTarget gpu = kernel_target(target);
  std::vector<jit::CubinRequest> requests;
  std::set<std::string> names;
  const auto add = [&](const std::string& name, const std::string& source) {
    if (names.insert(name).second) requests.push_back({name, source, target});
  };
  add("list_blocks", codegen::emit_list_blocks());
  add("order_records", codegen::emit_order_records());
  add("classify_groups", codegen::emit_classify_groups());
  add("fill_payloads", codegen::emit_fill_payloads());
  for (const DType dtype : wanted.dtypes) {
    for (const std::int64_t head_dim : wanted.head_dims) {
      for (const Candidate& candidate : attention_candidates(head_dim, dtype, gpu)) {
        for (const Pass& pass : candidate.passes)
          add(pass.config.name(), codegen::emit_attention(pass.config));
        if (candidate.rowwise)
          add(candidate.rowwise->config.name(), codegen::emit_rowwise(candidate.rowwise->config));
      }
      for (const codegen::AttentionConfig& config : encoder_configs(head_dim, dtype, gpu))
        add(config.name(), codegen::emit_attention(config));
    }
    for (const std::int64_t hidden : wanted.hidden_sizes) {
      for (const KernelSource& source : PoolingKernels::sources(dtype, hidden))
        add(source.name, source.text);
      for (const codegen::RowProgramConfig& config : encoder_row_programs(dtype, hidden))
        add(config.name(), emit_row_program(config));
    }
  }
  return requests;
}

}  // namespace stof::cuda

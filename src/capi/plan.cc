// Attention of stof/stof.h: plans on either device behind one handle.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "capi/convert.h"
#include "capi/guard.h"
#include "capi/mask.h"
#include "capi/sized.h"
#include "capi/target.h"
#include "core/threads.h"
#include "stof/attention.h"
#include "stof/cuda_attention.h"
#include "stof/gpu_info.h"

struct stof_plan {
  std::variant<stof::AttentionPlan, stof::VarlenPlan, stof::cuda::AttentionPlan,
               stof::cuda::VarlenPlan>
      plan;
};

namespace stof::capi {
namespace {

void check_no_stream(const void* stream, const char* name) {
  STOF_CHECK(stream == nullptr, kInvalidArgument,
             "{}: expected null because the plan is for the CPU, got {}", name, stream);
}

template <class Plan>
constexpr bool kOnGpu =
    std::is_same_v<Plan, cuda::AttentionPlan> || std::is_same_v<Plan, cuda::VarlenPlan>;

void run(const AttentionPlan& plan, const AttentionTensors& tensors, const RunOptions& options) {
  run_attention(plan, tensors, options);
}

void run(const VarlenPlan& plan, const AttentionTensors& tensors, const RunOptions& options) {
  run_varlen_attention(plan, tensors, options);
}

template <class Plan>
void run_on(const Plan& plan, const AttentionTensors& tensors, const stof_run_options& options) {
  if constexpr (kOnGpu<Plan>) {
    STOF_CHECK(options.num_threads == 0, kInvalidArgument,
               "options.num_threads: expected 0 because the plan is for a GPU, got {}",
               options.num_threads);
    plan.run(tensors, options.stream);
  } else {
    check_no_stream(options.stream, "options.stream");
    check_num_threads(options.num_threads, "options.num_threads");
    run(plan, tensors, RunOptions{options.num_threads});
  }
}

template <class Plan>
std::string describe(const Plan& plan) {
  if constexpr (kOnGpu<Plan>)
    return plan.problem().describe() + ", " + plan.facts().kernel;
  else
    return plan.describe();
}

template <class Plan>
std::string to_json(const Plan& plan) {
  if constexpr (kOnGpu<Plan>) {
    return facts_json(plan.problem().describe(), plan.facts());
  } else {
    return plan.to_json();
  }
}

std::string explain(const std::string& problem, const mask::Mask& mask,
                    const std::vector<cuda::CandidateFacts>& facts) {
  nlohmann::ordered_json json = {{"problem", problem}, {"mask", mask.describe()}};
  json["candidates"] = nlohmann::ordered_json::array();
  json["infeasible"] = nlohmann::ordered_json::array();
  for (const cuda::CandidateFacts& candidate : facts)
    if (candidate.feasible)
      json["candidates"].push_back({{"kernel", candidate.name},
                                    {"predicted_us", candidate.predicted_us},
                                    {"only_by_name", candidate.reason}});
    else
      json["infeasible"].push_back({{"kernel", candidate.name}, {"reason", candidate.reason}});
  return json.dump();
}

}  // namespace
}  // namespace stof::capi

using namespace stof::capi;

extern "C" {

stof_status stof_plan_attention(const stof_attention_problem* problem, const stof_mask* mask,
                                const stof_target* target, stof_plan** plan) {
  return guard([&] {
    stof_plan*& out = required(plan, "plan");
    const stof::AttentionProblem described = problem_of(problem);
    const stof::mask::Mask& masked = required(mask, "mask").mask;
    if (const auto gpu = target_of(target))
      out = new stof_plan{stof::cuda::AttentionPlan::build(described, masked, gpu->kernel,
                                                           gpu->ordinal, gpu->alignment)};
    else
      out = new stof_plan{stof::plan_attention(described, masked)};
  });
}

stof_status stof_plan_dense_attention(const stof_attention_problem* problem,
                                      const stof_tensor* visible, const stof_target* target,
                                      void* stream, stof_plan** plan) {
  return guard([&] {
    stof_plan*& out = required(plan, "plan");
    const stof::AttentionProblem described = problem_of(problem);
    const stof::TensorView given = tensor_of(visible, "visible");
    if (const auto gpu = target_of(target)) {
      out = new stof_plan{stof::cuda::AttentionPlan::build_dense(
          described, given, stream, gpu->kernel, gpu->ordinal, gpu->alignment)};
    } else {
      check_no_stream(stream, "stream");
      out = new stof_plan{stof::plan_attention(described, stof::mask::dense(given))};
    }
  });
}

stof_status stof_plan_varlen_attention(const stof_attention_problem* problem, const stof_mask* mask,
                                       int64_t num_sequences, const int64_t* cu_seqlens_q,
                                       const int64_t* cu_seqlens_kv, const stof_target* target,
                                       stof_plan** plan) {
  return guard([&] {
    stof_plan*& out = required(plan, "plan");
    const stof::AttentionProblem described = varlen_problem_of(problem);
    const stof::mask::Mask& masked = required(mask, "mask").mask;
    const auto rows_q = lengths_of(cu_seqlens_q, num_sequences, "cu_seqlens_q");
    const auto rows_kv = lengths_of(cu_seqlens_kv, num_sequences, "cu_seqlens_kv");
    if (const auto gpu = target_of(target))
      out = new stof_plan{stof::cuda::VarlenPlan::build(described, masked, rows_q, rows_kv,
                                                        gpu->kernel, gpu->ordinal, gpu->alignment)};
    else
      out = new stof_plan{stof::plan_varlen_attention(described, masked, rows_q, rows_kv)};
  });
}

void stof_plan_release(stof_plan* plan) { delete plan; }

stof_status stof_plan_describe(const stof_plan* plan, char** text) {
  return make_text(text, "text", [&] {
    return std::visit([](const auto& p) { return describe(p); }, required(plan, "plan").plan);
  });
}

stof_status stof_plan_to_json(const stof_plan* plan, char** json) {
  return make_text(json, "json", [&] {
    return std::visit([](const auto& p) { return to_json(p); }, required(plan, "plan").plan);
  });
}

stof_status stof_plan_run(const stof_plan* plan, const stof_attention_tensors* tensors,
                          const stof_run_options* options) {
  return guard([&] {
    const auto& planned = required(plan, "plan").plan;
    const stof::AttentionTensors operands = tensors_of(tensors);
    const stof_run_options given = read_sized_or_default(options, "options");
    std::visit([&](const auto& p) { run_on(p, operands, given); }, planned);
  });
}

stof_status stof_explain_attention(const stof_attention_problem* problem, const stof_mask* mask,
                                   const stof_gpu_model* model, char** json) {
  return make_text(json, "json", [&] {
    const stof::AttentionProblem described = problem_of(problem);
    const stof::mask::Mask& masked = required(mask, "mask").mask;
    return explain(described.describe(), masked,
                   stof::cuda::AttentionPlan::candidates(described, masked, model_of(model)));
  });
}

stof_status stof_explain_varlen_attention(const stof_attention_problem* problem,
                                          const stof_mask* mask, int64_t num_sequences,
                                          const int64_t* cu_seqlens_q, const int64_t* cu_seqlens_kv,
                                          const stof_gpu_model* model, char** json) {
  return make_text(json, "json", [&] {
    stof::AttentionProblem described = varlen_problem_of(problem);
    const stof::mask::Mask& masked = required(mask, "mask").mask;
    const auto rows_q = lengths_of(cu_seqlens_q, num_sequences, "cu_seqlens_q");
    const auto rows_kv = lengths_of(cu_seqlens_kv, num_sequences, "cu_seqlens_kv");
    const auto facts =
        stof::cuda::VarlenPlan::candidates(described, masked, rows_q, rows_kv, model_of(model));
    described.batch = num_sequences;
    for (std::size_t i = 1; i < rows_q.size(); ++i) {
      described.seq_q = std::max(described.seq_q, rows_q[i] - rows_q[i - 1]);
      described.seq_kv = std::max(described.seq_kv, rows_kv[i] - rows_kv[i - 1]);
    }
    return explain(described.describe(), masked, facts);
  });
}

stof_status stof_gpu_info(char** json) {
  return make_text(json, "json", [] { return stof::gpu_info().to_json(); });
}

}  // extern "C"

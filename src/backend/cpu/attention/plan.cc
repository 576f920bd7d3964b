#include <algorithm>
#include <nlohmann/json.hpp>

#include "backend/cpu/attention/plan_impl.h"
#include "backend/cpu/attention/problem.h"
#include "backend/cpu/attention/score_mod.h"
#include "core/bits.h"
#include "core/hash.h"
#include "plan/config.h"

namespace stof {

const AttentionProblem& AttentionPlan::problem() const { return impl_->problem; }
const mask::Mask& AttentionPlan::mask() const { return impl_->mask; }
const plan::MaskPlan& AttentionPlan::mask_plan() const { return impl_->mask_plan; }

void AttentionPlan::validate() const {
  impl_->problem.validate();
  impl_->mask_plan.validate();
}

std::string AttentionPlan::describe() const {
  return impl_->problem.describe() + "; mask " + impl_->mask.describe() + "; " +
         impl_->mask_plan.describe();
}

std::string AttentionPlan::to_json() const {
  const AttentionProblem& p = impl_->problem;
  nlohmann::ordered_json json;
  json["problem"] = {{"batch", p.batch},
                     {"num_heads_q", p.num_heads_q},
                     {"num_heads_kv", p.num_heads_kv},
                     {"seq_q", p.seq_q},
                     {"seq_kv", p.seq_kv},
                     {"head_dim_qk", p.head_dim_qk},
                     {"head_dim_v", p.head_dim_v},
                     {"dtype", to_string(p.dtype)},
                     {"alignment", mask::to_string(p.alignment)},
                     {"scale", cpu::scale_of(p)},
                     {"softcap", p.softcap},
                     {"alibi", p.alibi},
                     {"bias", p.bias},
                     {"sink", p.sink},
                     {"return_lse", p.return_lse}};
  if (p.position_bias.num_buckets > 0)
    json["problem"]["position_bias"] = {{"num_buckets", p.position_bias.num_buckets},
                                        {"bidirectional", p.position_bias.bidirectional},
                                        {"max_distance", p.position_bias.max_distance}};
  if (impl_->score_mod) {
    nlohmann::ordered_json tables = nlohmann::ordered_json::array();
    for (const expr::TableDecl& table : p.score_tables)
      tables.push_back({{"name", table.name},
                        {"dtype", to_string(table.dtype)},
                        {"shape", std::vector(table.shape.begin(), table.shape.end())}});
    json["problem"]["score_mod"] = impl_->score_mod->expression().to_text();
    json["problem"]["score_tables"] = std::move(tables);
  }
  json["mask"] = impl_->mask.to_text();
  json["mask_plan"] = nlohmann::ordered_json::parse(impl_->mask_plan.to_json());
  json["fingerprint"] = fingerprint().hex();
  return json.dump();
}

Fingerprint AttentionPlan::fingerprint() const {
  const AttentionProblem& p = impl_->problem;
  Hasher hasher;
  hasher.add("stof.attention_plan.1");
  hasher.add(p.batch).add(p.num_heads_q).add(p.num_heads_kv).add(p.seq_q).add(p.seq_kv);
  hasher.add(p.head_dim_qk).add(p.head_dim_v).add(to_string(p.dtype));
  hasher.add(mask::to_string(p.alignment)).add(double{cpu::scale_of(p)}).add(double{p.softcap});
  for (const bool option : {p.alibi, p.bias, p.sink, p.return_lse})
    hasher.add(std::int64_t{option});
  if (p.position_bias.num_buckets > 0)
    hasher.add("position_bias")
        .add(p.position_bias.num_buckets)
        .add(std::int64_t{p.position_bias.bidirectional})
        .add(p.position_bias.max_distance);
  if (impl_->score_mod) {
    hasher.add("score_mod").add(impl_->score_mod->expression().to_text());
    for (const expr::TableDecl& table : p.score_tables)
      hasher.add(table.name).add(to_string(table.dtype)).add(table.shape.to_string());
  }
  return hasher.add(impl_->mask.fingerprint()).add(impl_->mask_plan.fingerprint()).finish();
}

AttentionPlan plan_attention(const AttentionProblem& problem, const mask::Mask& mask) {
  problem.validate();
  return cpu::plan_attention_with(problem, mask, cpu::choose_config(problem));
}

namespace cpu {

plan::PlanConfig choose_config(const AttentionProblem& problem) {
  plan::PlanConfig config;
  // Measured with bench/attention.cc: 96 queries are four panels of the AVX2 kernel and two of the
  // AVX-512 one, and amortise the packing of V; taller tiles gain 2 % and blur the mask.
  config.tile_q = 96;
  config.tile_kv = 64;
  // Few query tiles, as in decoding, would leave cores without work. The bound depends on nothing
  // but the problem, so that results are the same on every machine.
  constexpr std::int64_t kWantedJobs = 64, kMinTilesPerSplit = 16;
  const std::int64_t q_tiles = ceil_div(problem.seq_q, config.tile_q);
  const std::int64_t kv_tiles = ceil_div(problem.seq_kv, config.tile_kv);
  const double jobs = static_cast<double>(problem.batch) *
                      static_cast<double>(problem.num_heads_q) * static_cast<double>(q_tiles);
  if (jobs > 0 && jobs < kWantedJobs)
    config.max_tiles_per_split =
        std::max(kMinTilesPerSplit, kv_tiles * static_cast<std::int64_t>(jobs) / kWantedJobs);
  return config;
}

AttentionPlan plan_attention_with(const AttentionProblem& problem, const mask::Mask& mask,
                                  const plan::PlanConfig& config) {
  problem.validate();
  auto impl = std::make_shared<AttentionPlan::Impl>();
  impl->problem = problem;
  impl->score_mod = score_program(problem);
  const mask::ScoreShape shape = score_shape(problem);
  impl->mask = mask.bind(shape, problem.alignment);
  impl->mask_plan = shape.seq_q == 0 || shape.seq_kv == 0
                        ? plan::build_tileless_plan(shape, config)
                        : plan::build_mask_plan(
                              mask::build_block_mask(impl->mask, shape, problem.alignment), config);
  impl->heads_of.resize(static_cast<std::size_t>(impl->mask_plan.num_patterns));
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (std::int64_t h = 0; h < problem.num_heads_q; ++h)
      impl->heads_of[static_cast<std::size_t>(impl->mask_plan.pattern_index(b, h))].push_back(
          {b, h});
  return AttentionPlan(std::move(impl));
}

}  // namespace cpu
}  // namespace stof

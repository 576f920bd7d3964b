// stof explain, and of it attention: the ways a GPU could run a mask, and what the cost model says
// of each.

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "backend/cuda/attention/paper_rule.h"
#include "commands.h"
#include "mask_source.h"
#include "options.h"
#include "output.h"
#include "stof/cuda_attention.h"
#include "stof/error.h"

namespace stof::cli {
namespace {

struct Options {
  MaskArguments mask;
  std::int64_t heads_kv = 0;  // 0: as many as query heads
  std::int64_t head_dim = 128;
  std::string dtype = "bf16";
  int capability = 90;
  int num_sms = 132;
  bool json = false;
};

AttentionProblem make_problem(const Options& options, const MaskSource& source) {
  AttentionProblem problem;
  problem.batch = source.shape.batch;
  problem.num_heads_q = source.shape.num_heads;
  problem.num_heads_kv = options.heads_kv > 0 ? options.heads_kv : source.shape.num_heads;
  problem.seq_q = source.shape.seq_q;
  problem.seq_kv = source.shape.seq_kv;
  problem.head_dim_qk = problem.head_dim_v = options.head_dim;
  problem.dtype = dtype_from_string(options.dtype);
  problem.alignment = source.alignment;
  return problem;
}

void explain(const Options& options) {
  const MaskSource source = load_mask_source(options.mask);
  if (!source.expression)
    throw Error(ErrorCode::kUnsupported,
                "mask: expected an expression or a dense array, got a block mask file");
  const AttentionProblem problem = make_problem(options, source);
  const auto candidates = cuda::AttentionPlan::candidates(problem, *source.expression,
                                                          {options.capability, options.num_sms});
  const cuda::PaperRule rule = cuda::paper_rule(
      compute_stats(build_block_mask(*source.expression, source.shape, source.alignment)),
      problem.seq_q);
  const char* const rule_pick = rule.row_wise() ? "row-wise" : "block-wise";
  if (options.json) {
    nlohmann::ordered_json json = {{"mask", source.title}, {"problem", problem.describe()}};
    json["paper_rule"] = {
        {"valid_ratio", rule.valid_ratio}, {"score", rule.score()}, {"picks", rule_pick}};
    for (const auto& candidate : candidates)
      if (candidate.feasible)
        json["candidates"].push_back({{"kernel", candidate.name},
                                      {"predicted_us", candidate.predicted_us},
                                      {"only_by_name", candidate.reason}});
      else
        json["infeasible"].push_back({{"kernel", candidate.name}, {"reason", candidate.reason}});
    print_out("{}\n", json.dump());
    return;
  }
  print_out("mask     {}\nproblem  {}\n", source.title, problem.describe());
  print_out(
      "costs    sm90: measured on an NVIDIA H200, sm80, rowwise: guessed; the first is what a plan "
      "picks\n\n");
  std::vector<std::vector<std::string>> rows = {{"kernel", "predicted"}}, named;
  std::string reasons, by_name_reason;
  for (const auto& candidate : candidates) {
    if (!candidate.feasible) {
      reasons += fmt::format("{}  {}\n", candidate.name, candidate.reason);
      continue;
    }
    auto& list = candidate.reason.empty() ? rows : named;
    list.push_back({candidate.name, fmt::format("{:.1f} us", candidate.predicted_us)});
    by_name_reason = candidate.reason;
  }
  print_out("{}", format_table(rows));
  if (!named.empty()) print_out("\nonly when named: {}\n{}", by_name_reason, format_table(named));
  if (!reasons.empty()) print_out("\ncannot run:\n{}", reasons);
  print_out("\nthe paper's rule, not used: valid 16x16 tiles {:.3f} - {:.3f} = {:.3f}: {}\n",
            rule.valid_ratio, rule.threshold, rule.score(), rule_pick);
}

}  // namespace

void add_explain_command(CLI::App& app, const Program& program) {
  auto options = std::make_shared<Options>();
  CLI::App& parent = *app.add_subcommand("explain", "Say how something would run, and why");
  parent.require_subcommand(0, 1);
  parent.fallthrough();
  parent.footer(examples({"stof explain attention \"causal\" --seq 4096 --heads 32",
                          "stof explain models/bert-base --shape 8x512"}));
  add_explain_model_options(parent, program);
  CLI::App& command = *parent.add_subcommand(
      "attention", "GPU kernels that could run a mask, with predicted times; needs no GPU");
  command.fallthrough();
  add_mask_arguments(command, options->mask);
  command.add_option("--heads-kv", options->heads_kv, "Key/value heads (default: as --heads)")
      ->transform(whole_number(1, 65536));
  command.add_option("--head-dim", options->head_dim, "Width of a head (default 128)")
      ->transform(whole_number(8, 512));
  command.add_option("--dtype", options->dtype, "bf16 or fp16")->check(one_of({"bf16", "fp16"}));
  command
      .add_option("--capability", options->capability,
                  "The GPU's compute capability times ten (default 90: H100, H200)")
      ->transform(whole_number(50, 129));
  command.add_option("--sms", options->num_sms, "Its multiprocessors (default 132)")
      ->transform(whole_number(1, 1024));
  command.add_flag("--json", options->json, "One JSON document");
  command.footer(
      examples({"stof explain attention \"bigbird()\" --seq 16384 --heads 32 --heads-kv 8",
                "stof explain attention \"dilated(512, 2)\" --seq 4096 --heads 32 --json"}));
  command.callback([options] { explain(*options); });
}

}  // namespace stof::cli

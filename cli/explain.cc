// stof explain attention: the ways a GPU could run a mask, and what the cost model says of each.

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

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
  const auto candidates = cuda::AttentionPlan::candidates(problem, *source.expression);
  if (options.json) {
    nlohmann::ordered_json json = {{"mask", source.title}, {"problem", problem.describe()}};
    for (const auto& candidate : candidates)
      json["candidates"].push_back(
          {{"kernel", candidate.name}, {"predicted_us", candidate.predicted_us}});
    print_out("{}\n", json.dump());
    return;
  }
  print_out("mask     {}\nproblem  {}\n", source.title, problem.describe());
  print_out("costs    of an NVIDIA H200; the first is what a plan picks\n\n");
  std::vector<std::vector<std::string>> rows = {{"kernel", "predicted"}};
  for (const auto& candidate : candidates)
    rows.push_back({candidate.name, fmt::format("{:.1f} us", candidate.predicted_us)});
  print_out("{}", format_table(rows));
}

}  // namespace

void add_explain_command(CLI::App& app, const Program&) {
  auto options = std::make_shared<Options>();
  CLI::App& parent = *app.add_subcommand("explain", "Say how something would run, and why");
  parent.require_subcommand(1);
  parent.fallthrough();
  parent.footer(examples({"stof explain attention \"causal\" --seq 4096 --heads 32"}));
  CLI::App& command = *parent.add_subcommand(
      "attention", "GPU kernels that could run a mask, with predicted times; needs no GPU");
  command.fallthrough();
  add_mask_arguments(command, options->mask);
  command.add_option("--heads-kv", options->heads_kv, "Key/value heads (default: as --heads)")
      ->transform(whole_number(1, 65536));
  command.add_option("--head-dim", options->head_dim, "Width of a head (default 128)")
      ->transform(whole_number(8, 256));
  command.add_option("--dtype", options->dtype, "bf16 or fp16")->check(one_of({"bf16", "fp16"}));
  command.add_flag("--json", options->json, "One JSON document");
  command.footer(
      examples({"stof explain attention \"bigbird()\" --seq 16384 --heads 32 --heads-kv 8",
                "stof explain attention \"dilated(512, 2)\" --seq 4096 --heads 32 --json"}));
  command.callback([options] { explain(*options); });
}

}  // namespace stof::cli

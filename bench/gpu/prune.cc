// Times attention that keeps two of four keys against dense and block-sparse attention of the same
// problem; one line a (shape, mask, kernel).
//   bench_gpu_prune [dense causal] [choose] [--seq S] [--json FILE]
// Kernels: "sm80" the dense kernel by the same instructions, "2:4" the same with sparse products,
// "plan" what the planner picks, "blocks" the planner's pick of a mask with half of the 64 x 64
// blocks, as block_topk(0.5) leaves. "choose": what block_topk costs on the GPU, to choose, to make
// the plan of what was chosen, and to run it, against dense attention. TFLOP/s count 4 S S D a head
// over pairs the mask shows, pruned or not.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "backend/cuda/attention/candidates.h"
#include "backend/cuda/attention/two_of_four.h"
#include "backend/cuda/measure.h"
#include "bench/gpu/arguments.h"
#include "bench/gpu/oracle.h"
#include "stof/cuda_attention.h"
#include "stof/cuda_prune.h"
#include "stof/error.h"
#include "tests/gpu/compile_ahead.h"

namespace {

using namespace stof;

struct Shape {
  std::int64_t batch, heads_q, heads_kv, seq, head_dim;
};
constexpr Shape kShapes[] = {{4, 32, 32, 1024, 128}, {1, 32, 32, 4096, 128}, {1, 32, 8, 16384, 128},
                             {32, 12, 12, 1024, 64}, {16, 12, 12, 2048, 64}, {16, 12, 12, 4096, 64},
                             {1, 12, 12, 16384, 64}};

AttentionProblem problem_of(const Shape& s) {
  AttentionProblem problem;
  problem.batch = s.batch, problem.num_heads_q = s.heads_q, problem.num_heads_kv = s.heads_kv;
  problem.seq_q = problem.seq_kv = s.seq;
  problem.head_dim_qk = problem.head_dim_v = s.head_dim;
  problem.dtype = DType::kBFloat16;
  problem.return_lse = true;
  return problem;
}

std::string short_name(std::string name) {
  for (std::size_t at; (at = name.find("_bf16_")) != std::string::npos;) name.erase(at, 5);
  return name;
}

class Bench {
 public:
  Bench(const Shape& shape, const std::string& mask_name, const mask::Mask& mask,
        const bench::DeviceTensors& data, const AttentionProblem& problem, std::FILE* json)
      : shape_(shape), mask_name_(mask_name), data_(data), problem_(problem), json_(json) {
    const mask::ScoreShape of{problem.batch, problem.num_heads_q, problem.seq_q, problem.seq_kv};
    const auto stats = compute_stats(build_block_mask(mask, of));
    flops_ =
        4.0 * static_cast<double>(stats.visible_pairs) * static_cast<double>(problem.head_dim_qk);
  }

  double time(const std::string& label, const cuda::AttentionPlan& plan) const {
    data_.poison();
    plan.run(data_.tensors(), nullptr);
    const auto nan = data_.count_nan();
    const int calls = shape_.seq >= 16384 ? 5 : 20;
    const double us = cuda::measure_us(
        [&](cuda::CUstream stream) { plan.run(data_.tensors(), stream); }, calls, 7);
    std::printf("%2ld,%ld,%ld,%ld,%ld %-6s %-6s %-46s %9.1f us %6.0f TF%s\n", shape_.batch,
                shape_.heads_q, shape_.heads_kv, shape_.seq, shape_.head_dim, mask_name_.c_str(),
                label.c_str(), short_name(plan.facts().kernel).c_str(), us, flops_ / us * 1e-6,
                nan == 0 ? "" : "  BAD: NaN");
    if (json_ != nullptr)
      std::fprintf(json_,
                   "{\"bench\":\"prune\",\"B\":%ld,\"H\":%ld,\"Hk\":%ld,\"S\":%ld,\"D\":%ld,"
                   "\"mask\":\"%s\",\"what\":\"%s\",\"kernel\":\"%s\",\"us\":%.2f,\"good\":%s}\n",
                   shape_.batch, shape_.heads_q, shape_.heads_kv, shape_.seq, shape_.head_dim,
                   mask_name_.c_str(), label.c_str(), plan.facts().kernel.c_str(), us,
                   nan == 0 ? "true" : "false");
    std::fflush(stdout);
    return us;
  }

 private:
  const Shape& shape_;
  const std::string mask_name_;
  const bench::DeviceTensors& data_;
  const AttentionProblem& problem_;
  std::FILE* json_;
  double flops_;
};

/// block_topk on the GPU: choosing, planning, attention.
void run_choice(const Shape& s, const bench::Arguments& arguments) {
  const AttentionProblem problem = problem_of(s);
  const cuda::Device device = cuda::Device::open();
  const bench::DeviceTensors data(problem, device);
  const AttentionTensors& t = data.tensors();
  const int calls = s.seq >= 16384 ? 5 : 20;
  const auto time = [&](const auto& call) { return cuda::measure_us(call, calls, 7); };
  for (const bool causal : {false, true}) {
    const mask::Mask base = causal ? mask::causal() : mask::all();
    const auto dense = cuda::AttentionPlan::build(problem, base);
    const double dense_us = time([&](cuda::CUstream stream) { dense.run(t, stream); });
    for (const char* settings :
         {"block_topk(0.5)", "block_topk(0.25)", "block_topk(0.25, block=128)"}) {
      try {
        const auto pruner =
            cuda::BlockPruner::build(problem, mask::Pruner::parse(settings).heads[0], base);
        cuda::BlockListShape shape = pruner.shape();
        shape.causal = causal;
        const auto plan = cuda::BlockListPlan::build(problem, shape);
        const double choose = time([&](cuda::CUstream stream) { pruner.run(t.q, t.k, stream); });
        const cuda::BlockLists lists = pruner.run(t.q, t.k, nullptr);
        const double update = time([&](cuda::CUstream stream) { plan.update(lists, stream); });
        const double run = time([&](cuda::CUstream stream) { plan.run(t, stream); });
        plan.check(nullptr);
        const auto nan = data.count_nan();
        std::printf(
            "%2ld,%ld,%ld,%ld,%ld %-6s %-28s keeps %.3f: choose %8.1f us (%.1f %% of dense), "
            "plan %7.1f, run %9.1f, all x%.2f of dense %9.1f (%s)%s\n",
            s.batch, s.heads_q, s.heads_kv, s.seq, s.head_dim, causal ? "causal" : "dense",
            settings, pruner.kept_fraction(), choose, 100 * choose / dense_us, update, run,
            dense_us / (choose + update + run), dense_us, short_name(plan.facts().kernel).c_str(),
            nan == 0 ? "" : "  BAD: NaN");
        if (arguments.json() != nullptr)
          std::fprintf(arguments.json(),
                       "{\"bench\":\"prune_choose\",\"B\":%ld,\"H\":%ld,\"Hk\":%ld,\"S\":%ld,"
                       "\"D\":%ld,\"mask\":\"%s\",\"pruner\":\"%s\",\"kept\":%.4f,"
                       "\"choose_us\":%.2f,\"plan_us\":%.2f,\"run_us\":%.2f,\"dense_us\":%.2f,"
                       "\"good\":%s}\n",
                       s.batch, s.heads_q, s.heads_kv, s.seq, s.head_dim,
                       causal ? "causal" : "dense", settings, pruner.kept_fraction(), choose,
                       update, run, dense_us, nan == 0 ? "true" : "false");
      } catch (const Error& error) {
        std::printf("%s %s: %s\n", causal ? "causal" : "dense", settings, error.what());
      }
    }
  }
}

void run_shape(const cuda::Device& device, const Shape& s, const bench::Arguments& arguments) {
  const AttentionProblem problem = problem_of(s);
  const cuda::KernelTarget target{device.facts().major * 10 + device.facts().minor,
                                  device.facts().num_sms, 16};
  const bench::DeviceTensors data(problem, device);
  std::vector<codegen::AttentionConfig> dense = cuda::two_of_four_configs(problem, true, target);
  const std::vector<codegen::AttentionConfig> sparse = dense;
  std::map<std::string, std::string> texts;
  for (auto& config : dense) {
    config.two_of_four = false;
    texts.emplace(config.name(), codegen::emit_attention(config));
  }
  for (const auto& config : sparse) texts.emplace(config.name(), codegen::emit_attention(config));
  check::compile_ahead(texts, device.facts().target());
  const mask::Mask half = mask::random_blocks_rate(64, 0.5, 1234) | mask::chunked(64);
  for (const auto& [name, expression] :
       {std::pair<std::string, mask::Mask>{"dense", mask::all()}, {"causal", mask::causal()}}) {
    if (!arguments.wants(name)) continue;
    const Bench bench(s, name, expression, data, problem, arguments.json());
    double best[2] = {1e300, 1e300};
    for (std::size_t i = 0; i < dense.size(); ++i) {
      best[0] = std::min(best[0], bench.time("sm80", cuda::AttentionPlan::build(problem, expression,
                                                                                dense[i].name())));
      best[1] = std::min(best[1], bench.time("2:4", cuda::AttentionPlan::build_two_of_four(
                                                        problem, expression, sparse[i].name())));
    }
    const double plan = bench.time("plan", cuda::AttentionPlan::build(problem, expression));
    const double blocks =
        bench.time("blocks", cuda::AttentionPlan::build(problem, expression & half));
    std::printf("   2:4 against sm80 x%.3f, plan x%.3f, blocks x%.3f\n", best[0] / best[1],
                plan / best[1], blocks / best[1]);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  std::string seq;
  const bench::Arguments arguments(argc, argv, {{"--seq", &seq}});
  arguments.expect_names({"dense", "causal", "choose"});
  const cuda::Device device = cuda::Device::open();
  std::printf("%s, %d SMs\n", device.facts().name.c_str(), device.facts().num_sms);
  for (const Shape& s : kShapes)
    if (seq.empty() || std::to_string(s.seq) == seq) {
      run_shape(device, s, arguments);
      if (arguments.wants("choose")) run_choice(s, arguments);
    }
  return 0;
} catch (const std::exception& error) {
  return stof::bench::give_up(error);
}

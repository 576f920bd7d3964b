// Checks the decode kernel against a double-precision oracle on random problems.
//   decode_gpu_check [num_cases] [first_seed] [--only FEATURE]
// FEATURE: plain, window, mask, paged, graph, nan, offsets. Outputs are poisoned and guarded, rows
// and pages that must not be read hold NaN; exits 1 with failures. Needs a GPU of compute
// capability 8.0 and more.

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include "backend/cpu/attention/position_bias.h"
#include "backend/cuda/attention/decode_config.h"
#include "stof/cuda_decode.h"
#include "stof/error.h"
#include "tests/gpu/compile_ahead.h"
#include "tests/gpu/decode_case.h"

namespace {

using namespace stof;
using namespace stof::check;

/// What query `q` of head `h` of sequence `b` sees, by the documentation alone.
class Visibility {
 public:
  explicit Visibility(const Case& c) : case_(c) {
    const DecodeProblem& p = c.problem;
    if (c.mask)
      bound_ = c.mask->bind({p.batch, p.num_heads_q, p.seq_q, p.max_seq_kv},
                            mask::Alignment::kBottomRight);
  }
  bool operator()(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k) const {
    const DecodeProblem& p = case_.problem;
    const std::int64_t length = case_.lengths[static_cast<std::size_t>(b)];
    if (k >= length) return false;
    if (bound_) return bound_->visible(b, h, q, k);
    const std::int64_t position = length - p.seq_q + q;
    if (p.window_right && k > position + *p.window_right) return false;
    return !p.window_left || k >= position - *p.window_left || k < p.sink_tokens;
  }

 private:
  const Case& case_;
  std::optional<mask::Mask> bound_;
};

struct Errors {
  double difference = 0, norm = 0, lse = 0;
  std::int64_t nan = 0;  // where there should be none, and numbers where NaN should be
  double frobenius() const {
    return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
  }
};

void compare_row(const Case& c, const Visibility& visible, std::int64_t b, std::int64_t h,
                 std::int64_t q, Errors* errors) {
  const DecodeProblem& p = c.problem;
  const std::int64_t head_kv = h / (p.num_heads_q / p.num_heads_kv);
  const std::int64_t length = c.lengths[static_cast<std::size_t>(b)];
  const double scale = p.scale ? *p.scale : 1 / std::sqrt(static_cast<double>(p.head_dim_qk));
  std::vector<float> query(static_cast<std::size_t>(p.head_dim_qk));
  for (std::int64_t d = 0; d < p.head_dim_qk; ++d)
    query[static_cast<std::size_t>(d)] = c.q.real(c.q.offset({b, h, q, 0}) + d);
  std::vector<double> scores(static_cast<std::size_t>(length),
                             -std::numeric_limits<double>::infinity());
  double top = -std::numeric_limits<double>::infinity();
  for (std::int64_t k = 0; k < length; ++k) {
    if (!visible(b, h, q, k)) continue;
    const std::int64_t at = cache_offset(c, c.k, b, head_kv, k);
    double score = 0;
    for (std::int64_t d = 0; d < p.head_dim_qk; ++d)
      score += static_cast<double>(query[static_cast<std::size_t>(d)]) * c.k.real(at + d);
    score *= scale;
    if (p.softcap > 0) score = p.softcap * std::tanh(score / p.softcap);
    if (p.alibi)
      score += c.alibi_slopes.get<float>(c.alibi_slopes.offset({h})) *
               static_cast<double>(k - (length - p.seq_q + q));
    if (p.position_bias.num_buckets > 0)
      score += c.position_bias.get<float>(c.position_bias.offset(
          {cpu::position_bucket(p.position_bias, k - (length - p.seq_q + q)), h}));
    scores[static_cast<std::size_t>(k)] = score;
    top = std::max(top, score);
  }
  double sum = 0;
  std::vector<double> expected(static_cast<std::size_t>(p.head_dim_v), 0);
  for (std::int64_t k = 0; k < length; ++k) {
    const double score = scores[static_cast<std::size_t>(k)];
    if (score == -std::numeric_limits<double>::infinity()) continue;
    const double weight = std::exp(score - top);
    sum += weight;
    const std::int64_t at = cache_offset(c, c.v, b, head_kv, k);
    for (std::int64_t d = 0; d < p.head_dim_v; ++d)
      expected[static_cast<std::size_t>(d)] += weight * c.v.real(at + d);
  }
  const bool empty = sum == 0;
  if (!empty && p.sink) sum += std::exp(c.sink.get<float>(c.sink.offset({h})) - top);
  for (std::int64_t d = 0; d < p.head_dim_v; ++d) {
    const double got = c.out.real(c.out.offset({b, h, q, 0}) + d);
    const double want = empty ? 0 : expected[static_cast<std::size_t>(d)] / sum;
    errors->nan += std::isnan(got) != std::isnan(want);
    if (std::isnan(want)) continue;
    errors->difference += (got - want) * (got - want);
    errors->norm += want * want;
  }
  if (!p.return_lse) return;
  const double got = c.lse.get<float>(c.lse.offset({b, h, q}));
  const double want = empty ? -std::numeric_limits<double>::infinity() : top + std::log(sum);
  const double gap =
      got == want || (std::isnan(got) && std::isnan(want)) ? 0 : std::abs(got - want);
  errors->lse =
      std::isnan(gap) ? std::numeric_limits<double>::infinity() : std::max(errors->lse, gap);
}

/// Calls each(i, errors of the thread) for i < count on all cores, then adds the errors up.
void parallel(std::int64_t count, const std::function<void(std::int64_t, Errors*)>& each,
              Errors* sum) {
  std::vector<Errors> errors(std::max(1u, std::thread::hardware_concurrency()));
  std::atomic<std::int64_t> next{0};
  std::vector<std::thread> threads;
  for (Errors& mine : errors)
    threads.emplace_back([&] {
      for (std::int64_t i; (i = next++) < count;) each(i, &mine);
    });
  for (std::thread& thread : threads) thread.join();
  for (const Errors& mine : errors) {
    sum->difference += mine.difference;
    sum->norm += mine.norm;
    sum->nan += mine.nan;
    sum->lse = std::max(sum->lse, mine.lse);
  }
}

/// What is wrong with the outputs on the device; empty when nothing is.
std::string judge(Case& c) {
  c.out.take(c.out.download());
  std::string wrong;
  if (!c.out.guards_intact()) wrong += " wrote outside out;";
  if (c.problem.return_lse) {
    c.lse.take(c.lse.download());
    if (!c.lse.guards_intact()) wrong += " wrote outside lse;";
  }
  const DecodeProblem& p = c.problem;
  const Visibility visible(c);
  Errors errors;
  // All rows, or evenly spread ones where the oracle would take long.
  const std::int64_t rows = p.batch * p.num_heads_q * p.seq_q;
  const std::int64_t affordable = 40'000'000 / (p.max_seq_kv * (p.head_dim_qk + p.head_dim_v)) + 1;
  const std::int64_t step = (rows + affordable - 1) / affordable;
  parallel(
      rows / step + 1,
      [&](std::int64_t i, Errors* mine) {
        const std::int64_t row = i * step;
        if (row < rows)
          compare_row(c, visible, row / (p.num_heads_q * p.seq_q), row / p.seq_q % p.num_heads_q,
                      row % p.seq_q, mine);
      },
      &errors);
  for (std::int64_t row = 0; row < rows; ++row) {  // every element is written
    const std::int64_t b = row / (p.num_heads_q * p.seq_q), h = row / p.seq_q % p.num_heads_q,
                       q = row % p.seq_q;
    if (is_nan_query(c, b, h, q)) continue;
    const std::int64_t first = c.out.offset({b, h, q, 0});
    for (std::int64_t d = 0; d < p.head_dim_v; ++d) errors.nan += std::isnan(c.out.real(first + d));
  }
  const double limit = p.dtype == DType::kFloat16 ? 1e-3 : 5e-3;
  if (errors.nan > 0 || !(errors.frobenius() < limit) || !(errors.lse < 1e-3))
    wrong +=
        fmt::format(" error {:.2e} lse {:.2e} nan {};", errors.frobenius(), errors.lse, errors.nan);
  return wrong;
}

void poison_outputs(Case& c) {
  c.out.poison();
  c.out.upload();
  if (!c.problem.return_lse) return;
  c.lse.poison();
  c.lse.upload();
}

cuda::DecodePlan build_plan(const Case& c) {
  return c.mask ? cuda::DecodePlan::build(c.problem, *c.mask) : cuda::DecodePlan::build(c.problem);
}

std::string check_once(Case& c) {
  const auto plan = build_plan(c);
  poison_outputs(c);
  plan.run(c.tensors, nullptr);
  const auto first = c.out.download();
  poison_outputs(c);
  plan.run(c.tensors, nullptr);
  std::string wrong;
  if (c.out.download() != first) wrong += " a second run gives other bits;";
  wrong += judge(c);
  if (!c.q.unchanged() || !c.k.unchanged() || !c.v.unchanged()) wrong += " an input changed;";
  return wrong;
}

/// One captured call serves three states of the cache.
std::string check_graph(Draw& draw, Case& c) {
  const auto plan = build_plan(c);
  const auto& driver = cuda::Driver::instance();
  cuda::CUstream stream = nullptr;
  cuda::CUgraph graph = nullptr;
  cuda::CUgraphExec executable = nullptr;
  driver.check(driver.cuStreamCreate(&stream, 1), "creating a stream");
  driver.check(driver.cuStreamBeginCapture(stream, 0), "capturing");
  plan.run(c.tensors, stream);
  driver.check(driver.cuStreamEndCapture(stream, &graph), "ending capture");
  driver.check(driver.cuGraphInstantiate(&executable, graph, 0), "instantiating the graph");
  std::string wrong;
  for (int state = 0; state < 3 && wrong.empty(); ++state) {
    if (state > 0) {
      draw_lengths(draw, c);
      fill_cache(draw, c);
    }
    poison_outputs(c);
    driver.check(driver.cuGraphLaunch(executable, stream), "replaying");
    driver.check(driver.cuStreamSynchronize(stream), "replaying");
    wrong = judge(c);
    if (!wrong.empty()) wrong = fmt::format(" replay {}:{}", state, wrong);
  }
  driver.cuGraphExecDestroy(executable);
  driver.cuGraphDestroy(graph);
  driver.cuStreamDestroy(stream);
  return wrong;
}

bool check_problem(const std::string& feature, std::uint64_t seed) {
  Draw draw(seed);
  std::string what, wrong;
  try {
    Case c = make_case(draw, feature);
    what = c.problem.describe();
    if (c.mask) what += " mask " + c.mask->describe();
    wrong = feature == "graph" ? check_graph(draw, c) : check_once(c);
  } catch (const Error& error) {
    wrong = error.what();
  }
  if (!wrong.empty())
    std::printf("BAD %s seed %lu: %s:%s\n", feature.c_str(), seed, what.c_str(), wrong.c_str());
  std::fflush(stdout);
  return wrong.empty();
}

/// Compiles what the cases need.
void compile_cases(const cuda::Device& device, const std::vector<std::string>& features,
                   std::int64_t cases, std::int64_t first) {
  const cuda::DeviceFacts& gpu = device.facts();
  std::map<std::string, std::string> texts;
  for (const std::string& feature : features)
    for (std::int64_t i = 0; i < cases; ++i) {
      Draw draw(static_cast<std::uint64_t>(first + i));
      const auto config = cuda::decode_config(draw_problem(draw, feature), feature == "mask",
                                              gpu.major, gpu.minor, gpu.num_sms);
      texts.emplace(config.name(), codegen::emit_decode(config));
      if (!config.merges)
        texts.emplace(config.name() + " combine", codegen::emit_decode_combine(config));
    }
  compile_ahead(texts, gpu.target());
}

/// Key and value rows 32768 elements apart: the last ones lie past 2^31 elements (and 2^32 bytes).
bool check_offsets() {
  Case c;
  DecodeProblem& p = c.problem;
  p.num_heads_q = 4, p.max_seq_kv = 70000, p.head_dim_qk = p.head_dim_v = 64;
  p.return_lse = true;
  constexpr std::int64_t kRow = 32768;
  const auto bytes = static_cast<std::size_t>(p.max_seq_kv * kRow * 2);
  const auto& driver = cuda::Driver::instance();
  const cuda::DeviceBuffer cache(bytes, "a sparse cache");
  driver.check(driver.cuMemsetD8Async(cache.address(), 0xff, bytes, nullptr), "clearing the cache");
  // The oracle reads dense copies.
  const Dims dense{1, 1, p.max_seq_kv, 64},
      dense_strides{p.max_seq_kv * 64, p.max_seq_kv * 64, 64, 1};
  c.k = GuardedTensor(p.dtype, dense, dense_strides, "k");
  c.v = GuardedTensor(p.dtype, dense, dense_strides, "v");
  c.q = GuardedTensor(p.dtype, {1, 4, 1, 64}, {256, 64, 64, 1}, "q");
  c.out = GuardedTensor(p.dtype, {1, 4, 1, 64}, {256, 64, 64, 1}, "out");
  c.lse = GuardedTensor(DType::kFloat32, {1, 4, 1}, {4, 1, 1}, "lse");
  Draw draw(3);
  fill(draw, c.q);
  fill(draw, c.k);
  fill(draw, c.v);
  for (const auto& [tensor, column] : {std::pair{&c.k, 0}, std::pair{&c.v, 64}}) {
    const std::vector<unsigned char> rows = tensor->download();
    for (std::int64_t row = 0; row < p.max_seq_kv; ++row)
      driver.check(driver.cuMemcpyHtoDAsync(
                       cache.address() + static_cast<std::uint64_t>(row * kRow + column) * 2,
                       rows.data() + tensor->offset({0, 0, row, 0}) * 2, 128, nullptr),
                   "spreading the cache");
    driver.check(driver.cuStreamSynchronize(nullptr), "spreading the cache");
  }
  draw_lengths(draw, c);
  c.tensors.q = c.q.view(), c.tensors.out = c.out.mutable_view();
  c.tensors.lse = c.lse.mutable_view();
  const Dims spread{p.max_seq_kv * kRow, p.max_seq_kv * kRow, kRow, 1};
  c.tensors.k = {reinterpret_cast<void*>(cache.address()), p.dtype, dense, spread};
  c.tensors.v = {reinterpret_cast<void*>(cache.address() + 128), p.dtype, dense, spread};
  poison_outputs(c);
  build_plan(c).run(c.tensors, nullptr);
  const std::string wrong = judge(c);
  if (!wrong.empty()) std::printf("BAD offsets:%s\n", wrong.c_str());
  return wrong.empty();
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // nothing is lost when a check ends the program
  std::vector<std::string> features = {"plain", "window", "mask", "paged", "graph", "nan"};
  bool offsets = true;
  std::int64_t numbers[2] = {30, 1};  // cases of each feature, first seed
  int num_numbers = 0;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--only" && i + 1 < argc) {
      features = {argv[++i]};
      offsets = features[0] == "offsets";
      if (offsets) features.clear();
    } else if (num_numbers < 2) {
      numbers[num_numbers++] = std::atoll(argv[i]);
    }
  }
  const cuda::Device device = cuda::Device::open();
  compile_cases(device, features, numbers[0], numbers[1]);
  int passed = 0, failed = 0;
  for (const std::string& feature : features)
    for (std::int64_t i = 0; i < numbers[0]; ++i)
      ++(check_problem(feature, static_cast<std::uint64_t>(numbers[1] + i)) ? passed : failed);
  if (offsets) ++(check_offsets() ? passed : failed);
  std::printf("%d passed, %d failed on %s\n", passed, failed, device.facts().name.c_str());
  return failed > 0;
}

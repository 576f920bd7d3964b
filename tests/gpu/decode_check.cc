// Checks the decode kernel against a double-precision oracle on random problems.
//   decode_gpu_check [num_cases] [first_seed] [--only FEATURE]
// FEATURE: plain, window, mask, paged, graph, offsets. Outputs are poisoned and guarded, rows and
// pages that must not be read hold NaN; exits 1 with failures. Needs a GPU of compute capability
// 8.0 and more.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>

#include "stof/cuda_decode.h"
#include "stof/error.h"
#include "tests/gpu/draw.h"
#include "tests/gpu/guarded_tensor.h"

namespace {

using namespace stof;
using check::Draw;
using check::GuardedTensor;
using cuda::DecodeProblem;

/// A problem with its tensors in host and device memory.
struct Case {
  DecodeProblem problem;
  std::optional<mask::Mask> mask;
  std::vector<std::int32_t> lengths;  // of each sequence; max_seq_kv without problem.lengths
  GuardedTensor q, k, v, out, lse, device_lengths, page_table, alibi_slopes, sink;
  cuda::DecodeTensors tensors;
};

DecodeProblem draw_problem(Draw& draw, const std::string& feature) {
  DecodeProblem p;
  p.batch = draw.one_of<std::int64_t>({1, 1, 2, 3, 5, 40});
  p.num_heads_kv = draw.between(1, 3);
  p.num_heads_q = p.num_heads_kv * draw.one_of({1, 2, 3, 4, 8, 16});
  p.seq_q = draw.one_of<std::int64_t>({1, 1, 1, 2, 3, 5, 8, 16});
  p.max_seq_kv = draw.one_of<std::int64_t>({1, 17, 64, 100, 129, 500, 1000, 2500, 6000});
  p.head_dim_qk = draw.one_of<std::int64_t>({8, 16, 24, 64, 72, 80, 96, 128, 128, 192, 256});
  p.head_dim_v = draw.chance(3) ? draw.one_of<std::int64_t>({8, 40, 64, 128, 248}) : p.head_dim_qk;
  p.dtype = draw.chance(2) ? DType::kBFloat16 : DType::kFloat16;
  p.lengths = !draw.chance(4);
  p.return_lse = !draw.chance(5);
  if (draw.chance(4)) p.softcap = 20;
  if (draw.chance(4)) p.scale = 0.2f;
  p.alibi = draw.chance(4);
  p.sink = draw.chance(4);
  if (feature == "paged" || (feature == "graph" && draw.chance(2)))
    p.page_size = draw.one_of({16, 32, 48, 64, 128, 256});
  if (feature == "window" || (feature == "paged" && draw.chance(3))) {
    if (!draw.chance(3)) p.window_left = draw.one_of<std::int64_t>({0, 5, 63, 64, 300, 1000});
    p.window_right = draw.one_of<std::int64_t>({0, 0, 3, 100});
    if (draw.chance(4)) p.window_right.reset();
    p.sink_tokens = draw.one_of<std::int64_t>({0, 1, 4, 64, 70, 200});
  }
  // Caches are drawn and uploaded element by element: keep that under a tenth of a second.
  const auto elements = [&] {
    return p.batch * p.num_heads_kv * p.max_seq_kv * (p.head_dim_qk + p.head_dim_v);
  };
  if (elements() > 6'000'000) p.batch = 1;
  if (elements() > 6'000'000) p.num_heads_q = p.num_heads_q / p.num_heads_kv, p.num_heads_kv = 1;
  return p;
}

mask::Mask draw_mask(Draw& draw, const DecodeProblem& p) {
  using namespace stof::mask;
  switch (draw.between(0, 8)) {
    case 0:
      return all();
    case 1:
      return causal();
    case 2:
      return window(draw.between(0, 300), draw.between(0, 3));
    case 3:
      return causal() & strided(20, draw.one_of({8, 32, 64, 128}));
    case 4:
      return (window(100, 0) | global(0, 70)) & causal();
    case 5:
      return random_elements(0.2, 11);
    case 6: {
      std::vector<Mask> heads;
      for (std::int64_t h = 0; h < p.num_heads_q; ++h)
        heads.push_back(h % 2 ? causal() : window(h * 10, 3));
      return per_head(heads);
    }
    case 7: {
      std::vector<std::int64_t> counts;
      for (std::int64_t b = 0; b < p.batch; ++b) counts.push_back(p.max_seq_kv / (b + 1));
      return key_lengths(counts);
    }
    default:
      return none();
  }
}

void draw_lengths(Draw& draw, Case& c) {
  c.lengths.assign(static_cast<std::size_t>(c.problem.batch),
                   static_cast<std::int32_t>(c.problem.max_seq_kv));
  if (!c.problem.lengths) return;
  for (std::int32_t& length : c.lengths)
    if (!draw.chance(4))
      length =
          static_cast<std::int32_t>(draw.chance(6) ? draw.between(0, 2) % (c.problem.max_seq_kv + 1)
                                                   : draw.between(0, c.problem.max_seq_kv));
}

void fill(Draw& draw, GuardedTensor& tensor) {
  tensor.visit(0, tensor.offset({}), [&](std::int64_t at) { tensor.set_real(at, draw.normal()); });
  tensor.upload();
}

/// Where key `row` of a sequence lies in the cache.
std::int64_t cache_offset(const Case& c, const GuardedTensor& cache, std::int64_t b,
                          std::int64_t head, std::int64_t row) {
  const std::int64_t page_size = c.problem.page_size;
  if (page_size == 0) return cache.offset({b, head, row, 0});
  const auto page = c.page_table.get<std::int32_t>(c.page_table.offset({b, row / page_size}));
  return cache.offset({page, head, row % page_size, 0});
}

/// Fills the rows of each sequence and leaves all others NaN; then the lengths.
void fill_cache(Draw& draw, Case& c) {
  const DecodeProblem& p = c.problem;
  for (const auto& [cache, head_dim] :
       {std::pair{&c.k, p.head_dim_qk}, std::pair{&c.v, p.head_dim_v}}) {
    cache->poison();
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (std::int64_t h = 0; h < p.num_heads_kv; ++h)
        for (std::int64_t row = 0; row < c.lengths[static_cast<std::size_t>(b)]; ++row) {
          const std::int64_t at = cache_offset(c, *cache, b, h, row);
          for (std::int64_t d = 0; d < head_dim; ++d) cache->set_real(at + d, draw.normal());
        }
    cache->upload();
  }
  if (!p.lengths) return;
  for (std::int64_t b = 0; b < p.batch; ++b)
    c.device_lengths.set(c.device_lengths.offset({b}), c.lengths[static_cast<std::size_t>(b)]);
  c.device_lengths.upload();
}

Case make_case(Draw& draw, const std::string& feature) {
  Case c;
  c.problem = draw_problem(draw, feature);
  const DecodeProblem& p = c.problem;
  if (feature == "mask") c.mask = draw_mask(draw, p);
  const auto make = [&](const Dims& shape, const char* name) {
    return GuardedTensor(p.dtype, shape, check::draw_strides(draw, shape), name);
  };
  c.q = make({p.batch, p.num_heads_q, p.seq_q, p.head_dim_qk}, "q");
  c.out = make({p.batch, p.num_heads_q, p.seq_q, p.head_dim_v}, "out");
  std::int64_t caches = p.batch, rows = p.max_seq_kv;
  if (p.page_size > 0) {
    const std::int64_t used = (p.max_seq_kv + p.page_size - 1) / p.page_size;
    caches = p.batch * used + 3;
    rows = p.page_size;
    c.page_table = GuardedTensor(DType::kInt32, {p.batch, used + 2}, {used + 5, 1}, "page_table");
    std::vector<std::int32_t> pages;
    for (std::int64_t i = 0; i < caches; ++i) pages.push_back(static_cast<std::int32_t>(i));
    for (std::size_t i = pages.size() - 1; i > 0; --i)
      std::swap(pages[i],
                pages[static_cast<std::size_t>(draw.between(0, static_cast<std::int64_t>(i)))]);
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (std::int64_t i = 0; i < used; ++i)
        c.page_table.set(c.page_table.offset({b, i}),
                         pages[static_cast<std::size_t>(b * used + i)]);
    c.page_table.upload();
    c.tensors.page_table = c.page_table.view();
  }
  c.k = make({caches, p.num_heads_kv, rows, p.head_dim_qk}, "k");
  c.v = make({caches, p.num_heads_kv, rows, p.head_dim_v}, "v");
  fill(draw, c.q);
  draw_lengths(draw, c);
  if (p.lengths) {
    c.device_lengths = GuardedTensor(DType::kInt32, {p.batch}, {1}, "lengths");
    c.tensors.lengths = c.device_lengths.view();
  }
  fill_cache(draw, c);
  const auto make_vector = [&](GuardedTensor& tensor, const char* name, float scale) {
    tensor = GuardedTensor(DType::kFloat32, {p.num_heads_q}, {1}, name);
    for (std::int64_t h = 0; h < p.num_heads_q; ++h)
      tensor.set(tensor.offset({h}), scale * draw.normal());
    tensor.upload();
    return tensor.view();
  };
  // Slopes as models have them: times thousands of keys, still logits that float32 holds well.
  if (p.alibi) c.tensors.alibi_slopes = make_vector(c.alibi_slopes, "alibi_slopes", 0.02f);
  if (p.sink) c.tensors.sink = make_vector(c.sink, "sink", 1.0f);
  if (p.return_lse) {
    c.lse = GuardedTensor(DType::kFloat32, {p.batch, p.num_heads_q, p.seq_q},
                          {p.num_heads_q * p.seq_q, p.seq_q, 1}, "lse");
    c.tensors.lse = c.lse.mutable_view();
  }
  c.tensors.q = c.q.view(), c.tensors.k = c.k.view(), c.tensors.v = c.v.view();
  c.tensors.out = c.out.mutable_view();
  return c;
}

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
  std::int64_t nan = 0;
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
  if (sum > 0 && p.sink) sum += std::exp(c.sink.get<float>(c.sink.offset({h})) - top);
  for (std::int64_t d = 0; d < p.head_dim_v; ++d) {
    const double got = c.out.real(c.out.offset({b, h, q, 0}) + d);
    const double want = sum > 0 ? expected[static_cast<std::size_t>(d)] / sum : 0;
    errors->difference += (got - want) * (got - want);
    errors->norm += want * want;
  }
  if (!p.return_lse) return;
  const double got = c.lse.get<float>(c.lse.offset({b, h, q}));
  const double want = sum > 0 ? top + std::log(sum) : -std::numeric_limits<double>::infinity();
  const double gap = got == want ? 0 : std::abs(got - want);
  errors->lse =
      std::isnan(gap) ? std::numeric_limits<double>::infinity() : std::max(errors->lse, gap);
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
  for (std::int64_t row = 0; row < rows; row += step)
    compare_row(c, visible, row / (p.num_heads_q * p.seq_q), row / p.seq_q % p.num_heads_q,
                row % p.seq_q, &errors);
  errors.nan = 0;
  c.out.visit(0, c.out.offset({}),
              [&](std::int64_t at) { errors.nan += std::isnan(c.out.real(at)); });
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
  std::vector<std::string> features = {"plain", "window", "mask", "paged", "graph"};
  bool offsets = true;
  std::int64_t numbers[2] = {40, 1};  // cases of each feature, first seed
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
  int passed = 0, failed = 0;
  for (const std::string& feature : features)
    for (std::int64_t i = 0; i < numbers[0]; ++i)
      ++(check_problem(feature, static_cast<std::uint64_t>(numbers[1] + i)) ? passed : failed);
  if (offsets) ++(check_offsets() ? passed : failed);
  std::printf("%d passed, %d failed on %s\n", passed, failed, device.facts().name.c_str());
  return failed > 0;
}

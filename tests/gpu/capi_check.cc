// Checks the GPU side of the C interface through its shared library: every kind of plan against the
// CPU's plan of the same problem, made and run through the same header.
//   capi_gpu_check

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "backend/cuda/device.h"
#include "core/check.h"
#include "gpu/draw.h"
#include "stof/dtype.h"
#include "stof/stof.h"

namespace {

using stof::check::Draw;
using Shape = std::vector<std::int64_t>;

void ok(stof_status status) {
  if (status != STOF_OK)
    throw std::runtime_error(fmt::format("{}: {}", stof_status_name(status), stof_last_error()));
}

/// A row-major tensor in host memory and, once copied, in device memory.
struct Tensor {
  std::int32_t dtype;
  Shape shape;
  std::vector<std::uint8_t> host;
  stof::cuda::DeviceBuffer device;

  std::int64_t size() const {
    std::int64_t n = 1;
    for (const std::int64_t extent : shape) n *= extent;
    return n;
  }
  stof_tensor view(bool on_device) {
    void* const data = on_device ? reinterpret_cast<void*>(device.address()) : host.data();
    return {sizeof(stof_tensor), dtype, data, std::ssize(shape), shape.data(), nullptr};
  }
  void upload() {
    const auto& driver = stof::cuda::Driver::instance();
    device = stof::cuda::DeviceBuffer(host.size(), "a test");
    driver.check(driver.cuMemcpyHtoDAsync(device.address(), host.data(), host.size(), nullptr),
                 "uploading");
    driver.check(driver.cuStreamSynchronize(nullptr), "uploading");
  }
  void download() {
    const auto& driver = stof::cuda::Driver::instance();
    driver.check(driver.cuMemcpyDtoHAsync(host.data(), device.address(), host.size(), nullptr),
                 "downloading");
    driver.check(driver.cuStreamSynchronize(nullptr), "downloading");
  }
  double value(std::int64_t i) const {
    if (dtype == STOF_FLOAT32) {
      float result;
      std::memcpy(&result, host.data() + 4 * i, 4);
      return result;
    }
    stof::BFloat16 brain;
    std::memcpy(&brain.bits, host.data() + 2 * i, 2);
    return static_cast<float>(brain);
  }
};

Tensor poisoned(std::int32_t dtype, const Shape& shape) {
  Tensor tensor{dtype, shape, {}, {}};
  const int bytes = dtype == STOF_BFLOAT16 ? 2 : dtype == STOF_BOOL ? 1 : 4;
  tensor.host.assign(static_cast<std::size_t>(tensor.size() * bytes), 0xff);
  return tensor;
}

Tensor normal(Draw& draw, std::int32_t dtype, const Shape& shape) {
  Tensor tensor = poisoned(dtype, shape);
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    const float value = draw.normal();
    const stof::BFloat16 brain(value);
    if (dtype == STOF_FLOAT32)
      std::memcpy(tensor.host.data() + 4 * i, &value, 4);
    else
      std::memcpy(tensor.host.data() + 2 * i, &brain.bits, 2);
  }
  return tensor;
}

template <class Int>
Tensor integers(std::int32_t dtype, const Shape& shape, const std::vector<Int>& values) {
  Tensor tensor = poisoned(dtype, shape);
  std::memcpy(tensor.host.data(), values.data(), values.size() * sizeof(Int));
  return tensor;
}

/// q, k, v and outputs of one problem, and what the CPU says of them.
struct Case {
  stof_attention_problem problem{};
  bool packed = false;
  Tensor q, k, v, out, lse;
  std::vector<double> expected, expected_lse;

  Case(Draw& draw, stof_attention_problem p, std::int64_t rows_q = 0, std::int64_t rows_kv = 0)
      : problem(p), packed(rows_q > 0) {
    const auto shape = [&](std::int64_t heads, std::int64_t rows, std::int64_t packed_rows,
                           std::int64_t dim) {
      return packed ? Shape{packed_rows, heads, dim} : Shape{p.batch, heads, rows, dim};
    };
    q = normal(draw, p.dtype, shape(p.num_heads_q, p.seq_q, rows_q, p.head_dim_qk));
    k = normal(draw, p.dtype, shape(p.num_heads_kv, p.seq_kv, rows_kv, p.head_dim_qk));
    v = normal(draw, p.dtype, shape(p.num_heads_kv, p.seq_kv, rows_kv, p.head_dim_v));
    out = poisoned(p.dtype, shape(p.num_heads_q, p.seq_q, rows_q, p.head_dim_v));
    lse = poisoned(STOF_FLOAT32,
                   packed ? Shape{p.num_heads_q, rows_q} : Shape{p.batch, p.num_heads_q, p.seq_q});
    for (Tensor* tensor : {&q, &k, &v, &out, &lse}) tensor->upload();
  }

  void with_tensors(bool on_device,
                    const std::function<stof_status(stof_attention_tensors&)>& run) {
    stof_tensor views[] = {q.view(on_device), k.view(on_device), v.view(on_device),
                           out.view(on_device), lse.view(on_device)};
    stof_attention_tensors tensors{};
    tensors.struct_size = sizeof(tensors);
    tensors.q = &views[0], tensors.k = &views[1], tensors.v = &views[2], tensors.out = &views[3];
    if (problem.return_lse) tensors.lse = &views[4];
    ok(run(tensors));
  }

  void run_on_cpu(const stof_plan* plan) {
    with_tensors(false, [&](auto& tensors) { return stof_plan_run(plan, &tensors, nullptr); });
    for (std::int64_t i = 0; i < out.size(); ++i) expected.push_back(out.value(i));
    for (std::int64_t i = 0; i < lse.size(); ++i) expected_lse.push_back(lse.value(i));
    std::fill(out.host.begin(), out.host.end(), std::uint8_t{0xff});
    std::fill(lse.host.begin(), lse.host.end(), std::uint8_t{0xff});
  }

  /// After a run on the GPU: "" or what is wrong.
  std::string difference() {
    out.download();
    lse.download();
    double squares = 0, norm = 0;
    for (std::int64_t i = 0; i < out.size(); ++i) {
      const double gap = out.value(i) - expected[static_cast<std::size_t>(i)];
      squares += gap * gap;
      norm += std::pow(expected[static_cast<std::size_t>(i)], 2);
    }
    const double error = std::sqrt(squares / std::max(norm, 1e-30));
    if (!(error < 8e-3)) return fmt::format("error {:.2e}", error);
    if (problem.return_lse)
      for (std::int64_t i = 0; i < lse.size(); ++i) {
        const double got = lse.value(i), want = expected_lse[static_cast<std::size_t>(i)];
        if (!(got == want || std::abs(got - want) < 1e-2))
          return fmt::format("lse {} is {}, expected {}", i, got, want);
      }
    return "";
  }
};

stof_attention_problem make_problem(Draw& draw) {
  stof_attention_problem p{};
  p.struct_size = sizeof(p);
  p.dtype = STOF_BFLOAT16;
  p.batch = 2;
  p.num_heads_kv = 2;
  p.num_heads_q = 2 * draw.between(1, 3);
  p.seq_q = draw.between(65, 300);
  p.seq_kv = draw.between(65, 400);
  p.head_dim_qk = p.head_dim_v = draw.one_of<std::int64_t>({64, 128});
  p.alignment = draw.one_of({STOF_TOP_LEFT, STOF_BOTTOM_RIGHT});
  p.return_lse = 1;
  return p;
}

stof_mask* parse(const char* text) {
  stof_mask* mask = nullptr;
  ok(stof_mask_parse(text, nullptr, &mask));
  return mask;
}

stof_target gpu() {
  stof_target target{};
  target.struct_size = sizeof(target);
  target.device = STOF_GPU;
  return target;
}

/// The JSON that says what a plan is must name a kernel.
template <class ToJson>
std::string check_json(const ToJson& to_json) {
  char* json = nullptr;
  ok(to_json(&json));
  const std::string text = json;
  stof_text_release(json);
  return text.find("\"kernel\":\"\"") == std::string::npos &&
                 text.find("\"kernel\":\"") != std::string::npos
             ? ""
             : "no kernel in " + text;
}

std::string check_mask_plan(Draw& draw) {
  const stof_attention_problem p = make_problem(draw);
  Case data(draw, p);
  stof_mask* mask = parse("causal(20) & (window(70, 10) | sink(3))");
  const stof_target target = gpu();
  stof_plan *on_cpu = nullptr, *on_gpu = nullptr;
  ok(stof_plan_attention(&p, mask, nullptr, &on_cpu));
  ok(stof_plan_attention(&p, mask, &target, &on_gpu));
  stof_mask_release(mask);
  data.run_on_cpu(on_cpu);
  data.with_tensors(true, [&](auto& t) { return stof_plan_run(on_gpu, &t, nullptr); });
  std::string wrong = data.difference();
  if (wrong.empty())
    wrong = check_json([&](char** json) { return stof_plan_to_json(on_gpu, json); });
  stof_plan_release(on_cpu);
  stof_plan_release(on_gpu);
  return wrong;
}

std::string check_dense_plan(Draw& draw) {
  const stof_attention_problem p = make_problem(draw);
  Case data(draw, p);
  std::vector<std::uint8_t> bits(static_cast<std::size_t>(p.batch * p.seq_q * p.seq_kv));
  for (std::uint8_t& bit : bits) bit = draw.chance(3);
  Tensor visible = integers(STOF_BOOL, {p.batch, 1, p.seq_q, p.seq_kv}, bits);
  visible.upload();
  const stof_target target = gpu();
  stof_plan *on_cpu = nullptr, *on_gpu = nullptr;
  stof_tensor host = visible.view(false), device = visible.view(true);
  ok(stof_plan_dense_attention(&p, &host, nullptr, nullptr, &on_cpu));
  ok(stof_plan_dense_attention(&p, &device, &target, nullptr, &on_gpu));
  data.run_on_cpu(on_cpu);
  data.with_tensors(true, [&](auto& t) { return stof_plan_run(on_gpu, &t, nullptr); });
  stof_plan_release(on_cpu);
  stof_plan_release(on_gpu);
  return data.difference();
}

std::string check_varlen_plan(Draw& draw) {
  stof_attention_problem p = make_problem(draw);
  p.batch = p.seq_q = p.seq_kv = 0;
  Shape rows{0};
  for (int i = 0; i < 4; ++i) rows.push_back(rows.back() + draw.between(0, 200));
  rows.push_back(rows.back() + 7);
  const std::int64_t sequences = std::ssize(rows) - 1;
  Case data(draw, p, rows.back(), rows.back());
  stof_mask* mask = parse("window(40, 5)");
  const stof_target target = gpu();
  stof_plan *on_cpu = nullptr, *on_gpu = nullptr;
  ok(stof_plan_varlen_attention(&p, mask, sequences, rows.data(), rows.data(), nullptr, &on_cpu));
  ok(stof_plan_varlen_attention(&p, mask, sequences, rows.data(), rows.data(), &target, &on_gpu));
  stof_mask_release(mask);
  data.run_on_cpu(on_cpu);
  data.with_tensors(true, [&](auto& t) { return stof_plan_run(on_gpu, &t, nullptr); });
  stof_plan_release(on_cpu);
  stof_plan_release(on_gpu);
  return data.difference();
}

/// Lists for every head, as a mask on the CPU and in device memory on the GPU.
std::string check_block_lists(Draw& draw) {
  stof_attention_problem p = make_problem(draw);
  p.batch = 1;
  Case data(draw, p);
  const std::int64_t q_blocks = (p.seq_q + 63) / 64, kv_blocks = (p.seq_kv + 63) / 64;
  std::vector<std::int32_t> counts, ids;
  std::string lists;
  for (std::int64_t h = 0; h < p.num_heads_q; ++h) {
    lists += h == 0 ? "[" : "],[";
    for (std::int64_t r = 0; r < q_blocks; ++r) {
      std::string row;
      std::int32_t count = 0;
      for (std::int64_t c = 0; c < kv_blocks; ++c)
        if (draw.chance(2)) {
          ids.push_back(static_cast<std::int32_t>(c));
          row += fmt::format("{}{}", count++ == 0 ? "" : ",", c);
        }
      for (std::int64_t c = count; c < kv_blocks; ++c) ids.push_back(-7);  // never read
      counts.push_back(count);
      lists += fmt::format("{}[{}]", r == 0 ? "" : ",", row);
    }
  }
  stof_mask* mask =
      parse(fmt::format("blocks(block_q=64, block_kv=64, heads=[{}]])", lists).c_str());
  stof_plan* on_cpu = nullptr;
  ok(stof_plan_attention(&p, mask, nullptr, &on_cpu));
  stof_mask_release(mask);
  data.run_on_cpu(on_cpu);
  stof_plan_release(on_cpu);

  Tensor count_tensor = integers(STOF_INT32, {1, p.num_heads_q, q_blocks}, counts);
  Tensor id_tensor = integers(STOF_INT32, {1, p.num_heads_q, q_blocks, kv_blocks}, ids);
  count_tensor.upload();
  id_tensor.upload();
  const stof_tensor count_view = count_tensor.view(true), id_view = id_tensor.view(true);
  const stof_target target = gpu();
  stof_block_list_shape shape{};
  shape.struct_size = sizeof(shape);
  stof_block_list_plan* plan = nullptr;
  ok(stof_plan_block_lists(&p, &shape, &target, &plan));
  ok(stof_block_list_plan_update(plan, &count_view, &id_view, nullptr));
  data.with_tensors(true, [&](auto& t) { return stof_block_list_plan_run(plan, &t, nullptr); });
  ok(stof_block_list_plan_check(plan, nullptr));
  std::string wrong = data.difference();
  if (wrong.empty())
    wrong = check_json([&](char** json) { return stof_block_list_plan_to_json(plan, json); });
  stof_block_list_plan_release(plan);
  return wrong;
}

/// The newest tokens of a cache, against the CPU's attention aligned at the bottom right.
std::string check_decoding(Draw& draw) {
  stof_attention_problem p = make_problem(draw);
  p.alignment = STOF_BOTTOM_RIGHT;
  p.seq_q = draw.between(1, 4);
  Case data(draw, p);
  stof_mask* mask = parse("window(50, 0)");
  stof_plan* on_cpu = nullptr;
  ok(stof_plan_attention(&p, mask, nullptr, &on_cpu));
  stof_mask_release(mask);
  data.run_on_cpu(on_cpu);
  stof_plan_release(on_cpu);

  stof_decode_problem d{};
  d.struct_size = sizeof(d);
  d.dtype = p.dtype;
  d.batch = p.batch;
  d.num_heads_q = p.num_heads_q;
  d.num_heads_kv = p.num_heads_kv;
  d.seq_q = p.seq_q;
  d.max_seq_kv = p.seq_kv;
  d.head_dim_qk = d.head_dim_v = p.head_dim_qk;
  d.has_window_left = 1;
  d.window_left = 50;
  d.lengths = d.return_lse = 1;
  const stof_target target = gpu();
  stof_decode_plan* plan = nullptr;
  ok(stof_plan_decode(&d, nullptr, &target, &plan));
  const auto whole = static_cast<std::int32_t>(p.seq_kv);
  Tensor lengths =
      integers(STOF_INT32, {p.batch}, std::vector(static_cast<std::size_t>(p.batch), whole));
  lengths.upload();
  const stof_tensor length_view = lengths.view(true);
  data.with_tensors(true, [&](auto& t) {
    stof_decode_tensors tensors{};
    tensors.struct_size = sizeof(tensors);
    tensors.q = t.q, tensors.k = t.k, tensors.v = t.v, tensors.out = t.out, tensors.lse = t.lse;
    tensors.lengths = &length_view;
    return stof_decode_plan_run(plan, &tensors, nullptr);
  });
  std::string wrong = data.difference();
  if (wrong.empty())
    wrong = check_json([&](char** json) { return stof_decode_plan_to_json(plan, json); });
  stof_decode_plan_release(plan);
  return wrong;
}

}  // namespace

int main() try {
  const stof::cuda::Device device = stof::cuda::Device::open(0);
  const struct {
    const char* name;
    std::string (*check)(Draw&);
  } checks[] = {{"mask plan", check_mask_plan},
                {"dense plan", check_dense_plan},
                {"varlen plan", check_varlen_plan},
                {"block lists", check_block_lists},
                {"decoding", check_decoding}};
  constexpr std::uint64_t kSeeds = 3;
  int passed = 0, failed = 0;
  for (const auto& [name, check] : checks)
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      Draw draw(seed);
      std::string wrong;
      try {
        wrong = check(draw);
      } catch (const std::exception& error) {
        wrong = error.what();
      }
      if (!wrong.empty())
        std::printf("%s, seed %d: %s\n", name, static_cast<int>(seed), wrong.c_str());
      ++(wrong.empty() ? passed : failed);
    }
  std::printf("%d passed, %d failed on %s\n", passed, failed, device.facts().name.c_str());
  return failed == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "capi_gpu_check: %s\n", error.what());
  return 1;
}

// Times the decode kernel and relates it to a device-to-device copy measured in the same run.
//   bench_gpu_decode [CASE...] [--json FILE]

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <random>

#include "backend/cuda/attention/decode_config.h"
#include "backend/cuda/measure.h"
#include "bench/gpu/arguments.h"
#include "bench/gpu/oracle.h"
#include "jit/nvrtc.h"
#include "stof/cuda_decode.h"
#include "stof/error.h"
#include "tests/gpu/compile_ahead.h"

namespace {

using namespace stof;

struct Case {
  const char* name;
  std::int64_t batch, heads_q, heads_kv, seq_q, keys, head_dim;
  std::int64_t page_size = 0, window = 0, sinks = 0;
  bool ragged = false;
};

constexpr Case kCases[] = {
    {"batch16_32k", 16, 32, 8, 1, 32768, 128},
    {"batch1_32k", 1, 32, 8, 1, 32768, 128},
    {"batch16_32k_page64", 16, 32, 8, 1, 32768, 128, 64},
    {"batch16_32k_page16", 16, 32, 8, 1, 32768, 128, 16},
    {"batch1_128k", 1, 32, 8, 1, 131072, 128},
    {"batch64_4k", 64, 32, 8, 1, 4096, 128},
    {"batch64_ragged_8k", 64, 32, 8, 1, 8192, 128, 64, 0, 0, true},
    {"batch16_1k", 16, 32, 8, 1, 1024, 128},
    {"batch1_1k", 1, 32, 8, 1, 1024, 128},
    {"batch1_4k", 1, 32, 8, 1, 4096, 128},
    {"mha_batch4_8k", 4, 32, 32, 1, 8192, 128},
    {"mqa_batch8_32k", 8, 32, 1, 1, 32768, 128},
    {"seq4_batch16_16k", 16, 32, 8, 4, 16384, 128},
    {"seq16_batch16_16k", 16, 32, 8, 16, 16384, 128},
    {"dim64_batch32_16k", 32, 16, 4, 1, 16384, 64},
    {"dim256_batch16_16k", 16, 16, 4, 1, 16384, 256},
    {"streaming_batch16_128k", 16, 32, 8, 1, 131072, 128, 0, 4095, 4},
};

const cuda::Driver& driver() { return cuda::Driver::instance(); }

template <class T>
cuda::DeviceBuffer upload(const std::vector<T>& values) {
  cuda::DeviceBuffer buffer(values.size() * sizeof(T), "bench data");
  driver().check(
      driver().cuMemcpyHtoDAsync(buffer.address(), values.data(), buffer.bytes(), nullptr),
      "upload");
  driver().check(driver().cuStreamSynchronize(nullptr), "upload");
  return buffer;
}

constexpr const char* kCopySource = R"(
extern "C" __global__ void __launch_bounds__(512) copy(const uint4* from, uint4* to, long long count) {
  const long long step = (long long)gridDim.x * 512;
  long long i = blockIdx.x * 512ll + threadIdx.x;
  for (; i + 3 * step < count; i += 4 * step) {
    const uint4 a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
    to[i] = a, to[i + step] = b, to[i + 2 * step] = c, to[i + 3 * step] = d;
  }
  for (; i < count; i += step) to[i] = from[i];
}
)";

/// GB/s of a large copy on the device, read plus written: the better of the driver's and of a plain
/// kernel's.
double measure_copy(const cuda::Device& device) {
  constexpr std::size_t kBytes = std::size_t{2} << 30;
  cuda::CUdeviceptr from = 0, to = 0;
  const cuda::DeviceBuffer source(kBytes, "copy source"), target(kBytes, "copy target");
  from = source.address(), to = target.address();
  const auto gb_s = [](double us) { return 2.0 * static_cast<double>(kBytes) / us * 1e-3; };
  const double by_driver = gb_s(cuda::measure_us(
      [&](cuda::CUstream stream) {
        driver().check(driver().cuMemcpyDtoDAsync(to, from, kBytes, stream), "copying");
      },
      2, 9));
  const cuda::Kernel kernel(
      "copy", jit::Nvrtc::instance().compile("copy", kCopySource, device.facts().target()).cubin,
      "copy", 0);
  long long count = kBytes / 16;
  void* arguments[] = {&from, &to, &count};
  double by_kernel = 0;
  for (const int blocks_per_sm : {2, 4, 16})
    by_kernel =
        std::max(by_kernel, gb_s(cuda::measure_us(
                                [&](cuda::CUstream stream) {
                                  kernel.launch(
                                      static_cast<unsigned>(device.facts().num_sms * blocks_per_sm),
                                      512, stream, arguments);
                                },
                                2, 9)));
  std::printf("copy: driver %.0f GB/s, kernel %.0f GB/s\n", by_driver, by_kernel);
  return std::max(by_driver, by_kernel);
}

/// Lengths between an eighth of the longest and all of it.
std::vector<std::int32_t> draw_lengths(const Case& c) {
  std::mt19937_64 random(7);
  std::vector<std::int32_t> lengths;
  for (std::int64_t b = 0; b < c.batch; ++b)
    lengths.push_back(static_cast<std::int32_t>(
        c.ragged ? c.keys / 8 + static_cast<std::int64_t>(
                                    random() % static_cast<std::uint64_t>(c.keys - c.keys / 8))
                 : c.keys));
  return lengths;
}

/// Bytes that must move: visible keys and values once, queries, outputs.
double bytes_of(const Case& c, const std::vector<std::int32_t>& lengths) {
  double keys = 0;
  for (const std::int32_t length : lengths)
    keys += static_cast<double>(
        c.window > 0 ? std::min<std::int64_t>(length, c.window + c.seq_q + c.sinks) : length);
  const double rows = static_cast<double>(c.batch * c.heads_q * c.seq_q);
  return 4.0 * static_cast<double>(c.head_dim) * (keys * static_cast<double>(c.heads_kv) + rows);
}

cuda::DecodeProblem problem_of(const Case& c) {
  cuda::DecodeProblem problem;
  problem.batch = c.batch, problem.num_heads_q = c.heads_q, problem.num_heads_kv = c.heads_kv;
  problem.seq_q = c.seq_q, problem.max_seq_kv = c.keys;
  problem.head_dim_qk = problem.head_dim_v = c.head_dim;
  problem.lengths = true, problem.return_lse = true;
  problem.page_size = c.page_size;
  if (c.window > 0) problem.window_left = c.window;
  problem.sink_tokens = c.sinks;
  return problem;
}

/// Compiles on all cores what the cases need.
void compile_cases(const cuda::Device& device, const std::vector<Case>& cases) {
  const cuda::DeviceFacts& gpu = device.facts();
  std::map<std::string, std::string> texts;
  for (const Case& c : cases) {
    const auto config =
        cuda::decode_config(problem_of(c), /*lists=*/false, gpu.major, gpu.minor, gpu.num_sms);
    texts.emplace(config.name(), codegen::emit_decode(config));
    if (!config.merges)
      texts.emplace(config.name() + " combine", codegen::emit_decode_combine(config));
  }
  check::compile_ahead(texts, gpu.target());
}

void run_case(const cuda::Device& device, const Case& c, double copy_gb_s, std::FILE* json) {
  AttentionProblem shape;
  shape.batch = c.batch, shape.num_heads_q = c.heads_q, shape.num_heads_kv = c.heads_kv;
  shape.seq_q = c.seq_q, shape.seq_kv = c.keys;
  shape.head_dim_qk = shape.head_dim_v = c.head_dim;
  shape.dtype = DType::kBFloat16;
  shape.alignment = mask::Alignment::kBottomRight;
  shape.return_lse = true;
  const cuda::DecodeProblem problem = problem_of(c);
  const std::vector<std::int32_t> lengths = draw_lengths(c);
  const cuda::DeviceBuffer device_lengths = upload(lengths);
  const std::int64_t pages = c.page_size > 0 ? c.keys / c.page_size : 1;
  std::vector<std::int32_t> table(static_cast<std::size_t>(c.batch * pages));
  std::iota(table.begin(), table.end(), 0);
  std::shuffle(table.begin(), table.end(), std::mt19937_64(5));
  const cuda::DeviceBuffer device_table = upload(table);

  // Calls take turns on several caches, so that none finds its keys in L2.
  const double bytes = bytes_of(c, lengths);
  const int copies = static_cast<int>(std::clamp(400e6 / bytes + 1, 1.0, 16.0));
  std::vector<std::unique_ptr<bench::DeviceTensors>> data;
  std::vector<cuda::DecodeTensors> tensors;
  for (int i = 0; i < copies; ++i) {
    data.push_back(std::make_unique<bench::DeviceTensors>(shape, device));
    const AttentionTensors& t = data.back()->tensors();
    cuda::DecodeTensors d;
    d.q = t.q, d.k = t.k, d.v = t.v, d.out = t.out, d.lse = t.lse;
    d.lengths = {reinterpret_cast<void*>(device_lengths.address()), DType::kInt32, {c.batch}};
    if (c.page_size > 0) {
      const Dims paged{c.batch * pages, c.heads_kv, c.page_size, c.head_dim};
      d.k = {t.k.data, problem.dtype, paged};
      d.v = {t.v.data, problem.dtype, paged};
      d.page_table = {
          reinterpret_cast<void*>(device_table.address()), DType::kInt32, {c.batch, pages}};
    }
    tensors.push_back(d);
  }
  const auto plan = cuda::DecodePlan::build(problem);
  data[0]->poison();
  plan.run(tensors[0], nullptr);
  const auto nan = data[0]->count_nan();
  // The oracle keeps a row's scores in shared memory, and knows no pages.
  const bool comparable = c.keys <= 16384 && c.page_size == 0 && c.window == 0;
  double error = 0;
  if (comparable)
    error = data[0]
                ->compare(mask::causal().bind({c.batch, c.heads_q, c.seq_q, c.keys},
                                              mask::Alignment::kBottomRight),
                          48)
                .frobenius;
  const bool good = nan == 0 && error < 4e-3;
  std::size_t turn = 0;
  const double us = cuda::measure_us(
      [&](cuda::CUstream stream) { plan.run(tensors[turn++ % tensors.size()], stream); },
      std::max(16, copies), 9);
  const double gb_s = bytes / us * 1e-3, share = gb_s / copy_gb_s;
  std::printf(
      "%-24s %s %s%.1e nan %ld %9.1f us %7.0f GB/s %5.1f %% of copy  %s %ld blocks %.1f MB\n",
      c.name, good ? "ok " : "BAD", comparable ? "err " : "not compared ", error, nan, us, gb_s,
      100 * share, plan.facts().kernel.c_str(), plan.facts().blocks,
      static_cast<double>(plan.facts().workspace_bytes) * 1e-6);
  std::fflush(stdout);
  if (json != nullptr)
    std::fprintf(json,
                 "{\"gpu\":\"%s\",\"case\":\"%s\",\"B\":%ld,\"H\":%ld,\"Hk\":%ld,"
                 "\"seq_q\":%ld,\"keys\":%ld,\"D\":%ld,\"page\":%ld,\"us\":%.2f,\"gb_s\":%.0f,"
                 "\"copy_gb_s\":%.0f,\"share\":%.4f,\"kernel\":\"%s\",\"good\":%s}\n",
                 device.facts().name.c_str(), c.name, c.batch, c.heads_q, c.heads_kv, c.seq_q,
                 c.keys, c.head_dim, c.page_size, us, gb_s, copy_gb_s, share,
                 plan.facts().kernel.c_str(), good ? "true" : "false");
}

}  // namespace

int main(int argc, char** argv) try {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // nothing is lost when a check ends the program
  const bench::Arguments arguments(argc, argv);
  std::vector<std::string> names;
  for (const Case& c : kCases) names.emplace_back(c.name);
  arguments.expect_names(names);
  const cuda::Device device = cuda::Device::open();
  const double copy_gb_s = measure_copy(device);
  std::printf("%s, %d SMs, copy %.0f GB/s\n", device.facts().name.c_str(), device.facts().num_sms,
              copy_gb_s);
  std::vector<Case> cases;
  for (const Case& c : kCases)
    if (arguments.wants(c.name)) cases.push_back(c);
  compile_cases(device, cases);
  int failed = 0;
  for (const Case& c : cases) {
    try {
      run_case(device, c, copy_gb_s, arguments.json());
    } catch (const Error& failure) {
      std::printf("BAD %s: %s\n", c.name, failure.what());
      ++failed;
    }
  }
  return failed > 0;
} catch (const std::exception& error) {
  return stof::bench::give_up(error);
}

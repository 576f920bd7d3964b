// Dense and 2:4 sparse matrix instructions in a loop, in MACs a cycle and SM, against what the
// simulator's machine predicts (docs/simulator.md).
//   bench_gpu_tensor_cores [--json FILE] [mma wgmma]; compile: only compiles them, without a GPU

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/stream.h"
#include "bench/gpu/arguments.h"
#include "jit/compile.h"
#include "jit/nvrtc.h"
#include "stof/simulate.h"

namespace stof::bench {
namespace {

struct Variant {
  bool wgmma = false, sparse = false, a_in_shared = false;
  int n = 8;  ///< columns

  std::string name() const {
    if (!wgmma) return sparse ? "mma.sp.m16n8k32" : "mma.m16n8k16";
    return fmt::format("wgmma{}.m64n{}k{}.{}", sparse ? ".sp" : "", n, sparse ? 32 : 16,
                       a_in_shared ? "ss" : "rs");
  }
  /// Of the logical shape.
  double macs() const { return (wgmma ? 64.0 * n * 16 : 16.0 * 8 * 16) * (sparse ? 2 : 1); }
  int threads() const { return wgmma ? 256 : 512; }
  /// Instructions of a warp (mma) or warpgroup (wgmma) in one turn of the loop.
  int unroll() const { return wgmma ? 16 : 8; }
  int workers() const { return wgmma ? 2 : 16; }
};

constexpr int kIterations = 512;
constexpr int kSharedBytes = 64 << 10;

/// "%0, %1, ..." of `count` operands from `first` on.
std::string operands(int first, int count) {
  std::string list;
  for (int i = 0; i < count; ++i) list += fmt::format("{}%{}", i == 0 ? "" : ", ", first + i);
  return list;
}

std::string mma_body(const Variant& v) {
  std::string instruction;
  for (int i = 0; i < v.unroll(); ++i) {
    std::string bound;
    for (int j = 0; j < 4; ++j)
      bound += fmt::format("{}\"+f\"(c[{}][{}])", j == 0 ? "" : ", ", i, j);
    instruction +=
        v.sparse ? fmt::format(
                       "    asm volatile(\"mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col."
                       "f32.bf16.bf16.f32 {{{}}}, {{{}}}, {{{}}}, {{{}}}, %12, 0x0;\"\n"
                       "                 : {}\n"
                       "                 : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), "
                       "\"r\"(b[0]), \"r\"(b[1]), \"r\"(b[2]), \"r\"(b[3]), \"r\"(meta));\n",
                       operands(0, 4), operands(4, 4), operands(8, 4), operands(0, 4), bound)
                 : fmt::format(
                       "    asm volatile(\"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                       "{{{}}}, {{{}}}, {{{}}}, {{{}}};\"\n"
                       "                 : {}\n"
                       "                 : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), "
                       "\"r\"(b[0]), \"r\"(b[1]));\n",
                       operands(0, 4), operands(4, 4), operands(8, 2), operands(0, 4), bound);
  }
  return fmt::format(R"(  float c[{}][4] = {{}};
  unsigned a[4], b[4];
  for (int i = 0; i < 4; ++i) a[i] = b[i] = seed + i * threadIdx.x;
  const unsigned meta = 0x44444444u;
  __syncthreads();
  const long long start = clock64();
  for (int turn = 0; turn < turns; ++turn) {{
{}  }}
  __syncthreads();
  const long long end = clock64();
  float sum = 0;
  for (int i = 0; i < {}; ++i) sum += c[i][0] + c[i][1] + c[i][2] + c[i][3];
)",
                     v.unroll(), instruction, v.unroll());
}

std::string wgmma_body(const Variant& v) {
  const int registers = v.n / 2;
  std::string bound;
  for (int i = 0; i < registers; ++i)
    bound += fmt::format("{}\"+f\"(c[{}])", i == 0 ? "" : ", ", i);
  int next = registers;
  std::string a, inputs;
  if (v.a_in_shared) {
    a = fmt::format("%{}", next++);
    inputs = "\"l\"(a_descriptor)";
  } else {
    a = "{" + operands(next, 4) + "}";
    next += 4;
    inputs = "\"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3])";
  }
  const std::string b = fmt::format("%{}", next++);
  inputs += ", \"l\"(b_descriptor)";
  std::string meta;
  if (v.sparse) {
    meta = fmt::format(", %{}, 0", next++);
    inputs += ", \"r\"(meta)";
  }
  // Scales of D, A and B, then which operands are transposed.
  const std::string flags = v.a_in_shared ? "1, 1, 1, 0, 0" : "1, 1, 1, 0";
  const std::string instruction = fmt::format(
      "      asm volatile(\"wgmma.mma_async{}.sync.aligned.m64n{}k{}.f32.bf16.bf16 {{{}}}, {}, "
      "{}{}, "
      "{};\"\n                   : {}\n                   : {});\n",
      v.sparse ? ".sp" : "", v.n, v.sparse ? 32 : 16, operands(0, registers), a, b, meta, flags,
      bound, inputs);
  return fmt::format(R"(  extern __shared__ __align__(1024) unsigned char shared[];
  for (int i = threadIdx.x; i < {} / 4; i += blockDim.x) reinterpret_cast<unsigned*>(shared)[i] = 0;
  float c[{}] = {{}};
  unsigned a[4];
  for (int i = 0; i < 4; ++i) a[i] = seed;
  const unsigned meta = 0x44444444u;
  const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  // 128-byte rows with the 128-byte swizzle; eight rows are 1024 bytes apart.
  const unsigned long long high = static_cast<unsigned long long>((1024u >> 4) | (1u << 30)) << 32;
  const unsigned long long a_descriptor = high | ((base & 0x3ffffu) >> 4);
  const unsigned long long b_descriptor = high | (((base + 8192) & 0x3ffffu) >> 4);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const long long start = clock64();
  for (int turn = 0; turn < turns; ++turn) {{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < {}; ++i)
{}    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }}
  __syncthreads();
  const long long end = clock64();
  float sum = static_cast<float>(a_descriptor & 1);
  for (int i = 0; i < {}; ++i) sum += c[i];
)",
                     kSharedBytes, registers, v.unroll(), instruction, registers);
}

std::string source_of(const Variant& v) {
  return fmt::format(R"(extern "C" __global__ void __launch_bounds__({}, 1)
tensor_cores(long long* cycles, float* sink, unsigned seed, int turns) {{
{}  if (threadIdx.x == 0) cycles[blockIdx.x] = end - start;
  if (seed == 12345) sink[threadIdx.x] = sum;
}}
)",
                     v.threads(), v.wgmma ? wgmma_body(v) : mma_body(v));
}

/// MACs a cycle of one SM, the mean over all.
double measure(const Variant& v, const cuda::Device& device) {
  const auto& driver = cuda::Driver::instance();
  const std::string cubin = jit::cubin_for(v.name(), source_of(v), device.facts().target());
  const cuda::Kernel kernel(v.name(), cubin, "tensor_cores", v.wgmma ? kSharedBytes : 0);
  const auto sms = static_cast<unsigned>(device.facts().num_sms);
  cuda::DeviceBuffer cycles(sms * sizeof(long long), "cycles");
  cuda::DeviceBuffer sink(1024 * sizeof(float), "sink");
  const cuda::Stream stream;
  cuda::CUdeviceptr cycles_address = cycles.address(), sink_address = sink.address();
  unsigned seed = 0;
  int turns = kIterations;
  void* arguments[] = {&cycles_address, &sink_address, &seed, &turns};
  // The first warms clocks and caches.
  for (int i = 0; i < 3; ++i)
    kernel.launch(sms, static_cast<unsigned>(v.threads()), stream.handle(), arguments);
  std::vector<long long> counted(sms);
  driver.check(driver.cuMemcpyDtoHAsync(counted.data(), cycles_address, sms * sizeof(long long),
                                        stream.handle()),
               "reading cycles");
  stream.wait("tensor cores");
  double sum = 0;
  for (const long long count : counted) sum += static_cast<double>(count);
  return v.macs() * v.unroll() * v.workers() * kIterations / (sum / sms);
}

double predicted(const Variant& v) {
  simulate::Machine machine;
  machine.operands = v.wgmma ? simulate::Operands::kShared : simulate::Operands::kRegisters;
  return 1 / simulate::cycles_per_mac(machine, v.sparse, v.n, v.a_in_shared);
}

int run(int argc, char** argv) {
  const Arguments arguments(argc, argv);
  arguments.expect_names({"mma", "wgmma", "compile"});
  std::vector<Variant> dense = {{}};
  for (const int n : {64, 128, 256})
    for (const bool a_in_shared : {false, true}) dense.push_back({true, false, a_in_shared, n});
  if (argc > 1 && std::string(argv[1]) == "compile") {
    for (Variant v : dense)
      for (const bool sparse : {false, true}) {
        v.sparse = sparse;
        const auto report = jit::parse_resources(
            jit::Nvrtc::instance().compile(v.name(), source_of(v), "sm_90a").log);
        std::printf("%-28s %3d registers, %d bytes spilled%s\n", v.name().c_str(), report.registers,
                    report.spill_bytes, report.wgmma_serialized ? ", serialised" : "");
      }
    return 0;
  }
  const cuda::Device device = cuda::Device::open();
  bool good = true;
  std::printf("%-28s %12s %12s %8s %8s %8s\n", "instruction", "MACs/cycle", "predicted", "ratio",
              "model", "error");
  for (const Variant& v : dense) {
    if (!arguments.wants(v.wgmma ? "wgmma" : "mma")) continue;
    Variant sparse = v;
    sparse.sparse = true;
    const double measured[2] = {measure(v, device), measure(sparse, device)};
    const double expected[2] = {predicted(v), predicted(sparse)};
    const double ratio = measured[1] / measured[0], model = expected[1] / expected[0];
    const double error = model / ratio - 1;
    good = good && std::abs(error) <= 0.1;
    std::printf("%-28s %12.0f %12.0f\n", v.name().c_str(), measured[0], expected[0]);
    std::printf("%-28s %12.0f %12.0f %8.3f %8.3f %+7.1f %%\n", sparse.name().c_str(), measured[1],
                expected[1], ratio, model, 100 * error);
    if (arguments.json() == nullptr) continue;
    const nlohmann::ordered_json line = {{"bench", "tensor_cores"},
                                         {"gpu", device.facts().name},
                                         {"dense", v.name()},
                                         {"sparse", sparse.name()},
                                         {"dense_macs_per_cycle", measured[0]},
                                         {"sparse_macs_per_cycle", measured[1]},
                                         {"ratio", ratio},
                                         {"model_dense_macs_per_cycle", expected[0]},
                                         {"model_sparse_macs_per_cycle", expected[1]},
                                         {"model_ratio", model},
                                         {"error", error},
                                         {"good", std::abs(error) <= 0.1}};
    std::fprintf(arguments.json(), "%s\n", line.dump().c_str());
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace stof::bench

int main(int argc, char** argv) try {
  return stof::bench::run(argc, argv);
} catch (const std::exception& error) {
  return stof::bench::give_up(error);
}

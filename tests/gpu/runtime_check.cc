// Checks what surrounds the kernels on a GPU: errors, memory that runs out, captured graphs.
//   runtime_gpu_check [CHECK...]      errors, memory, capture, replay; default: all

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "backend/cuda/kernel_cache.h"
#include "bench/gpu/oracle.h"
#include "stof/cuda_attention.h"
#include "stof/error.h"

namespace {

using namespace stof;

AttentionProblem small_problem() {
  AttentionProblem p;
  p.batch = 2;
  p.num_heads_q = p.num_heads_kv = 4;
  p.seq_q = 500;
  p.seq_kv = 1000;
  p.head_dim_qk = p.head_dim_v = 64;
  p.dtype = DType::kBFloat16;
  p.return_lse = true;
  return p;
}

/// Whether `body` throws `code` with all of `words` in its message.
bool throws(const std::function<void()>& body, ErrorCode code,
            const std::vector<std::string>& words) {
  try {
    body();
  } catch (const Error& error) {
    const std::string message = error.what();
    bool good = error.code() == code;
    for (const std::string& word : words) good &= message.find(word) != std::string::npos;
    std::printf("%s %s: %s\n", good ? "ok " : "BAD", to_string(error.code()), message.c_str());
    return good;
  }
  std::printf("BAD nothing was thrown\n");
  return false;
}

/// A plan runs, and agrees with the oracle.
bool runs(const cuda::Device& device, const mask::Mask& mask) {
  const AttentionProblem p = small_problem();
  const bench::DeviceTensors data(p, device);
  const auto plan = cuda::AttentionPlan::build(p, mask);
  data.poison();
  plan.run(data.tensors(), nullptr);
  const auto errors =
      data.compare(mask.bind({p.batch, p.num_heads_q, p.seq_q, p.seq_kv}, p.alignment), 100);
  const bool good = data.count_nan() == 0 && errors.frobenius < 5e-3 && errors.lse < 1e-3;
  std::printf("%s a plan runs: error %.2e, lse %.2e\n", good ? "ok " : "BAD", errors.frobenius,
              errors.lse);
  return good;
}

/// A failed launch and a failed call of the copy engine say which kernel, configuration, shapes and
/// driver code; what comes after them works.
int check_errors(const cuda::Device& device) {
  const cuda::Kernel& kernel = cuda::loaded_kernel(
      {"does_nothing", "extern \"C\" __global__ void does_nothing() {}", "does_nothing"}, device);
  int failures = 0;
  constexpr unsigned kTooManyThreads = 4096;
  failures +=
      !throws([&] { kernel.launch(7, kTooManyThreads, nullptr, nullptr); }, ErrorCode::kCuda,
              {"does_nothing", "7 blocks", "4096 threads", "CUDA error 1"});
  return failures + !runs(device, mask::causal());
}

/// Out of memory names what was asked for and what is free, and is survived.
int check_memory(const cuda::Device& device) {
  int failures = 0;
  const auto card = static_cast<std::size_t>(device.facts().memory_bytes);
  failures += !throws([&] { cuda::DeviceBuffer(2 * card, "a test"); }, ErrorCode::kOutOfMemory,
                      {"a test", std::to_string(2 * card) + " bytes", "free"});
  AttentionProblem large = small_problem();
  large.seq_q = large.seq_kv = 16384;  // random elements: 32 MiB of payloads
  const mask::Mask mask = mask::random_elements(0.1, 5);
  {
    // What is free need not be in one piece.
    std::vector<cuda::DeviceBuffer> hogs;
    for (auto size = static_cast<std::size_t>(device.free_memory_bytes()); size >= (4 << 20);) {
      try {
        hogs.emplace_back(size, "a test");
      } catch (const Error&) {
        size /= 2;
      }
    }
    std::printf("    %.1f MiB left\n", static_cast<double>(device.free_memory_bytes()) / (1 << 20));
    failures += !throws([&] { cuda::AttentionPlan::build(large, mask); }, ErrorCode::kOutOfMemory,
                        {"plan", "q[2, 4, 16384, 64]", "free"});
  }
  failures += !runs(device, mask::causal());
  cuda::AttentionPlan::build(large, mask);
  return failures;
}

/// Building a plan while a graph is captured is an error that says what to do before.
int check_capture(const cuda::Device&) {
  const cuda::Driver& driver = cuda::Driver::instance();
  cuda::CUstream stream = nullptr;
  driver.check(driver.cuStreamCreate(&stream, 0), "creating a stream");
  constexpr int kGlobal = 0;
  driver.check(driver.cuStreamBeginCapture(stream, kGlobal), "capturing");
  const int failures =
      !throws([&] { cuda::AttentionPlan::build(small_problem(), mask::window(40, 3)); },
              ErrorCode::kCuda, {"captured", "before"});
  cuda::CUgraph graph = nullptr;
  driver.cuStreamEndCapture(stream, &graph);  // the capture was spoilt on purpose
  if (graph != nullptr) driver.cuGraphDestroy(graph);
  driver.cuStreamDestroy(stream);
  return failures;
}

/// A captured run, replayed after its operands changed in place, gives what a direct run gives.
int check_replay(const cuda::Device& device) {
  const cuda::Driver& driver = cuda::Driver::instance();
  const AttentionProblem p = small_problem();
  const bench::DeviceTensors data(p, device);
  const mask::Mask mask = mask::window(100, 100) | mask::global(3, 3);
  const auto plan = cuda::AttentionPlan::build(p, mask);
  cuda::CUstream stream = nullptr;
  driver.check(driver.cuStreamCreate(&stream, 0), "creating a stream");
  driver.check(driver.cuStreamBeginCapture(stream, 0), "capturing");
  plan.run(data.tensors(), stream);
  cuda::CUgraph graph = nullptr;
  cuda::CUgraphExec executable = nullptr;
  driver.check(driver.cuStreamEndCapture(stream, &graph), "ending capture");
  driver.check(driver.cuGraphInstantiate(&executable, graph, 0), "instantiating the graph");
  int failures = 0;
  for (int change = 0; change < 3; ++change) {
    // New values in place: v moves into k, then k into q; all have room for the smaller one.
    const AttentionTensors& t = data.tensors();
    const TensorView* const from = change == 1 ? &t.v : &t.k;
    const TensorView* const to = change == 1 ? &t.k : &t.q;
    if (change > 0) {
      std::vector<std::uint16_t> values(static_cast<std::size_t>(num_elements(to->shape)));
      const auto address = [](const TensorView& view) {
        return reinterpret_cast<cuda::CUdeviceptr>(view.data);
      };
      driver.check(
          driver.cuMemcpyDtoHAsync(values.data(), address(*from), values.size() * 2, stream),
          "reading");
      driver.check(driver.cuStreamSynchronize(stream), "reading");
      driver.check(driver.cuMemcpyHtoDAsync(address(*to), values.data(), values.size() * 2, stream),
                   "writing");
      driver.check(driver.cuStreamSynchronize(stream), "writing");
    }
    data.poison();
    driver.check(driver.cuStreamSynchronize(nullptr), "poisoning");
    driver.check(driver.cuGraphLaunch(executable, stream), "replaying");
    driver.check(driver.cuStreamSynchronize(stream), "replaying");
    const auto replayed = data.output();
    const auto errors =
        data.compare(mask.bind({p.batch, p.num_heads_q, p.seq_q, p.seq_kv}, p.alignment), 100);
    data.poison();
    plan.run(data.tensors(), nullptr);
    const bool good = replayed == data.output() && data.count_nan() == 0 &&
                      errors.frobenius < 5e-3 && errors.lse < 1e-3;
    std::printf("%s replay %d: error %.2e\n", good ? "ok " : "BAD", change, errors.frobenius);
    failures += !good;
  }
  driver.cuGraphExecDestroy(executable);
  driver.cuGraphDestroy(graph);
  driver.cuStreamDestroy(stream);
  return failures;
}

struct Check {
  const char* name;
  int (*run)(const cuda::Device&);
};
constexpr Check kChecks[] = {{"errors", check_errors},
                             {"memory", check_memory},
                             {"capture", check_capture},
                             {"replay", check_replay}};

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // nothing is lost when a check ends the program
  const std::vector<std::string> wanted(argv + 1, argv + argc);
  int passed = 0, failed = 0;
  std::string gpu = "a GPU";
  for (const Check& check : kChecks) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), check.name) == wanted.end())
      continue;
    int failures = 1;
    try {
      const cuda::Device device = cuda::Device::open();
      gpu = device.facts().name;
      failures = check.run(device);
    } catch (const std::exception& error) {
      std::printf("BAD %s: %s\n", check.name, error.what());
    }
    std::printf("== %s: %s\n", check.name, failures == 0 ? "ok" : "BAD");
    std::fflush(stdout);
    (failures == 0 ? passed : failed)++;
  }
  std::printf("%d passed, %d failed on %s\n", passed, failed, gpu.c_str());
  return failed > 0;
}

// Checks fused segments and sessions on the GPU against the interpreter, in both 16-bit types.
//   segments_gpu_check [--all] [--segments] [--sessions]; STOF_FUSE=-gemm_sm90 leaves a family out
// --all: every candidate of every segment; otherwise at most eight of a family. --segments and
// --sessions: only those. Outputs start as NaN with guards behind them, rows are odd, every kernel
// runs twice, alone and out of a graph.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <list>
#include <map>
#include <random>
#include <thread>

#include "backend/cpu/graph/interpret.h"
#include "backend/cuda/segments/segments.h"
#include "exec/cuda_session.h"
#include "graph/deferred_norm.h"
#include "stof/error.h"
#include "tests/gpu/replay.h"
#include "tests/gpu/segment_case.h"

namespace {

using namespace stof;
using cuda::CUdeviceptr;
using graph::Graph;
using graph::ValueId;

using namespace stof::check;

class SegmentCheck {
 public:
  SegmentCheck(const cuda::Device& device, Graph graph, std::vector<std::int64_t> offsets,
               std::size_t most, Tally* tally)
      : device_(device),
        graph_(std::move(graph)),
        operands_(graph_),
        batch_(batch_of(graph_, operands_.views, std::move(offsets), mask::window(24, 24))),
        most_(most),
        tally_(tally) {
    inputs_.values = operands_.views;
    inputs_.mask = batch_.mask;
    inputs_.offsets = batch_.offsets;
    values_ = interpret_graph(graph_, inputs_);
    for (const auto& [id, tensor] : values_) inputs_.values[id] = tensor.view();
    const auto problem = exec::attention_problem(graph_);
    attention_.emplace(*problem, batch_.mask, device_);
    attention_->prepare(batch_.offsets, nullptr);
    slot_ = {&*attention_, batch_.rows(), nullptr};
    for (const auto& [id, view] : inputs_.values) {
      const std::size_t bytes =
          static_cast<std::size_t>(num_elements(view.shape)) * dtype_bytes(view.dtype);
      cuda::DeviceBuffer& buffer = memory_[graph_.storage(id)];
      if (buffer.address() == 0) buffer = cuda::DeviceBuffer(bytes, "a value");
      copy_in(buffer.address(), view.data, bytes);
    }
    workspace_ = cuda::DeviceBuffer(std::size_t{32} << 20, "workspace");
  }

  /// Own products apart: a fault of theirs ends the program.
  /// `larger`: the same graph of more rows; null: none.
  void run(bool own_products, const Graph* larger) {
    own_products_ = own_products;
    larger_ = larger;
    for (int first = 0; first < graph_.num_operators(); ++first)
      for (int last = first; last < graph_.num_operators(); ++last)
        if (fusion::legality(graph_, first, last).empty())
          check(fusion::make_segment(graph_, first, last));
  }

 private:
  void check(const fusion::Segment& segment) {
    std::vector<fusion::Choice> candidates = cuda::candidates(graph_, segment, device_);
    std::erase_if(candidates, [&](const fusion::Choice& choice) {
      return !switches_.allows(choice.family) || (choice.family == "gemm_sm90") != own_products_;
    });
    if (candidates.empty()) return;
    // What was tuned for a larger batch may be asked for here: it runs, or says that it does not.
    std::vector<fusion::Choice> others;
    if (larger_ != nullptr && !own_products_)
      others = cuda::candidates(
          *larger_, fusion::make_segment(*larger_, segment.first, segment.last), device_);
    const std::vector<Tensor> expected = interpret_segment(graph_, segment, inputs_);
    std::map<std::string, std::size_t> tried;
    Error2 worst;
    int ran = 0;
    for (const fusion::Choice& choice : candidates) {
      if (++tried[choice.family] > most_) continue;
      Error2 error;
      std::string what;
      try {
        what = run_choice(segment, choice, expected, &error);
      } catch (const std::exception& failure) {
        what = failure.what();
      }
      const Error2 bounds = bounds_of(expected[0].dtype());
      if (what.empty() && (error.whole > bounds.whole || error.element > bounds.element))
        what = "wrong";
      if (!what.empty())
        std::printf("BAD %s by %s: %s, error %.1e, element %.1e\n",
                    describe(graph_, segment).c_str(), choice.text().c_str(), what.c_str(),
                    error.whole, error.element);
      tally_->count(what.empty());
      worst.whole = std::max(worst.whole, error.whole);
      worst.element = std::max(worst.element, error.element);
      ++ran;
    }
    int refused = 0;
    for (const fusion::Choice& choice : others) {
      if (choice.family != "cublaslt" || !switches_.allows(choice.family)) continue;
      Error2 error;
      std::string what;
      try {
        what = run_choice(segment, choice, expected, &error);
      } catch (const stof::Error& failure) {
        if (failure.code() != ErrorCode::kUnsupported) throw;
        ++refused;
        continue;
      }
      const bool good = what.empty() && error.whole <= bounds_of(expected[0].dtype()).whole;
      if (!good)
        std::printf("BAD %s by %s of more rows: %s, error %.1e\n",
                    describe(graph_, segment).c_str(), choice.text().c_str(), what.c_str(),
                    error.whole);
      tally_->count(good);
      ++ran;
    }
    if (refused > 0)
      std::printf("    %d of a larger batch's algorithms are refused here\n", refused);
    std::printf("ok  %-60s %3d of %3zu candidates, error %.1e, element %.1e\n",
                describe(graph_, segment).c_str(), ran, candidates.size(), worst.whole,
                worst.element);
    std::fflush(stdout);
  }

  std::string run_choice(const fusion::Segment& segment, const fusion::Choice& choice,
                         const std::vector<Tensor>& expected, Error2* error) {
    constexpr std::size_t kGuard = 512;
    cuda::SegmentBindings bindings;
    bindings.addresses.resize(graph_.values().size());
    for (const auto& [id, buffer] : memory_)
      bindings.addresses[static_cast<std::size_t>(id)] = buffer.address();
    bindings.workspace = workspace_.address();
    bindings.attention = &slot_;
    std::vector<cuda::DeviceBuffer> outputs;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      outputs.emplace_back(expected[i].bytes() + kGuard, "an output");
      bindings.addresses[static_cast<std::size_t>(graph_.storage(segment.outputs[i]))] =
          outputs[i].address();
    }
    const auto runner = make_runner(graph_, segment, choice, bindings, device_);
    const check::Replay replay([&](cuda::CUstream stream) { runner->launch(stream); });
    std::vector<std::vector<unsigned char>> before;
    for (int round = 0; round < 2; ++round) {
      for (const cuda::DeviceBuffer& output : outputs)
        driver_.check(driver_.cuMemsetD8Async(output.address(), 0xff, output.bytes(), nullptr),
                      "poisoning");
      for (std::size_t i = 0; i < outputs.size(); ++i)
        if (const ValueId id = graph_.storage(segment.outputs[i]); id != segment.outputs[i])
          copy_in(outputs[i].address(), operands_.views.at(id).data, expected[i].bytes());
      if (round == 0) {
        runner->launch(nullptr);
        driver_.check(driver_.cuStreamSynchronize(nullptr), "running a segment");
      } else {
        replay.run();
      }
      for (std::size_t i = 0; i < expected.size(); ++i) {
        std::vector<unsigned char> bytes(outputs[i].bytes());
        driver_.check(
            driver_.cuMemcpyDtoHAsync(bytes.data(), outputs[i].address(), bytes.size(), nullptr),
            "downloading");
        driver_.check(driver_.cuStreamSynchronize(nullptr), "downloading");
        for (std::size_t g = expected[i].bytes(); g < bytes.size(); ++g)
          if (bytes[g] != 0xff) return "wrote behind an output";
        if (round == 1 && bytes != before[i]) return "two runs differ";
        Tensor found(expected[i].dtype(), expected[i].shape());
        std::memcpy(found.data(), bytes.data(), found.bytes());
        const Error2 one = error_of(found, expected[i]);
        error->whole = std::max(error->whole, one.whole);
        error->element = std::max(error->element, one.element);
        before.push_back(std::move(bytes));
      }
    }
    return "";
  }

  void copy_in(CUdeviceptr to, const void* data, std::size_t bytes) const {
    driver_.check(driver_.cuMemcpyHtoDAsync(to, data, bytes, nullptr), "uploading");
    driver_.check(driver_.cuStreamSynchronize(nullptr), "uploading");
  }

  const cuda::Device& device_;
  const cuda::Driver& driver_ = cuda::Driver::instance();
  Graph graph_;
  Operands operands_;
  exec::Batch batch_;
  std::size_t most_;
  Tally* tally_;
  cpu::GraphOperands inputs_;
  cpu::GraphResults values_;
  std::optional<cuda::PackedAttention> attention_;
  cuda::AttentionSlot slot_;
  std::map<ValueId, cuda::DeviceBuffer> memory_;
  cuda::DeviceBuffer workspace_;
  exec::FuseSwitches switches_ = exec::FuseSwitches::from_environment();
  bool own_products_ = false;
  const Graph* larger_ = nullptr;
};

void check_segments(const cuda::Device& device, std::size_t most, bool own_products, Tally* tally) {
  const auto check = [&](const Graph& graph, std::vector<std::int64_t> offsets,
                         const Graph* larger = nullptr) {
    SegmentCheck(device, graph, std::move(offsets), most, tally).run(own_products, larger);
  };
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    check(bert(133, 128, 2, 256, 1, cpu::Activation::kGeluErf, dtype), {0, 70, 133});
    check(bert(40, 96, 3, 200, 1, cpu::Activation::kGeluTanh, dtype), {0, 40});
  }
  check(llama(133, 64, 1, false, DType::kBFloat16), {0, 70, 133});
  check(llama(37, 128, 1, true, DType::kFloat16), {0, 37});
  check(defer_norms(llama(133, 64, 1, false, DType::kBFloat16)).graph, {0, 70, 133});
  const auto wide = [](std::int64_t rows) {
    return bert(rows, 256, 4, 1024, 1, cpu::Activation::kRelu, DType::kBFloat16);
  };
  const Graph larger = wide(4096);
  check(wide(136), {0, 136}, &larger);
}

/// A model's sessions under one type.
class SessionCheck {
 public:
  SessionCheck(const cuda::Device& device, std::string model, DType dtype, exec::GraphOf graph_of,
               Tally* tally)
      : device_(device),
        model_(std::move(model)),
        dtype_(dtype),
        graph_of_(std::move(graph_of)),
        graph_(graph_of_(kMaxRows)),
        operands_(graph_),
        weights_(std::make_shared<const exec::CudaWeights>(device, graph_, weights_of())),
        tally_(tally) {
    for (const auto& [offsets, mask] :
         {std::pair{std::vector<std::int64_t>{0, 50, 99, 133}, mask::window(24, 24)},
          {{0, 128}, mask::all()},
          {{0, 7}, mask::causal()},
          {{0, 50, 100, 150, 200, 250, 261}, mask::bigbird(16, 1, 1, 2, 5)}}) {
      batches_.push_back(batch_of(graph_, operands_.views, offsets, mask));
      const Graph exact = graph_of_(offsets.back());
      cpu::GraphOperands inputs;
      inputs.mask = mask;
      inputs.offsets = offsets;
      for (const ValueId id : exact.of_kind(graph::ValueKind::kWeight))
        inputs.values[id] = operands_.views.at(graph_.find(exact.value(id).name));
      for (const ValueId id : exact.of_kind(graph::ValueKind::kState)) {
        const graph::Value& value = exact.value(id);
        Tensor& zeros = states_.emplace_back(Tensor(value.dtype, value.shape));
        std::memset(zeros.data(), 0, zeros.bytes());
        inputs.values[id] = std::as_const(zeros).view();
      }
      for (const auto& [name, view] : batches_.back().inputs)
        inputs.values[exact.find(name)] = view;
      cpu::GraphResults results = interpret_graph(exact, inputs);
      expected_.push_back(std::move(results.at(exact.live_outs().at(0))));
      if (batches_.size() > 1) continue;
      for (const ValueId id : exact.of_kind(graph::ValueKind::kActivation))
        if (const graph::Value& over = exact.value(exact.storage(id));
            over.kind == graph::ValueKind::kState)
          expected_states_[over.name] = std::move(results.at(id));
    }
  }

  void run() {
    check_plans();
    check_states();
    check_replay();
    check_repeated();
    check_threads();
  }

 private:
  static constexpr std::int64_t kMaxRows = 264;

  exec::WeightViews weights_of() const {
    exec::WeightViews views;
    for (const ValueId id : graph_.of_kind(graph::ValueKind::kWeight))
      views[id] = operands_.views.at(id);
    return views;
  }
  std::unique_ptr<exec::CudaSession> session(const exec::SessionOptions& options = {}) const {
    return std::make_unique<exec::CudaSession>(device_, graph_of_, weights_, options);
  }

  static Tensor download(const exec::CudaResult& result) {
    const cuda::Driver& driver = cuda::Driver::instance();
    Tensor states(result.dtype, {result.rows, result.columns});
    driver.check(
        driver.cuMemcpyDtoHAsync(states.data(), result.address, states.bytes(), result.stream),
        "downloading");
    driver.check(driver.cuStreamSynchronize(result.stream), "downloading");
    return states;
  }
  static Tensor run_on(exec::CudaSession& session, const exec::Batch& batch) {
    Tensor states;
    session.run(batch, [&](const exec::CudaResult& result) { states = download(result); });
    return states;
  }
  static bool same(const Tensor& a, const Tensor& b) {
    return a.bytes() == b.bytes() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
  }

  void report(bool good, const std::string& what, const Error2& error) {
    std::printf("%s session of %s, %s, %s: error %.1e, element %.1e\n", good ? "ok " : "BAD",
                model_.c_str(), std::string(to_string(dtype_)).c_str(), what.c_str(), error.whole,
                error.element);
    std::fflush(stdout);
    tally_->count(good);
  }

  /// About a dozen roundings a layer, two layers.
  bool close(const Error2& error) const {
    const Error2 bounds = bounds_of(dtype_);
    return error.whole <= 4 * bounds.whole && error.element <= 6 * bounds.element;
  }

  /// Random schemes, and what switches turn off.
  void check_plans() {
    std::vector<exec::SessionOptions> all(3);
    all[1].switches.fuse = false;
    all[2].switches.disabled.insert("gemm_sm90");
    std::mt19937 random(3);
    const auto [first, last] = graph_.layer_range(0);
    for (int i = 0; i < 12; ++i) {
      std::vector<int> sizes;
      for (int left = last - first + 1; left > 0; left -= sizes.back())
        sizes.push_back(std::min<int>(left, 1 + static_cast<int>(random() % 5)));
      exec::SessionOptions& options = all.emplace_back();
      options.scheme = exec::runnable_scheme(
          graph_, fusion::Scheme::from_sizes(sizes),
          [&](const Graph& graph, const fusion::Segment& segment) {
            return cuda::candidates(graph, segment, device_);
          },
          options.switches);
    }
    for (const exec::SessionOptions& options : all) {
      const auto one = session(options);
      const exec::ExecutionPlan plan = one->plan(kMaxRows);
      plan.validate();
      Error2 worst;
      for (std::size_t i = 0; i < batches_.size(); ++i) {
        const Error2 error = error_of(run_on(*one, batches_[i]), expected_[i]);
        worst.whole = std::max(worst.whole, error.whole);
        worst.element = std::max(worst.element, error.element);
      }
      report(close(worst), plan.describe(), worst);
    }
  }

  /// What a batch leaves in the caches, padding's rows not among it.
  void check_states() {
    const auto one = session();
    run_on(*one, batches_[0]);
    const cuda::Driver& driver = cuda::Driver::instance();
    for (const auto& [name, expected] : expected_states_) {
      Tensor found(expected.dtype(), expected.shape());
      driver.check(driver.cuMemcpyDtoHAsync(found.data(),
                                            reinterpret_cast<CUdeviceptr>(one->state(name).data),
                                            found.bytes(), nullptr),
                   "downloading");
      driver.check(driver.cuStreamSynchronize(nullptr), "downloading");
      const Error2 error = error_of(found, expected);
      report(close(error), name, error);
    }
  }

  /// Every batch expected again: attention planned for it alone.
  void check_repeated() {
    exec::SessionOptions options;
    options.batches_repeat = true;
    const auto one = session(options);
    Error2 worst;
    bool good = true;
    for (std::size_t i = 0; i < batches_.size(); ++i) {
      const Tensor found = run_on(*one, batches_[i]);
      good = good && same(run_on(*one, batches_[i]), found);
      const Error2 error = error_of(found, expected_[i]);
      worst.whole = std::max(worst.whole, error.whole);
      worst.element = std::max(worst.element, error.element);
    }
    report(good && close(worst), "batches that repeat", worst);
  }

  /// A batch that comes again is replayed, gives the same bits, takes no memory, and others in
  /// between do it no harm.
  void check_replay() {
    const auto one = session();
    std::vector<Tensor> first;
    for (const exec::Batch& batch : batches_) first.push_back(run_on(*one, batch));
    bool good = true;
    for (int round = 0; round < 3; ++round)
      for (std::size_t i = 0; i < batches_.size(); ++i)
        for (int again = 0; again < 2; ++again)
          good = good && same(run_on(*one, batches_[i]), first[i]);
    const std::int64_t before = device_.free_memory_bytes();
    for (std::size_t i = 0; i < batches_.size(); ++i) {
      one->replay(batches_[i], [&](const auto& launch, const exec::CudaResult& result) {
        for (int again = 0; again < 3; ++again) {
          launch();
          good = good && same(download(result), first[i]);
        }
      });
    }
    const bool kept = device_.free_memory_bytes() == before;
    report(good && kept, kept ? "replays" : "replays took memory", {});
  }

  void check_threads() {
    const std::unique_ptr<exec::CudaSession> both[] = {session(), session()};
    std::vector<Tensor> first;
    for (const exec::Batch& batch : batches_) first.push_back(run_on(*both[0], batch));
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([&, t] {
        try {
          for (int i = 0; i < 40; ++i) {
            const std::size_t which = static_cast<std::size_t>(i / 2 + t) % batches_.size();
            if (!same(run_on(*both[t % 2], batches_[which]), first[which])) ++wrong;
          }
        } catch (const std::exception& error) {
          std::printf("    thread %d: %s\n", t, error.what());
          ++wrong;
        }
      });
    for (std::thread& thread : threads) thread.join();
    report(wrong == 0, "eight threads on two sessions", {});
  }

  const cuda::Device& device_;
  std::string model_;
  DType dtype_;
  exec::GraphOf graph_of_;
  Graph graph_;
  Operands operands_;
  std::list<Tensor> states_;
  std::map<std::string, Tensor> expected_states_;  ///< after the first batch
  std::shared_ptr<const exec::CudaWeights> weights_;
  std::vector<exec::Batch> batches_;
  std::vector<Tensor> expected_;
  Tally* tally_;
};

void check_sessions(const cuda::Device& device, DType dtype, Tally* tally) {
  const auto bert_of = [dtype](std::int64_t rows) {
    return bert(rows, 128, 4, 256, 2, cpu::Activation::kGeluErf, dtype);
  };
  const auto llama_of = [dtype](std::int64_t rows) { return llama(rows, 64, 2, false, dtype); };
  SessionCheck(device, "BERT", dtype, bert_of, tally).run();
  SessionCheck(device, "LLaMA", dtype, llama_of, tally).run();
  const auto deferred_of = [&](std::int64_t rows) { return defer_norms(llama_of(rows)).graph; };
  if (dtype == DType::kBFloat16)
    SessionCheck(device, "LLaMA with deferred norms", dtype, deferred_of, tally).run();
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // nothing is lost when a check ends the program
  bool all = false, segments = true, sessions = true;
  for (int i = 1; i < argc; ++i) {
    all |= std::strcmp(argv[i], "--all") == 0;
    if (std::strcmp(argv[i], "--segments") == 0) sessions = false;
    if (std::strcmp(argv[i], "--sessions") == 0) segments = false;
  }
  Tally tally;
  try {
    const cuda::Device device = cuda::Device::open();
    if (segments) check_segments(device, all ? SIZE_MAX : 8, false, &tally);
    if (sessions)
      for (const DType dtype : {DType::kBFloat16, DType::kFloat16})
        check_sessions(device, dtype, &tally);
    if (segments) check_segments(device, all ? SIZE_MAX : 8, true, &tally);
    std::printf("%d passed, %d failed on %s\n", tally.passed, tally.failed,
                device.facts().name.c_str());
  } catch (const std::exception& error) {
    std::printf("%s\n%d passed, %d failed on a GPU\n", error.what(), tally.passed,
                tally.failed + 1);
    return 1;
  }
  return tally.failed > 0;
}

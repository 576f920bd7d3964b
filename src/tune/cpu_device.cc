#include "tune/cpu_device.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <optional>

#include "backend/cpu/cpu_features.h"
#include "backend/cpu/segments/segments.h"
#include "backend/cpu/thread_scope.h"
#include "core/check.h"
#include "exec/batch.h"
#include "fusion/initial.h"
#include "stof/system_info.h"

namespace stof::tune {
namespace {

using Clock = std::chrono::steady_clock;

/// Rounds of a measurement: as many as fit in the time, within these.
constexpr int kMinCpuRounds = 3, kMaxCpuRounds = 25;
constexpr double kRoundsSeconds = 0.12;

class CpuPrepared : public Prepared {
 public:
  CpuPrepared(const graph::Graph& graph, const fusion::Segment& segment,
              const fusion::Choice& choice, const std::vector<void*>& addresses,
              const BatchShape& batch)
      : rows_(batch.rows()) {
    cpu::SegmentBindings bindings{addresses, &slot_, &weights_};
    if (segment.family == fusion::Family::kAttention) {
      attention_ = plan_varlen_attention(*exec::attention_problem(graph), batch.mask, batch.offsets,
                                         batch.offsets);
      slot_.plan = &*attention_;
    }
    runner_ = cpu::make_runner(graph, segment, choice, bindings);
  }

  void launch() override { runner_->run(rows_); }

 private:
  std::int64_t rows_;
  cpu::AttentionSlot slot_;
  /// Packed by address, where something else may lie the next time.
  cpu::PackedWeights weights_;
  std::optional<VarlenPlan> attention_;
  std::unique_ptr<cpu::SegmentRunner> runner_;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

class CpuDevice : public Device {
 public:
  explicit CpuDevice(int num_threads) : num_threads_(num_threads), threads_(num_threads) {}

  Environment environment() const override { return cpu_environment(num_threads_); }

  std::vector<fusion::Choice> candidates(const graph::Graph& graph,
                                         const fusion::Segment& segment) override {
    return cpu::candidates(graph, segment);
  }

  fusion::Scheme untuned_scheme(const graph::Graph& graph) override {
    return exec::runnable_scheme(graph, fusion::initial_scheme(graph), cpu::candidates);
  }

  bool is_library(const std::string& family) const override { return family == "onednn"; }

  std::shared_ptr<void> allocate(std::size_t bytes) override {
    constexpr std::align_val_t kAlignment{64};
    return {::operator new(std::max<std::size_t>(1, bytes), kAlignment),
            [](void* memory) { ::operator delete(memory, kAlignment); }};
  }
  void upload(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void download(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }

  std::unique_ptr<Prepared> prepare(const graph::Graph& graph, const fusion::Segment& segment,
                                    const fusion::Choice& choice,
                                    const std::vector<void*>& addresses,
                                    const BatchShape& batch) override {
    return std::make_unique<CpuPrepared>(graph, segment, choice, addresses, batch);
  }

  void synchronize() override {}

  std::vector<double> time(const std::vector<Contender>& contenders, double seconds) override {
    const auto called = Clock::now();
    for (const Contender& contender : contenders)
      for (Prepared* launch : contender) launch->launch();  // warms clocks, code and pages
    std::vector<std::vector<double>> samples(contenders.size());
    const auto begin = Clock::now();
    for (int round = 0; round < kMaxCpuRounds; ++round) {
      const auto now = Clock::now();
      const std::chrono::duration<double> spent = now - begin, of_call = now - called;
      if (round >= kMinCpuRounds && spent.count() > kRoundsSeconds) break;
      // One more must fit; the first is about as long as the warm-up before it.
      if (round > 0 && of_call.count() * (round + 2) / (round + 1) > seconds) break;
      for (std::size_t i = 0; i < contenders.size(); ++i) {
        Prepared& launch = *contenders[i][static_cast<std::size_t>(round) % contenders[i].size()];
        const auto start = Clock::now();
        launch.launch();
        samples[i].push_back(
            std::chrono::duration<double, std::micro>(Clock::now() - start).count());
      }
    }
    std::vector<double> result;
    for (std::vector<double>& list : samples) result.push_back(median(std::move(list)));
    return result;
  }

  /// By the vector width of a core at 3.5 GHz and what its share of memory gives at best.
  fusion::MachineFacts facts() const override {
    const int threads = num_threads_ > 0 ? num_threads_ : system_info().cpu.num_threads;
    const cpu::CpuIsa isa = cpu::selected_isa();
    const double per_cycle = isa == cpu::CpuIsa::kAvx512 ? 64 : isa == cpu::CpuIsa::kAvx2 ? 32 : 8;
    fusion::MachineFacts facts;
    facts.num_sms = threads;
    facts.tflops = threads * per_cycle * 3.5e-3;
    facts.vector_tflops = facts.tflops / 4;  // additions and products that do not pair up
    facts.memory_gb_s = std::min(threads * 20.0, 200.0);
    facts.cache_gb_s = facts.memory_gb_s * 4;
    facts.cache_bytes = cache_bytes();
    facts.launch_us = 1;
    return facts;
  }

  std::int64_t cache_bytes() const override { return 16 << 20; }

 private:
  int num_threads_;
  cpu::ThreadScope threads_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(int num_threads) {
  return std::make_unique<CpuDevice>(num_threads);
}

}  // namespace stof::tune

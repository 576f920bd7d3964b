#include "tune/cuda_device.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "backend/cuda/device.h"
#include "backend/cuda/segments/segments.h"
#include "backend/cuda/stream.h"
#include "core/check.h"
#include "exec/cuda_session.h"
#include "tune/background.h"

namespace stof::tune {
namespace {

using cuda::CUdeviceptr;

/// A replay lasts at least so long, so that its launch and its events do not show.
constexpr double kReplayUs = 200;
constexpr int kMaxUnrolled = 64;
/// Rounds of a measurement: as many as fit in the time, within these.
constexpr int kMinRounds = 7, kMaxRounds = 31;
constexpr double kRoundsUs = 40e3;
/// Work before the first measurement, so that clocks have settled.
constexpr double kWarmUpUs = 200e3;
/// Rounds of whole passes reach the card's power limit, where clocks tell more of what ran just
/// before than of what runs: the card rests before each, and another contender begins each.
constexpr double kLongRoundUs = 2e3;
constexpr std::chrono::milliseconds kPause{50};

/// Threads that compile ahead; one core is left for measuring.
int num_compilers() {
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(cores - 1, 1, 16);
}

CUdeviceptr address_of(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

class CudaPrepared : public Prepared {
 public:
  CudaPrepared(const graph::Graph& graph, const fusion::Segment& segment,
               const fusion::Choice& choice, const std::vector<void*>& addresses,
               const BatchShape& batch, const cuda::Device& device, const cuda::Stream& stream)
      : stream_(stream), workspace_(cuda::workspace_bytes(choice), "the products' workspace") {
    cuda::SegmentBindings bindings;
    for (const void* address : addresses) bindings.addresses.push_back(address_of(address));
    bindings.workspace = workspace_.address();
    bindings.attention = &slot_;
    if (segment.family == fusion::Family::kAttention) {
      attention_.emplace(*exec::attention_problem(graph), batch.mask, batch.offsets,
                         device.facts().ordinal);
      slot_.rows = batch.rows();
      slot_.batch = &*attention_;
    }
    runner_ = make_runner(graph, segment, choice, bindings, device);
  }

  void launch() override { runner_->launch(stream_.handle()); }

 private:
  const cuda::Stream& stream_;
  cuda::DeviceBuffer workspace_;
  cuda::AttentionSlot slot_;
  std::optional<cuda::BatchAttention> attention_;
  std::unique_ptr<cuda::SegmentRunner> runner_;
};

/// Two events around what is timed.
class Stopwatch {
 public:
  Stopwatch() {
    driver_.check(driver_.cuEventCreate(&begin_, 0), "creating an event");
    driver_.check(driver_.cuEventCreate(&end_, 0), "creating an event");
  }
  ~Stopwatch() {
    if (begin_ != nullptr) driver_.cuEventDestroy(begin_);
    if (end_ != nullptr) driver_.cuEventDestroy(end_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  double us(const cuda::StreamGraph& graph, const cuda::Stream& stream) {
    driver_.check(driver_.cuEventRecord(begin_, stream.handle()), "recording");
    graph.launch(stream.handle());
    driver_.check(driver_.cuEventRecord(end_, stream.handle()), "recording");
    driver_.check(driver_.cuEventSynchronize(end_), "running what is timed");
    float ms = 0;
    driver_.check(driver_.cuEventElapsedTime(&ms, begin_, end_), "reading a time");
    return ms * 1e3;
  }

 private:
  const cuda::Driver& driver_ = cuda::Driver::instance();
  cuda::CUevent begin_ = nullptr, end_ = nullptr;
};

class CudaDevice : public Device {
 public:
  explicit CudaDevice(int ordinal) : ordinal_(ordinal), device_(cuda::Device::open(ordinal)) {}

  Environment environment() const override { return gpu_environment(ordinal_); }

  std::vector<fusion::Choice> candidates(const graph::Graph& graph,
                                         const fusion::Segment& segment) override {
    try {
      return cuda::candidates(graph, segment, device_);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kNotFound) throw;
      // Without cuBLASLt, by what there is of ours.
      return exec::first_cuda_candidates(graph, segment, device_,
                                         [](const std::string&) { return true; });
    }
  }

  fusion::Scheme untuned_scheme(const graph::Graph& graph) override {
    return exec::untuned_cuda_scheme(graph, device_, {});
  }

  void expect(const graph::Graph& graph, const fusion::Segment& segment,
              const std::vector<fusion::Choice>& choices) override {
    if (segment.family == fusion::Family::kAttention) return;  // compiled for the mask at hand
    for (const fusion::Choice& choice : choices)
      background_.begin(job_name(segment, choice), [this, &graph, segment, choice] {
        try {
          device_.use();
          // Kernels depend on shapes and strides; any address will do to compile and load them.
          cuda::SegmentBindings bindings;
          bindings.addresses.assign(graph.values().size(), CUdeviceptr{1} << 20);
          bindings.workspace = CUdeviceptr{1} << 20;
          make_runner(graph, segment, choice, bindings, device_);
        } catch (const std::exception&) {
          // Said when the candidate's turn comes.
        }
      });
  }

  bool is_library(const std::string& family) const override { return family == "cublaslt"; }

  std::shared_ptr<void> allocate(std::size_t bytes) override {
    auto buffer = std::make_shared<cuda::DeviceBuffer>(std::max<std::size_t>(1, bytes),
                                                       "a measurement's values");
    return {buffer, cuda::device_pointer(buffer->address())};
  }
  void upload(void* to, const void* from, std::size_t bytes) override {
    driver_.check(driver_.cuMemcpyHtoDAsync(address_of(to), from, bytes, stream_.handle()),
                  "uploading values");
    stream_.wait("uploading values");
  }
  void download(void* to, const void* from, std::size_t bytes) override {
    driver_.check(driver_.cuMemcpyDtoHAsync(to, address_of(from), bytes, stream_.handle()),
                  "downloading values");
    stream_.wait("downloading values");
  }

  std::unique_ptr<Prepared> prepare(const graph::Graph& graph, const fusion::Segment& segment,
                                    const fusion::Choice& choice,
                                    const std::vector<void*>& addresses,
                                    const BatchShape& batch) override {
    background_.settle(job_name(segment, choice));
    return std::make_unique<CudaPrepared>(graph, segment, choice, addresses, batch, device_,
                                          stream_);
  }

  void synchronize() override { stream_.wait("running a candidate"); }

  std::vector<double> time(const std::vector<Contender>& contenders, double seconds) override {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    Stopwatch stopwatch;
    struct Timed {
      cuda::StreamGraph graph;
      int launches = 0;
      std::vector<double> us;
    };
    std::vector<Timed> all;
    double round_us = 0;
    for (const Contender& contender : contenders) {
      // Once as it is: libraries load kernels when they first run, which a capture does not allow.
      for (Prepared* launch : contender) launch->launch();
      stream_.wait("running a candidate");
      const int sets = static_cast<int>(contender.size());
      Timed timed{captured(contender, sets), sets, {}};
      const double one = stopwatch.us(timed.graph, stream_) / sets;
      const int wanted = std::clamp(static_cast<int>(kReplayUs / std::max(one, 0.5)), 1,
                                    std::max(sets, kMaxUnrolled));
      if (wanted > sets) {
        timed.launches = (wanted + sets - 1) / sets * sets;
        timed.graph = captured(contender, timed.launches);
      }
      round_us += one * timed.launches;
      all.push_back(std::move(timed));
    }
    for (; warmed_us_ < kWarmUpUs; warmed_us_ += stopwatch.us(all.front().graph, stream_)) continue;
    const int rounds =
        std::clamp(static_cast<int>(kRoundsUs / std::max(round_us, 1.0)), kMinRounds, kMaxRounds);
    for (int round = 0; round < rounds; ++round) {
      if (round > 0 && std::chrono::duration<double>(Clock::now() - begin).count() > seconds) break;
      if (round_us > kLongRoundUs) std::this_thread::sleep_for(kPause);
      for (std::size_t i = 0; i < all.size(); ++i) {
        Timed& timed = all[(i + static_cast<std::size_t>(round)) % all.size()];
        timed.us.push_back(stopwatch.us(timed.graph, stream_) / timed.launches);
      }
    }
    std::vector<double> medians;
    for (Timed& timed : all) {
      const auto middle = timed.us.begin() + static_cast<std::ptrdiff_t>(timed.us.size() / 2);
      std::nth_element(timed.us.begin(), middle, timed.us.end());
      medians.push_back(*middle);
    }
    return medians;
  }

  /// Scaled from the one GPU whose figures were measured.
  fusion::MachineFacts facts() const override {
    fusion::MachineFacts facts = fusion::h200_facts();
    const double share = static_cast<double>(device_.facts().num_sms) / facts.num_sms;
    facts.num_sms = device_.facts().num_sms;
    facts.tflops *= share;
    facts.vector_tflops *= share;
    facts.cache_bytes = device_.facts().l2_bytes;
    return facts;
  }

  std::int64_t cache_bytes() const override { return device_.facts().l2_bytes; }

 private:
  cuda::StreamGraph captured(const Contender& contender, int launches) {
    return cuda::StreamGraph::capture(stream_.handle(), [&] {
      for (int i = 0; i < launches; ++i)
        contender[static_cast<std::size_t>(i) % contender.size()]->launch();
    });
  }

  static std::string job_name(const fusion::Segment& segment, const fusion::Choice& choice) {
    return fmt::format("{}-{} {}", segment.first, segment.last, choice.text());
  }

  int ordinal_;
  cuda::Device device_;
  const cuda::Driver& driver_ = cuda::Driver::instance();
  cuda::Stream stream_;
  double warmed_us_ = 0;
  Background background_{num_compilers()};  ///< last: its threads use what is above
};

}  // namespace

std::unique_ptr<Device> make_cuda_device(int ordinal) {
  return std::make_unique<CudaDevice>(ordinal);
}

}  // namespace stof::tune

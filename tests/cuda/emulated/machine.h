#pragma once
// One block of a CUDA grid on the CPU, in lockstep where the source says so: every thread is a
// fiber, barriers and warp-wide instructions switch between them. What the device leaves undefined
// is made to hurt: shared memory starts as NaN, and asynchronous copies land as late or as early as
// they may. For kernels that use only the wrappers in ptx/ beside this file.

#include <ucontext.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulated {

/// When an asynchronous copy writes: at the wait that makes it visible, or at once.
enum class CopiesLand { kLate, kEarly };

constexpr std::uint32_t kSharedBase = 1024;  // as on the device, address 0 is not the block's
constexpr int kWarp = 32;

struct Copy {
  std::uint32_t target;
  const void* source;
  std::uint32_t size, bytes;  // bytes of size are read, the rest is zero
};

class Machine {
 public:
  /// Runs `body` on `threads` fibers until all return. Throws when none can go on.
  void run(int threads, unsigned char* shared, std::size_t shared_bytes, CopiesLand copies,
           std::function<void()> body) {
    body_ = std::move(body);
    shared_ = shared;
    shared_bytes_ = shared_bytes;
    copies_ = copies;
    std::memset(shared, 0xff, shared_bytes);
    block_ = {};
    for (Barrier& barrier : named_) barrier = {};
    warps_.assign(static_cast<std::size_t>(threads / kWarp), {});
    fibers_.clear();
    for (int i = 0; i < threads; ++i) fibers_.push_back(std::make_unique<Fiber>());
    for (auto& fiber : fibers_) {
      getcontext(&fiber->context);
      fiber->stack.resize(kStackBytes);
      fiber->context.uc_stack.ss_sp = fiber->stack.data();
      fiber->context.uc_stack.ss_size = fiber->stack.size();
      fiber->context.uc_link = &scheduler_;
      makecontext(&fiber->context, &Machine::start, 0);
    }
    // Another thread goes first each time: nothing may depend on the order.
    std::mt19937 random(1);
    int left = threads;
    for (long round = 0; left > 0; ++round) {
      if (round > kMaxRounds) throw std::runtime_error("the block hangs");
      const int first = static_cast<int>(random() % static_cast<unsigned>(threads));
      for (int i = 0; i < threads; ++i) {
        current_ = (first + i) % threads;
        if (here().done) continue;
        enter();
        left -= here().done;
        if (!error_.empty()) throw std::runtime_error(error_);
      }
    }
  }

  unsigned thread() const { return static_cast<unsigned>(current_); }
  void sync_block() { arrive(block_, static_cast<int>(fibers_.size())); }
  void sync_some(int id, int threads) { arrive(named_[id], threads); }
  void sync_warp() { arrive(warps_[thread() / kWarp].barrier, kWarp); }

  /// What every lane of the warp gives, once all have given it.
  using Words = std::uint32_t[kWarp][9];
  const Words& exchange(const std::uint32_t* words, int count) {
    Words& all = warps_[thread() / kWarp].words;
    std::memcpy(all[thread() % kWarp], words, static_cast<std::size_t>(count) * 4);
    sync_warp();
    return all;
  }

  unsigned char* at(std::uint32_t address, std::size_t bytes) {
    if (address % bytes != 0) fail("misaligned shared-memory access");
    if (address < kSharedBase || address - kSharedBase + bytes > shared_bytes_)
      fail("access outside shared memory");
    return shared_ + (address - kSharedBase);
  }
  std::uint32_t address_of(const void* pointer) const {
    return static_cast<std::uint32_t>(static_cast<const unsigned char*>(pointer) - shared_) +
           kSharedBase;
  }

  void copy(const Copy& copy) {
    at(copy.target, copy.size);
    if (copy.bytes > 0 && reinterpret_cast<std::uintptr_t>(copy.source) % copy.size != 0)
      fail("misaligned global access");
    if (copies_ == CopiesLand::kEarly)
      land(copy);
    else
      here().open.push_back(copy);
  }
  void commit() {
    here().groups.push_back(std::move(here().open));
    here().open.clear();
  }
  void wait(std::size_t pending) {
    while (here().groups.size() > pending) {
      for (const Copy& copy : here().groups.front()) land(copy);
      here().groups.pop_front();
    }
  }

 private:
  static constexpr std::size_t kStackBytes = 256 * 1024;
  static constexpr long kMaxRounds = 2'000'000;

  struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    bool done = false;
    std::vector<Copy> open;
    std::deque<std::vector<Copy>> groups;
    void* sanitizer_stack = nullptr;
  };
  struct Barrier {
    int arrived = 0;
    unsigned generation = 0;
  };
  struct Warp {
    Barrier barrier;
    Words words;
  };

  Fiber& here() { return *fibers_[static_cast<std::size_t>(current_)]; }

  void land(const Copy& copy) {
    unsigned char bytes[16] = {};
    if (copy.bytes > 0) std::memcpy(bytes, copy.source, copy.bytes);
    std::memcpy(at(copy.target, copy.size), bytes, copy.size);
  }

  void arrive(Barrier& barrier, int count) {
    const unsigned generation = barrier.generation;
    if (++barrier.arrived == count) {
      barrier.arrived = 0;
      ++barrier.generation;
      return;
    }
    while (barrier.generation == generation) leave(/*for_good=*/false);
  }

  /// Exceptions cannot cross fibers: the scheduler throws for them.
  void fail(const char* what) {
    error_ = what;
    leave(/*for_good=*/true);
  }

  void enter() {
    Fiber& fiber = here();
#if defined(__SANITIZE_ADDRESS__)
    void* mine = nullptr;
    __sanitizer_start_switch_fiber(&mine, fiber.stack.data(), fiber.stack.size());
    swapcontext(&scheduler_, &fiber.context);
    __sanitizer_finish_switch_fiber(mine, nullptr, nullptr);
#else
    swapcontext(&scheduler_, &fiber.context);
#endif
  }
  void leave(bool for_good) {
    Fiber& fiber = here();
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(for_good ? nullptr : &fiber.sanitizer_stack, scheduler_stack_,
                                   scheduler_stack_bytes_);
    swapcontext(&fiber.context, &scheduler_);
    __sanitizer_finish_switch_fiber(fiber.sanitizer_stack, nullptr, nullptr);
#else
    static_cast<void>(for_good);
    swapcontext(&fiber.context, &scheduler_);
#endif
  }
  static void start();

  std::function<void()> body_;
  unsigned char* shared_ = nullptr;
  std::size_t shared_bytes_ = 0;
  CopiesLand copies_ = CopiesLand::kLate;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Warp> warps_;
  Barrier block_, named_[16];
  ucontext_t scheduler_;
  const void* scheduler_stack_ = nullptr;
  std::size_t scheduler_stack_bytes_ = 0;
  int current_ = 0;
  std::string error_;
};

inline Machine machine;

inline void Machine::start() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &machine.scheduler_stack_,
                                  &machine.scheduler_stack_bytes_);
#endif
  machine.body_();
  machine.here().done = true;
  machine.leave(/*for_good=*/true);
}

}  // namespace emulated

// The language extensions and built-ins of CUDA that the kernels use.
#define __device__
#define __global__
#define __shared__
#define __forceinline__ inline
#define __align__(bytes) __attribute__((aligned(bytes)))

struct uint4 {
  unsigned x, y, z, w;
};
struct uint2 {
  unsigned x, y;
};
struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

struct ThreadIndex {
  struct {
    operator unsigned() const { return emulated::machine.thread(); }
  } x;
};
struct GridIndex {
  unsigned x = 0;
};
inline ThreadIndex threadIdx;
inline GridIndex blockIdx, gridDim;

inline void __syncthreads() { emulated::machine.sync_block(); }
inline void __threadfence() {}
inline float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline float __int_as_float(int bits) { return __uint_as_float(static_cast<unsigned>(bits)); }
inline unsigned atomicAdd(unsigned* address, unsigned value) {
  const unsigned before = *address;
  *address += value;
  return before;
}
inline unsigned atomicOr(unsigned* address, unsigned value) {
  const unsigned before = *address;
  *address |= value;
  return before;
}
inline unsigned long long atomicMin(unsigned long long* address, unsigned long long value) {
  const unsigned long long before = *address;
  if (value < before) *address = value;
  return before;
}
inline int __popc(unsigned value) { return __builtin_popcount(value); }
/// The value that lane `from` of the warp gives; 4 or 8 bytes.
template <class T>
T emulate_shuffle(T value, unsigned from) {
  std::uint32_t words[2];
  std::memcpy(words, &value, sizeof value);
  const auto& all = emulated::machine.exchange(words, sizeof value / 4);
  std::memcpy(&value, all[from % 32], sizeof value);
  emulated::machine.sync_warp();
  return value;
}
template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  return emulate_shuffle(value, static_cast<unsigned>(lane));
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int lane_mask) {
  return emulate_shuffle(value,
                         (emulated::machine.thread() % 32) ^ static_cast<unsigned>(lane_mask));
}
template <class T>
T __shfl_up_sync(unsigned, T value, unsigned delta) {
  const unsigned lane = emulated::machine.thread() % 32;
  return emulate_shuffle(value, lane < delta ? lane : lane - delta);
}
inline unsigned __ballot_sync(unsigned, bool predicate) {
  const std::uint32_t word = predicate;
  const auto& words = emulated::machine.exchange(&word, 1);
  unsigned bits = 0;
  for (int lane = 0; lane < 32; ++lane)  // g++ 12 with -fsanitize miscompiles (x ? 1 : 0) << lane
    if (words[lane][0] != 0) bits |= 1u << lane;
  emulated::machine.sync_warp();
  return bits;
}
inline int __any_sync(unsigned mask, bool predicate) { return __ballot_sync(mask, predicate) != 0; }
inline void __syncwarp() { emulated::machine.sync_warp(); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline float __fdividef(float a, float b) { return a / b; }
template <class T>
T __ldcg(const T* address) {
  return *address;
}
template <class T>
T min(T a, T b) {
  return b < a ? b : a;
}

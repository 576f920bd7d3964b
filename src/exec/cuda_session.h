#pragma once
// A model on an NVIDIA GPU, in float16 or bfloat16.

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backend/cuda/attention/batch_attention.h"
#include "backend/cuda/attention/cached_attention.h"
#include "backend/cuda/attention/packed_attention.h"
#include "backend/cuda/attention/span_attention.h"
#include "backend/cuda/device.h"
#include "backend/cuda/segments/segments.h"
#include "backend/cuda/stream.h"
#include "exec/batch.h"

namespace stof::exec {

/// Weights in device memory, uploaded once and shared by sessions. Immutable.
class CudaWeights {
 public:
  /// `views` are of that graph; their memory is read now. Throws OutOfMemory, what check_weights()
  /// does, or Unsupported naming a float16 weight that overflowed.
  CudaWeights(const cuda::Device& device, const graph::Graph& graph, const WeightViews& views);

  /// Sets the addresses of the graph's weights, found by name.
  void bind(const graph::Graph& graph, std::vector<cuda::CUdeviceptr>& addresses) const;

 private:
  cuda::DeviceBuffer memory_;
  std::map<std::string, cuda::CUdeviceptr> addresses_;
};

/// States of graphs in device memory, zeros at first, by name: one memory for all batches, and for
/// all sessions that share it. Safe from several threads; what the states hold is not guarded: a
/// session waits for what another one stores.
class CudaStates {
 public:
  /// Of all states of the graph. Throws InvalidArgument where one has another shape than before.
  std::map<std::string, cuda::CUdeviceptr> of(const graph::Graph& graph);
  /// Throws InvalidArgument for a name that is none of a state's.
  MutableTensorView state(const std::string& name);
  /// Rows from .. from + count of every state to `to` and on, which is below `from`. Asynchronous.
  void move_rows(std::int64_t to, std::int64_t from, std::int64_t count, cuda::CUstream stream);

 private:
  struct State {
    cuda::DeviceBuffer memory;
    DType dtype;
    Dims shape;
  };
  std::mutex mutex_;
  std::map<std::string, State> states_;  ///< guarded by mutex_
};

/// cuda::first_candidates() of the families that are allowed, cuBLASLt's only where it is
/// installed.
std::vector<fusion::Choice> first_cuda_candidates(const graph::Graph& graph,
                                                  const fusion::Segment& segment,
                                                  const cuda::Device& device, const Allows& allows);

/// The scheme that runs untuned: on Hopper every product with all that follows it but norms, else
/// the initial one; as far as it runs.
fusion::Scheme untuned_cuda_scheme(const graph::Graph& graph, const cuda::Device& device,
                                   const FuseSwitches& switches);

/// The graph's first result, in device memory until the next run: elements [rows, columns], of the
/// rows that it picks.
struct CudaResult {
  cuda::CUdeviceptr address = 0;
  DType dtype = DType::kFloat16;
  std::int64_t rows = 0, columns = 0;
  cuda::CUstream stream = nullptr;  ///< on which it is being computed
};

/// One stream with the memory of the largest batch so far. Sizes are prepared (kernels compiled and
/// bound) when a batch first has about that many rows (bucket_rows()), lengths when they first come
/// under a mask. A batch that comes twice in a row with the same lengths and mask is captured into
/// a CUDA graph, which later ones replay. All other batches allocate and compile nothing. Safe from
/// several threads, which wait for each other; sessions of their own run at once and may share
/// weights.
class CudaSession {
 public:
  /// `states`: those of another session's graph that this one's reads or stores to; null: own ones.
  CudaSession(const cuda::Device& device, GraphOf graph_of,
              std::shared_ptr<const CudaWeights> weights, SessionOptions options = {},
              std::shared_ptr<CudaStates> states = nullptr);
  ~CudaSession();

  /// Calls `finish` with the result once all is enqueued; it must wait for what it reads. Throws
  /// what check_batch() does.
  void run(const Batch& batch, const std::function<void(const CudaResult&)>& finish,
           RunTiming* timing = nullptr);

  /// Everything that a run of the batch needs, and the batch itself uploaded; then calls
  /// `replayed(launch)`, where launch(stream) enqueues the whole pass as one CUDA graph on the
  /// session's stream.
  void replay(const Batch& batch, const std::function<void(const std::function<void()>& launch,
                                                           const CudaResult& result)>& replayed);

  /// Compiles and loads what batches of about so many rows need.
  void prepare(std::int64_t rows);

  /// What a batch of that many rows is run by.
  ExecutionPlan plan(std::int64_t rows) const;

  /// A state of the graph, in device memory, zeros before the first run. Throws InvalidArgument
  /// for a name that is none of a state's.
  MutableTensorView state(const std::string& name);

  /// Rows from .. from + count of every state to `to` and on, which is below `from`; in the order
  /// of the runs before and after.
  void move_state_rows(std::int64_t to, std::int64_t from, std::int64_t count);

  const cuda::Device& device() const { return device_; }

 private:
  struct Prepared;
  struct Captured;
  Prepared& prepared(std::int64_t rows);
  /// By mask of the batch, likewise below.
  using Slots = std::vector<cuda::AttentionSlot>;
  /// Of graphs whose attention reads caches: the batch's plans, with its pages uploaded; else none.
  /// What the decode kernel does not take is planned for the batch alone, into spans_.
  Slots cached(const Prepared& prepared, const Batch& batch);
  Slots packed(const Prepared& prepared, const Batch& batch);
  void upload(const Prepared& prepared, const Batch& batch);
  void launch(const Prepared& prepared, std::int64_t rows) const;
  Captured& captured(Prepared& prepared, const Batch& batch, const std::string& key, Slots cached);
  CudaResult result_of(const Prepared& prepared, const Batch& batch) const;

  cuda::Device device_;
  GraphOf graph_of_;
  std::shared_ptr<const CudaWeights> weights_;
  SessionOptions options_;
  std::shared_ptr<CudaStates> states_;

  std::mutex mutex_;  ///< guards all below
  cuda::Stream stream_;
  cuda::DeviceBuffer arena_, workspace_;
  std::map<std::string, cuda::DeviceBuffer> inputs_;  ///< by name, for the largest batch so far
  std::int64_t input_rows_ = 0;
  std::map<std::int64_t, std::unique_ptr<Prepared>> prepared_;  ///< by bucket
  std::map<std::string, cuda::PackedAttention> attention_;      ///< by mask and kind
  std::map<bool, cuda::CachedAttention> cached_attention_;      ///< by AttentionKind::cross
  std::list<cuda::SpanAttention> spans_;                        ///< of the last batch
  std::list<cuda::BatchAttention> biased_;                      ///< likewise, with a position bias
  std::list<std::unique_ptr<Captured>> captured_;               ///< used last comes first
  std::string last_key_;                                        ///< of the batch before
};

}  // namespace stof::exec

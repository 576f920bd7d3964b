#pragma once
// A model on the CPU, in float32.

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/cpu/segments/segments.h"
#include "exec/batch.h"

namespace stof::exec {

/// Weights where they are, packed for products as these come. Shared by sessions; safe from several
/// threads.
class CpuWeights {
 public:
  /// `views` are of that graph, and their memory outlives this. Throws what check_weights() does.
  CpuWeights(const graph::Graph& graph, const WeightViews& views);

  /// Sets the addresses of the graph's weights, found by name.
  void bind(const graph::Graph& graph, std::vector<void*>& addresses) const;
  cpu::PackedWeights& packed() { return packed_; }

  /// Packs each weight that products of the graph alone read, and calls done(weight): its memory
  /// may go then. Before the first session; these take no choice that reads weights as they are.
  void pack(const graph::Graph& graph, const std::function<void(graph::ValueId)>& done);

 private:
  std::map<std::string, const void*> addresses_;
  cpu::PackedWeights packed_;
};

/// States of graphs, zeros at first, by name: one memory for all batches, and for all sessions that
/// share it. Safe from several threads; what the states hold is not guarded.
class CpuStates {
 public:
  /// Of all states of the graph. Throws InvalidArgument where one has another shape than before.
  std::map<std::string, void*> of(const graph::Graph& graph);
  /// Throws InvalidArgument for a name that is none of a state's.
  MutableTensorView state(const std::string& name);
  /// Rows from .. from + count of every state to `to` and on, which is below `from`.
  void move_rows(std::int64_t to, std::int64_t from, std::int64_t count);

 private:
  std::mutex mutex_;
  std::map<std::string, Tensor> states_;  ///< guarded by mutex_
};

/// Safe from several threads, which run at once. What a number of rows needs is kept for the next
/// batch of about as many (bucket_rows()).
class CpuSession {
 public:
  /// `states`: those of another session's graph that this one's reads or stores to; null: own ones.
  CpuSession(GraphOf graph_of, std::shared_ptr<CpuWeights> weights, SessionOptions options = {},
             std::shared_ptr<CpuStates> states = nullptr);
  ~CpuSession();

  /// The graph's first result, [rows, columns], of the rows that it picks. Uses the threads of the
  /// calling thread's ThreadScope. Throws what check_batch() and plan_varlen_attention() do.
  Tensor run(const Batch& batch, RunTiming* timing = nullptr);

  /// What a batch of that many rows is run by.
  ExecutionPlan plan(std::int64_t rows) const;

  /// A state of the graph, zeros before the first run: one memory for all batches. Who runs several
  /// at once keeps their slots apart. Throws InvalidArgument for a name that is none of a state's.
  MutableTensorView state(const std::string& name);

  /// Rows from .. from + count of every state to `to` and on, which is below `from`; between runs.
  void move_state_rows(std::int64_t to, std::int64_t from, std::int64_t count);

 private:
  struct Prepared;
  std::unique_ptr<Prepared> take(std::int64_t rows);

  GraphOf graph_of_;
  std::shared_ptr<CpuWeights> weights_;
  SessionOptions options_;
  std::shared_ptr<CpuStates> states_;
  std::mutex mutex_;
  std::list<std::unique_ptr<Prepared>> idle_;  ///< guarded by mutex_; used last comes first
};

}  // namespace stof::exec

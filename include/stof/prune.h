#pragma once
// Pruners: masks chosen at run time from queries and keys.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "stof/mask.h"
#include "stof/tensor.h"

namespace stof::mask {

/// How a head's mask is chosen; docs/pruning.md has the formulas.
enum class PruneMethod : std::uint8_t {
  kNm,         ///< N of M neighbouring keys, those of the largest scores (DFSS: Chen et al. 2022,
               ///< arXiv 2203.00091)
  kBlockTopK,  ///< as many key blocks for each query block, those of the largest pooled scores
  kMass,       ///< key blocks until their share of the softmax is reached, under a cap
  kVerticalSlash,  ///< columns and block diagonals that hold most (MInference: Jiang et al. 2024,
                   ///< arXiv 2407.02490)
};

/// "nm", "block_topk", "mass", "vertical_slash".
const char* to_string(PruneMethod method);

/// What a block's queries, or keys, are made one vector by: element by element.
enum class PrunePooling : std::uint8_t { kMean, kMax };

/// Which queries a vertical-slash pruner looks at.
enum class PruneProbes : std::uint8_t {
  kSpread,  ///< spread evenly, the last one among them: what they attend to is a fair sample
  kLast,    ///< the last ones, which see all keys of a causal mask; MInference's
};

/// A pruner of one head. Each method reads the fields that are named for it, and `keep`.
struct PruneSettings {
  PruneMethod method = PruneMethod::kBlockTopK;
  /// The knob: 0 prunes as much as the method can, 1 nothing. kNm: N / M. kBlockTopK and
  /// kVerticalSlash: the share of what the base mask leaves. kMass: the share of the softmax.
  double keep = 0.5;
  std::int64_t group = 4;                         ///< kNm: M, 2 to 64
  std::int64_t block = 64;                        ///< others: tokens a side of a block, 1 to 4096
  PrunePooling pooling = PrunePooling::kMean;     ///< kBlockTopK, kMass
  std::int64_t sink_blocks = 1;                   ///< not kNm: first key blocks that stay
  std::int64_t local_blocks = 1;                  ///< not kNm: 1: the diagonal stays; n: also n - 1
                                                  ///< blocks to each side of it; 0: none must
  double balance = 1.25;                          ///< kMass: fullest row / mean row, at least 1
  std::int64_t probes = 64;                       ///< kVerticalSlash: queries looked at
  PruneProbes probe_rows = PruneProbes::kSpread;  ///< kVerticalSlash

  /// kNm: N, max(1, ceil(keep * group)).
  std::int64_t kept_of_group() const;
  /// Throws InvalidArgument naming the field, what was expected and got.
  void validate() const;
  /// Canonical text, read back by Pruner::parse().
  std::string to_text() const;
  bool operator==(const PruneSettings&) const = default;
};

/// Settings of all heads, or of each query head.
struct Pruner {
  std::vector<PruneSettings> heads{PruneSettings{}};

  /// Reads one of
  ///   nm(n, m)
  ///   block_topk(keep, block=64, pool=mean|max, sinks=1, local=1)
  ///   mass(keep, block=64, pool=mean|max, sinks=1, local=1, balance=1.25)
  ///   vertical_slash(keep, block=64, sinks=1, local=1, probes=64, rows=spread|last)
  ///   per_head(SETTINGS, SETTINGS, ...)
  /// with arguments by place or by name. Throws InvalidArgument with a caret.
  static Pruner parse(std::string_view text);
  std::string to_text() const;
  /// The same with every head's knob at `keep`.
  Pruner with_keep(double keep) const;
  /// Throws InvalidArgument naming head and field, or where there are neither 1 nor num_heads.
  void validate(std::int64_t num_heads) const;
  bool operator==(const Pruner&) const = default;
};

/// What a pruner chooses from. Float32 views with any strides but a unit last one.
struct PruneInput {
  TensorView q;     ///< [batch, num_heads_q, seq_q, head_dim]
  TensorView k;     ///< [batch, num_heads_kv, seq_kv, head_dim]; num_heads_kv divides num_heads_q
  float scale = 0;  ///< of q k^T; 0: 1/sqrt(head_dim)
  Mask base;        ///< only pairs that it shows are chosen from
  Alignment alignment = Alignment::kTopLeft;
};

/// What a row's counts are counts of.
enum class PruneUnit : std::uint8_t {
  kKeys,         ///< kNm: keys of a query
  kKeyBlocks,    ///< kBlockTopK, kMass: key blocks of a query block
  kKeysOfBlock,  ///< kVerticalSlash: keys that the queries of a block share
};

/// "keys per query", "key blocks per query block", "keys per query block".
const char* to_string(PruneUnit unit);

/// What each row of one (batch entry, head) keeps, and how evenly.
struct PruneRows {
  std::int64_t batch = 0, head = 0;
  PruneUnit unit = PruneUnit::kKeys;
  std::vector<std::int64_t> kept;     ///< by query, or by query block
  std::vector<std::int64_t> visible;  ///< what there was to choose from

  /// Kept of what was visible, over all rows; 1 where nothing was.
  double kept_fraction() const;
  /// Of rows that see something: the fullest over the mean; 1 where there is none.
  double imbalance() const;
};

struct PruneReport {
  std::vector<PruneRows> heads;  ///< [batch, num_heads_q]

  double kept_fraction() const;  ///< mean over heads
  double imbalance() const;      ///< the worst head's
  /// One line.
  std::string describe() const;
  /// Each head with unit, kept fraction, fewest, mean and most of a row, imbalance.
  std::string to_json() const;
};

struct PrunedMask {
  Mask mask;  ///< bound; for attention, plans and files like any other
  ScoreShape shape;
  Alignment alignment = Alignment::kTopLeft;
  PruneReport report;
};

/// Chooses. Scores are scale * q.k, accumulated in double and rounded to float32; equal ones are
/// taken in the order of their keys. A NaN counts as less than -inf: it is taken last. The same for
/// every number of threads (0: all cores). Throws InvalidArgument naming the tensor or field.
PrunedMask prune(const PruneInput& input, const Pruner& pruner, int num_threads = 0);

/// Pruning of a model's attention: each layer under what the pruner leaves of its mask, chosen from
/// the layer's own queries and keys whenever it runs.
struct PruneOptions {
  Pruner pruner;
  /// Called after each choice: layer after layer, of each the sequences of the batch.
  std::function<void(const PrunedMask&)> on_pruned = {};
};

}  // namespace stof::mask

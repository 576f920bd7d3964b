#pragma once
// A cycle and energy model of attention on tensor cores: as they are, with 2:4 sparse operands, and
// with an extension that does not exist. docs/simulator.md has the formulas.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stof/block_mask.h"

namespace stof::simulate {

/// What an instruction's B operand comes from.
enum class Operands : std::uint8_t {
  kShared,     ///< shared memory, read once for the 64 rows of four tensor cores (wgmma)
  kRegisters,  ///< the register file of each tensor core, 16 rows at a time (mma)
};

/// What tensor cores can do.
enum class Mode : std::uint8_t {
  kDense,      ///< tiles that hold a pair are computed whole
  kSparse24,   ///< P V of steps with at most 2 of 4 neighbouring keys at half the work, today's 2:4
  kExtension,  ///< N of M in both products: Q K^T with masked output, P V with a sparse operand
};

/// "dense", "2:4", "extension".
const char* to_string(Mode mode);

/// The machine. Each field's unit and source are in constants(); energies are of one event.
struct Machine {
  double num_sms = 132;
  double macs_per_cycle = 512;
  double shared_bytes_per_cycle = 128;
  double register_bytes_per_cycle = 256;
  double mma_issue_cycles = 1;
  double shared_ports = 1;
  double exps_per_cycle = 16;
  double lanes_per_cycle = 128;
  double l2_bytes_per_cycle = 64;
  double ops_per_score = 5;
  double select_ops_per_score = 1.5;
  double overlap = 0.5;
  double gemm_utilisation = 0.8;

  double mac_pj = 0.59;
  double register_pj_per_byte = 0.94;
  double shared_pj_per_byte = 1.06;
  double metadata_pj_per_byte = 0.94;
  double select_pj = 0.03;
  double lane_op_pj = 8;
  double exp_pj = 12;
  double l2_pj_per_byte = 8;
  double dram_pj_per_byte = 31;
  double static_pj_per_cycle = 600;

  Operands operands = Operands::kShared;

  /// Throws InvalidArgument naming a constant that is not finite, negative or, where it divides, 0.
  void validate() const;
};

/// A constant of the machine: what it means, and where its default is from.
struct Constant {
  const char* name;
  double Machine::*value;
  const char* unit;
  const char* source;
  bool is_estimate;  ///< ours, not a published figure
  bool divides;      ///< must be above 0
};
const std::vector<Constant>& constants();

/// Changes one by name: "mac_pj=0.4". Throws InvalidArgument naming what is not known.
void set_constant(Machine& machine, std::string_view assignment);

/// The numbers that a layer's cost depends on besides its mask.
struct LayerShape {
  std::string name = "attention";
  std::int64_t num_heads = 12, num_heads_kv = 12;
  std::int64_t head_dim = 64;
  std::int64_t hidden = 0;        ///< 0: attention alone
  std::int64_t ffn = 0;           ///< inner width of the feed-forward part
  std::int64_t ffn_products = 2;  ///< 3 with a gate
};
/// Shapes of well-known models, by name.
const std::vector<LayerShape>& model_shapes();

inline constexpr std::int64_t kTileRows = 64;  ///< queries, four strips of 16
inline constexpr std::int64_t kTileKeys = 64;  ///< two steps of 32
inline constexpr int kStrips = 4, kSteps = 2;

/// A tile that holds a visible pair.
struct PatternTile {
  std::int32_t row = 0, col = 0;  ///< in tiles
  std::int32_t pairs = 0;         ///< visible
  /// Of each strip and step: most visible keys of any row's group of M, and of 4.
  std::uint8_t of_group[kStrips][kSteps] = {};
  std::uint8_t of_four[kStrips][kSteps] = {};
};

/// One head's mask as instructions of N:M see it.
struct Pattern {
  std::int64_t seq_q = 0, seq_kv = 0;
  std::int64_t group = 4;          ///< M: 2, 4, 8, 16 or 32
  std::vector<PatternTile> tiles;  ///< row by row
  std::int64_t visible_pairs() const;
};

/// Of (b, h) of a mask, both inside its shape.
Pattern pattern_of(const mask::BlockMask& mask, std::int64_t b, std::int64_t h, std::int64_t group);
/// The same with the first n visible keys of each group alone: any choice of n costs the same.
Pattern uniform_pattern(const mask::BlockMask& mask, std::int64_t n, std::int64_t group);

/// A cost by component.
struct Cost {
  double cycles = 0;          ///< of one SM, if it did everything
  double longest_cycles = 0;  ///< of the row of tiles that takes longest
  double tensor_cycles = 0;   ///< of those, what the products alone would take
  double busy_cycles = 0;     ///< of those, what the dot-product units of the mean strip compute
  double macs = 0;            ///< multiplied
  // Energy, picojoules.
  double dot_products_pj = 0, registers_pj = 0, accumulators_pj = 0, shared_pj = 0, metadata_pj = 0;
  double softmax_pj = 0, l2_pj = 0, dram_pj = 0, static_pj = 0;

  /// What an instruction set can change: products, their operands and accumulators, metadata.
  double tensor_pj() const;
  double total_pj() const;
  /// Share of the products' time in which dot-product units compute.
  double utilisation() const;
  Cost& operator+=(const Cost& other);
};

/// Attention of one head.
Cost attention_cost(const Machine& machine, const Pattern& pattern, std::int64_t head_dim,
                    Mode mode);
/// Everything else of a layer: projections and the feed-forward part, dense. Zeros with hidden 0.
Cost products_cost(const Machine& machine, const LayerShape& layer, std::int64_t tokens);

/// A layer under patterns, one for each head (or one for all).
struct LayerCost {
  Cost attention, products;
  double cycles = 0;  ///< of the machine: at least the longest row of tiles
  double total_pj = 0;
};
LayerCost layer_cost(const Machine& machine, const LayerShape& layer,
                     const std::vector<Pattern>& patterns, Mode mode);

/// One mode against the dense machine under the base mask.
struct Comparison {
  Mode mode = Mode::kDense;
  LayerCost cost;
  double speed_up = 1;  ///< of the layer
  double attention_speed_up = 1;
  double saving = 0;            ///< of the layer's energy, 0..1
  double attention_saving = 0;  ///< of attention's energy
  double tensor_saving = 0;     ///< of attention's Cost::tensor_pj()
};

struct Simulation {
  Machine machine;
  LayerShape layer;
  std::int64_t seq_q = 0, seq_kv = 0, group = 4;
  double kept_fraction = 1;  ///< visible pairs of the patterns / of the base
  LayerCost base;            ///< dense, under the base mask
  std::vector<Comparison> modes;

  /// {"machine": ..., "layer": ..., "base": ..., "modes": [...]}
  std::string to_json() const;
  /// Energy by component and time of each mode as bars.
  std::string to_svg() const;
};
/// `pruned` and `base`: one pattern for each head, or one for all. Throws InvalidArgument where
/// their numbers, lengths or groups do not fit.
Simulation simulate(const Machine& machine, const LayerShape& layer,
                    const std::vector<Pattern>& pruned, const std::vector<Pattern>& base);

/// How a constant moves the extension's figures: each a tenth lower and higher.
struct Sensitivity {
  const Constant* constant = nullptr;
  double speed_up[2] = {}, saving[2] = {}, tensor_saving[2] = {};
};
std::vector<Sensitivity> sensitivities(const Machine& machine, const LayerShape& layer,
                                       const std::vector<Pattern>& pruned,
                                       const std::vector<Pattern>& base);

/// Cycles of one instruction loop on one SM, a MAC of the logical shape: what can be timed.
/// `n`: columns of a wgmma (ignored for registers); `a_in_shared`: its A operand is too.
double cycles_per_mac(const Machine& machine, bool sparse, std::int64_t n, bool a_in_shared);

}  // namespace stof::simulate

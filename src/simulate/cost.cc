// Cycles and energy of one head, tile by tile; docs/simulator.md has each term.

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/check.h"
#include "stof/simulate.h"

namespace stof::simulate {
namespace {

constexpr double kStripRows = static_cast<double>(kTileRows) / kStrips;
constexpr double kStepKeys = static_cast<double>(kTileKeys) / kSteps;
constexpr double kHalf = 2, kFloat = 4;  // bytes
/// K of a 16-bit instruction, and columns of an mma.
constexpr double kDepth = 16, kColumns = 8;
/// Queries that share a tile of K and V once it is in shared memory: two tiles.
constexpr double kRowsPerLoad = 128;
/// Of an mma with metadata: a 32-bit register of each lane, which takes the ports of both banks for
/// a cycle, as any operand does.
constexpr double kMetadataRead = 256;

/// What the registers' ports could read while an mma is issued.
double issue_bytes(const Machine& machine) {
  return machine.mma_issue_cycles * machine.register_bytes_per_cycle;
}

/// What one strip does in one step of one product.
struct StepWork {
  double share = 1;  ///< of the dense work
  double metadata_bytes = 0;
  bool selects = false;
};

/// The products differ in what a skipped key saves.
enum class Product : std::uint8_t { kScores, kOutput };

StepWork step_work(Mode mode, Product product, std::uint8_t of_group, std::uint8_t of_four,
                   double group) {
  if (mode == Mode::kSparse24 && product == Product::kOutput && of_four <= 2)
    return {0.5, kStripRows * (kStepKeys / 4) * 2 * 2 / 8, true};
  if (mode != Mode::kExtension) return {};
  const double n = of_group;
  if (n >= group) return {};
  // log2(M) bits of each kept key.
  return {n / group, kStripRows * (kStepKeys / group) * n * std::log2(group) / 8, n > 0};
}

/// The two products of one tile, added to a cost; returns their cycles.
class TileProducts {
 public:
  TileProducts(const Machine& machine, const PatternTile& tile, double group, double head_dim,
               Mode mode)
      : machine_(machine), tile_(tile), group_(group), dim_(head_dim), mode_(mode) {}

  double add(Product product, Cost& cost) const {
    double slowest_compute = 0, slowest_registers = 0, busy = 0, shared_bytes = 0;
    bool step_is_read[kSteps] = {};
    for (int strip = 0; strip < kStrips; ++strip) {
      double compute = 0, registers = 0;
      for (int step = 0; step < kSteps; ++step) {
        const StepWork work = step_work(mode_, product, tile_.of_group[strip][step],
                                        tile_.of_four[strip][step], group_);
        if (work.share == 0) continue;
        step_is_read[step] = true;
        const double macs = kStripRows * kStepKeys * dim_ * work.share;
        compute += macs / machine_.macs_per_cycle;
        registers += register_bytes(product, work, cost);
        cost.macs += macs;
        cost.dot_products_pj += macs * machine_.mac_pj;
        cost.metadata_pj += work.metadata_bytes * machine_.metadata_pj_per_byte +
                            (work.selects ? macs * machine_.select_pj : 0);
      }
      busy += compute / kStrips;
      slowest_compute = std::max(slowest_compute, compute);
      slowest_registers =
          std::max(slowest_registers, registers / machine_.register_bytes_per_cycle);
    }
    const double readers = machine_.operands == Operands::kShared ? 1 : kStrips;
    for (const bool is_read : step_is_read)
      if (is_read) shared_bytes += kStepKeys * dim_ * kHalf * readers;
    cost.shared_pj += shared_bytes / machine_.shared_ports * machine_.shared_pj_per_byte;
    cost.busy_cycles += busy;
    return std::max({slowest_compute, slowest_registers,
                     shared_bytes / machine_.shared_ports / machine_.shared_bytes_per_cycle});
  }

  /// Scores that the softmax sees.
  double scores() const {
    double scores = 0;
    for (int strip = 0; strip < kStrips; ++strip)
      for (int step = 0; step < kSteps; ++step)
        scores += kStripRows * kStepKeys *
                  step_work(mode_, Product::kOutput, tile_.of_group[strip][step],
                            tile_.of_four[strip][step], group_)
                      .share;
    return scores;
  }

 private:
  /// Energy of what is read and written, and the bytes that limit the time.
  double register_bytes(Product product, const StepWork& work, Cost& cost) const {
    const double depths = std::ceil(dim_ / kDepth), columns = std::ceil(dim_ / kColumns);
    // Accumulators are read and written by each instruction.
    const double accumulators =
        2 * kFloat * kStripRows *
        (product == Product::kScores ? kStepKeys * depths : dim_ * (kStepKeys / kDepth)) *
        work.share;
    cost.accumulators_pj += accumulators * machine_.register_pj_per_byte;
    if (machine_.operands == Operands::kShared) {
      const double a = product == Product::kScores ? kStripRows * dim_ * kHalf / kSteps
                                                   : kStripRows * kStepKeys * kHalf;
      const double read = product == Product::kScores ? a : a * work.share;
      cost.registers_pj += read * machine_.register_pj_per_byte;
      // Where metadata would cost more than they save, the operand stays dense.
      return std::min(read + work.metadata_bytes, a);
    }
    const double instructions = (product == Product::kScores ? kStepKeys / kColumns * depths
                                                             : kStepKeys / kDepth * columns);
    const double a = kStripRows * kDepth * kHalf;
    const double b = kStepKeys * dim_ * kHalf;
    // Writes, of D and of B by its load from shared memory, cost energy alone.
    cost.registers_pj += (instructions * work.share * a + 2 * b) * machine_.register_pj_per_byte;
    const double others = a + kFloat * kStripRows * kColumns + issue_bytes(machine_);
    const double sparse = instructions * work.share * (others + (work.selects ? kMetadataRead : 0));
    return std::min(sparse, instructions * others) + b;
  }

  const Machine& machine_;
  const PatternTile& tile_;
  double group_, dim_;
  Mode mode_;
};

/// Of the softmax of a tile.
double softmax_cycles(const Machine& machine, double scores, Mode mode, Cost& cost) {
  const double select =
      mode == Mode::kSparse24 ? machine.select_ops_per_score * kTileRows * kTileKeys : 0;
  const double ops = machine.ops_per_score * scores + select;
  cost.softmax_pj += ops * machine.lane_op_pj + scores * machine.exp_pj;
  return std::max(scores / machine.exps_per_cycle, (scores + ops) / machine.lanes_per_cycle);
}

double tile_cycles(const Machine& machine, const PatternTile& tile, double group, double head_dim,
                   Mode mode, Cost& cost) {
  const TileProducts products(machine, tile, group, head_dim, mode);
  const double tensor = products.add(Product::kScores, cost) + products.add(Product::kOutput, cost);
  const double softmax = softmax_cycles(machine, products.scores(), mode, cost);
  cost.tensor_cycles += tensor;
  const double loaded = 2 * kTileKeys * head_dim * kHalf * kTileRows / kRowsPerLoad;
  cost.l2_pj += loaded * machine.l2_pj_per_byte;
  cost.shared_pj += loaded * machine.shared_pj_per_byte;
  const double work = std::max(tensor, softmax) + (1 - machine.overlap) * std::min(tensor, softmax);
  return std::max(work, loaded / machine.l2_bytes_per_cycle);
}

}  // namespace

double Cost::tensor_pj() const {
  return dot_products_pj + registers_pj + accumulators_pj + shared_pj + metadata_pj;
}

double Cost::total_pj() const { return tensor_pj() + softmax_pj + l2_pj + dram_pj + static_pj; }

double Cost::utilisation() const { return tensor_cycles == 0 ? 0 : busy_cycles / tensor_cycles; }

Cost& Cost::operator+=(const Cost& other) {
  longest_cycles = std::max(longest_cycles, other.longest_cycles);
  for (double Cost::*part :
       {&Cost::cycles, &Cost::tensor_cycles, &Cost::busy_cycles, &Cost::macs,
        &Cost::dot_products_pj, &Cost::registers_pj, &Cost::accumulators_pj, &Cost::shared_pj,
        &Cost::metadata_pj, &Cost::softmax_pj, &Cost::l2_pj, &Cost::dram_pj, &Cost::static_pj})
    this->*part += other.*part;
  return *this;
}

Cost attention_cost(const Machine& machine, const Pattern& pattern, std::int64_t head_dim,
                    Mode mode) {
  machine.validate();
  STOF_CHECK(head_dim >= 1, kInvalidArgument, "head_dim: expected at least 1, got {}", head_dim);
  Cost cost;
  const auto dim = static_cast<double>(head_dim), group = static_cast<double>(pattern.group);
  double row_cycles = 0;
  std::int32_t row = -1;
  for (const PatternTile& tile : pattern.tiles) {
    if (tile.row != row) row_cycles = 0;
    row = tile.row;
    const double cycles = tile_cycles(machine, tile, group, dim, mode, cost);
    cost.cycles += cycles;
    row_cycles += cycles;
    cost.longest_cycles = std::max(cost.longest_cycles, row_cycles);
  }
  // Q is read and the output written once, K and V come from memory once.
  const double bytes = 2 * kHalf * dim * static_cast<double>(pattern.seq_q + pattern.seq_kv);
  cost.dram_pj = bytes * machine.dram_pj_per_byte;
  cost.static_pj = cost.cycles * machine.static_pj_per_cycle;
  return cost;
}

Cost products_cost(const Machine& machine, const LayerShape& layer, std::int64_t tokens) {
  machine.validate();
  const auto hidden = static_cast<double>(layer.hidden), ffn = static_cast<double>(layer.ffn);
  const double q = static_cast<double>(layer.num_heads * layer.head_dim);
  const double kv = static_cast<double>(layer.num_heads_kv * layer.head_dim);
  const double inner = static_cast<double>(layer.ffn_products);
  const double weights = hidden * (2 * q + 2 * kv) + inner * hidden * ffn;
  const double rows = static_cast<double>(tokens);
  Cost cost;
  cost.macs = rows * weights;
  // Tiles of 128 x 128 by pairs of 64-row instructions of 128 columns, operands in shared memory.
  constexpr double kTile = 128, kRows = 64;
  const double shared = cost.macs * kHalf * (1 / kRows + 1 / kTile);
  const double loaded = cost.macs * kHalf * 2 / kTile;
  cost.busy_cycles = cost.macs / (kStrips * machine.macs_per_cycle);
  cost.cycles = cost.tensor_cycles = cost.busy_cycles / machine.gemm_utilisation;
  cost.dot_products_pj = cost.macs * machine.mac_pj;
  cost.accumulators_pj = cost.macs * 2 * kFloat / kDepth * machine.register_pj_per_byte;
  cost.shared_pj = (shared + loaded) * machine.shared_pj_per_byte;
  cost.l2_pj = loaded * machine.l2_pj_per_byte;
  const double activations = rows * (4 * hidden + 2 * q + 2 * kv + inner * (hidden + ffn));
  cost.dram_pj = layer.hidden == 0 ? 0 : kHalf * (weights + activations) * machine.dram_pj_per_byte;
  cost.static_pj = cost.cycles * machine.static_pj_per_cycle;
  return cost;
}

double cycles_per_mac(const Machine& machine, bool sparse, std::int64_t n, bool a_in_shared) {
  machine.validate();
  if (machine.operands == Operands::kRegisters) {
    const double macs = kStripRows * kColumns * kDepth, depths = sparse ? 2 : 1;
    const double bytes = kStripRows * kDepth * kHalf + kColumns * kDepth * depths * kHalf +
                         kFloat * kStripRows * kColumns + (sparse ? kMetadataRead : 0) +
                         issue_bytes(machine);
    const double cycles =
        std::max(macs / machine.macs_per_cycle, bytes / machine.register_bytes_per_cycle);
    return cycles / (macs * depths * kStrips);
  }
  STOF_CHECK(n >= 8 && n <= 256, kInvalidArgument, "n: expected 8 to 256 columns, got {}", n);
  const double columns = static_cast<double>(n), depths = sparse ? 2 : 1;
  const double macs = kTileRows * columns * kDepth;
  const double bytes =
      columns * kDepth * depths * kHalf + (a_in_shared ? kTileRows * kDepth * kHalf : 0);
  const double cycles = std::max(macs / (kStrips * machine.macs_per_cycle),
                                 bytes / machine.shared_ports / machine.shared_bytes_per_cycle);
  return cycles / (macs * depths);
}

}  // namespace stof::simulate

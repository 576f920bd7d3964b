#pragma once
// Where a subcommand's mask comes from: an expression or a file, and the shape it is applied to.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stof/block_mask.h"
#include "stof/mask.h"
#include "stof/mask_set.h"

namespace CLI {
class App;
}

namespace stof::cli {

/// The arguments that `mask show|stats|draw|convert` share.
struct MaskArguments {
  std::string source;
  std::int64_t seq = 0;        ///< 0 = not given
  std::int64_t seq_kv = 0;     ///< 0 = seq
  std::int64_t num_heads = 0;  ///< 0 = as many as the mask tells apart
  std::int64_t batch = 0;
  std::int64_t layer = -1;  ///< of a set of masks; -1 = not given
  std::string alignment = "top_left";
};

void add_mask_arguments(CLI::App& command, MaskArguments& arguments);

/// A mask that was read, with its shape: either an expression bound to the shape, or a block mask
/// from a .safetensors file.
struct MaskSource {
  std::optional<mask::Mask> expression;
  std::optional<mask::BlockMask> block;
  mask::ScoreShape shape;
  mask::Alignment alignment = mask::Alignment::kTopLeft;
  std::string title;  ///< one line: the canonical text, or the file's name

  bool visible(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k) const;
  mask::TileClass classify(std::int64_t b, std::int64_t h, const mask::TileRect& rect) const;
};

/// Reads an expression, or a file when the source ends in .txt, .json, .npy or .safetensors.
/// Throws what parsing, loading and binding throw, and InvalidArgument naming --seq where the mask
/// does not say its own length.
MaskSource load_mask_source(const MaskArguments& arguments);

/// The expression alone, not bound; for commands that take no shape. A block mask has none.
mask::Mask load_mask_expression(const MaskArguments& arguments);

/// What --mask of a command that runs a model says: an expression, a .txt or .npy file, or a .json
/// file with a mask or with masks of layers and heads.
mask::MaskSet load_mask_set(const std::string& source);

/// The block form, built where it was not loaded.
mask::BlockMask to_block_mask(const MaskSource& source);

/// Every (query, key) pair as a bool tensor [batch|1, heads|1, seq_q, seq_kv]. Throws
/// InvalidArgument above 2^30 pairs.
Tensor to_dense(const MaskSource& source);

}  // namespace stof::cli

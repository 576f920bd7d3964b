#pragma once
// The mask algebra: immutable expressions that say which (query, key) pairs are visible.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stof/fingerprint.h"
#include "stof/tensor.h"

namespace stof::mask {

/// All visible, some, or none.
enum class TileClass : std::uint8_t { kEmpty, kPartial, kFull };

/// "empty", "partial", "full".
const char* to_string(TileClass tile_class);

/// A rectangle of the score matrix; half-open, never empty.
struct TileRect {
  std::int64_t q_begin, q_end, k_begin, k_end;
};

/// Where query 0 stands when seq_q != seq_kv: at key 0, or so that the last query meets the last
/// key (the convention of decoding with a KV cache).
enum class Alignment : std::uint8_t { kTopLeft, kBottomRight };

const char* to_string(Alignment alignment);

/// Extents of the score tensor a mask is applied to.
struct ScoreShape {
  std::int64_t batch = 1;
  std::int64_t num_heads = 1;
  std::int64_t seq_q = 0;
  std::int64_t seq_kv = 0;

  /// "[2, 12, 512, 512]"
  std::string to_string() const;
};

class Node;  // src/mask/node.h

/// A mask expression. A cheap, immutable, thread-safe value (shared tree). The default is all().
///
/// Positions are plain token indices; q and k may be negative or past the end under shifted():
/// relative primitives (causal, window, dilated, strided) then keep their arithmetic meaning, all
/// others see nothing there.
class Mask {
 public:
  Mask();
  explicit Mask(std::shared_ptr<const Node> node);

  /// True if query q of (batch b, head h) sees key k. The mask must be bound() if it has parts
  /// whose meaning depends on the sequence length.
  bool visible(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k) const;

  /// Sound for every expression: kFull and kEmpty are certain, kPartial means "look closer".
  /// Exact for every primitive but predicate() (for seeded ones with a rate, on the first million
  /// cells). Cost does
  /// not grow with the rectangle's area, except for arrays given by the user and random blocks,
  /// where it grows at most with the part of them under the rectangle.
  TileClass classify(std::int64_t b, std::int64_t h, const TileRect& rect) const;

  /// Visibility of keys k_begin .. k_begin+63 as bits (bit i = key k_begin+i).
  std::uint64_t row_bits(std::int64_t b, std::int64_t h, std::int64_t q,
                         std::int64_t k_begin) const;

  /// The keys below seq_kv that query q sees, ascending.
  std::vector<std::int64_t> visible_keys(std::int64_t b, std::int64_t h, std::int64_t q,
                                         std::int64_t seq_kv) const;

  /// 1 when the same for every batch entry (head), else the number of entries given; 0 where each
  /// head has its own and their number is not yet bound (seeded masks with per_head).
  std::int64_t batch_extent() const;
  std::int64_t head_extent() const;

  /// Resolves what depends on the lengths (bottom-right alignment, blocks per row of a random
  /// mask) and checks every array against the shape. Throws InvalidArgument naming the primitive,
  /// the extent expected and the one got. Binding a bound mask to the same shape is a no-op.
  Mask bind(const ScoreShape& shape, Alignment alignment = Alignment::kTopLeft) const;
  /// True unless something in it waits for the lengths, so that visible() would throw.
  bool bound() const;

  /// Canonical text, parsed back by parse(); see docs/masks.md for the grammar.
  std::string to_text() const;
  /// Canonical JSON, read back by from_json().
  std::string to_json() const;
  /// One line for logs and plans: the canonical text, long lists shortened.
  std::string describe() const;
  /// Equal for expressions with the same canonical form.
  Fingerprint fingerprint() const;

  const Node& node() const { return *node_; }
  const std::shared_ptr<const Node>& shared_node() const { return node_; }

 private:
  std::shared_ptr<const Node> node_;
};

Mask operator&(const Mask& a, const Mask& b);
Mask operator|(const Mask& a, const Mask& b);
Mask operator~(const Mask& a);

// --- primitives -------------------------------------------------------------------------------

Mask all();
Mask none();
/// k <= q + offset.
Mask causal(std::int64_t offset = 0);
/// q - left <= k <= q + right, both inclusive. A negative extent means unbounded on that side.
Mask window(std::int64_t left, std::int64_t right);
/// q and k in the same chunk of n tokens; positions below 0 belong to no chunk.
Mask chunked(std::int64_t n);
/// floor(q/n) >= floor(k/n): causal between blocks, full inside one (block diffusion).
Mask block_causal(std::int64_t n);
/// floor(q/block) - left <= floor(k/block) <= floor(q/block) + right: a window of whole blocks. A
/// negative extent means unbounded on that side.
Mask block_window(std::int64_t block, std::int64_t left, std::int64_t right);
/// The first n keys, for every query (prefix-LM: causal() | prefix(n)).
Mask prefix(std::int64_t n);
/// The same set under its streaming name (StreamingLLM's attention sinks).
Mask sink(std::int64_t n);
/// The first `rows` queries see everything, the first `cols` keys are seen by all.
Mask global(std::int64_t rows, std::int64_t cols);
/// The listed tokens see everything (rows) and are seen by all (cols).
Mask global_tokens(const std::vector<std::int64_t>& tokens, bool rows = true, bool cols = true);
/// |q-k| <= window and (q-k) a multiple of rate. rate 1 is window(window, window).
Mask dilated(std::int64_t window, std::int64_t rate);
/// |q-k| <= local or (q-k) a multiple of stride (Child et al. 2019, arXiv 1904.10509; & causal()).
Mask strided(std::int64_t local, std::int64_t stride);
/// Keys with k mod stride >= stride - count: the "summary" columns of the fixed pattern, ibid.
Mask summary(std::int64_t stride, std::int64_t count);
/// Packed documents: q and k in the same one. Lengths >= 0; tokens past the sum see nothing.
Mask document(const std::vector<std::int64_t>& lengths);
/// Key k of batch b is visible iff k < lengths[b] (right padding).
Mask key_lengths(const std::vector<std::int64_t>& lengths);

/// Neighbourhood attention on a token grid of 1 to 3 dimensions, last dimension fastest.
struct Neighbourhood {
  std::vector<std::int64_t> grid;      ///< extents; tokens past their product see nothing
  std::vector<std::int64_t> kernel;    ///< neighbours per dimension, in tiles; clipped to the grid
  std::vector<std::int64_t> dilation;  ///< empty = all 1
  std::vector<std::int64_t> tile;      ///< empty = all 1; > 1 compares tile coordinates (sliding
                                       ///< tiles, and Swin-like windows with kernel 1)
  std::vector<std::int64_t> shift;     ///< empty = 0; added to coordinates before tiling (Swin)
};
/// The kernel is clamped at the border, so every token sees the same number of neighbours
/// (NATTEN: Hassani et al. 2023, arXiv 2204.07143).
Mask neighbourhood(const Neighbourhood& params);

/// Speculative decoding: key k < prefix is visible; key prefix + j is visible to query i iff node
/// j is i or an ancestor of i. parents[i] < i, or -1 for a root.
Mask tree(const std::vector<std::int64_t>& parents, std::int64_t prefix = 0);

/// Visible blocks of a grid; heads may differ.
struct BlockList {
  std::int64_t block_q = 0;             ///< uniform block rows; ignored where row_sizes is given
  std::int64_t block_kv = 0;            ///< uniform block columns; ignored where col_sizes is given
  std::vector<std::int64_t> row_sizes;  ///< ragged blocks: one extent per block row
  std::vector<std::int64_t> col_sizes;
  /// heads[h][r] = visible block columns of block row r, in any order. One head = shared.
  /// Duplicates and columns past the grid are refused by name.
  std::vector<std::vector<std::vector<std::int32_t>>> heads;
};
Mask block_list(BlockList list);

/// Seeded random blocks of block x block tokens: `count` distinct block columns per block row.
/// The generator is documented in docs/masks.md and gives the same mask in every language.
Mask random_blocks_count(std::int64_t block, std::int64_t count, std::uint64_t seed,
                         bool per_head = false);
/// Each block is visible with probability `rate`, independently.
Mask random_blocks_rate(std::int64_t block, double rate, std::uint64_t seed, bool per_head = false);
/// Each (query, key) pair is visible with probability `rate`, independently.
Mask random_elements(double rate, std::uint64_t seed, bool per_head = false);

/// Interval form (FlashMask, Wang et al. 2024, arXiv 2410.01359): column k is hidden from queries
/// in [begin[k], end[k]). Several lists hide several intervals; all have length seq_kv.
struct HiddenRows {
  std::vector<std::int64_t> begin, end;
};
Mask intervals(const std::vector<HiddenRows>& hidden);

/// A boolean array [Sq, Sk] or [B|1, H|1, Sq|1, Sk], any strides; copied as bits.
Mask dense(const TensorView& visible);

/// Whole numbers or booleans that a predicate reads by name.
struct PredicateTable {
  std::string name;
  TensorView values;  ///< bool, int32 or int64, any shape and strides; copied
};
/// Where a boolean expression in b, h, q, k and tables holds, such as
/// "(q - k <= 4) & (doc[q] == doc[k])"; docs/masks.md has the language. It is the simplest mask
/// that says so: & | ~ at its top are those of masks, and comparisons that are another primitive
/// become it. classify() is sound, not always exact.
Mask predicate(std::string_view text, const std::vector<PredicateTable>& tables = {});

// --- operators --------------------------------------------------------------------------------

/// visible(q, k) = m.visible(q + dq, k + dk). Arrays see nothing outside their extents.
Mask shifted(const Mask& m, std::int64_t dq, std::int64_t dk);
/// Head h uses masks[h].
Mask per_head(const std::vector<Mask>& masks);
/// Batch entry b uses masks[b].
Mask per_batch(const std::vector<Mask>& masks);
/// What batch entry `entry` of m sees, for every batch entry: the mask of one packed sequence. Its
/// lengths may be below those of m's arrays, which are then cut.
Mask batch_entry(const Mask& m, std::int64_t entry);

// --- presets ----------------------------------------------------------------------------------

/// Defaults are the usual ones of each paper; see docs/masks.md.
Mask bert_padding(const std::vector<std::int64_t>& lengths);
/// |q-k| <= w.
Mask sliding(std::int64_t w = 256);
/// sliding | global(n, n) (Beltagy et al. 2020, arXiv 2004.05150).
Mask longformer(std::int64_t w = 256, std::int64_t num_global = 64);
/// Window of `window_blocks` blocks to each side, `global_blocks` global blocks and
/// `random_count` random ones per block row (Zaheer et al. 2020, arXiv 2007.14062).
Mask bigbird(std::int64_t block = 64, std::int64_t window_blocks = 1,
             std::int64_t global_blocks = 2, std::int64_t random_count = 3, std::uint64_t seed = 0);
/// causal & strided(local, stride).
Mask sparse_transformer_strided(std::int64_t local = 128, std::int64_t stride = 128);
/// causal & (chunked(stride) | summary(stride, count)).
Mask sparse_transformer_fixed(std::int64_t stride = 128, std::int64_t count = 8);
/// causal & (sink(n) | window(w, 0)) (Xiao et al. 2023, arXiv 2309.17453).
Mask streaming(std::int64_t num_sinks = 4, std::int64_t w = 1024);

// --- text and JSON ----------------------------------------------------------------------------

/// Parses "causal & (window(256,0) | global(cols=64))". ~ binds tightest, then &, then |. A name
/// may be a primitive, an operator or a preset. Throws InvalidArgument whose message shows the text
/// with a caret under the offending column; NotFound, Io or Corrupt, with the same caret, for a
/// file it names. `dense("file.npy")` and `blocks("file.json")` read files relative to `base_dir`;
/// an empty base_dir refuses them, for text from strangers.
Mask parse(std::string_view text, const std::string& base_dir = ".");

/// Inverse of to_json(). Throws Corrupt (not JSON) or InvalidArgument (naming the field's path).
Mask from_json(std::string_view json);

/// One line of help per primitive, operator and preset: signature and meaning.
struct MaskHelp {
  std::string name, signature, meaning;
};
const std::vector<MaskHelp>& mask_help();

}  // namespace stof::mask

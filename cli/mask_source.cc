#include "mask_source.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/file.h"
#include "mask_cost.h"
#include "options.h"
#include "stof/npy.h"

namespace stof::cli {
namespace {

constexpr std::uint64_t kMaxTextBytes = std::uint64_t{1} << 28;
constexpr std::int64_t kMaxDensePairs = std::int64_t{1} << 30;

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

/// A mask error carries the quoted text on further lines; the file's name goes before the first.
template <class Read>
auto naming_file(const std::string& path, const Read& read) {
  try {
    return read();
  } catch (const Error& error) {
    const std::string message = error.what();
    if (message.find(path) != std::string::npos) throw;
    throw Error(error.code(), path + ": " + message);
  }
}

/// Without blanks around it, and without the byte order mark that some editors write first.
std::string trimmed(const std::string& text) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  const std::size_t begin = text.find_first_not_of(
      " \t\r\n", text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0);
  return begin == std::string::npos
             ? ""
             : text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

mask::Mask mask_of_layer(const mask::MaskSet& set, const MaskArguments& arguments) {
  if (set.uniform()) {
    STOF_CHECK(arguments.layer < 0, kInvalidArgument,
               "--layer: expected none, as {} has one mask for all layers, got {}",
               arguments.source, arguments.layer);
    return set.otherwise();
  }
  STOF_CHECK(arguments.layer >= 0, kInvalidArgument,
             "{}: has masks of layers and heads; say with --layer which layer's to look at",
             arguments.source);
  const std::int64_t heads =
      std::max<std::int64_t>({arguments.num_heads, set.num_heads_named(), 1});
  set.check(std::max(arguments.layer + 1, set.num_layers_named()), heads, "batch entries");
  return set.of_layer(arguments.layer, heads);
}

mask::Mask read_text_or_array(const std::string& source, Tensor* array) {
  if (source.ends_with(".npy")) {
    Tensor loaded = load_npy(source);
    const TensorView view = std::as_const(loaded).view();
    mask::Mask result = naming_file(source, [&] { return mask::dense(view); });
    *array = std::move(loaded);
    return result;
  }
  if (source.ends_with(".txt"))
    return naming_file(source, [&] {
      return mask::parse(trimmed(read_text_file(source, kMaxTextBytes)), folder_of(source));
    });
  return mask::parse(source);
}

mask::Mask read_expression(const MaskArguments& arguments, Tensor* array) {
  const bool may_be_set = arguments.source.ends_with(".json");
  STOF_CHECK(may_be_set || arguments.layer < 0, kInvalidArgument,
             "--layer: expected a .json file with masks of layers and heads, got {}",
             arguments.source);
  return may_be_set ? mask_of_layer(mask::MaskSet::load(arguments.source), arguments)
                    : read_text_or_array(arguments.source, array);
}

void require_no_block_mask(const std::string& source) {
  STOF_CHECK(!source.ends_with(".safetensors"), kInvalidArgument,
             "{}: expected an expression or a .txt, .json or .npy file, got a stored block mask",
             source);
}

mask::ScoreShape shape_of(const MaskArguments& arguments, const mask::Mask& expression,
                          const Tensor& array) {
  mask::ScoreShape shape;
  shape.batch = arguments.batch > 0 ? arguments.batch : expression.batch_extent();
  shape.num_heads = arguments.num_heads > 0 ? arguments.num_heads : expression.head_extent();
  shape.seq_q = arguments.seq;
  shape.seq_kv = arguments.seq_kv > 0 ? arguments.seq_kv : arguments.seq;
  const int rank = array.shape().rank();
  if (arguments.seq == 0 && rank >= 2) {
    shape.seq_q = array.shape()[rank - 2];
    if (arguments.seq_kv == 0) shape.seq_kv = array.shape()[rank - 1];
  }
  STOF_CHECK(shape.seq_q > 0, kInvalidArgument,
             "--seq: expected the number of tokens the mask is applied to, got none; add for "
             "instance --seq 512");
  return shape;
}

mask::Alignment parse_alignment(const std::string& name) {
  return name == "bottom_right" ? mask::Alignment::kBottomRight : mask::Alignment::kTopLeft;
}

/// A stored block mask has its shape already; an option that says otherwise is refused.
void require_stored_shape(const MaskArguments& arguments, const mask::ScoreShape& shape) {
  const auto check = [&](const char* option, std::int64_t given, std::int64_t stored) {
    STOF_CHECK(given == 0 || given == stored, kInvalidArgument,
               "{}: expected {} as stored in {}, got {}; leave it out", option, stored,
               arguments.source, given);
  };
  check("--seq", arguments.seq, shape.seq_q);
  check("--seq-kv", arguments.seq_kv, shape.seq_kv);
  check("--heads", arguments.num_heads, shape.num_heads);
  check("--batch", arguments.batch, shape.batch);
}

/// What the stored tiles under the rectangle say: partial where one of them is, or where some are
/// full and others empty.
mask::TileClass classify_stored(const mask::BlockMask& block, std::int64_t b, std::int64_t h,
                                const mask::TileRect& rect) {
  const mask::BlockPattern& pattern = block.pattern(block.pattern_index(b, h));
  const std::int64_t col_begin = rect.k_begin / mask::kOuterTile;
  const std::int64_t col_end = (rect.k_end - 1) / mask::kOuterTile + 1;
  bool any_full = false, any_empty = false;
  for (auto row = static_cast<std::size_t>(rect.q_begin / mask::kOuterTile);
       row <= static_cast<std::size_t>((rect.q_end - 1) / mask::kOuterTile); ++row) {
    const auto partial = std::partition_point(
        pattern.partial.begin() + pattern.partial_ptr[row],
        pattern.partial.begin() + pattern.partial_ptr[row + 1],
        [col_begin](const mask::PartialTile& tile) { return tile.col < col_begin; });
    if (partial != pattern.partial.begin() + pattern.partial_ptr[row + 1] && partial->col < col_end)
      return mask::TileClass::kPartial;
    const auto runs_end = pattern.full_runs.begin() + pattern.full_run_ptr[row + 1];
    auto run = std::partition_point(
        pattern.full_runs.begin() + pattern.full_run_ptr[row], runs_end,
        [col_begin](const mask::FullRun& full) { return full.end <= col_begin; });
    std::int64_t num_full = 0;
    for (; run != runs_end && run->begin < col_end; ++run)
      num_full +=
          std::min<std::int64_t>(run->end, col_end) - std::max<std::int64_t>(run->begin, col_begin);
    any_full = any_full || num_full > 0;
    any_empty = any_empty || num_full < col_end - col_begin;
    if (any_full && any_empty) return mask::TileClass::kPartial;
  }
  return any_full ? mask::TileClass::kFull : mask::TileClass::kEmpty;
}

}  // namespace

void add_mask_arguments(CLI::App& command, MaskArguments& arguments) {
  command
      .add_option("MASK", arguments.source,
                  "Mask expression, or a .txt, .json, .npy (bool) or .safetensors (block) file")
      ->required();
  command
      .add_option("--layer", arguments.layer,
                  "Whose mask to look at, where a .json file has masks of layers and heads")
      ->transform(whole_number(0, (1 << 20) - 1));
  command.add_option("--seq", arguments.seq, "Queries, and keys unless --seq-kv says otherwise")
      ->transform(whole_number(1, kMaxSequence));
  command.add_option("--seq-kv", arguments.seq_kv, "Keys")
      ->transform(whole_number(1, kMaxSequence));
  command.add_option("--heads", arguments.num_heads, "Heads (default: as many as the mask needs)")
      ->transform(whole_number(1, 1 << 20));
  command.add_option("--batch", arguments.batch, "Batch (default: as many as the mask needs)")
      ->transform(whole_number(1, 1 << 20));
  command
      .add_option("--align", arguments.alignment,
                  "Where query 0 stands when --seq-kv differs: at key 0, or so that the last query "
                  "meets the last key")
      ->check(one_of({"top_left", "bottom_right"}))
      ->capture_default_str();
}

bool MaskSource::visible(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k) const {
  return expression ? expression->visible(b, h, q, k) : block->visible(b, h, q, k);
}

mask::TileClass MaskSource::classify(std::int64_t b, std::int64_t h,
                                     const mask::TileRect& rect) const {
  return expression ? expression->classify(b, h, rect) : classify_stored(*block, b, h, rect);
}

MaskSource load_mask_source(const MaskArguments& arguments) {
  MaskSource source;
  source.alignment = parse_alignment(arguments.alignment);
  if (arguments.source.ends_with(".safetensors")) {
    source.block = mask::BlockMask::load(arguments.source);
    source.shape = source.block->shape();
    require_stored_shape(arguments, source.shape);
    source.title = arguments.source;
    return source;
  }
  Tensor array;
  const mask::Mask expression = read_expression(arguments, &array);
  source.shape = shape_of(arguments, expression, array);
  source.expression = expression.bind(source.shape, source.alignment);
  source.title = arguments.source.ends_with(".npy") ? arguments.source : expression.describe();
  return source;
}

mask::Mask load_mask_expression(const MaskArguments& arguments) {
  require_no_block_mask(arguments.source);
  Tensor array;
  return read_expression(arguments, &array);
}

mask::MaskSet load_mask_set(const std::string& source) {
  require_no_block_mask(source);
  if (source.ends_with(".json")) return mask::MaskSet::load(source);
  Tensor array;
  return read_text_or_array(source, &array);
}

mask::BlockMask to_block_mask(const MaskSource& source) {
  if (source.block) return *source.block;
  require_block_form_fits(source);
  return mask::build_block_mask(*source.expression, source.shape, source.alignment);
}

Tensor to_dense(const MaskSource& source) {
  const std::int64_t batch =
      source.block ? source.block->batch_extent() : source.expression->batch_extent();
  const std::int64_t heads =
      source.block ? source.block->head_extent() : source.expression->head_extent();
  const std::int64_t pairs = source.shape.seq_q * source.shape.seq_kv;
  STOF_CHECK(pairs <= kMaxDensePairs / batch / heads, kInvalidArgument,
             "{}: as an array it has {} x {} x {} x {} elements, expected at most {}; use --to "
             "block",
             source.title, batch, heads, source.shape.seq_q, source.shape.seq_kv, kMaxDensePairs);
  Tensor array(DType::kBool, {batch, heads, source.shape.seq_q, source.shape.seq_kv});
  auto* next = static_cast<std::uint8_t*>(array.data());
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t q = 0; q < source.shape.seq_q; ++q)
        for (std::int64_t k = 0; k < source.shape.seq_kv; ++k)
          *next++ = source.visible(b, h, q, k) ? 1 : 0;
  return array;
}

}  // namespace stof::cli

// stof mask draw: PNG pictures of a mask, pair by pair and tile by tile.

#include "stof/mask_draw.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "commands.h"
#include "core/check.h"
#include "mask_source.h"
#include "options.h"
#include "output.h"

namespace stof::cli {
namespace {

struct DrawOptions {
  MaskArguments mask;
  std::string out, tiles;
  std::int64_t head = 0, batch_index = 0;
  std::int64_t pixels = 512;
  std::string title;
};

/// draw_elements wants an expression; a stored block mask becomes an array first.
mask::Mask drawn_expression(const MaskSource& source) {
  if (source.expression) return *source.expression;
  const Tensor array = to_dense(source);
  return mask::dense(array.view());
}

void run_draw(const DrawOptions& options) {
  STOF_CHECK(options.out != options.tiles, kInvalidArgument,
             "--tiles: expected another file than --out, got {}", options.tiles);
  require_writable("--out", options.out);
  if (!options.tiles.empty()) require_writable("--tiles", options.tiles);
  const MaskSource source = load_mask_source(options.mask);
  mask::DrawOptions draw;
  draw.batch = options.batch_index;
  draw.head = options.head;
  draw.max_pixels = options.pixels;
  draw.title = options.title;
  const mask::Image elements =
      mask::draw_elements(drawn_expression(source), source.shape, source.alignment, draw);
  mask::save_png(elements, options.out);
  print_out("wrote {} ({} x {} pixels)\n", options.out, elements.width, elements.height);
  if (options.tiles.empty()) return;
  const mask::Image tiles = mask::draw_tiles(to_block_mask(source), draw);
  mask::save_png(tiles, options.tiles);
  print_out("wrote {} ({} x {} pixels)\n", options.tiles, tiles.width, tiles.height);
}

}  // namespace

void add_mask_draw_command(CLI::App& mask, const Program&) {
  auto options = std::make_shared<DrawOptions>();
  CLI::App& draw = *mask.add_subcommand("draw", "Draw a mask as PNG");
  draw.fallthrough();
  add_mask_arguments(draw, options->mask);
  draw.add_option("--out", options->out, "PNG of the pairs: dark is visible")->required();
  draw.add_option("--tiles", options->tiles, "PNG of the 64x64 tiles: full, partial, empty");
  draw.add_option("--head", options->head, "Which head")->transform(whole_number(0, kMaxSequence));
  draw.add_option("--batch-index", options->batch_index, "Which batch entry")
      ->transform(whole_number(0, kMaxSequence));
  draw.add_option("--pixels", options->pixels, "Longest side in pixels")
      ->transform(whole_number(64, 4096))
      ->capture_default_str();
  draw.add_option("--title", options->title, "ASCII text above the picture");
  draw.footer(examples({"stof mask draw \"bigbird()\" --seq 2048 --out bigbird.png",
                        "stof mask draw \"causal & window(256,0)\" --seq 4096 --out pairs.png "
                        "--tiles tiles.png"}));
  draw.callback([options] { run_draw(*options); });
}

}  // namespace stof::cli

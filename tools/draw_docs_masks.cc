// Draws the pictures of docs/images: each mask by element and by tile class, side by side.
//
//   draw_docs_masks FOLDER

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "stof/block_mask.h"
#include "stof/mask.h"
#include "stof/mask_draw.h"

namespace {

using namespace stof::mask;

struct Picture {
  std::string name;
  std::string title;  ///< the mask in the text syntax
  Mask mask;
};

// Parameters are smaller than the presets' defaults, so that 768 tokens show the structure.
std::vector<Picture> pictures() {
  Neighbourhood grid;
  grid.grid = {24, 32};
  grid.kernel = {7, 7};
  return {
      {"causal", "causal", causal()},
      {"sliding", "sliding(96)", sliding(96)},
      {"longformer", "longformer(64, 32)", longformer(64, 32)},
      {"bigbird", "bigbird(64, 1, 1, 2)", bigbird(64, 1, 1, 2)},
      {"sparse_transformer_strided", "sparse_transformer_strided(64, 64)",
       sparse_transformer_strided(64, 64)},
      {"sparse_transformer_fixed", "sparse_transformer_fixed(96, 8)",
       sparse_transformer_fixed(96, 8)},
      {"dilated", "dilated(192, 8)", dilated(192, 8)},
      {"streaming", "streaming(16, 128)", streaming(16, 128)},
      {"document", "document(100, 260, 48, 180, 180)", document({100, 260, 48, 180, 180})},
      {"neighbourhood2d", "neighbourhood(24x32, 7x7)", neighbourhood(grid)},
  };
}

void draw(const Picture& picture, const std::string& folder) {
  const ScoreShape shape{1, 1, 768, 768};
  DrawOptions options;
  options.max_pixels = 384;
  options.title = picture.title;
  const Image elements = draw_elements(picture.mask, shape, Alignment::kTopLeft, options);
  options.title = "64x64 tiles";
  const Image tiles = draw_tiles(build_block_mask(picture.mask, shape), options);
  save_png(beside(elements, tiles), folder + "/mask-" + picture.name + ".png");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  try {
    for (const Picture& picture : pictures()) draw(picture, argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}

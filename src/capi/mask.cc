// Masks of stof/stof.h.

#include "capi/mask.h"

#include <algorithm>
#include <cstring>

#include "capi/convert.h"
#include "capi/guard.h"
#include "capi/sized.h"
#include "core/bits.h"
#include "mask/draw/exact_class.h"
#include "stof/block_mask.h"

namespace stof::capi {
namespace {

/// `make()` becomes the handle that is written through `result`, which the header calls `name`.
template <class Make>
stof_status make_mask(stof_mask** result, Make&& make, const char* name = "mask") {
  return guard([&] {
    stof_mask*& out = required(result, name);
    out = new stof_mask{make()};
  });
}

template <class Make>
stof_status make_text(char** result, const char* name, Make&& make) {
  return guard([&] {
    char*& out = required(result, name);
    out = copy_text(make());
  });
}

void check_entry(const char* name, std::int64_t entry, std::int64_t extent) {
  STOF_CHECK(entry >= 0 && (extent == 1 || entry < extent), kInvalidArgument,
             "{}: expected 0 to {}, got {}", name, extent - 1, entry);
}

mask::Mask bind(const stof_mask* mask, const stof_score_shape* shape) {
  const stof_score_shape given = read_sized(shape, "shape");
  return required(mask, "mask")
      .mask.bind(shape_of(given), alignment_of(given.alignment, "shape.alignment"));
}

void check_below(const char* name, std::int64_t value, std::int64_t extent) {
  STOF_CHECK(value >= 0 && value < extent, kInvalidArgument, "{}: expected 0 to {}, got {}", name,
             extent - 1, value);
}

std::string draw_text(const mask::Mask& mask, const mask::ScoreShape& shape,
                      const stof_draw_options& options) {
  constexpr std::int64_t kDefaultCells = 64, kMaxCells = 4096;
  STOF_CHECK(options.reserved == 0, kInvalidArgument, "options.reserved: expected 0, got {}",
             options.reserved);
  check_below("options.batch", options.batch, shape.batch);
  check_below("options.head", options.head, shape.num_heads);
  STOF_CHECK(options.max_cells >= 0 && options.max_cells <= kMaxCells, kInvalidArgument,
             "options.max_cells: expected 1 to {}, or 0 for {}, got {}", kMaxCells, kDefaultCells,
             options.max_cells);
  const std::int64_t max_cells = options.max_cells == 0 ? kDefaultCells : options.max_cells;
  const std::int64_t cell =
      std::max<std::int64_t>(1, ceil_div(std::max(shape.seq_q, shape.seq_kv), max_cells));
  std::string text;
  for (std::int64_t q = 0; q < shape.seq_q; q += cell) {
    for (std::int64_t k = 0; k < shape.seq_kv; k += cell)
      text += mask::symbol(mask::exact_class(
          mask, options.batch, options.head,
          {q, std::min(q + cell, shape.seq_q), k, std::min(k + cell, shape.seq_kv)}));
    text += '\n';
  }
  return text;
}

}  // namespace
}  // namespace stof::capi

using namespace stof::capi;

extern "C" {

stof_status stof_mask_parse(const char* text, const char* base_dir, stof_mask** mask) {
  return make_mask(mask, [&] {
    return stof::mask::parse(&required(text, "text"), base_dir == nullptr ? "" : base_dir);
  });
}

stof_status stof_mask_from_json(const char* json, stof_mask** mask) {
  return make_mask(mask, [&] { return stof::mask::from_json(&required(json, "json")); });
}

stof_status stof_mask_dense(const stof_tensor* visible, stof_mask** mask) {
  return make_mask(mask, [&] { return stof::mask::dense(tensor_of(visible, "visible")); });
}

stof_status stof_mask_and(const stof_mask* a, const stof_mask* b, stof_mask** mask) {
  return make_mask(mask, [&] {
    const stof::mask::Mask& first = required(a, "a").mask;
    return first & required(b, "b").mask;
  });
}

stof_status stof_mask_or(const stof_mask* a, const stof_mask* b, stof_mask** mask) {
  return make_mask(mask, [&] {
    const stof::mask::Mask& first = required(a, "a").mask;
    return first | required(b, "b").mask;
  });
}

stof_status stof_mask_not(const stof_mask* a, stof_mask** mask) {
  return make_mask(mask, [&] { return ~required(a, "a").mask; });
}

stof_status stof_mask_bind(const stof_mask* mask, const stof_score_shape* shape,
                           stof_mask** bound) {
  return make_mask(
      bound, [&] { return bind(mask, shape); }, "bound");
}

void stof_mask_release(stof_mask* mask) { delete mask; }

stof_status stof_mask_visible(const stof_mask* mask, int64_t batch, int64_t head, int64_t q,
                              int64_t k, int32_t* visible) {
  return guard([&] {
    const stof::mask::Mask& asked = required(mask, "mask").mask;
    std::int32_t& out = required(visible, "visible");
    STOF_CHECK(asked.bound(), kInvalidArgument,
               "mask: expected one that is bound to a shape, got {}; call stof_mask_bind() first",
               asked.describe());
    check_entry("batch", batch, asked.batch_extent());
    check_entry("head", head, asked.head_extent());
    out = asked.visible(batch, head, q, k) ? 1 : 0;
  });
}

stof_status stof_mask_to_text(const stof_mask* mask, char** text) {
  return make_text(text, "text", [&] { return required(mask, "mask").mask.to_text(); });
}

stof_status stof_mask_to_json(const stof_mask* mask, char** json) {
  return make_text(json, "json", [&] { return required(mask, "mask").mask.to_json(); });
}

stof_status stof_mask_describe(const stof_mask* mask, char** text) {
  return make_text(text, "text", [&] { return required(mask, "mask").mask.describe(); });
}

stof_status stof_mask_fingerprint(const stof_mask* mask, char hex[33]) {
  return guard([&] {
    const std::string text = required(mask, "mask").mask.fingerprint().hex();
    std::memcpy(&required(hex, "hex"), text.c_str(), text.size() + 1);
  });
}

stof_status stof_mask_stats(const stof_mask* mask, const stof_score_shape* shape, char** json) {
  return make_text(json, "json", [&] {
    const stof_score_shape given = read_sized(shape, "shape");
    return compute_stats(build_block_mask(required(mask, "mask").mask, shape_of(given),
                                          alignment_of(given.alignment, "shape.alignment")))
        .to_json();
  });
}

stof_status stof_mask_draw_text(const stof_mask* mask, const stof_score_shape* shape,
                                const stof_draw_options* options, char** text) {
  return make_text(text, "text", [&] {
    const stof_draw_options given = read_sized_or_default(options, "options");
    const stof::mask::Mask bound = bind(mask, shape);
    return draw_text(bound, shape_of(read_sized(shape, "shape")), given);
  });
}

}  // extern "C"

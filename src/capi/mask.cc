// Masks of stof/stof.h.

#include "capi/mask.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "capi/convert.h"
#include "capi/guard.h"
#include "capi/sized.h"
#include "mask/interval.h"
#include "stof/block_mask.h"

namespace stof::capi {
namespace {

/// Far more than an expression can name.
constexpr std::int64_t kMaxTables = 1 << 16;

/// `make()` becomes the handle that is written through `result`, which the header calls `name`.
template <class Make>
stof_status make_mask(stof_mask** result, Make&& make, const char* name = "mask") {
  return guard([&] {
    stof_mask*& out = required(result, name);
    out = new stof_mask{make()};
  });
}

/// A batch entry or head of a mask of that many.
void check_entry(const char* name, std::int64_t entry, std::int64_t extent) {
  STOF_CHECK(entry >= 0, kInvalidArgument, "{}: expected at least 0, got {}", name, entry);
  STOF_CHECK(extent <= 1 || entry < extent, kInvalidArgument, "{}: expected 0 to {}, got {}", name,
             extent - 1, entry);
}

/// bool [batch, num_heads, seq_q, seq_kv], written a row at a time.
void write_visible(const mask::Mask& bound, const mask::ScoreShape& shape,
                   const MutableTensorView& out) {
  const Dims extents{shape.batch, shape.num_heads, shape.seq_q, shape.seq_kv};
  STOF_CHECK(out.dtype == DType::kBool, kInvalidArgument, "visible.dtype: expected bool, got {}",
             to_string(out.dtype));
  STOF_CHECK(out.shape == extents, kInvalidArgument, "visible.shape: expected {}, got {}",
             extents.to_string(), out.shape.to_string());
  auto* const elements = static_cast<std::uint8_t*>(out.data);
  for (std::int64_t b = 0; b < shape.batch; ++b)
    for (std::int64_t h = 0; h < shape.num_heads; ++h)
      for (std::int64_t q = 0; q < shape.seq_q; ++q) {
        std::uint8_t* const row =
            elements + b * out.strides[0] + h * out.strides[1] + q * out.strides[2];
        for (std::int64_t k = 0; k < shape.seq_kv; k += 64) {
          const std::uint64_t bits = bound.row_bits(b, h, q, k);
          for (std::int64_t i = 0; i < std::min<std::int64_t>(64, shape.seq_kv - k); ++i)
            row[(k + i) * out.strides[3]] = bits >> i & 1;
        }
      }
}

/// The mask to ask about single pairs of one batch entry and head.
const mask::Mask& asked_mask(const stof_mask* mask, std::int64_t batch, std::int64_t head) {
  const mask::Mask& asked = required(mask, "mask").mask;
  STOF_CHECK(asked.bound(), kInvalidArgument,
             "mask: expected one that is bound to a shape, got {}; call stof_mask_bind() first",
             asked.describe());
  check_entry("batch", batch, asked.batch_extent());
  check_entry("head", head, asked.head_extent());
  return asked;
}

mask::Mask predicate_of(const char* text, std::int64_t num_tables, const char* const* names,
                        const stof_tensor* const* tensors) {
  STOF_CHECK(num_tables >= 0 && num_tables <= kMaxTables, kInvalidArgument,
             "num_tables: expected 0 to {}, got {}", kMaxTables, num_tables);
  STOF_CHECK(num_tables == 0 || (names != nullptr && tensors != nullptr), kInvalidArgument,
             "names, tables: expected {} of each, got null", num_tables);
  std::vector<mask::PredicateTable> tables;
  for (std::int64_t i = 0; i < num_tables; ++i) {
    const std::string name = fmt::format("names[{}]", i), table = fmt::format("tables[{}]", i);
    tables.push_back({&required(names[i], name.c_str()), tensor_of(tensors[i], table.c_str())});
  }
  return mask::predicate(&required(text, "text"), tables);
}

}  // namespace

mask::Mask bound_to(const stof_mask* mask, const stof_score_shape* shape) {
  const stof_score_shape given = read_sized(shape, "shape");
  return required(mask, "mask")
      .mask.bind(shape_of(given), alignment_of(given.alignment, "shape.alignment"));
}

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

stof_status stof_mask_predicate(const char* text, int64_t num_tables, const char* const* names,
                                const stof_tensor* const* tables, stof_mask** mask) {
  return make_mask(mask, [&] { return predicate_of(text, num_tables, names, tables); });
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
      bound, [&] { return bound_to(mask, shape); }, "bound");
}

void stof_mask_release(stof_mask* mask) { delete mask; }

stof_status stof_mask_visible(const stof_mask* mask, int64_t batch, int64_t head, int64_t q,
                              int64_t k, int32_t* visible) {
  return guard([&] {
    const stof::mask::Mask& asked = asked_mask(mask, batch, head);
    std::int32_t& out = required(visible, "visible");
    out = asked.visible(batch, head, q, k) ? 1 : 0;
  });
}

stof_status stof_mask_visible_keys(const stof_mask* mask, int64_t batch, int64_t head, int64_t q,
                                   int64_t seq_kv, int64_t capacity, int64_t* keys,
                                   int64_t* num_keys) {
  return guard([&] {
    const stof::mask::Mask& asked = asked_mask(mask, batch, head);
    std::int64_t& out = required(num_keys, "num_keys");
    STOF_CHECK(seq_kv >= 0 && seq_kv <= stof::mask::kMaxPosition, kInvalidArgument,
               "seq_kv: expected 0 to {}, got {}", stof::mask::kMaxPosition, seq_kv);
    STOF_CHECK(capacity >= 0, kInvalidArgument, "capacity: expected at least 0, got {}", capacity);
    if (capacity > 0) required(keys, "keys");
    const std::vector<std::int64_t> visible = asked.visible_keys(batch, head, q, seq_kv);
    std::copy_n(visible.begin(), std::min<std::int64_t>(capacity, std::ssize(visible)), keys);
    out = std::ssize(visible);
  });
}

stof_status stof_mask_to_dense(const stof_mask* mask, const stof_score_shape* shape,
                               const stof_tensor* visible) {
  return guard([&] {
    const stof::mask::Mask bound = bound_to(mask, shape);
    write_visible(bound, shape_of(read_sized(shape, "shape")),
                  output_of(&required(visible, "visible"), "visible"));
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

}  // extern "C"

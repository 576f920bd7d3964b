// BlockMask files: safetensors, described in docs/file-formats.md.

#include <charconv>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "mask/block/builder.h"
#include "stof/safetensors.h"

namespace stof::mask {
namespace {

constexpr char kFormat[] = "stof.block_mask";
constexpr char kVersion[] = "1";

// Both are written as rows of two int32.
static_assert(sizeof(FullRun) == 8 && sizeof(PartialTile) == 8);

std::string tensor_name(std::int64_t pattern, const char* field) {
  return fmt::format("pattern.{}.{}", pattern, field);
}

/// Reads the parts of one file; every error names the file and the field.
class Reader {
 public:
  explicit Reader(const std::string& path) : file_(SafetensorsFile::open(path)) {}

  const std::string& text(const char* key) const {
    const auto entry = file_.metadata().find(key);
    STOF_CHECK(entry != file_.metadata().end(), kCorrupt,
               "{}: metadata {}: missing; expected a file written by BlockMask::save()",
               file_.path(), key);
    return entry->second;
  }

  std::int64_t extent(const char* key) const {
    const std::string& digits = text(key);
    std::int64_t value = 0;
    const char* end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, value);
    STOF_CHECK(error == std::errc() && stop == end && value >= 1 &&
                   value <= std::numeric_limits<std::int32_t>::max(),
               kCorrupt, "{}: metadata {}: expected 1 to 2147483647, got '{}'", file_.path(), key,
               digits);
    return value;
  }

  /// Copies a tensor of shape [any, width], or [any] where width is 0, into rows of type T.
  template <class T>
  std::vector<T> rows(const std::string& name, DType dtype, std::int64_t width) const {
    const TensorView& view = tensor(name, dtype);
    const bool fits =
        width == 0 ? view.shape.rank() == 1 : view.shape.rank() == 2 && view.shape[1] == width;
    STOF_CHECK(fits, kCorrupt, "{}: tensor {}: expected shape [n{}], got {}", file_.path(), name,
               width == 0 ? "" : fmt::format(", {}", width), view.shape.to_string());
    std::vector<T> values(static_cast<std::size_t>(view.shape[0]));
    // The file's data need not be aligned.
    if (!values.empty()) std::memcpy(values.data(), view.data, values.size() * sizeof(T));
    return values;
  }

  const TensorView& tensor(const std::string& name, DType dtype) const {
    const TensorView* view = file_.find(name);
    STOF_CHECK(view != nullptr, kCorrupt, "{}: tensor {} is missing", file_.path(), name);
    STOF_CHECK(view->dtype == dtype, kCorrupt, "{}: tensor {}: expected {}, got {}", file_.path(),
               name, stof::to_string(dtype), stof::to_string(view->dtype));
    return *view;
  }

  /// From the number of tensors: two, and four a pattern.
  std::int64_t num_patterns() const {
    const std::int64_t tensors = std::ssize(file_.tensors());
    STOF_CHECK(tensors >= 2 && (tensors - 2) % 4 == 0, kCorrupt,
               "{}: expected 2 tensors and 4 for each pattern, got {}", file_.path(), tensors);
    return (tensors - 2) / 4;
  }

 private:
  SafetensorsFile file_;
};

BlockPattern read_pattern(const Reader& reader, std::int64_t index) {
  BlockPattern p;
  p.full_run_ptr = reader.rows<std::int64_t>(tensor_name(index, "full_run_ptr"), DType::kInt64, 0);
  p.full_runs = reader.rows<FullRun>(tensor_name(index, "full_runs"), DType::kInt32, 2);
  p.partial_ptr = reader.rows<std::int64_t>(tensor_name(index, "partial_ptr"), DType::kInt64, 0);
  p.partial = reader.rows<PartialTile>(tensor_name(index, "partial"), DType::kInt32, 2);
  return p;
}

}  // namespace

void BlockMask::save(const std::string& path) const {
  std::vector<NamedTensor> tensors = {
      {"pattern_of", {pattern_of_.data(), DType::kInt32, {batch_extent_, head_extent_}}},
      {"bitmaps", {bitmaps_.data(), DType::kUInt64, {std::ssize(bitmaps_), 64}}},
  };
  for (std::int64_t i = 0; i < num_patterns(); ++i) {
    const BlockPattern& p = pattern(i);
    const auto add = [&](const char* field, const void* data, DType dtype, const Dims& shape) {
      tensors.push_back({tensor_name(i, field), {data, dtype, shape}});
    };
    add("full_run_ptr", p.full_run_ptr.data(), DType::kInt64, {std::ssize(p.full_run_ptr)});
    add("full_runs", p.full_runs.data(), DType::kInt32, {std::ssize(p.full_runs), 2});
    add("partial_ptr", p.partial_ptr.data(), DType::kInt64, {std::ssize(p.partial_ptr)});
    add("partial", p.partial.data(), DType::kInt32, {std::ssize(p.partial), 2});
  }
  const Metadata metadata = {
      {"format", kFormat},
      {"version", kVersion},
      {"batch", std::to_string(shape_.batch)},
      {"num_heads", std::to_string(shape_.num_heads)},
      {"seq_q", std::to_string(shape_.seq_q)},
      {"seq_kv", std::to_string(shape_.seq_kv)},
      {"fingerprint", fingerprint().hex()},
  };
  save_safetensors(path, tensors, metadata);
}

BlockMask BlockMask::load(const std::string& path) {
  const Reader reader(path);
  STOF_CHECK(reader.text("format") == kFormat, kCorrupt,
             "{}: metadata format: expected '{}', got '{}'", path, kFormat, reader.text("format"));
  STOF_CHECK(reader.text("version") == kVersion, kUnsupported,
             "{}: metadata version: expected {}, got '{}'; save the mask again with this stof",
             path, kVersion, reader.text("version"));
  const ScoreShape shape{reader.extent("batch"), reader.extent("num_heads"), reader.extent("seq_q"),
                         reader.extent("seq_kv")};

  const TensorView& table = reader.tensor("pattern_of", DType::kInt32);
  STOF_CHECK(table.shape.rank() == 2, kCorrupt,
             "{}: tensor pattern_of: expected shape [batch, heads], got {}", path,
             table.shape.to_string());
  std::vector<std::int32_t> pattern_of(static_cast<std::size_t>(num_elements(table.shape)));
  if (!pattern_of.empty())
    std::memcpy(pattern_of.data(), table.data, pattern_of.size() * sizeof(std::int32_t));
  std::vector<BlockPattern> patterns;
  for (std::int64_t i = 0; i < reader.num_patterns(); ++i)
    patterns.push_back(read_pattern(reader, i));

  BlockMask mask = BlockMaskBuilder::assemble(
      shape, table.shape[0], table.shape[1], std::move(pattern_of), std::move(patterns),
      reader.rows<OuterBitmap>("bitmaps", DType::kUInt64, 64));
  const std::string fault = BlockMaskBuilder::find_fault(mask);
  STOF_CHECK(fault.empty(), kCorrupt, "{}: {}", path, fault);
  const std::string fingerprint = mask.fingerprint().hex();
  STOF_CHECK(reader.text("fingerprint") == fingerprint, kCorrupt,
             "{}: metadata fingerprint: expected {} (of the contents), got '{}'", path, fingerprint,
             reader.text("fingerprint"));
  return mask;
}

}  // namespace stof::mask

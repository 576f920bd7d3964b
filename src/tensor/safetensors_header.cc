#include "tensor/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "core/check.h"
#include "core/text.h"
#include "tensor/file_data.h"

namespace stof {
namespace {

using Json = nlohmann::json;

constexpr std::pair<DType, std::string_view> kDTypeNames[] = {
    {DType::kFloat64, "F64"},   {DType::kFloat32, "F32"},        {DType::kFloat16, "F16"},
    {DType::kBFloat16, "BF16"}, {DType::kFloat8E4M3, "F8_E4M3"}, {DType::kFloat8E5M2, "F8_E5M2"},
    {DType::kInt64, "I64"},     {DType::kInt32, "I32"},          {DType::kInt16, "I16"},
    {DType::kInt8, "I8"},       {DType::kUInt64, "U64"},         {DType::kUInt32, "U32"},
    {DType::kUInt16, "U16"},    {DType::kUInt8, "U8"},           {DType::kBool, "BOOL"},
};

/// Dtypes that newer versions of the format have and stof has no arithmetic for.
constexpr std::string_view kForeignDTypes[] = {"C64", "F8_E8M0", "F6_E2M3", "F6_E3M2", "F4"};

/// Receives the parser's events and accepts one shape of document only:
///   {"__metadata__": {string: string}, name: {"dtype": string, "shape": [uint...],
///    "data_offsets": [uint, uint]}, ...}
/// A DOM would keep just the last of two equal keys and build whatever nesting the text has.
class HeaderReader {
 public:
  HeaderReader(const std::string& path, SafetensorsHeader& header) : path_(path), header_(header) {}

  bool start_object(std::size_t) {
    switch (state_) {
      case State::kStart:
        state_ = State::kTop;
        return true;
      case State::kTop:
        state_ = in_metadata_ ? State::kMetadata : State::kTensor;
        return true;
      default:
        return refuse("an object");
    }
  }

  bool key(std::string& text) {
    switch (state_) {
      case State::kTop:
        start_entry(text);
        return true;
      case State::kMetadata:
        STOF_CHECK(!header_.metadata.contains(text), kCorrupt, "{}: {}: key {} appears twice",
                   path_, kSafetensorsMetadataKey, quote_text(text));
        field_ = text;
        return true;
      default:  // kTensor: the parser gives keys inside objects only
        start_field(text);
        return true;
    }
  }

  bool string(std::string& text) {
    if (state_ == State::kMetadata) {
      header_.metadata.emplace(field_, text);
      return true;
    }
    if (state_ != State::kTensor || field_ != "dtype") return refuse("a string");
    current_.dtype = parse_dtype(text);
    return true;
  }

  bool start_array(std::size_t) {
    if (state_ != State::kTensor || field_ == "dtype") return refuse("a list");
    state_ = State::kList;
    return true;
  }

  bool number_unsigned(std::uint64_t value) {
    if (state_ != State::kList) return refuse("a number");
    if (field_ == "data_offsets") {
      STOF_CHECK(num_offsets_ < 2, kCorrupt, "{}: tensor {}: data_offsets: expected 2 numbers",
                 path_, quote_text(current_.name));
      (num_offsets_++ == 0 ? current_.begin : current_.end) = value;
      return true;
    }
    STOF_CHECK(value <= std::uint64_t{INT64_MAX}, kCorrupt,
               "{}: tensor {}: shape: expected extents below 2^63, got {}", path_,
               quote_text(current_.name), value);
    STOF_CHECK(current_.shape.rank() < Dims::kMaxRank, kUnsupported,
               "{}: tensor {}: shape: at most {} dimensions are supported", path_,
               quote_text(current_.name), Dims::kMaxRank);
    current_.shape.push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool end_array() {
    state_ = State::kTensor;
    return true;
  }

  bool end_object() {
    if (state_ == State::kTensor) finish_tensor();
    state_ = state_ == State::kTop ? State::kStart : State::kTop;
    return true;
  }

  bool null() { return refuse("null"); }
  bool boolean(bool) { return refuse("a boolean"); }
  bool number_integer(std::int64_t) { return refuse("a negative number"); }
  bool number_float(double, const std::string&) {
    return refuse("a number that is no 64-bit integer");
  }
  bool binary(Json::binary_t&) { return refuse("binary data"); }
  bool parse_error(std::size_t position, const std::string&, const Json::exception&) {
    throw_error(ErrorCode::kCorrupt, "{}: header: invalid JSON at byte {} of the header", path_,
                position);
  }

 private:
  enum class State { kStart, kTop, kMetadata, kTensor, kList };

  /// "the header", "tensor "x": shape", ...
  std::string where() const {
    if (state_ == State::kStart) return "header";
    if (in_metadata_) return std::string(kSafetensorsMetadataKey);
    std::string text = "tensor " + quote_text(current_.name);
    if (state_ != State::kTop) text.append(": ").append(field_);
    return text;
  }

  bool refuse(std::string_view found) const {
    std::string_view expected = "an object";
    if (state_ == State::kMetadata) expected = "a string";
    if (state_ == State::kTensor) expected = field_ == "dtype" ? "a string" : "a list";
    if (state_ == State::kList) expected = "a whole number of at least 0";
    throw_error(ErrorCode::kCorrupt, "{}: {}: expected {}, got {}", path_, where(), expected,
                found);
  }

  void start_entry(const std::string& name) {
    STOF_CHECK(names_.insert(name).second, kCorrupt, "{}: name {} appears twice", path_,
               quote_text(name));
    in_metadata_ = name == kSafetensorsMetadataKey;
    current_ = {};
    current_.name = name;
    has_dtype_ = has_shape_ = has_offsets_ = false;
    num_offsets_ = 0;
  }

  void start_field(const std::string& field) {
    bool* seen = nullptr;
    if (field == "dtype") seen = &has_dtype_;
    if (field == "shape") seen = &has_shape_;
    if (field == "data_offsets") seen = &has_offsets_;
    STOF_CHECK(seen != nullptr, kCorrupt,
               "{}: tensor {}: expected the fields dtype, shape, data_offsets; got {}", path_,
               quote_text(current_.name), quote_text(field));
    STOF_CHECK(!*seen, kCorrupt, "{}: tensor {}: field {} appears twice", path_,
               quote_text(current_.name), field);
    *seen = true;
    field_ = field;
  }

  DType parse_dtype(const std::string& text) const {
    for (const auto& [dtype, name] : kDTypeNames)
      if (name == text) return dtype;
    const bool foreign = std::find(std::begin(kForeignDTypes), std::end(kForeignDTypes), text) !=
                         std::end(kForeignDTypes);
    std::string known;
    for (const auto& [dtype, name] : kDTypeNames)
      known.append(known.empty() ? "" : ", ").append(name);
    throw_error(foreign ? ErrorCode::kUnsupported : ErrorCode::kCorrupt,
                "{}: tensor {}: dtype: expected one of {}; got {}", path_,
                quote_text(current_.name), known, quote_text(text));
  }

  void finish_tensor() {
    const std::string_view missing = !has_dtype_     ? "dtype"
                                     : !has_shape_   ? "shape"
                                     : !has_offsets_ ? "data_offsets"
                                                     : "";
    STOF_CHECK(missing.empty(), kCorrupt, "{}: tensor {}: field {} is missing", path_,
               quote_text(current_.name), missing);
    STOF_CHECK(num_offsets_ == 2, kCorrupt,
               "{}: tensor {}: data_offsets: expected 2 numbers, got {}", path_,
               quote_text(current_.name), num_offsets_);
    header_.tensors.push_back(std::move(current_));
  }

  const std::string& path_;
  SafetensorsHeader& header_;
  State state_ = State::kStart;
  bool in_metadata_ = false;
  std::set<std::string, std::less<>> names_;
  std::string field_;
  SafetensorsHeader::Tensor current_{};
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  int num_offsets_ = 0;
};

void check_layout(SafetensorsHeader& header, std::uint64_t section_bytes, const std::string& path) {
  auto& tensors = header.tensors;
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::uint64_t next = 0;
  std::string_view previous;
  for (const auto& tensor : tensors) {
    const std::string name = quote_text(tensor.name);
    STOF_CHECK(tensor.begin <= tensor.end && tensor.end <= section_bytes, kCorrupt,
               "{}: tensor {}: data_offsets [{}, {}]: expected an ascending range inside the {} "
               "bytes of data; the file is cut short or damaged",
               path, name, tensor.begin, tensor.end, section_bytes);
    const std::optional<std::uint64_t> bytes = data_bytes(tensor.dtype, tensor.shape);
    STOF_CHECK(bytes == tensor.end - tensor.begin, kCorrupt,
               "{}: tensor {}: data_offsets [{}, {}] are {} bytes, but {}{} takes {}", path, name,
               tensor.begin, tensor.end, tensor.end - tensor.begin,
               safetensors_dtype_name(tensor.dtype), tensor.shape.to_string(),
               bytes ? std::to_string(*bytes) : "more than 2^63");
    STOF_CHECK(tensor.begin >= next, kCorrupt,
               "{}: tensor {} starts at byte {} of the data, inside tensor {}, which ends at {}",
               path, name, tensor.begin, quote_text(previous), next);
    STOF_CHECK(tensor.begin == next, kCorrupt,
               "{}: bytes {} to {} of the data, before tensor {}, belong to no tensor", path, next,
               tensor.begin, name);
    next = tensor.end;
    previous = tensor.name;
  }
  STOF_CHECK(next == section_bytes, kCorrupt,
             "{}: expected {} bytes of data as the tensors take, got {}", path, next,
             section_bytes);
}

}  // namespace

std::string_view safetensors_dtype_name(DType dtype) {
  for (const auto& [value, name] : kDTypeNames)
    if (value == dtype) return name;
  throw_error(ErrorCode::kInternal, "internal error: {} has no safetensors name", to_string(dtype));
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                           const std::string& path) {
  STOF_CHECK(file.size() >= kSafetensorsPrefixBytes, kCorrupt,
             "{}: expected a safetensors file, which starts with 8 bytes of header length; got {} "
             "bytes in all",
             path, file.size());
  std::uint64_t header_bytes = 0;
  for (std::size_t i = kSafetensorsPrefixBytes; i-- > 0;)  // little-endian
    header_bytes = header_bytes << 8 | std::to_integer<std::uint64_t>(file[i]);
  const std::uint64_t available = file.size() - kSafetensorsPrefixBytes;
  STOF_CHECK(header_bytes <= available, kCorrupt,
             "{}: the first 8 bytes promise a header of {} bytes, but {} follow; no safetensors "
             "file, or cut short",
             path, header_bytes, available);
  STOF_CHECK(header_bytes <= kSafetensorsMaxHeaderBytes, kCorrupt,
             "{}: header: expected at most {} bytes, got {}", path, kSafetensorsMaxHeaderBytes,
             header_bytes);
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kSafetensorsPrefixBytes,
                              static_cast<std::size_t>(header_bytes));
  STOF_CHECK(!text.empty() && text.front() == '{', kCorrupt,
             "{}: header: expected JSON that starts with '{{'; no safetensors file, or damaged",
             path);
  // nlohmann's lexer takes a zero byte for the end of the text and would ignore what follows.
  STOF_CHECK(text.find('\0') == std::string_view::npos, kCorrupt,
             "{}: header: a zero byte at byte {}", path, text.find('\0'));

  SafetensorsHeader header;
  header.data_offset = kSafetensorsPrefixBytes + header_bytes;
  HeaderReader reader(path, header);
  Json::sax_parse(text.begin(), text.end(), &reader);
  check_layout(header, file.size() - header.data_offset, path);
  return header;
}

}  // namespace stof

#include "tensor/gguf_header.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "core/check.h"
#include "core/text.h"
#include "tensor/gguf_blocks.h"

namespace stof {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::uint32_t kMaxTensorRank = 4;  // the format's own

/// The format's numbers of metadata types.
enum ValueType : std::uint32_t {
  kUInt8 = 0,
  kInt8 = 1,
  kUInt16 = 2,
  kInt16 = 3,
  kUInt32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUInt64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

/// Bytes that a value of a type takes at least; 0 for a number that is no element type.
std::uint64_t least_bytes(std::uint32_t type) {
  switch (type) {
    case kUInt8:
    case kInt8:
    case kBool:
      return 1;
    case kUInt16:
    case kInt16:
      return 2;
    case kUInt32:
    case kInt32:
    case kFloat32:
      return 4;
    case kString:  // its length
    case kUInt64:
    case kInt64:
    case kFloat64:
      return 8;
    default:
      return 0;
  }
}

class Reader {
 public:
  Reader(std::span<const std::byte> file, const std::string& path) : file_(file), path_(path) {}

  std::uint64_t offset() const { return offset_; }
  std::uint64_t left() const { return file_.size() - offset_; }
  const std::string& path() const { return path_; }
  std::span<const std::byte> file() const { return file_; }

  /// Throws Corrupt naming the field and where it stands.
  void require_bytes(std::uint64_t bytes, std::string_view field) const {
    STOF_CHECK(bytes <= left(), kCorrupt, "{}: {} at byte {}: expected {} bytes, got {}", path_,
               field, offset_, bytes, left());
  }

  template <class T>
  T number(std::string_view field) {
    require_bytes(sizeof(T), field);
    T value;
    std::memcpy(&value, file_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return value;
  }

  std::string string(std::string_view field) {
    const auto bytes = number<std::uint64_t>(field);
    require_bytes(bytes, field);
    std::string text(reinterpret_cast<const char*>(file_.data() + offset_),
                     static_cast<std::size_t>(bytes));
    offset_ += bytes;
    return text;
  }

  bool boolean(std::string_view field) {
    const auto byte = number<std::uint8_t>(field);
    STOF_CHECK(byte <= 1, kCorrupt, "{}: {} at byte {}: expected a boolean of 0 or 1, got {}",
               path_, field, offset_ - 1, byte);
    return byte == 1;
  }

 private:
  std::span<const std::byte> file_;
  const std::string& path_;
  std::uint64_t offset_ = 0;
};

std::int64_t read_integer(Reader& reader, std::uint32_t type, std::string_view field) {
  switch (type) {
    case kUInt8:
      return reader.number<std::uint8_t>(field);
    case kInt8:
      return reader.number<std::int8_t>(field);
    case kUInt16:
      return reader.number<std::uint16_t>(field);
    case kInt16:
      return reader.number<std::int16_t>(field);
    case kUInt32:
      return reader.number<std::uint32_t>(field);
    case kInt32:
      return reader.number<std::int32_t>(field);
    case kInt64:
      return reader.number<std::int64_t>(field);
    default: {
      const auto value = reader.number<std::uint64_t>(field);
      STOF_CHECK(value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()),
                 kUnsupported, "{}: {} at byte {}: expected an integer below 2^63, got {}",
                 reader.path(), field, reader.offset() - 8, value);
      return static_cast<std::int64_t>(value);
    }
  }
}

GgufValue read_value(Reader& reader, std::uint32_t type, std::string_view field);

template <class T, class Read>
std::vector<T> read_list(std::uint64_t count, Read read) {
  std::vector<T> list;
  list.reserve(static_cast<std::size_t>(count));
  for (std::uint64_t i = 0; i < count; ++i) list.push_back(read());
  return list;
}

GgufValue read_array(Reader& reader, std::string_view field) {
  const auto type = reader.number<std::uint32_t>(field);
  STOF_CHECK(type != kArray, kUnsupported,
             "{}: {} at byte {}: expected an array of numbers, booleans or strings, got one of "
             "arrays",
             reader.path(), field, reader.offset() - 4);
  const std::uint64_t least = least_bytes(type);
  STOF_CHECK(least > 0, kCorrupt, "{}: {} at byte {}: expected an element type of 0 to 12, got {}",
             reader.path(), field, reader.offset() - 4, type);
  const auto count = reader.number<std::uint64_t>(field);
  STOF_CHECK(count <= reader.left() / least, kCorrupt,
             "{}: {} at byte {}: expected room for {} elements of at least {} bytes, got {} bytes",
             reader.path(), field, reader.offset(), count, least, reader.left());
  switch (type) {
    case kString:
      return read_list<std::string>(count, [&] { return reader.string(field); });
    case kBool:
      return read_list<bool>(count, [&] { return reader.boolean(field); });
    case kFloat32:
      return read_list<double>(count, [&] { return double{reader.number<float>(field)}; });
    case kFloat64:
      return read_list<double>(count, [&] { return reader.number<double>(field); });
    default:
      return read_list<std::int64_t>(count, [&] { return read_integer(reader, type, field); });
  }
}

GgufValue read_value(Reader& reader, std::uint32_t type, std::string_view field) {
  switch (type) {
    case kFloat32:
      return double{reader.number<float>(field)};
    case kFloat64:
      return reader.number<double>(field);
    case kBool:
      return reader.boolean(field);
    case kString:
      return reader.string(field);
    case kArray:
      return read_array(reader, field);
    default:
      STOF_CHECK(least_bytes(type) > 0, kCorrupt,
                 "{}: {} at byte {}: expected a value type of 0 to 12, got {}", reader.path(),
                 field, reader.offset() - 4, type);
      return read_integer(reader, type, field);
  }
}

/// Where a tensor's data is, from the start of the data section.
struct Range {
  std::uint64_t begin, end;
  std::string name;
};

struct TensorInfo {
  GgufTensor tensor;
  Range range;
};

Dims read_shape(Reader& reader, const std::string& field) {
  const auto rank = reader.number<std::uint32_t>(field + ": dimensions");
  STOF_CHECK(rank >= 1 && rank <= kMaxTensorRank, kCorrupt,
             "{}: {} at byte {}: expected 1 to {} dimensions, got {}", reader.path(), field,
             reader.offset() - 4, kMaxTensorRank, rank);
  std::vector<std::int64_t> extents(rank);
  for (std::int64_t& extent : extents) {
    extent = read_integer(reader, kUInt64, field + ": extent");
    STOF_CHECK(extent >= 1, kCorrupt, "{}: {} at byte {}: expected extents of at least 1, got {}",
               reader.path(), field, reader.offset() - 8, extent);
  }
  std::reverse(extents.begin(), extents.end());
  return Dims(extents);
}

/// Bytes of the data; throws where the shape and the type do not fit each other.
std::uint64_t data_bytes_of(const Reader& reader, const std::string& field, GgufType type,
                            const Dims& shape) {
  const GgufBlock block = gguf_block(type);
  const std::int64_t row = shape[shape.rank() - 1];
  STOF_CHECK(row % block.elements == 0, kCorrupt,
             "{}: {}: expected rows of a multiple of {} elements for type {}, got shape {}",
             reader.path(), field, block.elements, to_string(type), shape.to_string());
  std::int64_t bytes = row / block.elements;
  bool overflow = __builtin_mul_overflow(bytes, block.bytes, &bytes);
  for (int i = 0; i + 1 < shape.rank(); ++i)
    overflow = overflow || __builtin_mul_overflow(bytes, shape[i], &bytes);
  STOF_CHECK(!overflow, kCorrupt, "{}: {}: expected less than 2^63 bytes, got shape {}",
             reader.path(), field, shape.to_string());
  return static_cast<std::uint64_t>(bytes);
}

TensorInfo read_tensor_info(Reader& reader, std::uint64_t index, std::uint64_t alignment) {
  TensorInfo info;
  info.range.name = reader.string(fmt::format("name of tensor {}", index));
  const std::string field = "tensor " + quote_text(info.range.name);
  info.tensor.shape = read_shape(reader, field);
  const auto number = reader.number<std::uint32_t>(field + ": type");
  const std::optional<GgufType> type = gguf_type(number);
  STOF_CHECK(type.has_value(), kUnsupported,
             "{}: {} at byte {}: expected type F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, "
             "Q5_K or Q6_K, got type number {}",
             reader.path(), field, reader.offset() - 4, number);
  info.tensor.type = *type;
  info.range.begin = reader.number<std::uint64_t>(field + ": offset");
  STOF_CHECK(info.range.begin % alignment == 0, kCorrupt,
             "{}: {} at byte {}: expected an offset that is a multiple of {}, got {}",
             reader.path(), field, reader.offset() - 8, alignment, info.range.begin);
  const std::uint64_t bytes = data_bytes_of(reader, field, *type, info.tensor.shape);
  STOF_CHECK(!__builtin_add_overflow(info.range.begin, bytes, &info.range.end), kCorrupt,
             "{}: {} at byte {}: expected an offset inside the file, got {}", reader.path(), field,
             reader.offset() - 8, info.range.begin);
  return info;
}

std::uint64_t alignment_of(const GgufHeader& header, const std::string& path) {
  const auto found = header.metadata.find("general.alignment");
  if (found == header.metadata.end()) return kDefaultAlignment;
  const auto* value = std::get_if<std::int64_t>(&found->second);
  constexpr std::int64_t kMax = 1 << 20;
  STOF_CHECK(value != nullptr && *value >= 1 && *value <= kMax && (*value & (*value - 1)) == 0,
             kCorrupt, "{}: general.alignment: expected a power of two up to {}, got {}", path,
             kMax, value != nullptr ? std::to_string(*value) : "another type");
  return static_cast<std::uint64_t>(*value);
}

void check_version(Reader& reader) {
  reader.require_bytes(kMagic.size(), "magic");
  std::string magic(kMagic.size(), '\0');
  for (char& c : magic) c = reader.number<char>("magic");
  STOF_CHECK(magic == kMagic, kCorrupt, "{}: magic at byte 0: expected \"GGUF\", got {}",
             reader.path(), quote_text(magic));
  const auto version = reader.number<std::uint32_t>("version");
  STOF_CHECK(version == 2 || version == 3, kUnsupported,
             "{}: version at byte 4: expected 2 or 3, little-endian, got {}{}", reader.path(),
             version, (version & 0xFFFFU) == 0 ? ", which is a big-endian file's" : "");
}

void check_overlaps(std::vector<Range>& ranges, const std::string& path) {
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < ranges.size(); ++i)
    STOF_CHECK(ranges[i].begin >= ranges[i - 1].end, kCorrupt,
               "{}: tensor {}: expected an offset from {}, where the data of {} ends, got {}", path,
               quote_text(ranges[i].name), ranges[i - 1].end, quote_text(ranges[i - 1].name),
               ranges[i].begin);
}

}  // namespace

GgufHeader parse_gguf_header(std::span<const std::byte> file, const std::string& path) {
  Reader reader(file, path);
  check_version(reader);
  const auto num_tensors = reader.number<std::uint64_t>("number of tensors");
  const auto num_values = reader.number<std::uint64_t>("number of metadata values");
  GgufHeader header;
  for (std::uint64_t i = 0; i < num_values; ++i) {
    std::string key = reader.string(fmt::format("key of metadata value {}", i));
    const std::string field = "metadata " + quote_text(key);
    const auto type = reader.number<std::uint32_t>(field);
    GgufValue value = read_value(reader, type, field);
    const bool is_new = header.metadata.emplace(std::move(key), std::move(value)).second;
    STOF_CHECK(is_new, kCorrupt, "{}: {}: expected it once, got it twice", path, field);
  }
  const std::uint64_t alignment = alignment_of(header, path);
  std::vector<Range> ranges;
  for (std::uint64_t i = 0; i < num_tensors; ++i) {
    TensorInfo info = read_tensor_info(reader, i, alignment);
    const bool is_new = header.tensors.emplace(info.range.name, info.tensor).second;
    STOF_CHECK(is_new, kCorrupt, "{}: tensor {}: expected it once, got it twice", path,
               quote_text(info.range.name));
    ranges.push_back(std::move(info.range));
  }
  const std::uint64_t padding = (alignment - reader.offset() % alignment) % alignment;
  const std::uint64_t available = reader.left() > padding ? reader.left() - padding : 0;
  check_overlaps(ranges, path);
  for (const Range& range : ranges) {
    STOF_CHECK(
        range.end <= available, kCorrupt,
        "{}: tensor {}: expected data up to byte {} of the data section, got a section of {} "
        "bytes; is the file cut off?",
        path, quote_text(range.name), range.end, available);
    header.tensors.find(range.name)->second.data =
        file.subspan(static_cast<std::size_t>(reader.offset() + padding + range.begin),
                     static_cast<std::size_t>(range.end - range.begin));
  }
  return header;
}

}  // namespace stof

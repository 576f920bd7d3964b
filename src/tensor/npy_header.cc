#include "tensor/npy_header.h"

#include <charconv>
#include <utility>

#include "core/check.h"
#include "core/text.h"
#include "tensor/file_data.h"

namespace stof {
namespace {

constexpr std::pair<DType, std::string_view> kDescrs[] = {
    {DType::kFloat64, "<f8"}, {DType::kFloat32, "<f4"}, {DType::kFloat16, "<f2"},
    {DType::kInt64, "<i8"},   {DType::kInt32, "<i4"},   {DType::kInt16, "<i2"},
    {DType::kInt8, "|i1"},    {DType::kUInt64, "<u8"},  {DType::kUInt32, "<u4"},
    {DType::kUInt16, "<u2"},  {DType::kUInt8, "|u1"},   {DType::kBool, "|b1"},
};

/// Reads the dictionary literal that NumPy writes, and nothing else of Python:
///   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
/// Keys in any order, each once; a comma may follow the last item.
class DictReader {
 public:
  DictReader(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  NpyHeader read() {
    expect('{');
    while (peek() != '}') {
      const std::string_view key = read_string("a quoted key");
      expect(':');
      read_value(key);
      if (peek() != '}') expect(',');
    }
    expect('}');
    // NumPy pads with spaces and ends with a newline.
    STOF_CHECK(peek() == '\0' && at_ == text_.size(), kCorrupt,
               "{}: header: expected nothing after the dictionary, got {}", path_,
               quote_text(text_.substr(at_), 20));
    const std::string_view missing = !has_descr_     ? "descr"
                                     : !has_fortran_ ? "fortran_order"
                                     : !has_shape_   ? "shape"
                                                     : "";
    STOF_CHECK(missing.empty(), kCorrupt, "{}: header: field {} is missing", path_, missing);
    return header_;
  }

 private:
  /// The next character that is no space, or '\0' at the end.
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  [[noreturn]] void refuse(std::string_view expected) const {
    throw_error(ErrorCode::kCorrupt, "{}: header: expected {} at byte {}, got {}", path_, expected,
                at_, quote_text(text_.substr(at_), 20));
  }

  void expect(char wanted) {
    if (peek() != wanted || at_ >= text_.size()) refuse(fmt::format("'{}'", wanted));
    ++at_;
  }

  std::string_view read_string(std::string_view what) {
    const char quote = peek();
    if (quote != '\'' && quote != '"') refuse(what);
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) refuse("a closing quote");
    const std::string_view value = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return value;
  }

  bool read_word(std::string_view word) {
    peek();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  void read_value(std::string_view key) {
    if (key == "descr") {
      mark(has_descr_, key);
      read_descr();
    } else if (key == "fortran_order") {
      mark(has_fortran_, key);
      if (read_word("True")) {
        header_.fortran_order = true;
      } else if (!read_word("False")) {
        refuse("True or False");
      }
    } else if (key == "shape") {
      mark(has_shape_, key);
      read_shape();
    } else {
      throw_error(ErrorCode::kCorrupt,
                  "{}: header: expected the fields descr, fortran_order, shape; got {}", path_,
                  quote_text(key));
    }
  }

  void mark(bool& seen, std::string_view key) const {
    STOF_CHECK(!seen, kCorrupt, "{}: header: field {} appears twice", path_, key);
    seen = true;
  }

  void read_descr() {
    STOF_CHECK(peek() != '[', kUnsupported,
               "{}: header: descr: structured dtypes are not supported; save each field alone",
               path_);
    const std::string_view descr = read_string("a quoted dtype");
    for (const auto& [dtype, name] : kDescrs) {
      // The order of a single byte is meaningless: NumPy writes '|', others '<'.
      const bool same_byte = dtype_bytes(dtype) == 1 && descr.size() == 3 && descr[0] == '<' &&
                             descr.substr(1) == name.substr(1);
      if (descr == name || same_byte) {
        header_.dtype = dtype;
        return;
      }
    }
    std::string known;
    for (const auto& [dtype, name] : kDescrs) known.append(known.empty() ? "" : " ").append(name);
    const bool big_endian = descr.starts_with('>');
    throw_error(ErrorCode::kUnsupported, "{}: header: descr: expected one of {}; got {}{}", path_,
                known, quote_text(descr, 20),
                big_endian
                    ? ", which is big-endian: save array.astype(array.dtype.newbyteorder('<'))"
                    : "");
  }

  void read_shape() {
    expect('(');
    while (peek() != ')') {
      STOF_CHECK(header_.shape.rank() < Dims::kMaxRank, kUnsupported,
                 "{}: header: shape: at most {} dimensions are supported", path_, Dims::kMaxRank);
      header_.shape.push_back(read_extent());
      if (peek() == ')') {
        // (3) is a number in Python; a tuple of one is (3,).
        if (header_.shape.rank() == 1) refuse("','");
        break;
      }
      expect(',');
    }
    expect(')');
  }

  std::int64_t read_extent() {
    peek();
    const char* begin = text_.data() + at_;
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error != std::errc() || value < 0) refuse("a whole number from 0 to 2^63-1");
    at_ += static_cast<std::size_t>(end - begin);
    return value;
  }

  std::string_view text_;
  const std::string& path_;
  std::size_t at_ = 0;
  NpyHeader header_;
  bool has_descr_ = false, has_fortran_ = false, has_shape_ = false;
};

void check_data_bytes(const NpyHeader& header, std::size_t available, const std::string& path) {
  const std::optional<std::uint64_t> expected = data_bytes(header.dtype, header.shape);
  STOF_CHECK(expected.has_value(), kCorrupt,
             "{}: header: shape {}: expected fewer than 2^63 bytes of data", path,
             header.shape.to_string());
  STOF_CHECK(expected == available, kCorrupt,
             "{}: {}{} takes {} bytes of data, got {}; the file is "
             "cut short or damaged",
             path, to_string(header.dtype), header.shape.to_string(), *expected, available);
}

}  // namespace

std::string_view npy_descr(DType dtype) {
  for (const auto& [value, name] : kDescrs)
    if (value == dtype) return name;
  return {};
}

NpyHeader parse_npy_header(std::span<const std::byte> file, const std::string& path) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  STOF_CHECK(text.starts_with(kNpyMagic) && text.size() >= kNpyMagic.size() + 2, kCorrupt,
             "{}: expected an .npy file, which starts with \\x93NUMPY and a version", path);
  const int major = std::to_integer<int>(file[6]), minor = std::to_integer<int>(file[7]);
  STOF_CHECK(major >= 1 && major <= 3 && minor == 0, kUnsupported,
             "{}: expected .npy version 1.0, 2.0 or 3.0, got {}.{}", path, major, minor);

  const std::size_t length_offset = kNpyMagic.size() + 2, length_bytes = major == 1 ? 2 : 4;
  const std::size_t header_offset = length_offset + length_bytes;
  STOF_CHECK(file.size() >= header_offset, kCorrupt, "{}: cut short inside the header length",
             path);
  std::size_t header_bytes = 0;
  for (std::size_t i = length_bytes; i-- > 0;)  // little-endian
    header_bytes = header_bytes << 8 | std::to_integer<std::size_t>(file[length_offset + i]);
  const std::size_t available = file.size() - header_offset;
  STOF_CHECK(header_bytes <= available, kCorrupt,
             "{}: the length field promises a header of {} bytes, but {} follow; the file is cut "
             "short or damaged",
             path, header_bytes, available);

  NpyHeader header = DictReader(text.substr(header_offset, header_bytes), path).read();
  header.data_offset = header_offset + header_bytes;
  check_data_bytes(header, available - header_bytes, path);
  return header;
}

}  // namespace stof

#include "model/protobuf.h"

#include <cstring>

#include "core/check.h"

namespace stof::model {

std::uint64_t MessageReader::varint() {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(take(1)[0]);
    value |= std::uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) return value;
  }
  throw_error(ErrorCode::kCorrupt, "{}: expected a number of at most 64 bits", where_);
}

std::string_view MessageReader::take(std::uint64_t size) {
  STOF_CHECK(size <= rest_.size(), kCorrupt,
             "{}: expected {} more bytes of field {}, got {}; the file is cut or of another kind",
             where_, size, number_, rest_.size());
  const std::string_view taken = rest_.substr(0, static_cast<std::size_t>(size));
  rest_.remove_prefix(taken.size());
  return taken;
}

bool MessageReader::next() {
  if (rest_.empty()) return false;
  const std::uint64_t tag = varint();
  number_ = static_cast<std::uint32_t>(tag >> 3);
  STOF_CHECK(number_ > 0 && tag >> 3 < std::uint64_t{1} << 29, kCorrupt,
             "{}: expected a field's number, got {}", where_, tag >> 3);
  type_ = static_cast<Type>(tag & 7);
  switch (type_) {
    case Type::kVarint:
      value_ = varint();
      break;
    case Type::kFixed64:
      bytes_ = take(8);
      break;
    case Type::kBytes:
      bytes_ = take(varint());
      break;
    case Type::kFixed32:
      bytes_ = take(4);
      break;
    default:
      throw_error(ErrorCode::kCorrupt, "{}: field {}: expected a type of protocol buffers, got {}",
                  where_, number_, tag & 7);
  }
  return true;
}

void MessageReader::require(Type type, const char* what) const {
  STOF_CHECK(type_ == type, kCorrupt, "{}: field {}: expected {}, got type {}", where_, number_,
             what, static_cast<int>(type_));
}

std::int64_t MessageReader::integer() const {
  require(Type::kVarint, "an integer");
  return static_cast<std::int64_t>(value_);
}

float MessageReader::number32() const {
  require(Type::kFixed32, "a float");
  float value = 0;
  std::memcpy(&value, bytes_.data(), sizeof value);
  return value;
}

std::string_view MessageReader::bytes() const {
  require(Type::kBytes, "bytes");
  return bytes_;
}

void MessageWriter::add_varint(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) message_ += static_cast<char>(value | 0x80);
  message_ += static_cast<char>(value);
}

void MessageWriter::add(std::uint32_t number, std::int64_t value) {
  add_varint(number << 3);
  add_varint(static_cast<std::uint64_t>(value));
}

void MessageWriter::add(std::uint32_t number, float value) {
  add_varint(number << 3 | 5);
  message_.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void MessageWriter::add(std::uint32_t number, std::string_view bytes) {
  add_varint(number << 3 | 2);
  add_varint(bytes.size());
  message_ += bytes;
}

}  // namespace stof::model

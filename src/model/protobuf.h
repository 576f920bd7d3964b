#pragma once
// The wire format of protocol buffers, as far as SentencePiece's model files use it.

#include <cstdint>
#include <string>
#include <string_view>

namespace stof::model {

/// Reads the fields of one message in their order.
class MessageReader {
 public:
  /// `where` begins messages. Both outlive this.
  MessageReader(std::string_view message, const std::string& where)
      : rest_(message), where_(where) {}

  /// Goes to the next field; false at the end. Throws Corrupt for what is no message.
  bool next();
  std::uint32_t number() const { return number_; }  ///< of the field
  /// Of the field's type; each throws Corrupt for a field of another.
  std::int64_t integer() const;
  bool boolean() const { return integer() != 0; }
  float number32() const;
  std::string_view bytes() const;

 private:
  enum class Type : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  std::uint64_t varint();
  std::string_view take(std::uint64_t size);
  void require(Type type, const char* what) const;

  std::string_view rest_;
  const std::string& where_;
  std::uint32_t number_ = 0;
  Type type_ = Type::kVarint;
  std::uint64_t value_ = 0;
  std::string_view bytes_;
};

/// Appends fields to a message.
class MessageWriter {
 public:
  void add(std::uint32_t number, std::int64_t value);
  void add(std::uint32_t number, float value);
  void add(std::uint32_t number, std::string_view bytes);
  const std::string& message() const { return message_; }

 private:
  void add_varint(std::uint64_t value);

  std::string message_;
};

}  // namespace stof::model

#include "model/utf8_stream.h"

namespace stof::model {
namespace {

constexpr std::string_view kReplacement = "\uFFFD";

struct Sequence {
  std::size_t bytes;        ///< of a whole character that starts so; 0: none does
  unsigned char low, high;  ///< of its second byte
};

/// Table 3-7 of the Unicode standard.
Sequence sequence_of(unsigned char first) {
  if (first < 0x80) return {1, 0, 0};
  if (first < 0xC2) return {0, 0, 0};
  if (first < 0xE0) return {2, 0x80, 0xBF};
  if (first < 0xF0)
    return {3, static_cast<unsigned char>(first == 0xE0 ? 0xA0 : 0x80),
            static_cast<unsigned char>(first == 0xED ? 0x9F : 0xBF)};
  if (first < 0xF5)
    return {4, static_cast<unsigned char>(first == 0xF0 ? 0x90 : 0x80),
            static_cast<unsigned char>(first == 0xF4 ? 0x8F : 0xBF)};
  return {0, 0, 0};
}

/// How many bytes of `text` fit a character of that kind.
std::size_t fitting(std::string_view text, const Sequence& sequence) {
  std::size_t n = 1;
  while (n < sequence.bytes && n < text.size()) {
    const auto byte = static_cast<unsigned char>(text[n]);
    const unsigned char low = n == 1 ? sequence.low : 0x80, high = n == 1 ? sequence.high : 0xBF;
    if (byte < low || byte > high) break;
    ++n;
  }
  return n;
}

}  // namespace

std::string Utf8Stream::push(std::string_view bytes) {
  pending_ += bytes;
  std::string out;
  std::size_t at = 0;
  while (at < pending_.size()) {
    const std::string_view rest = std::string_view(pending_).substr(at);
    const Sequence sequence = sequence_of(static_cast<unsigned char>(rest[0]));
    const std::size_t n = fitting(rest, sequence);
    if (n < sequence.bytes && n == rest.size()) break;  // may go on
    out += n == sequence.bytes ? rest.substr(0, n) : kReplacement;
    at += n;
  }
  pending_.erase(0, at);
  return out;
}

std::string Utf8Stream::finish() {
  const bool cut = !pending_.empty();
  pending_.clear();
  return cut ? std::string(kReplacement) : "";
}

}  // namespace stof::model

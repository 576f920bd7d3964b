// A tokenizer file and a text, divided by a zero byte. A file that starts with "{" is a
// tokenizer.json, any other a vocab.txt. Errors a file or a text may give are fine; ids that no
// token has, and ids past the limit, are not.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "model/wordpiece.h"
#include "stof/error.h"

namespace {

void check(std::string_view file, std::string_view text) {
  using namespace stof::model;
  const WordPiece tokenizer(file.starts_with('{')
                                ? parse_tokenizer_json(file, "tokenizer.json")
                                : parse_vocab_txt(file, "vocab.txt", "", "tokenizer_config.json"),
                            "fuzz");
  const auto ids = tokenizer.encode(text);
  for (const std::int32_t id : ids) tokenizer.token(id);
  const std::int64_t limit = tokenizer.num_special() + 3;
  bool truncated = false;
  const auto cut = tokenizer.encode(text, limit, &truncated);
  if (static_cast<std::int64_t>(cut.size()) > limit || truncated != (ids.size() > cut.size()))
    __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t divider = input.find('\0');
  const std::string_view file = input.substr(0, divider);
  const std::string_view text =
      divider == std::string_view::npos ? std::string_view() : input.substr(divider + 1);
  try {
    check(file, text);
  } catch (const stof::Error& error) {
    if (!error.is_user_fault()) __builtin_trap();
  }
  return 0;
}

// A tokenizer.json of byte-level BPE and a text, divided by a zero byte. Errors a file or a text
// may give are fine; ids that no token has, and text of them that is not UTF-8, are not.

#include <algorithm>

#include "core/text.h"
#include "fuzz.h"
#include "model/bpe.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stof;
  const std::string_view input = fuzz::as_text(data, size);
  const std::size_t divider = std::min(input.find('\0'), input.size());
  const std::string_view text = input.substr(std::min(divider + 1, input.size()));
  fuzz::accept_or_refuse([&] {
    const model::Bpe tokenizer(model::parse_bpe_json(input.substr(0, divider), "tokenizer.json"),
                               "fuzz");
    const std::vector<std::int32_t> ids = tokenizer.encode(text);
    for (const std::int32_t id : ids) fuzz::require(id >= 0 && id < tokenizer.num_ids());
    fuzz::require(is_valid_utf8(tokenizer.decode(ids)));
  });
  return 0;
}

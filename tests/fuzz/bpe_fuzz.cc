// A tokenizer file and a text, divided by a zero byte: a tokenizer.json of byte-level BPE or of
// SentencePiece's models up to the first such byte, or any other bytes, as a model file of
// SentencePiece's, up to the last. Errors a file or a text may give are fine; ids that no token
// has, and text of them that is not UTF-8, are not.

#include <algorithm>

#include "core/json.h"
#include "core/text.h"
#include "fuzz.h"
#include "model/bpe.h"
#include "model/metaspace.h"
#include "model/sentencepiece.h"

namespace {

using namespace stof;

std::unique_ptr<const model::SubwordTokenizer> read(std::string_view file) {
  if (!file.starts_with('{'))
    return std::make_unique<model::SentencePieceTokenizer>(
        model::parse_sentencepiece(std::string(file), "x.model"), "x.model");
  const model::Json json = parse_json(file, "tokenizer.json");
  if (model::is_byte_level(model::JsonFields(json, "tokenizer.json")))
    return std::make_unique<model::Bpe>(model::read_bpe_json(json, "tokenizer.json"), "fuzz");
  return std::make_unique<model::MetaspaceTokenizer>(
      model::read_metaspace_json(json, "tokenizer.json"), "fuzz");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input = fuzz::as_text(data, size);
  const std::size_t divider =
      std::min(input.starts_with('{') ? input.find('\0') : input.rfind('\0'), input.size());
  const std::string_view text = input.substr(std::min(divider + 1, input.size()));
  fuzz::accept_or_refuse([&] {
    const auto tokenizer = read(input.substr(0, divider));
    const std::vector<std::int32_t> ids = tokenizer->encode(text);
    for (const std::int32_t id : ids) fuzz::require(id >= 0 && id < tokenizer->num_ids());
    fuzz::require(is_valid_utf8(tokenizer->decode(ids)));
  });
  return 0;
}

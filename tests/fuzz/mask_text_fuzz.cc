// Any bytes as mask text.

#include <string>

#include "fuzz.h"
#include "stof/mask.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stof;
  fuzz::accept_or_refuse([&] {
    // Without a base folder no file is read.
    const mask::Mask mask = mask::parse(fuzz::as_text(data, size), "");
    // Whatever is accepted is written in a form that reads back to the same
    // mask.
    const std::string text = mask.to_text();
    const mask::Mask from_text = mask::parse(text, "");
    fuzz::require(from_text.fingerprint() == mask.fingerprint());
    fuzz::require(from_text.to_text() == text);
    fuzz::require(mask::from_json(mask.to_json()).fingerprint() == mask.fingerprint());
    fuzz::require(!mask.describe().empty());
  });
  return 0;
}

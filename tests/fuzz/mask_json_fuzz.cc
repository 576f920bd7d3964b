// Any bytes as the JSON form of a mask.

#include <string>

#include "fuzz.h"
#include "stof/mask.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stof;
  fuzz::accept_or_refuse([&] {
    const mask::Mask mask = mask::from_json(fuzz::as_text(data, size));
    // Whatever is accepted is written in a form that reads back to the same
    // mask.
    const std::string json = mask.to_json();
    const mask::Mask from_json = mask::from_json(json);
    fuzz::require(from_json.fingerprint() == mask.fingerprint());
    fuzz::require(from_json.to_json() == json);
    fuzz::require(mask::parse(mask.to_text(), "").fingerprint() == mask.fingerprint());
  });
  return 0;
}

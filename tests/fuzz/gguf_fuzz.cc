// Any bytes as a GGUF file. What is accepted can be read to its last element.

#include <limits>

#include "fuzz.h"
#include "stof/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stof;
  fuzz::accept_or_refuse([&] {
    const GgufFile file = GgufFile::from_bytes(fuzz::as_bytes(data, size), "fuzz");
    for (const auto& [name, stored] : file.tensors()) {
      const Tensor values = file.float32(name);
      // No type stores more than 2 elements a byte.
      fuzz::require(values.size() > 0 &&
                    values.size() <= 2 * static_cast<std::int64_t>(stored.data.size()));
    }
  });
  return 0;
}

// Any bytes as a .npy file.

#include <cstring>
#include <vector>

#include "fuzz.h"
#include "stof/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stof;
  fuzz::accept_or_refuse([&] {
    const Tensor tensor = parse_npy(fuzz::as_bytes(data, size), "fuzz");
    // What is accepted must survive writing and reading again.
    const Tensor again = parse_npy(serialize_npy(tensor.view()), "again");
    fuzz::require(again.dtype() == tensor.dtype() && again.shape() == tensor.shape());
    fuzz::require(std::memcmp(again.data(), tensor.data(), tensor.bytes()) == 0);
  });
  return 0;
}

// Compiles the common kernels into one archive, which the build puts into the library
// (STOF_PACK_CUBINS). Needs NVRTC, but no GPU.
//   pack_cubins OUTPUT TARGET...

#include <cstdio>
#include <exception>

#include "backend/cuda/common_kernels.h"
#include "core/file.h"
#include "jit/cubin_archive.h"
#include "jit/nvrtc.h"

int main(int argc, char** argv) {
  using namespace stof;
  if (argc < 3) {
    std::fprintf(stderr, "usage: pack_cubins OUTPUT TARGET...\n");
    return 2;
  }
  try {
    std::vector<jit::CubinRequest> requests;
    for (int i = 2; i < argc; ++i)
      for (auto& request : cuda::common_kernels({}, argv[i])) requests.push_back(request);
    const std::vector<std::string> cubins = jit::cubins_for(requests);
    std::vector<jit::CubinEntry> entries;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const jit::CubinKey key{requests[i].source, requests[i].target, ""};
      entries.push_back(
          {key.content(), jit::Nvrtc::instance().version(), requests[i].name, cubins[i]});
    }
    const std::string archive = jit::make_archive(std::move(entries));
    write_file(argv[1], archive);
    std::printf("%zu kernels, %.1f MiB\n", requests.size(),
                static_cast<double>(archive.size()) / (1 << 20));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pack_cubins: %s\n", error.what());
    return 1;
  }
  return 0;
}

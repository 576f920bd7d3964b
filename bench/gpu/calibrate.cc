// Measures the unit costs of attention kernels (stof calibrate) as a benchmark.
//   bench_gpu_calibrate [--json FILE]

#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>

#include "backend/cuda/attention/calibrate.h"
#include "bench/gpu/arguments.h"

int main(int argc, char** argv) try {
  using namespace stof;
  const bench::Arguments arguments(argc, argv);
  arguments.expect_names({});
  const auto measured = cuda::calibrate(cuda::Device::open(), {64, 128}, {});
  for (const cuda::CalibratedKernel& kernel : measured.kernels)
    std::printf("%-56s full %6.0f ns, partial %6.0f, item %6.0f, launch %6.0f\n",
                kernel.kernel.c_str(), kernel.costs.full_ns, kernel.costs.partial_ns,
                kernel.costs.item_ns, kernel.costs.launch_ns);
  // One line a kernel, in the words of the profile.
  const auto profile = nlohmann::ordered_json::parse(measured.to_json());
  for (const auto& kernel : profile.at("kernels"))
    if (arguments.json() != nullptr) std::fprintf(arguments.json(), "%s\n", kernel.dump().c_str());
  return 0;
} catch (const std::exception& error) {
  return stof::bench::give_up(error);
}

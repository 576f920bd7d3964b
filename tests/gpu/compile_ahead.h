#pragma once
// Kernels into the cubin cache on all cores: building plans one after the other would use one.

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "jit/compile.h"
#include "stof/error.h"

namespace stof::check {

/// `texts`: source text by configuration name. may_spill: see jit::CubinRequest.
inline void compile_ahead(const std::map<std::string, std::string>& texts,
                          const std::string& target, bool may_spill = false) {
  std::vector<jit::CubinRequest> requests;
  for (const auto& [name, source] : texts) requests.push_back({name, source, target, may_spill});
  try {
    jit::cubins_for(requests);
  } catch (const Error& error) {
    std::printf("%s\n", error.what());  // the check that needs it will fail by the same
  }
  std::printf("%zu kernels compiled\n", requests.size());
  std::fflush(stdout);
}

}  // namespace stof::check

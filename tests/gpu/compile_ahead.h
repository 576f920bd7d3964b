#pragma once
// Kernels into the cubin cache on all cores: building plans one after the other would use one.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "jit/cubin_cache.h"
#include "stof/error.h"

namespace stof::check {

/// `texts`: source text by configuration name.
inline void compile_ahead(const std::map<std::string, std::string>& texts,
                          const std::string& target) {
  std::vector<const std::pair<const std::string, std::string>*> list;
  for (const auto& entry : texts) list.push_back(&entry);
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t)
    threads.emplace_back([&] {
      for (std::size_t i; (i = next++) < list.size();) try {
          jit::cubin_for(list[i]->first, list[i]->second, target);
        } catch (const Error& error) {
          std::printf("%s\n", error.what());  // the check that needs it will fail by the same
        }
    });
  for (std::thread& thread : threads) thread.join();
  std::printf("%zu kernels compiled\n", list.size());
  std::fflush(stdout);
}

}  // namespace stof::check

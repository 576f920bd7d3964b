#pragma once
// How many threads a call may use.

#include <omp.h>

namespace stof::cpu {

/// Sets the calling thread's OpenMP team size for a scope (0 = all cores OpenMP gives); oneDNN
/// follows it too. Other threads of the program keep theirs.
class ThreadScope {
 public:
  explicit ThreadScope(int num_threads) : before_(omp_get_max_threads()) {
    if (num_threads > 0) omp_set_num_threads(num_threads);
  }
  ~ThreadScope() { omp_set_num_threads(before_); }
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int before_;
};

}  // namespace stof::cpu

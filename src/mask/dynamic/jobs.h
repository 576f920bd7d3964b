#pragma once
// Independent jobs on a team of threads.

#include <cstdint>
#include <exception>

namespace stof::mask {

/// Calls run(job) for 0 .. num_jobs - 1, each once; throws what the first of them to fail throws.
template <class Run>
void run_jobs(std::int64_t num_jobs, int num_threads, const Run& run) {
  std::exception_ptr error;
#pragma omp parallel for schedule(dynamic) num_threads(num_threads)
  for (std::int64_t job = 0; job < num_jobs; ++job) {
    try {
      run(job);
    } catch (...) {
#pragma omp critical(stof_mask_jobs)
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace stof::mask

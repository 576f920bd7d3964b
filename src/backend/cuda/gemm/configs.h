#pragma once
// Which kernels there are for a product, which of them can run it, and in what order to try them.

#include <string>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/gemm/problem.h"

namespace stof::cuda {

struct GemmCandidate {
  codegen::GemmConfig config;
  double predicted_us = 0;  ///< good for an order, not for a promise
};

struct GemmRefusal {
  std::string shape;  ///< codegen::GemmConfig::shape(); "sm90" for all
  std::string reason;
};

struct GemmCandidates {
  std::vector<GemmCandidate> feasible;  ///< the fastest as predicted first
  std::vector<GemmRefusal> refused;
};

/// Of every registered kernel. Throws nothing: what cannot run is refused with the reason.
GemmCandidates gemm_candidates(const GemmProblem& problem, const DeviceFacts& facts);

/// The first of them. Throws Unsupported with the reasons where there is none.
codegen::GemmConfig default_gemm_config(const GemmProblem& problem, const DeviceFacts& facts);

/// Registered kernels for these steps, whatever the problem's size.
std::vector<codegen::GemmConfig> registered_gemm_configs(const GemmProblem& problem);

/// Why this kernel does not run this problem; empty where it does.
std::string gemm_refusal(const codegen::GemmConfig& config, const GemmProblem& problem);

/// Predicted microseconds.
double predict_gemm_us(const GemmProblem& problem, const codegen::GemmConfig& config, int num_sms);

}  // namespace stof::cuda

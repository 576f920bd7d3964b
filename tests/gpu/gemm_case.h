#pragma once
// One size of matrix product: operands with guards in device memory, and sums in double precision
// of some of its rows.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/gemm/sm90_gemm.h"
#include "codegen/gemm_skinny.h"
#include "gpu/guarded_matrix.h"

namespace stof::check {

/// Counts a check, and prints it where `wrong` is not empty.
void report(const std::string& what, const std::string& wrong);
/// How many were wrong so far.
int num_failed();

/// Checks of a program by name, each on a GPU opened for it.
using NamedChecks = std::vector<std::pair<const char*, void (*)(const cuda::Device&)>>;
/// Runs those that the arguments name, or all; what one throws is a failure of its. Prints the
/// counts; returns the program's exit code.
int run_checks(const NamedChecks& checks, int argc, char** argv);

/// A product's kernel, of whatever family.
struct GemmUnderTest {
  cuda::GemmProblem problem;
  std::int64_t statistics_columns = 0, statistics_width = 0;  ///< sums of a row; columns of each
  /// Makes a function that launches on the default stream.
  std::function<std::function<void()>(const cuda::GemmOperands&)> bind;
};

enum class GemmVector { kBias, kGamma, kBeta };

class GemmCase {
 public:
  /// `gap`: elements between the rows of x, y and residual. `prologue`: a norm of x in front.
  GemmCase(DType element, std::int64_t rows, std::int64_t in, std::int64_t out, std::int64_t gap,
           std::uint64_t seed, codegen::RowPrologue prologue = codegen::RowPrologue::kNone);

  /// Vectors of type `bias`, or gamma and beta of the other. A rotation is of heads of 128 columns
  /// with a bias where there are such, else of 64; all but about a quarter turn.
  cuda::GemmProblem problem(const std::vector<codegen::GemmStep>& steps, DType bias) const;
  std::string describe() const;
  /// Runs several times on poisoned outputs. "" where all runs give the same bits, all of y and
  /// statistics was written and nothing else, and the rows that are looked at are right; else what
  /// is wrong.
  std::string check(const GemmUnderTest& gemm);
  std::string check(const cuda::Sm90Gemm& gemm) {
    return check({gemm.problem(), gemm.statistics_columns(), gemm.config().out_n(),
                  [&](const cuda::GemmOperands& operands) {
                    return [call = gemm.bind(operands)] { call.launch(nullptr); };
                  }});
  }
  /// The error beyond rounding of the last check, in units of its allowance.
  double worst() const { return worst_; }
  bool inputs_unchanged() const;

 private:
  static constexpr std::int64_t kNumSquares = 6;

  /// `sums`: where statistics or sums of squares go.
  cuda::GemmOperands operands(const cuda::GemmProblem& problem, const cuda::DeviceBuffer& sums);
  /// Element of bias, gamma or beta as the problem has them.
  double vector(const cuda::GemmProblem& problem, GemmVector which, std::size_t column) const;
  std::string compare(const GemmUnderTest& gemm, const std::vector<float>& sums);
  /// Whether rows that slots name, and no others, are the last columns of y, bit by bit.
  std::string compare_cache();
  const GuardedMatrix& y_of(const cuda::GemmProblem& problem) const;

  /// Row of x as it is multiplied.
  std::vector<float> multiplied_row(std::int64_t row) const;

  DType element_;
  codegen::RowPrologue prologue_;
  std::int64_t rows_, in_, out_;
  GuardedMatrix x_, weight_, wide_, narrow_, wide_residual_, narrow_residual_;
  GuardedMatrix bias16_, gamma16_, beta16_;
  GuardedMatrix norm16_;  ///< gamma, beta of the norm in front; norm_ has the same values
  DeviceFloats bias_, gamma_, beta_, scale_, norm_, frequencies_;
  DeviceFloats squares_;  ///< sums of them, kNumSquares a row
  std::vector<std::int32_t> positions_;
  cuda::DeviceBuffer device_positions_;
  std::int64_t cached_ = 0;  ///< the first column that goes to cache_
  GuardedMatrix cache_;
  std::vector<std::int32_t>
      slots_;  ///< backwards, of more rows than there are; the second has none
  cuda::DeviceBuffer device_slots_;
  std::vector<std::int64_t> sampled_;      ///< rows
  std::vector<std::vector<double>> sums_;  ///< of x W^T, by sampled row
  double worst_ = 0;
};

/// A layer with its operands bound: launches it, early where that is allowed.
using LayerLaunch = std::function<void(cuda::CUstream, bool after_all)>;
/// Square products with residual [rows, width] that read each other's results, out of two matrices
/// in turns: "" where early start changes no bit, one by one and as a graph; else what does. `bind`
/// is given x and residual, weight, y and the layer's number.
std::string check_layers(std::int64_t rows, std::int64_t width, int layers,
                         const std::function<LayerLaunch(const cuda::GemmOperands&, int)>& bind);

}  // namespace stof::check

#include "gpu/gemm_case.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <set>

#include "core/bits.h"
#include "gpu/replay.h"

namespace stof::check {
namespace {

using codegen::GemmStep;

constexpr double kEpsilon = 1e-5;

double activation(GemmStep step, double x) {
  switch (step) {
    case GemmStep::kRelu:
      return std::max(x, 0.0);
    case GemmStep::kGeluErf:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case GemmStep::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case GemmStep::kSilu:
      return x / (1 + std::exp(-x));
    default:
      return x;
  }
}

bool is_activation(GemmStep step) {
  return step == GemmStep::kRelu || step == GemmStep::kGeluErf || step == GemmStep::kGeluTanh ||
         step == GemmStep::kSilu;
}

int passed = 0, failed = 0;

}  // namespace

void report(const std::string& what, const std::string& wrong) {
  (wrong.empty() ? passed : failed)++;
  if (wrong.empty()) return;
  std::printf("BAD %s: %s\n", what.c_str(), wrong.c_str());
  std::fflush(stdout);
}

int num_failed() { return failed; }

int run_checks(const NamedChecks& checks, int argc, char** argv) {
  std::string gpu = "no GPU";
  for (const auto& [name, check] : checks) {
    bool wanted = argc == 1;
    for (int i = 1; i < argc; ++i) wanted |= std::strcmp(argv[i], name) == 0;
    if (!wanted) continue;
    try {
      const cuda::Device device = cuda::Device::open();
      gpu = device.facts().name;
      const int before = failed;
      check(device);
      std::printf("== %s: %s\n", name, failed == before ? "ok" : "BAD");
    } catch (const std::exception& error) {
      report(name, error.what());
    }
  }
  std::printf("%d passed, %d failed on %s\n", passed, failed, gpu.c_str());
  return failed > 0;
}

std::string check_layers(std::int64_t rows, std::int64_t width, int layers,
                         const std::function<LayerLaunch(const cuda::GemmOperands&, int)>& bind) {
  Draw draw(5);
  std::vector<GuardedMatrix> streams;
  for (int i = 0; i < 2; ++i) streams.emplace_back(DType::kBFloat16, rows, width, width, "stream");
  streams[0].fill(draw, 1);
  GuardedMatrix weight(DType::kBFloat16, width, width, width, "weight");
  weight.fill(draw, 0.01f);
  std::vector<LayerLaunch> launches;
  for (int layer = 0; layer < layers; ++layer) {
    cuda::GemmOperands operands{streams[layer % 2].address(), weight.address(),
                                streams[1 - layer % 2].address()};
    operands.residual = operands.x;
    launches.push_back(bind(operands, layer));
  }
  const auto launch_all = [&](cuda::CUstream stream, bool after_all) {
    for (const LayerLaunch& launch : launches) launch(stream, after_all);
  };
  const auto run = [&](const auto& launch) {
    streams[0].upload();
    streams[1].poison();
    launch();
    return streams[0].download();
  };
  const auto expected = run([&] { launch_all(nullptr, true); });
  const Replay replay([&](cuda::CUstream stream) { launch_all(stream, false); });
  for (int repeat = 0; repeat < 20; ++repeat) {
    if (run([&] { launch_all(nullptr, false); }) != expected) return "early start differs";
    if (run([&] { replay.run(); }) != expected) return "a graph differs";
  }
  return "";
}

GemmCase::GemmCase(DType element, std::int64_t rows, std::int64_t in, std::int64_t out,
                   std::int64_t gap, std::uint64_t seed, codegen::RowPrologue prologue)
    : element_(element),
      prologue_(prologue),
      rows_(rows),
      in_(in),
      out_(out),
      x_(element, rows, in, in + gap, "x"),
      weight_(element, out, in, in, "weight"),
      wide_(element, rows, out, out + gap, "y"),
      narrow_(element, rows, out / 2, out / 2 + gap, "y"),
      wide_residual_(element, rows, out, out + gap, "residual"),
      narrow_residual_(element, rows, out / 2, out / 2 + gap, "residual"),
      bias16_(element, 1, out, out, "bias"),
      gamma16_(element, 1, out, out, "gamma"),
      beta16_(element, 1, out, out, "beta"),
      norm16_(element, 2, in, in, "norm") {
  Draw draw(seed);
  x_.fill(draw, 1);
  weight_.fill(draw, 1 / std::sqrt(static_cast<float>(in)));
  wide_residual_.fill(draw, 1);
  narrow_residual_.fill(draw, 1);
  for (GuardedMatrix* vector : {&bias16_, &gamma16_, &beta16_}) vector->fill(draw, 1);
  for (DeviceFloats* vector : {&bias_, &gamma_, &beta_}) {
    for (std::int64_t i = 0; i < out; ++i) vector->values.push_back(draw.normal());
    vector->upload("vector");
  }
  norm16_.fill(draw, 1);
  for (std::int64_t i = 0; i < 2 * in; ++i) norm_.values.push_back(norm16_.at(i / in, i % in));
  norm_.upload("norm");
  for (std::int64_t i = 0; i < rows; ++i) scale_.values.push_back(1 + 0.3f * draw.normal());
  scale_.upload("row_scale");
  for (std::int64_t i = 0; i < rows * kNumSquares; ++i)
    squares_.values.push_back(32 * std::pow(1 + 0.3f * draw.normal(), 2.f));
  squares_.upload("squares");
  for (int i = 0; i < 64; ++i)
    frequencies_.values.push_back(std::pow(1e4f, static_cast<float>(-i) / 64));
  frequencies_.upload("frequencies");
  for (std::int64_t i = 0; i < rows; ++i)
    positions_.push_back(static_cast<std::int32_t>(i * 37 % 131072));
  device_positions_ = cuda::DeviceBuffer(positions_.size() * 4, "positions");
  copy_in(device_positions_.address(), positions_.data(), positions_.size() * 4);
  cached_ = out / 3 / 8 * 8;
  cache_ = GuardedMatrix(element, rows + 4, out - cached_, out - cached_ + 8, "cache");
  for (std::int64_t i = 0; i < rows; ++i)
    slots_.push_back(i == 1 ? -1 : static_cast<std::int32_t>(rows + 2 - i));
  device_slots_ = cuda::DeviceBuffer(slots_.size() * 4, "slots");
  copy_in(device_slots_.address(), slots_.data(), slots_.size() * 4);

  // Rows on both sides of every boundary inside a tile, the last ones, and some others.
  std::set<std::int64_t> sampled;
  for (const std::int64_t row : {0, 7, 8, 15, 16, 63, 64, 127, 128, 255, 256})
    if (row < rows) sampled.insert(row);
  for (std::int64_t row = std::max<std::int64_t>(0, rows - 2); row < rows; ++row)
    sampled.insert(row);
  for (int i = 0; i < 8; ++i) sampled.insert(draw.between(0, rows - 1));
  sampled_.assign(sampled.begin(), sampled.end());
  std::vector<float> w(static_cast<std::size_t>(in));
  sums_.assign(sampled_.size(), std::vector<double>(static_cast<std::size_t>(out)));
  std::vector<std::vector<float>> xs;
  for (const std::int64_t row : sampled_) xs.push_back(multiplied_row(row));
  for (std::int64_t column = 0; column < out; ++column) {
    for (std::int64_t k = 0; k < in; ++k) w[static_cast<std::size_t>(k)] = weight_.at(column, k);
    for (std::size_t i = 0; i < xs.size(); ++i) {
      double sum = 0;
      for (std::size_t k = 0; k < w.size(); ++k)
        sum += static_cast<double>(xs[i][k]) * static_cast<double>(w[k]);
      sums_[i][static_cast<std::size_t>(column)] = sum;
    }
  }
}

std::vector<float> GemmCase::multiplied_row(std::int64_t row) const {
  std::vector<float> x;
  for (std::int64_t k = 0; k < in_; ++k) x.push_back(x_.at(row, k));
  if (prologue_ == codegen::RowPrologue::kNone) return x;
  const bool center = prologue_ == codegen::RowPrologue::kLayerNorm;
  double mean = 0, squares = 0;
  for (const float value : x)
    mean += center ? static_cast<double>(value) / static_cast<double>(in_) : 0;
  for (const float value : x) squares += std::pow(static_cast<double>(value) - mean, 2);
  const double scale = 1 / std::sqrt(squares / static_cast<double>(in_) + kEpsilon);
  for (std::size_t k = 0; k < x.size(); ++k) {
    const auto column = static_cast<std::int64_t>(k);
    const double value =
        (static_cast<double>(x[k]) - mean) * scale * static_cast<double>(norm16_.at(0, column)) +
        (center ? static_cast<double>(norm16_.at(1, column)) : 0);
    x[k] = real_of(element_, bits_of(element_, static_cast<float>(value)));
  }
  return x;
}

cuda::GemmProblem GemmCase::problem(const std::vector<GemmStep>& steps, DType bias) const {
  cuda::GemmProblem problem;
  problem.element = element_;
  problem.rows = rows_;
  problem.in = in_;
  problem.out = out_;
  problem.steps = steps;
  problem.bias = bias;
  problem.gamma = bias == DType::kFloat32 ? element_ : DType::kFloat32;
  if (problem.has(GemmStep::kCacheStore)) {
    problem.cached = cached_;
    problem.cache_stride = cache_.stride();
  }
  if (problem.has(GemmStep::kRope)) {
    problem.head_dim = problem.has(GemmStep::kBias) && out_ % 128 == 0 ? 128 : 64;
    const std::int64_t heads = out_ / problem.head_dim;
    problem.rotated = (heads - heads / 4) * problem.head_dim;
  }
  problem.epsilon = kEpsilon;
  if (problem.has(GemmStep::kRmsScale)) problem.num_squares = kNumSquares;
  problem.x_stride = x_.stride();
  problem.y_stride = problem.residual_stride = y_of(problem).stride();
  if (problem.has(GemmStep::kHeadStore)) {
    if (problem.head_dim == 0) problem.head_dim = 64;
    problem.y_stride = 0;
  }
  return problem;
}

std::string GemmCase::describe() const {
  const char* norm = prologue_ == codegen::RowPrologue::kNone ? "" : "norm of ";
  return fmt::format("{}{} M={} N={} K={} gap {}", norm, to_string(element_), rows_, out_, in_,
                     x_.stride() - in_);
}

const GuardedMatrix& GemmCase::y_of(const cuda::GemmProblem& problem) const {
  return problem.has(GemmStep::kGate) ? narrow_ : wide_;
}

cuda::GemmOperands GemmCase::operands(const cuda::GemmProblem& p, const cuda::DeviceBuffer& sums) {
  cuda::GemmOperands operands;
  operands.x = x_.address();
  operands.weight = weight_.address();
  operands.y = y_of(p).address();
  if (p.has(GemmStep::kBias))
    operands.bias = p.bias == DType::kFloat32 ? bias_.buffer.address() : bias16_.address();
  if (p.has(GemmStep::kResidual))
    operands.residual =
        p.has(GemmStep::kGate) ? narrow_residual_.address() : wide_residual_.address();
  const bool floats = p.gamma == DType::kFloat32;
  if (p.has_norm()) operands.gamma = floats ? gamma_.buffer.address() : gamma16_.address();
  if (p.has(GemmStep::kLayerNorm))
    operands.beta = floats ? beta_.buffer.address() : beta16_.address();
  const auto width = static_cast<cuda::CUdeviceptr>(in_);
  if (prologue_ != codegen::RowPrologue::kNone)
    operands.gamma = floats ? norm_.buffer.address() : norm16_.address();
  if (prologue_ == codegen::RowPrologue::kLayerNorm)
    operands.beta = operands.gamma + width * (floats ? 4 : 2);
  if (p.has(GemmStep::kRowScale)) operands.row_scale = scale_.buffer.address();
  if (p.has(GemmStep::kRope)) {
    operands.positions = device_positions_.address();
    operands.frequencies = frequencies_.buffer.address();
  }
  if (p.has(GemmStep::kCacheStore)) {
    operands.slots = device_slots_.address();
    operands.cache = cache_.address();
  }
  if (p.has(GemmStep::kRmsScale)) operands.squares = squares_.buffer.address();
  (p.has(GemmStep::kRowSquares) ? operands.row_squares : operands.statistics) = sums.address();
  return operands;
}

std::string GemmCase::check(const GemmUnderTest& gemm) {
  const cuda::GemmProblem& p = gemm.problem;
  const std::int64_t of_a_row = p.has(GemmStep::kRowStatistics) ? gemm.statistics_columns * 2
                                : p.has(GemmStep::kRowSquares)  ? out_ / 32
                                                                : 0;
  const bool counted = of_a_row > 0;
  std::vector<float> sums(static_cast<std::size_t>(rows_ * of_a_row));
  const cuda::DeviceBuffer memory(sums.size() * 4, "sums");
  const std::function<void()> launch = gemm.bind(operands(p, memory));
  GuardedMatrix& y = p.has(GemmStep::kGate) ? narrow_ : wide_;
  std::vector<std::uint16_t> first;
  std::vector<float> first_sums;
  // Blocks that tell each other numbers have more to go wrong.
  const int runs = p.has_norm() ? 12 : 2;
  for (int run = 0; run < runs; ++run) {
    y.poison();
    if (p.has(GemmStep::kCacheStore)) cache_.poison();
    fill_bytes(memory);
    launch();
    std::vector<std::uint16_t> image = y.download();
    if (counted) copy_out(sums.data(), memory.address(), memory.bytes());
    if (run == 0) {
      first = std::move(image);
      first_sums = sums;
    } else if (image != first ||
               (counted && std::memcmp(sums.data(), first_sums.data(), memory.bytes()) != 0)) {
      return fmt::format("run {} differs from the first", run);
    }
  }
  y.take(std::move(first));
  if (!y.written_exactly()) return "elements were left out, are NaN, or lie outside y";
  if (p.has(GemmStep::kCacheStore))
    if (std::string text = compare_cache(); !text.empty()) return text;
  return compare(gemm, sums);
}

std::string GemmCase::compare_cache() {
  cache_.take(cache_.download());
  for (std::int64_t slot = 0; slot < cache_.rows(); ++slot) {
    const auto named = std::find(slots_.begin(), slots_.end(), static_cast<std::int32_t>(slot));
    for (std::int64_t column = 0; column < cache_.columns(); ++column) {
      const float got = cache_.at(slot, column);
      if (named == slots_.end() ? !std::isnan(got)
                                : got != wide_.at(named - slots_.begin(), cached_ + column))
        return fmt::format("cache row {} column {}: got {}, y has another", slot, column, got);
    }
  }
  return "";
}

double GemmCase::vector(const cuda::GemmProblem& problem, GemmVector which,
                        std::size_t column) const {
  const DeviceFloats* floats[] = {&bias_, &gamma_, &beta_};
  const GuardedMatrix* elements[] = {&bias16_, &gamma16_, &beta16_};
  const auto i = static_cast<std::size_t>(which);
  const DType dtype = which == GemmVector::kBias ? problem.bias : problem.gamma;
  return static_cast<double>(dtype == DType::kFloat32
                                 ? floats[i]->values[column]
                                 : elements[i]->at(0, static_cast<std::int64_t>(column)));
}

std::string GemmCase::compare(const GemmUnderTest& gemm, const std::vector<float>& sums) {
  const cuda::GemmProblem& p = gemm.problem;
  const GuardedMatrix& y = y_of(p);
  const GuardedMatrix& residual = p.has(GemmStep::kGate) ? narrow_residual_ : wide_residual_;
  // Half a unit in the last place, and what sums and functions in float32 may be off where values
  // are about 1.
  const double rounding = element_ == DType::kFloat16 ? 0x1p-11 : 0x1p-8;
  // A normalised element may round to the neighbour of what it rounds to in double.
  const double allowance = prologue_ == codegen::RowPrologue::kNone ? 3e-5 : 5e-4;
  worst_ = 0;
  for (std::size_t i = 0; i < sampled_.size(); ++i) {
    const std::int64_t row = sampled_[i];
    std::vector<double> values = sums_[i];
    double squares_of_row = 0;
    for (std::int64_t s = 0; s < kNumSquares; ++s)
      squares_of_row +=
          static_cast<double>(squares_.values[static_cast<std::size_t>(row * kNumSquares + s)]);
    const double rms_scale = 1 / std::sqrt(squares_of_row / (32 * kNumSquares) + p.epsilon);
    for (std::size_t s = 0; s < p.steps.size(); ++s) {
      const GemmStep step = p.steps[s];
      const bool gates = s + 1 < p.steps.size() && p.steps[s + 1] == GemmStep::kGate;
      for (std::size_t c = 0; c < values.size(); ++c) {
        const auto column = static_cast<std::int64_t>(c);
        if (step == GemmStep::kBias) values[c] += vector(p, GemmVector::kBias, c);
        if (step == GemmStep::kRowScale)
          values[c] *= static_cast<double>(scale_.values[static_cast<std::size_t>(row)]);
        if (step == GemmStep::kRmsScale) values[c] *= rms_scale;
        if (step == GemmStep::kResidual) values[c] += static_cast<double>(residual.at(row, column));
        if (is_activation(step) && (!gates || c < values.size() / 2))
          values[c] = activation(step, values[c]);
      }
      if (step == GemmStep::kLayerNorm || step == GemmStep::kRmsNorm) {
        const bool center = step == GemmStep::kLayerNorm;
        const auto width = static_cast<double>(values.size());
        double mean = 0, squares = 0;
        for (const double value : values) mean += center ? value / width : 0;
        for (const double value : values) squares += (value - mean) * (value - mean) / width;
        for (std::size_t c = 0; c < values.size(); ++c)
          values[c] = (values[c] - mean) / std::sqrt(squares + p.epsilon) *
                          vector(p, GemmVector::kGamma, c) +
                      (center ? vector(p, GemmVector::kBeta, c) : 0);
      }
      for (std::int64_t c = 0; step == GemmStep::kRope && c < p.rotated; ++c) {
        const std::int64_t half = p.head_dim / 2;
        if (c % p.head_dim >= half) continue;
        const double angle = static_cast<float>(positions_[static_cast<std::size_t>(row)]) *
                             frequencies_.values[static_cast<std::size_t>(c % p.head_dim)];
        double& low = values[static_cast<std::size_t>(c)];
        double& high = values[static_cast<std::size_t>(c + half)];
        const double a = low, b = high;
        low = a * std::cos(angle) - b * std::sin(angle);
        high = b * std::cos(angle) + a * std::sin(angle);
      }
      if (step != GemmStep::kGate) continue;
      std::vector<double> gated;
      for (std::size_t c = 0; c < values.size() / 2; ++c)
        gated.push_back(values[c] * values[values.size() / 2 + c]);
      values = std::move(gated);
    }
    for (std::size_t c = 0; c < values.size(); ++c) {
      auto y_row = row, y_column = static_cast<std::int64_t>(c);
      if (p.has(GemmStep::kHeadStore)) {  // y has no gaps: head after head, by the matrix's rows
        const std::int64_t dim = p.head_dim;
        const std::int64_t at = (y_column / dim * rows_ + row) * dim + y_column % dim;
        y_row = at / out_, y_column = at % out_;
      }
      const auto got = static_cast<double>(y.at(y_row, y_column));
      const double size = std::max(1.0, std::abs(values[c]));
      const double beyond = std::abs(got - values[c]) - rounding * std::abs(values[c]);
      worst_ = std::max(worst_, beyond / (allowance * size));
      if (!(beyond <= allowance * size))
        return fmt::format("row {} column {}: expected {:.6f}, got {:.6f}", row, c, values[c], got);
    }
    for (std::int64_t s = 0; p.has(GemmStep::kRowSquares) && s < out_ / 32; ++s) {
      double squares = 0;
      for (std::int64_t c = 32 * s; c < 32 * s + 32; ++c)
        squares += std::pow(values[static_cast<std::size_t>(c)], 2);
      const auto got = static_cast<double>(sums[static_cast<std::size_t>(row * (out_ / 32) + s)]);
      if (!(std::abs(got - squares) <= allowance * (1 + 2 * squares)))
        return fmt::format("squares of row {}, sum {}: expected {:.5f}, got {:.5f}", row, s,
                           squares, got);
    }
    if (!p.has(GemmStep::kRowStatistics)) continue;
    const std::int64_t tile = gemm.statistics_width;
    for (std::int64_t t = 0; t < gemm.statistics_columns; ++t) {
      double sum = 0, squares = 0, size = 0;
      for (std::int64_t c = t * tile; c < std::min(p.y_columns(), (t + 1) * tile); ++c) {
        const double value = values[static_cast<std::size_t>(c)];
        sum += value, squares += value * value, size += std::abs(value);
      }
      const auto at = static_cast<std::size_t>((row * gemm.statistics_columns + t) * 2);
      if (!(std::abs(static_cast<double>(sums[at]) - sum) <= allowance * (1 + size)) ||
          !(std::abs(static_cast<double>(sums[at + 1]) - squares) <= allowance * (1 + 2 * squares)))
        return fmt::format(
            "statistics of row {}, tile {}: expected {:.5f} and {:.5f}, got {:.5f} and "
            "{:.5f}",
            row, t, sum, squares, static_cast<double>(sums[at]), static_cast<double>(sums[at + 1]));
    }
  }
  return "";
}

bool GemmCase::inputs_unchanged() const {
  return x_.unchanged() && weight_.unchanged() && wide_residual_.unchanged() &&
         narrow_residual_.unchanged() && norm16_.unchanged() && bias16_.unchanged() &&
         gamma16_.unchanged() && beta16_.unchanged();
}

}  // namespace stof::check

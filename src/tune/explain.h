#pragma once
// How a model would run and why: what `stof explain MODEL` shows as text, page and trace.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tune/database.h"
#include "tune/device.h"
#include "tune/tuner.h"

namespace stof::tune {

struct ExplainedSegment {
  Range range;
  bool in_layer = false;
  int occurrences = 1;
  std::vector<std::pair<std::string, std::string>> operators;  ///< kind and name
  std::string what;  ///< family and steps: "gemm: bias, gelu_erf"
  fusion::Choice choice;
  double predicted_us = 0;  ///< by the cost model
  double bound_us = 0;      ///< of the roofline
  double measured_us = 0;   ///< 0: not measured
  /// Measured, or predicted where it was not.
  double us() const { return measured_us > 0 ? measured_us : predicted_us; }
};

/// Between two neighbouring segments: why they are not one.
struct ExplainedBoundary {
  std::string before, after;  ///< operators on both sides
  std::string why;
};

struct Explanation {
  std::string model;               ///< "12 layers of 14 operators, 4096 rows, mask all"
  std::string device;              ///< of the environment
  std::string scheme;              ///< fusion::Scheme::hex()
  std::string source;              ///< "tuned in 12.3 s" or "not tuned; ..."
  std::vector<std::string> notes;  ///< what of the record is not used, and why
  int num_layers = 0;
  std::vector<ExplainedSegment> segments;  ///< of the strip, in order
  std::vector<ExplainedBoundary> boundaries;
  double pass_us = 0;                                      ///< sum over a forward pass
  double measured_pass_us = 0;                             ///< end to end; 0: not measured
  double untuned_pass_us = 0;                              ///< the same without tuning
  std::vector<std::vector<std::string>> untuned_segments;  ///< operators of each, of a layer
  std::vector<std::pair<double, double>> curve;            ///< seconds, microseconds
  double search_seconds = 0;                               ///< until the search ended
  std::string mask_text;
  std::string mask_picture;  ///< a PNG file's bytes: tiles of the longest sequence

  std::string to_text() const;
  std::string to_json() const;
  /// One self-contained page.
  std::string to_html() const;
  /// Chrome's trace format, which Perfetto reads: one forward pass.
  std::string to_trace() const;
};

/// Calls `visit` for every launch of a forward pass in order, with its layer, or -1 outside.
void for_each_launch(const Explanation& explanation,
                     const std::function<void(const ExplainedSegment&, int layer)>& visit);

/// `tuned`: what load_tuned() gave; without it the rules' scheme with the first candidates. As far
/// as `switches` allow, as sessions do.
Explanation explain(const TuningProblem& problem, Device& device, const Database& database,
                    const std::optional<TunedScheme>& tuned,
                    const exec::FuseSwitches& switches = {});

}  // namespace stof::tune

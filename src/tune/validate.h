#pragma once
// Compares what a candidate computes with the interpreter, before anything is believed of it.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tune/device.h"
#include "tune/strip.h"

namespace stof::tune {

/// The model's graph for a number of rows.
using GraphOfRows = std::function<graph::Graph(std::int64_t rows)>;

class Validator {
 public:
  /// Both outlive this.
  Validator(Device& device, const GraphOfRows& graph_of, const BatchShape& batch);
  /// On those sequences alone, fewer rows first; the first are to be few. Whether weights are left
  /// alone is not looked at, which would take longer than the rest.
  Validator(Device& device, const GraphOfRows& graph_of, const mask::Mask& mask,
            const std::vector<std::vector<std::int64_t>>& all_offsets);
  ~Validator();

  /// Empty where the candidate is right on one row, on an odd number of rows and on the rows that
  /// are tuned for: every element written (outputs are poisoned with NaN), nothing written behind
  /// (guard bytes), inputs left alone, numbers near the interpreter's. Else the first fault:
  /// "value \"layer.0.bias\": 0.25 at [3, 17], expected 0.5 (37 rows)". Many rows repeat the few of
  /// the case before, so that the interpreter's few rows tell what each must be; where rows depend
  /// on each other (attention), they are compared with the first candidate that passed. Nothing
  /// where `stop`, which is asked between the parts, says so.
  std::optional<std::string> check(Range range, const fusion::Choice& choice,
                                   const std::function<bool()>& stop = {});

 private:
  struct Case;
  std::string check_case(Case& c, Range range, const fusion::Choice& choice);
  Case* repeated(const Case& c, Range range) const;
  const Tensor& content(Case& c, Case* repeated, graph::ValueId id);
  const std::vector<Tensor>& expected(Case& c, Range range);

  Device& device_;
  const GraphOfRows& graph_of_;
  std::vector<std::unique_ptr<Case>> cases_;
  struct Buffer;
  bool reads_weights_back_ = false;
  std::map<graph::ValueId, Buffer> weights_;  ///< on the device, the same for all cases
};

}  // namespace stof::tune

#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>
#include <string_view>

#include "core/check.h"

namespace stof::model {
namespace {

constexpr double kMaxTheta = 1e12, kMaxFactor = 1e6;
constexpr double kNone = -1;  // no field below may be negative

double required(const JsonFields& fields, const char* name, double high) {
  const double value = fields.number(name, 0, high, kNone);
  if (value <= 0) fields.fail(name, "a number above 0");
  return value;
}

void refuse_others(const JsonFields& fields, const Json& json,
                   std::initializer_list<std::string_view> known) {
  for (const auto& [name, value] : json.items())
    if (std::find(known.begin(), known.end(), name) == known.end())
      fields.refuse(name.c_str(), "no such field for this kind of scaling");
}

RopeConfig read_parameters(const JsonFields& fields, const Json& json, double theta) {
  RopeConfig rope;
  rope.theta = fields.number("rope_theta", 1, kMaxTheta, theta);
  if (fields.number("partial_rotary_factor", 0, 1, 1) != 1)
    fields.refuse("partial_rotary_factor", "1");
  const std::string type =
      fields.string("rope_type", fields.string("type", "default"));  // "type" in early files
  if (fields.string("type", type) != type) fields.refuse("type", "the value of rope_type");
  if (type == "default") {
    refuse_others(fields, json, {"rope_type", "type", "rope_theta", "partial_rotary_factor"});
  } else if (type == "linear") {
    refuse_others(fields, json,
                  {"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor"});
    rope.scaling = RopeConfig::Scaling::kLinear;
    rope.factor = required(fields, "factor", kMaxFactor);
  } else if (type == "llama3") {
    refuse_others(fields, json,
                  {"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor",
                   "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"});
    rope.scaling = RopeConfig::Scaling::kLlama3;
    rope.factor = required(fields, "factor", kMaxFactor);
    rope.low_freq_factor = required(fields, "low_freq_factor", kMaxFactor);
    rope.high_freq_factor = required(fields, "high_freq_factor", kMaxFactor);
    if (rope.high_freq_factor <= rope.low_freq_factor)
      fields.fail("high_freq_factor", "a number above low_freq_factor");
    rope.original_positions =
        fields.integer("original_max_position_embeddings", 1, std::int64_t{1} << 31);
  } else {
    fields.refuse(fields.has("rope_type") ? "rope_type" : "type",
                  "\"default\", \"linear\" or \"llama3\"");
  }
  return rope;
}

}  // namespace

RopeConfig read_rope(const JsonFields& config) {
  const RopeConfig plain;
  const double theta = config.number("rope_theta", 1, kMaxTheta, plain.theta);
  RopeConfig early;
  early.theta = theta;
  if (const Json* scaling = config.find("rope_scaling"))
    early = read_parameters(config.object("rope_scaling"), *scaling, theta);
  const Json* parameters = config.find("rope_parameters");
  if (parameters == nullptr) return early;
  const RopeConfig rope =
      read_parameters(config.object("rope_parameters"), *parameters, plain.theta);
  const bool both = config.has("rope_scaling");
  if ((both && early != rope) || (config.has("rope_theta") && theta != rope.theta))
    config.refuse(both ? "rope_scaling" : "rope_theta", "agreement with rope_parameters");
  return rope;
}

std::vector<float> RopeConfig::frequencies(std::int64_t head_dim) const {
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < head_dim / 2; ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
    double frequency = 1 / std::pow(theta, exponent);
    if (scaling == Scaling::kLinear) frequency /= factor;
    if (scaling == Scaling::kLlama3) {
      // How many whole turns the pair makes within the length trained on.
      const double turns =
          static_cast<double>(original_positions) * frequency / (2 * std::numbers::pi);
      const double keep =
          std::clamp((turns - low_freq_factor) / (high_freq_factor - low_freq_factor), 0.0, 1.0);
      frequency *= keep + (1 - keep) / factor;
    }
    frequencies.push_back(static_cast<float>(frequency));
  }
  return frequencies;
}

}  // namespace stof::model

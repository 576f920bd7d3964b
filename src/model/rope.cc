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
                   const std::vector<std::string_view>& known) {
  for (const auto& [name, value] : json.items())
    if (std::find(known.begin(), known.end(), name) == known.end())
      fields.refuse(name.c_str(), "no such field for this kind of scaling");
}

/// The length trained on: of the model's fields, else of the scaling's, else all positions.
std::int64_t read_original_positions(const JsonFields& config, const JsonFields& fields) {
  constexpr const char* kName = "original_max_position_embeddings";
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  if (config.has(kName)) return config.integer(kName, 1, kMost);
  if (fields.has(kName)) return fields.integer(kName, 1, kMost);
  return config.integer("max_position_embeddings", 1, kMost);
}

/// A number above 0 where stated; 0 counts as absent, as in transformers.
double optional_number(const JsonFields& fields, const char* name, double fallback) {
  const double value = fields.number(name, 0, kMaxFactor, fallback);
  return value == 0 ? fallback : value;
}

void read_llama3(const JsonFields& config, const JsonFields& fields, RopeConfig& rope) {
  rope.scaling = RopeConfig::Scaling::kLlama3;
  rope.factor = required(fields, "factor", kMaxFactor);
  rope.low_freq_factor = required(fields, "low_freq_factor", kMaxFactor);
  rope.high_freq_factor = required(fields, "high_freq_factor", kMaxFactor);
  if (rope.high_freq_factor <= rope.low_freq_factor)
    fields.fail("high_freq_factor", "a number above low_freq_factor");
  rope.original_positions = read_original_positions(config, fields);
}

void read_yarn(const JsonFields& config, const JsonFields& fields, RopeConfig& rope) {
  rope.scaling = RopeConfig::Scaling::kYarn;
  rope.factor = required(fields, "factor", kMaxFactor);
  rope.original_positions = read_original_positions(config, fields);
  rope.beta_fast = optional_number(fields, "beta_fast", rope.beta_fast);
  rope.beta_slow = optional_number(fields, "beta_slow", rope.beta_slow);
  if (rope.beta_fast < rope.beta_slow)
    fields.fail("beta_fast", fmt::format("at least beta_slow, {}", rope.beta_slow));
  rope.truncate = fields.boolean("truncate", true);
  const auto magnitude = [&](double scale) {
    return rope.factor <= 1 ? 1 : 0.1 * scale * std::log(rope.factor) + 1;
  };
  const double scale = optional_number(fields, "mscale", 0),
               all = optional_number(fields, "mscale_all_dim", 0);
  rope.attention_factor = scale > 0 && all > 0 ? magnitude(scale) / magnitude(all) : magnitude(1);
  if (fields.has("attention_factor"))
    rope.attention_factor = required(fields, "attention_factor", kMaxFactor);
}

void read_longrope(const JsonFields& config, const JsonFields& fields, RopeConfig& rope) {
  rope.scaling = RopeConfig::Scaling::kLongRope;
  rope.bounded = true;
  const std::int64_t original = read_original_positions(config, fields);
  const std::int64_t positions =
      config.integer("max_position_embeddings", 1, std::int64_t{1} << 31);
  if (positions > original)
    config.refuse("max_position_embeddings",
                  fmt::format("at most {}, original_max_position_embeddings, with longrope, whose "
                              "frequencies change when a text grows longer",
                              original));
  for (const Json& factor : fields.array("short_factor")) {
    if (!factor.is_number() || factor <= 0 || factor > kMaxFactor)
      fields.fail("short_factor", "a list of numbers above 0");
    rope.factors.push_back(factor.get<double>());
  }
  const double factor = optional_number(
      fields, "factor", static_cast<double>(positions) / static_cast<double>(original));
  if (factor > 1)
    rope.attention_factor =
        std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(original)));
  if (fields.has("attention_factor"))
    rope.attention_factor = required(fields, "attention_factor", kMaxFactor);
}

/// `config`: the fields around them.
RopeConfig read_parameters(const JsonFields& config, const JsonFields& fields, const Json& json,
                           double theta) {
  RopeConfig rope;
  rope.theta = fields.number("rope_theta", 1, kMaxTheta, theta);
  if (fields.number("partial_rotary_factor", 0, 1, 1) != 1)
    fields.refuse("partial_rotary_factor", "1");
  const std::string type =
      fields.string("rope_type", fields.string("type", "default"));  // "type" in early files
  if (fields.string("type", type) != type) fields.refuse("type", "the value of rope_type");
  const auto allow = [&](std::initializer_list<std::string_view> own) {
    std::vector<std::string_view> known = {"rope_type", "type", "rope_theta",
                                           "partial_rotary_factor"};
    known.insert(known.end(), own);
    refuse_others(fields, json, known);
  };
  if (type == "default") {
    allow({});
  } else if (type == "linear") {
    allow({"factor"});
    rope.scaling = RopeConfig::Scaling::kLinear;
    rope.factor = required(fields, "factor", kMaxFactor);
  } else if (type == "dynamic") {
    allow({"factor", "original_max_position_embeddings"});
    required(fields, "factor", kMaxFactor);
    rope.bounded = true;
  } else if (type == "llama3") {
    allow({"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"});
    read_llama3(config, fields, rope);
  } else if (type == "yarn") {
    allow({"factor", "original_max_position_embeddings", "attention_factor", "beta_fast",
           "beta_slow", "mscale", "mscale_all_dim", "truncate"});
    read_yarn(config, fields, rope);
  } else if (type == "longrope") {
    allow({"factor", "original_max_position_embeddings", "attention_factor", "short_factor",
           "long_factor"});
    read_longrope(config, fields, rope);
  } else {
    fields.refuse(fields.has("rope_type") ? "rope_type" : "type",
                  "\"default\", \"linear\", \"dynamic\", \"llama3\", \"yarn\" or \"longrope\"");
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
    early = read_parameters(config, config.object("rope_scaling"), *scaling, theta);
  const Json* parameters = config.find("rope_parameters");
  if (parameters == nullptr) return early;
  RopeConfig rope =
      read_parameters(config, config.object("rope_parameters"), *parameters, plain.theta);
  const bool both = config.has("rope_scaling");
  if ((both && early != rope) || (config.has("rope_theta") && theta != rope.theta))
    config.refuse(both ? "rope_scaling" : "rope_theta", "agreement with rope_parameters");
  return rope;
}

std::vector<double> RopeConfig::yarn_kept(std::int64_t head_dim) const {
  const auto dim = static_cast<double>(head_dim);
  /// The pair, as a real number, that turns so many times within the length trained on.
  const auto pair_of = [&](double turns) {
    return dim *
           std::log(static_cast<double>(original_positions) / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(theta));
  };
  double low = pair_of(beta_fast), high = pair_of(beta_slow);
  if (truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  std::vector<double> kept;
  for (std::int64_t i = 0; i < head_dim / 2; ++i)
    kept.push_back(1 - std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0));
  return kept;
}

double RopeConfig::attention_scale(std::int64_t head_dim) const {
  if (attention_factor == 1) return 0;  // the graph's own
  return attention_factor * attention_factor / std::sqrt(static_cast<double>(head_dim));
}

std::vector<float> RopeConfig::frequencies(std::int64_t head_dim) const {
  std::vector<double> kept;
  if (scaling == Scaling::kYarn) kept = yarn_kept(head_dim);
  STOF_CHECK(
      scaling != Scaling::kLongRope || static_cast<std::int64_t>(factors.size()) == head_dim / 2,
      kCorrupt, "short_factor: expected {} numbers, one for each pair of a head, got {}",
      head_dim / 2, factors.size());
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < head_dim / 2; ++i) {
    const auto pair = static_cast<std::size_t>(i);
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
    double frequency = 1 / std::pow(theta, exponent);
    if (scaling == Scaling::kLinear) frequency /= factor;
    if (scaling == Scaling::kLongRope) frequency /= factors[pair];
    if (scaling == Scaling::kYarn) frequency *= kept[pair] + (1 - kept[pair]) / factor;
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

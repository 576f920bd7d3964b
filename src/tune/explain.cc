#include "tune/explain.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/text.h"
#include "exec/batch.h"
#include "stof/mask_draw.h"
#include "tune/work.h"

namespace stof::tune {
namespace {

/// What is known of segments: candidates of the device, latencies of the database.
class Facts {
 public:
  Facts(const Strip& strip, const TuningProblem& problem, Device& device, const Database& database)
      : strip_(strip),
        problem_(problem),
        device_(device),
        database_(database),
        environment_(device.environment()) {}

  const Environment& environment() const { return environment_; }

  std::vector<fusion::Choice> candidates(Range range) {
    return device_.candidates(strip_.graph(), strip_.segment(range));
  }

  const std::optional<FoundRecord>& record(Range range) {
    const auto [known, is_new] = records_.try_emplace(range);
    if (is_new)
      known->second = database_.find(
          RecordKind::kSegment, segment_record_key(strip_, range, problem_.batch), environment_);
    return known->second;
  }

  /// Of one choice; 0 where it was not measured.
  double measured_us(Range range, const fusion::Choice& choice) {
    const auto& found = record(range);
    if (!found) return 0;
    const auto measured = found->record.measured.find(choice);
    return measured == found->record.measured.end() ? 0 : measured->second.microseconds;
  }

  SegmentEstimate estimate_of(Range range, const fusion::Choice& choice) {
    return estimate(strip_.graph(), strip_.segment(range), choice, device_.facts(), problem_.batch);
  }

  std::string why_apart(Range a, Range b) {
    const Range both{a.first, b.last};
    // What lies between them is all the other layers.
    if (strip_.in_layer(a) && !strip_.in_layer(b)) return "one is behind the layers";
    const auto [first, last] = strip_.operator_range(both);
    const auto reasons = fusion::legality(strip_.graph(), first, last);
    if (!reasons.empty()) return reasons.front().text;
    if (!strip_.in_layer(both)) return "one is outside of the layers";
    if (candidates(both).empty()) return "no kernel here runs both as one";
    const auto& fused = record(both);
    const auto& of_a = record(a);
    const auto& of_b = record(b);
    if (!fused || !of_a || !of_b) return "not measured as one";
    return fmt::format("as one {:.1f} us, apart {:.1f} us", fused->record.microseconds,
                       of_a->record.microseconds + of_b->record.microseconds);
  }

 private:
  const Strip& strip_;
  const TuningProblem& problem_;
  Device& device_;
  const Database& database_;
  Environment environment_;
  std::map<Range, std::optional<FoundRecord>> records_;
};

std::string device_text(const Environment& environment) {
  const std::string gpu = environment.value("gpu");
  if (!gpu.empty())
    return fmt::format("{} ({} SMs), driver for CUDA {}", gpu, environment.value("sms"),
                       environment.value("driver"));
  return fmt::format("{}, {} threads", environment.value("cpu"), environment.value("threads"));
}

std::string source_text(const TuningProblem& problem, const std::optional<TunedScheme>& tuned) {
  if (!tuned) return "the rules', not tuned: stof tune measures what is faster";
  const FoundRecord& found = tuned->found;
  std::string text = fmt::format("tuned in {}", human_duration(found.record.seconds));
  if (tuned->rows != problem.batch.rows()) text += fmt::format(" for {} rows", tuned->rows);
  if (found.shipped) text += ", shipped with stof";
  if (found.soft) text += "; used although it differs in " + found.soft->text();
  return text;
}

ExplainedSegment explain_segment(const Strip& strip, Range range, const fusion::Choice& choice,
                                 Facts& facts) {
  ExplainedSegment segment;
  segment.range = range;
  segment.in_layer = strip.in_layer(range);
  segment.occurrences = strip.occurrences(range);
  const auto [first, last] = strip.operator_range(range);
  for (graph::OperatorId id = first; id <= last; ++id)
    segment.operators.emplace_back(to_string(strip.graph().op(id).op), strip.graph().op(id).name);
  segment.what = fusion::describe(strip.graph(), strip.segment(range));
  segment.choice = choice;
  const SegmentEstimate estimated = facts.estimate_of(range, choice);
  segment.predicted_us = estimated.predicted_us;
  segment.bound_us = estimated.bound_us;
  segment.measured_us = facts.measured_us(range, choice);
  return segment;
}

std::vector<std::vector<std::string>> operators_of(const Strip& strip, const Partition& partition) {
  std::vector<std::vector<std::string>> segments;
  for (const Range& range : partition) {
    if (!strip.in_layer(range)) continue;
    const auto [first, last] = strip.operator_range(range);
    auto& names = segments.emplace_back();
    for (graph::OperatorId id = first; id <= last; ++id)
      names.emplace_back(to_string(strip.graph().op(id).op));
  }
  return segments;
}

std::string tile_picture(const BatchShape& batch) {
  std::int64_t longest = 1;
  for (std::size_t i = 0; i + 1 < batch.offsets.size(); ++i)
    longest = std::max(longest, batch.offsets[i + 1] - batch.offsets[i]);
  mask::DrawOptions options;
  options.max_pixels = 320;
  return mask::encode_png(
      mask::draw_tiles(mask::build_block_mask(batch.mask, {1, 1, longest, longest}), options));
}

/// "┌│└", "[" for a segment of one.
const char* bracket(std::size_t i, std::size_t size) {
  if (size == 1) return "[";
  return i == 0 ? "┌" : i + 1 == size ? "└" : "│";
}

std::string us_text(double us) { return us > 0 ? fmt::format("{:.1f}", us) : "-"; }

std::string share_text(const ExplainedSegment& segment) {
  return segment.measured_us > 0
             ? fmt::format("{:.0f} %", 100 * segment.bound_us / segment.measured_us)
             : "-";
}

std::string parameters_text(const fusion::Choice& choice) {
  const std::string text = choice.text();
  const std::size_t blank = text.find(' ');
  return blank == std::string::npos ? "" : text.substr(blank + 1);
}

/// Columns of unequal length, two blanks apart; the last `right` columns are right-aligned.
std::string table(const std::vector<std::vector<std::string>>& rows, std::size_t right) {
  std::vector<std::size_t> widths;
  const auto width = [](const std::string& cell) {  // of UTF-8, where brackets take three bytes
    return static_cast<std::size_t>(std::count_if(cell.begin(), cell.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    }));
  };
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - width(row[i]), ' ');
      if (i > 0) line += "  ";
      line += i + right >= widths.size() ? padding + row[i] : row[i] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace

namespace {

/// What a session makes of the graph.
exec::ExecutionPlan session_plan(const graph::Graph& graph, Device& device,
                                 const std::optional<TunedScheme>& tuned,
                                 const exec::FuseSwitches& switches) {
  exec::SessionOptions options;
  options.switches = switches;
  const auto candidates = [&](const graph::Graph& g, const fusion::Segment& segment) {
    std::vector<fusion::Choice> list = device.candidates(g, segment);
    std::erase_if(list, [&](const fusion::Choice& c) { return !switches.allows(c.family); });
    return list;
  };
  if (tuned)
    options.tuned = [&](const graph::Graph&) {
      return exec::TunedSegments{tuned->scheme, tuned->choices, tuned->rejected};
    };
  else
    options.scheme =
        exec::runnable_scheme(graph, device.untuned_scheme(graph), candidates, switches);
  return exec::make_plan(graph, options, candidates);
}

}  // namespace

Explanation explain(const TuningProblem& problem, Device& device, const Database& database,
                    const std::optional<TunedScheme>& tuned, const exec::FuseSwitches& switches) {
  const Strip strip(std::make_shared<const graph::Graph>(problem.graph_of(problem.batch.rows())));
  Facts facts(strip, problem, device, database);
  const exec::ExecutionPlan plan = session_plan(strip.graph(), device, tuned, switches);
  const Partition partition = switches.fuse ? strip.partition(plan.scheme()) : strip.separate();
  std::map<Fingerprint, fusion::Choice> choices;
  for (const exec::PlannedSegment& planned : plan.segments())
    choices[planned.hash] = planned.choice;

  Explanation result;
  result.model =
      fmt::format("{} layers of {} operators, {} sequences, {} rows, mask {}", strip.num_layers(),
                  strip.layer().size(), problem.batch.offsets.size() - 1, problem.batch.rows(),
                  problem.batch.mask.describe());
  result.device = device_text(facts.environment());
  result.scheme = strip.scheme(partition).hex();
  result.source = source_text(problem, tuned);
  result.num_layers = strip.num_layers();
  result.mask_text = problem.batch.mask.describe();
  result.mask_picture = tile_picture(problem.batch);
  const bool switched = switches != exec::FuseSwitches{};
  Partition before;
  if (tuned) {
    result.notes = tuned->notes;
    const Record& record = tuned->found.record;
    result.curve = record.curve;
    result.search_seconds = record.seconds;
    result.measured_pass_us = switched ? 0 : record.microseconds;
    result.untuned_pass_us = record.untuned_microseconds;
    before = strip.partition(fusion::Scheme::from_text(record.untuned_scheme));
  } else {
    before = strip.partition(device.untuned_scheme(strip.graph()));
  }
  if (switched)
    result.notes.emplace_back(
        "STOF_FUSE leaves out a part of fusion: drawn is what runs then, outside of layers as "
        "fused");
  result.untuned_segments = operators_of(strip, before);
  for (const Range& range : partition) {
    const auto planned = choices.find(segment_hash(strip.graph(), strip.segment(range)));
    fusion::Choice choice;
    if (planned != choices.end()) {
      choice = planned->second;
    } else {  // of operators outside of layers, which run one by one
      const auto candidates = facts.candidates(range);
      STOF_CHECK(!candidates.empty(), kUnsupported, "operators {}: nothing here runs them",
                 strip.operators(range));
      choice = candidates.front();
    }
    result.segments.push_back(explain_segment(strip, range, choice, facts));
    result.pass_us += result.segments.back().us() * strip.occurrences(range);
  }
  for (std::size_t i = 0; i + 1 < partition.size(); ++i)
    result.boundaries.push_back({strip.operators(partition[i]), strip.operators(partition[i + 1]),
                                 facts.why_apart(partition[i], partition[i + 1])});
  return result;
}

void for_each_launch(const Explanation& explanation,
                     const std::function<void(const ExplainedSegment&, int layer)>& visit) {
  const auto& segments = explanation.segments;
  for (std::size_t i = 0; i < segments.size();) {
    if (!segments[i].in_layer) {
      visit(segments[i++], -1);
      continue;
    }
    std::size_t end = i;
    while (end < segments.size() && segments[end].in_layer) ++end;
    for (int layer = 0; layer < explanation.num_layers; ++layer)
      for (std::size_t j = i; j < end; ++j) visit(segments[j], layer);
    i = end;
  }
}

std::string Explanation::to_text() const {
  std::string text =
      fmt::format("model    {}\ndevice   {}\nscheme   {}, {}\n", model, device, scheme, source);
  if (measured_pass_us > 0)
    text += fmt::format("pass     {}, untuned {}\n", human_duration(measured_pass_us * 1e-6),
                        human_duration(untuned_pass_us * 1e-6));
  for (const std::string& note : notes) text += fmt::format("note     {}\n", note);
  std::vector<std::vector<std::string>> rows = {{"", "operator", "name", "kernel", "parameters",
                                                 "predicted us", "measured us", "of roofline"}};
  bool in_layer = false;
  for (const ExplainedSegment& segment : segments) {
    if (segment.in_layer != in_layer) {
      in_layer = segment.in_layer;
      rows.push_back({in_layer ? fmt::format("{} times:", num_layers) : "once:"});
    }
    for (std::size_t i = 0; i < segment.operators.size(); ++i) {
      const auto& [kind, name] = segment.operators[i];
      std::vector<std::string> row = {bracket(i, segment.operators.size()), kind, name};
      if (i == 0)
        for (std::string cell :
             {segment.choice.family, parameters_text(segment.choice), us_text(segment.predicted_us),
              us_text(segment.measured_us), share_text(segment)})
          row.push_back(std::move(cell));
      rows.push_back(std::move(row));
    }
  }
  // Titles of parts are wider than brackets; they must not push the columns.
  std::string drawn;
  std::vector<std::vector<std::string>> plain;
  for (const auto& row : rows)
    if (row.size() > 1) plain.push_back(row);
  const std::string lines = table(plain, 3);
  std::size_t at = 0;
  for (const auto& row : rows) {
    if (row.size() == 1) {
      drawn += row[0] + "\n";
      continue;
    }
    const std::size_t end = lines.find('\n', at) + 1;
    drawn += lines.substr(at, end - at);
    at = end;
  }
  text += "\n" + drawn + "\nnot fused:\n";
  for (const ExplainedBoundary& boundary : boundaries)
    text += fmt::format("  {} | {}: {}\n", boundary.before, boundary.after, boundary.why);
  return text;
}

std::string Explanation::to_json() const {
  nlohmann::ordered_json json = {{"model", model},
                                 {"device", device},
                                 {"scheme", scheme},
                                 {"source", source},
                                 {"notes", notes},
                                 {"layers", num_layers},
                                 {"pass_us", pass_us},
                                 {"measured_pass_us", measured_pass_us},
                                 {"untuned_pass_us", untuned_pass_us}};
  for (const ExplainedSegment& segment : segments) {
    nlohmann::ordered_json entry = {{"what", segment.what},
                                    {"occurrences", segment.occurrences},
                                    {"choice", segment.choice.text()},
                                    {"predicted_us", segment.predicted_us},
                                    {"roofline_us", segment.bound_us},
                                    {"measured_us", segment.measured_us}};
    for (const auto& [kind, name] : segment.operators)
      entry["operators"].push_back({{"kind", kind}, {"name", name}});
    json["segments"].push_back(std::move(entry));
  }
  for (const ExplainedBoundary& boundary : boundaries)
    json["not_fused"].push_back(
        {{"before", boundary.before}, {"after", boundary.after}, {"why", boundary.why}});
  return json.dump();
}

std::string Explanation::to_trace() const {
  nlohmann::ordered_json events = nlohmann::ordered_json::array();
  events.push_back(
      {{"name", "process_name"}, {"ph", "M"}, {"pid", 1}, {"args", {{"name", "stof: " + model}}}});
  events.push_back(
      {{"name", "thread_name"}, {"ph", "M"}, {"pid", 1}, {"tid", 1}, {"args", {{"name", device}}}});
  double now = 0;
  const auto add = [&](const ExplainedSegment& segment, int layer) {
    nlohmann::ordered_json args = {{"choice", segment.choice.text()},
                                   {"roofline_us", segment.bound_us},
                                   {"measured", segment.measured_us > 0}};
    if (layer >= 0) args["layer"] = layer;
    events.push_back({{"name", segment.what},
                      {"cat", segment.choice.family},
                      {"ph", "X"},
                      {"pid", 1},
                      {"tid", 1},
                      {"ts", now},
                      {"dur", segment.us()},
                      {"args", std::move(args)}});
    now += segment.us();
  };
  for_each_launch(*this, add);
  return nlohmann::ordered_json{{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}}
      .dump();
}

}  // namespace stof::tune

#include "exec/plan.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/log.h"
#include "core/text.h"
#include "exec/arena.h"

namespace stof::exec {

using fusion::Choice;
using fusion::Scheme;
using graph::Graph;
using graph::ValueId;
using graph::ValueKind;

namespace {

/// Slots of all values that segments write, without offsets.
std::vector<ArenaSlot> lifetimes_of(const Graph& graph,
                                    const std::vector<PlannedSegment>& segments) {
  std::vector<ArenaSlot> slots;
  std::map<ValueId, std::size_t> slot_of;
  const auto extend = [&](ValueId id, int segment) {
    const ValueId storage = graph.storage(id);
    if (graph.value(storage).kind != ValueKind::kActivation) return;
    const auto found = slot_of.find(storage);
    STOF_CHECK(found != slot_of.end(), kInternal,
               "plan: segment {} reads value \"{}\", which no segment before it writes", segment,
               graph.value(storage).name);
    slots[found->second].last = segment;
  };
  const int count = static_cast<int>(segments.size());
  for (int i = 0; i < count; ++i) {
    const fusion::Segment& segment = segments[static_cast<std::size_t>(i)].segment;
    for (const ValueId input : segment.inputs) extend(input, i);
    for (const ValueId output : segment.outputs) {
      const ValueId storage = graph.storage(output);
      if (graph.value(storage).kind == ValueKind::kActivation && !slot_of.contains(storage)) {
        slot_of[storage] = slots.size();
        slots.push_back(
            {storage, 0, static_cast<std::int64_t>(value_bytes(graph.value(storage))), i, i});
      }
    }
  }
  for (const ValueId result : graph.live_outs()) extend(result, count - 1);
  return slots;
}

/// Lays out those of the slots that `in` holds for, from `begin` on; returns where they end.
template <class In>
std::int64_t lay_out(std::vector<ArenaSlot>& slots, std::int64_t begin, const PlanOptions& options,
                     const In& in) {
  std::vector<Lifetime> lifetimes;
  std::vector<ArenaSlot*> chosen;
  for (ArenaSlot& slot : slots)
    if (in(slot)) {
      lifetimes.push_back({slot.bytes, slot.first, slot.last});
      chosen.push_back(&slot);
    }
  constexpr std::int64_t kAlignment = 1024;  // what TMA's swizzled boxes like best
  const ArenaLayout layout = plan_arena(lifetimes, kAlignment, options.guard_bytes);
  for (std::size_t i = 0; i < chosen.size(); ++i) chosen[i]->offset = begin + layout.offsets[i];
  return begin + layout.bytes;
}

std::string operators_text(const Graph& graph, const fusion::Segment& segment) {
  return fmt::format("\"{}\" to \"{}\" ({})", graph.op(segment.first).name,
                     graph.op(segment.last).name, to_string(segment.family));
}

}  // namespace

ExecutionPlan::ExecutionPlan(std::shared_ptr<const Graph> graph, Scheme scheme,
                             std::vector<PlannedSegment> segments, const PlanOptions& options)
    : graph_(std::move(graph)),
      scheme_(std::move(scheme)),
      segments_(std::move(segments)),
      slots_(lifetimes_of(*graph_, segments_)) {
  const auto of_attention = [&](const ArenaSlot& slot) {
    return graph_->op(graph_->value(slot.value).producer).op == graph::Op::kAttention;
  };
  attention_bytes_ = lay_out(slots_, 0, options, of_attention);
  arena_bytes_ = lay_out(slots_, attention_bytes_, options,
                         [&](const ArenaSlot& slot) { return !of_attention(slot); });
}

void ExecutionPlan::validate() const {
  const std::vector<ArenaSlot> wanted = lifetimes_of(*graph_, segments_);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const ArenaSlot& a = slots_[i];
    STOF_CHECK(a.offset >= 0 && a.offset + a.bytes <= arena_bytes_ && a.first == wanted[i].first &&
                   a.last == wanted[i].last,
               kInternal, "plan: value \"{}\" lies at {}, {} bytes, outside of an arena of {}",
               graph_->value(a.value).name, a.offset, a.bytes, arena_bytes_);
    for (std::size_t j = 0; j < i; ++j) {
      const ArenaSlot& b = slots_[j];
      const bool apart = a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset ||
                         a.last < b.first || b.last < a.first;
      STOF_CHECK(apart, kInternal, "plan: values \"{}\" and \"{}\" live at once and overlap",
                 graph_->value(a.value).name, graph_->value(b.value).name);
    }
  }
}

std::string ExecutionPlan::describe() const {
  return fmt::format("{} operators a layer in {} segments ({}), {} launches, arena {}",
                     scheme_.size(), scheme_.segments().size(), scheme_.hex(), segments_.size(),
                     human_bytes(static_cast<std::uint64_t>(arena_bytes_)));
}

std::string ExecutionPlan::to_json() const {
  nlohmann::ordered_json json;
  json["scheme"] = scheme_.hex();
  json["arena_bytes"] = arena_bytes_;
  for (const PlannedSegment& planned : segments_) {
    nlohmann::ordered_json segment;
    segment["first"] = graph_->op(planned.segment.first).name;
    segment["last"] = graph_->op(planned.segment.last).name;
    segment["family"] = to_string(planned.segment.family);
    segment["steps"] = nlohmann::ordered_json::array();
    for (const fusion::EpilogueStep& step : planned.segment.steps)
      segment["steps"].push_back(to_string(step.step));
    segment["choice"] = planned.choice.text();
    segment["hash"] = planned.hash.hex();
    json["segments"].push_back(std::move(segment));
  }
  for (const ArenaSlot& slot : slots_)
    json["slots"].push_back({{"value", graph_->value(slot.value).name},
                             {"offset", slot.offset},
                             {"bytes", slot.bytes},
                             {"first", slot.first},
                             {"last", slot.last}});
  return json.dump();
}

std::vector<PlannedSegment> choose_segments(const Graph& graph, const Scheme& scheme,
                                            const CandidatesOf& candidates_of, const Choices& known,
                                            const FuseSwitches& switches) {
  std::vector<fusion::Segment> segments;
  if (switches.fuse)
    segments = decode(graph, scheme);
  else
    for (int i = 0; i < graph.num_operators(); ++i)
      segments.push_back(fusion::make_segment(graph, i, i));
  std::vector<PlannedSegment> planned;
  std::map<Fingerprint, Choice> chosen;  // equal segments of all layers are asked for once
  for (fusion::Segment& segment : segments) {
    const Fingerprint hash = segment_hash(graph, segment);
    auto found = chosen.find(hash);
    if (found == chosen.end()) {
      const auto stored = known.find(hash);
      if (stored != known.end() && switches.allows(stored->second.family)) {
        found = chosen.emplace(hash, stored->second).first;
      } else {
        std::vector<Choice> candidates = candidates_of(graph, segment);
        std::erase_if(candidates, [&](const Choice& c) { return !switches.allows(c.family); });
        STOF_CHECK(!candidates.empty(), kUnsupported, "segment {}: nothing here runs it{}",
                   operators_text(graph, segment),
                   switches.disabled.empty() ? "" : "; STOF_FUSE leaves families out");
        found = chosen.emplace(hash, std::move(candidates[0])).first;
      }
    }
    planned.push_back({std::move(segment), found->second, hash});
  }
  return planned;
}

std::vector<Choice> installed_candidates(const CandidatesOfFamilies& candidates_of,
                                         const std::string& library_family, const Graph& graph,
                                         const fusion::Segment& segment, const Allows& allows) {
  try {
    return candidates_of(graph, segment, allows);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound || !allows(library_family)) throw;
    std::vector<Choice> others = candidates_of(graph, segment, [&](const std::string& family) {
      return family != library_family && allows(family);
    });
    if (others.empty() && segment.first == segment.last) throw;
    static std::once_flag said;
    std::call_once(said,
                   [&] { log_warn("{}; products run without {}", error.what(), library_family); });
    return others;
  }
}

Scheme runnable_scheme(const Graph& graph, const Scheme& scheme, const CandidatesOf& candidates_of,
                       const FuseSwitches& switches) {
  if (!switches.fuse || graph.num_layers() == 0) return Scheme::separate(scheme.size());
  const graph::OperatorId begin = graph.layer_range(0).first;
  const auto runs = [&](int first, int last) {
    if (!fusion::legality(graph, begin + first, begin + last).empty()) return false;
    const auto candidates =
        candidates_of(graph, fusion::make_segment(graph, begin + first, begin + last));
    return std::any_of(candidates.begin(), candidates.end(),
                       [&](const Choice& c) { return switches.allows(c.family); });
  };
  std::vector<int> sizes;
  for (auto [first, last] : scheme.segments())
    while (first <= last) {
      int end = last;
      while (end > first && !runs(first, end)) --end;
      sizes.push_back(end - first + 1);
      first = end + 1;
    }
  return Scheme::from_sizes(sizes);
}

std::int64_t bucket_rows(std::int64_t rows) {
  // Of so few, as decoding has, padding shows: eight rows in place of one took 60 of 930
  // microseconds a token of LLaMA-1B's shape on an H200.
  constexpr std::int64_t kPowersOfTwoTo = 8;
  if (rows <= kPowersOfTwoTo)
    return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(rows)));
  const auto octave = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(rows)));
  const std::int64_t step = std::max<std::int64_t>(8, octave / 8);
  return (rows + step - 1) / step * step;
}

}  // namespace stof::exec

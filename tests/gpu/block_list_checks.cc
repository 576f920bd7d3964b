#include <cstdio>
#include <map>

#include "backend/cuda/plan/block_list_geometry.h"
#include "backend/cuda/upload.h"
#include "cpu/score_mods.h"
#include "cuda/host_block_lists.h"
#include "gpu/compile_ahead.h"
#include "gpu/device_operands.h"
#include "gpu/plan_checks.h"
#include "gpu/random_attention.h"
#include "gpu/replay.h"
#include "stof/error.h"

namespace stof::check {
namespace {

using cuda::HostLists;

const cuda::Driver& driver() { return cuda::Driver::instance(); }

struct BlockListCase {
  AttentionProblem problem;
  cuda::BlockListShape shape;
  HostLists lists, others;  ///< of the same extents
  bool wrong_entries = false;
};

/// Replaces some entries by what is no block or no count.
void spoil(Draw& draw, const BlockListCase& c, HostLists* lists) {
  const auto blocks = static_cast<std::int32_t>(c.shape.num_kv_blocks(c.problem));
  const auto row = static_cast<std::size_t>(
      draw.between(0, static_cast<std::int64_t>(lists->counts.size()) - 1));
  lists->counts[row] =
      draw.one_of<std::int32_t>({-1, 0x7fffffff, static_cast<std::int32_t>(lists->width) + 1});
  // Rows that are read to their end find what lies there: -77 (host_block_lists.h).
  const auto at = static_cast<std::size_t>(
      draw.between(0, static_cast<std::int64_t>(lists->counts.size()) - 1));
  lists->counts[at] = std::max(lists->counts[at], 1);
  lists->ids[at * static_cast<std::size_t>(lists->width)] =
      draw.one_of<std::int32_t>({blocks, -1, 0x7fffffff});
}

BlockListCase make_case(std::uint64_t seed) {
  Draw draw(seed);
  BlockListCase c;
  c.problem = small_problem(draw);
  c.problem.alibi = draw.chance(3);
  c.problem.bias = draw.chance(3);
  c.problem.sink = draw.chance(3);
  if (!c.problem.bias && draw.chance(4)) c.problem.position_bias = random_buckets(draw);
  if (draw.chance(4)) c.problem.softcap = 20;
  if (seed % 3 == 0)
    cpu::set_score_mod(&c.problem, static_cast<int>(seed / 3) % cpu::kNumScoreMods);
  c.shape.block_q = draw.one_of<std::int64_t>({64, 64, 128, 256});
  c.shape.block_kv = draw.one_of<std::int64_t>({64, 64, 128, 192});
  c.shape.expected_share = 0.5;
  c.shape.per_kv_head = draw.chance(2);
  if (draw.chance(4))
    for (std::int64_t i = c.shape.num_kv_blocks(c.problem); i > 0; --i)
      c.shape.key_block_sizes.push_back(draw.between(0, c.shape.block_kv));
  std::mt19937 random(static_cast<unsigned>(seed));
  const bool shared_heads = draw.chance(3);
  c.lists = random_lists(c.problem, c.shape, shared_heads, 1.2, random);
  c.others = random_lists(c.problem, c.shape, shared_heads, 0.5, random);
  c.wrong_entries = draw.chance(2);
  if (c.wrong_entries) spoil(draw, c, &c.lists);
  c.shape.max_blocks = c.lists.width;
  return c;
}

/// Lists in device memory, rows of ids apart from each other by what is no id, or laid out with the
/// last extent first.
class ListsOnDevice {
 public:
  ListsOnDevice(const HostLists& lists, bool transposed)
      : rows_{lists.batch_extent, lists.head_extent, lists.q_blocks},
        width_(lists.width),
        pitch_(lists.width + 5),
        transposed_(transposed),
        counts_(lists.counts.size() * 4, "counts"),
        ids_(lists.counts.size() * static_cast<std::size_t>(pitch_) * 4, "ids") {
    put(lists);
  }

  void put(const HostLists& lists) {
    const auto rows = static_cast<std::int64_t>(lists.counts.size());
    std::vector<std::int32_t> image(static_cast<std::size_t>(rows * pitch_), 0x7ffffff0);
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t i = 0; i < width_; ++i)
        image[static_cast<std::size_t>(transposed_ ? i * rows + row : row * pitch_ + i)] =
            lists.ids[static_cast<std::size_t>(row * width_ + i)];
    driver().check(driver().cuMemcpyHtoDAsync(counts_.address(), lists.counts.data(),
                                              counts_.bytes(), nullptr),
                   "upload");
    driver().check(driver().cuMemcpyHtoDAsync(ids_.address(), image.data(), ids_.bytes(), nullptr),
                   "upload");
    driver().check(driver().cuStreamSynchronize(nullptr), "upload");
  }

  cuda::BlockLists view() const {
    const std::int64_t heads = rows_[1] * rows_[2];
    cuda::BlockLists lists;
    lists.counts = {cuda::device_pointer(counts_.address()), DType::kInt32, rows_};
    const std::int64_t row = transposed_ ? 1 : pitch_, next = transposed_ ? rows_[0] * heads : 1;
    lists.ids = {cuda::device_pointer(ids_.address()),
                 DType::kInt32,
                 {rows_[0], rows_[1], rows_[2], width_},
                 {heads * row, rows_[2] * row, row, next}};
    return lists;
  }

 private:
  Dims rows_;
  std::int64_t width_, pitch_;
  bool transposed_;
  cuda::DeviceBuffer counts_, ids_;
};

/// Cheapest and dearest candidate of either alignment, by kernel name.
std::map<std::string, std::pair<codegen::AttentionConfig, int>> some_kernels(
    const cuda::Device& device, const BlockListCase& c, const std::string& part) {
  std::map<std::string, std::pair<codegen::AttentionConfig, int>> kernels;
  for (const int alignment : {16, 4}) {
    auto all = block_list_candidates(
        c.problem, c.shape,
        {device.facts().major * 10 + device.facts().minor, device.facts().num_sms, alignment});
    std::erase_if(all, [&](const cuda::ConfigCandidate& one) {
      return one.config.name().find(part) == std::string::npos;
    });
    if (all.empty()) continue;
    for (const auto& config : {all.front().config, all.back().config})
      kernels.try_emplace(config.name(), config, alignment);
  }
  return kernels;
}

/// "" where the plan reports wrong entries exactly when there are some, and once.
std::string check_report(const cuda::BlockListPlan& plan, bool wrong_entries) {
  for (const bool expected : {wrong_entries, false}) {
    bool thrown = false;
    try {
      plan.check(nullptr);
    } catch (const Error& error) {
      thrown = error.code() == ErrorCode::kInvalidArgument;
    }
    if (thrown != expected)
      return expected ? "wrong entries not reported" : "reported nothing wrong";
  }
  return "";
}

std::string run_case(const BlockListCase& c, const std::string& kernel, int alignment,
                     cpu::Operands& operands, const DeviceOperands& on_device,
                     const cpu::Result& expected, const cpu::Result& expected_of_others,
                     bool transposed) try {
  const auto plan = cuda::BlockListPlan::build(c.problem, c.shape, kernel, 0, alignment);
  ListsOnDevice lists(c.lists, transposed);
  plan.update(lists.view(), nullptr);
  std::string wrong = check_report(plan, c.wrong_entries);
  if (wrong.empty())
    wrong = run_twice(c.problem, operands, on_device, expected,
                      [&] { plan.run(on_device.tensors(), nullptr); });
  if (!wrong.empty()) return wrong;
  const Replay replay([&](cuda::CUstream stream) {
    plan.update(lists.view(), stream);
    plan.run(on_device.tensors(), stream);
  });
  lists.put(c.others);
  wrong = run_twice(c.problem, operands, on_device, expected_of_others, [&] { replay.run(); });
  if (!wrong.empty()) return "replayed on other lists: " + wrong;
  return check_report(plan, false);
} catch (const Error& error) {
  return error.what();
}

bool check_case(const cuda::Device& device, std::uint64_t seed, const std::string& kernel_part) {
  const BlockListCase c = make_case(seed);
  Draw draw(seed + 1000);
  const auto layout = [&] {
    return draw.one_of({cpu::Layout::kContiguous, cpu::Layout::kRowsFirst, cpu::Layout::kPadded});
  };
  cpu::Operands operands(c.problem, seed, {layout(), layout(), layout(), layout()});
  const cpu::Result expected = cpu::reference_of(mask_of(c.lists, c.problem, c.shape), operands);
  const cpu::Result of_others = cpu::reference_of(mask_of(c.others, c.problem, c.shape), operands);
  const DeviceOperands on_device(operands);
  const auto kernels = some_kernels(device, c, kernel_part);
  bool right = !kernels.empty();
  if (!right) std::printf("no kernel's name contains \"%s\"\n", kernel_part.c_str());
  for (const auto& [kernel, config] : kernels) {
    const std::string wrong = run_case(c, kernel, config.second, operands, on_device, expected,
                                       of_others, draw.between(0, 1) == 1);
    if (wrong.empty()) continue;
    right = false;
    std::printf("BAD blocklists seed %lu: %s blocks %ld x %ld kernel %s: %s\n", seed,
                c.problem.describe().c_str(), c.shape.block_q, c.shape.block_kv, kernel.c_str(),
                wrong.c_str());
  }
  return right;
}

}  // namespace

std::vector<bool> check_block_lists(const cuda::Device& device, std::uint64_t first_seed, int cases,
                                    const std::string& kernel_part) {
  std::map<std::string, std::string> texts;
  for (int i = 0; i < cases; ++i)
    for (const auto& [name, config] :
         some_kernels(device, make_case(first_seed + static_cast<std::uint64_t>(i)), kernel_part))
      texts.emplace(name, codegen::emit_attention(config.first));
  compile_ahead(texts, device.facts().target());
  std::vector<bool> right;
  for (int i = 0; i < cases; ++i)
    right.push_back(check_case(device, first_seed + static_cast<std::uint64_t>(i), kernel_part));
  return right;
}

}  // namespace stof::check

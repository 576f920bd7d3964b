#include "gpu/device_operands.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace stof::check {
namespace {

const cuda::Driver& driver() { return cuda::Driver::instance(); }

void download(const cuda::DeviceBuffer& from, std::vector<std::uint8_t>* to) {
  if (to->empty()) return;
  driver().check(driver().cuMemcpyDtoHAsync(to->data(), from.address(), to->size(), nullptr),
                 "download");
  driver().check(driver().cuStreamSynchronize(nullptr), "download");
}

MutableTensorView on_device(cpu::GuardedTensor& host, const cuda::DeviceBuffer& memory) {
  if (!host.defined()) return {};
  MutableTensorView view = host.view();
  view.data = reinterpret_cast<void*>(memory.address() + host.first_byte());
  return view;
}

}  // namespace

Limits limits_of(const AttentionProblem& p) {
  const bool half = p.dtype == DType::kFloat16;
  return {p.softcap > 0 ? 8e-3 : (half ? 1e-3 : 5e-3), half && p.softcap == 0 ? 8e-3 : 4e-2,
          p.softcap > 0 ? 2e-2 : 1e-3};
}

std::string difference(const std::vector<double>& out, const std::vector<double>& lse,
                       const cpu::Result& expected, const Limits& limits) {
  double squares = 0, norm = 0, worst = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double want = expected.out[i], gap = std::abs(out[i] - want);
    if (std::isnan(out[i]) != std::isnan(want))
      return fmt::format("out element {} is {}, expected {}", i, out[i], want);
    if (std::isnan(want)) continue;
    squares += gap * gap;
    norm += want * want;
    worst = std::max(worst, gap / std::max(1.0, std::abs(want)));
  }
  const double frobenius = norm > 0 ? std::sqrt(squares / norm) : std::sqrt(squares);
  if (!(frobenius < limits.frobenius)) return fmt::format("error {:.2e}", frobenius);
  if (!(worst < limits.worst)) return fmt::format("worst element {:.2e}", worst);
  for (std::size_t i = 0; i < lse.size(); ++i) {
    const double want = expected.lse[i];
    const bool same = lse[i] == want || (std::isnan(lse[i]) && std::isnan(want));
    double gap = same ? 0 : std::abs(lse[i] - want);
    if (want < -1e38 && lse[i] < -0.99e38 && std::isfinite(lse[i])) gap = 0;  // docs/gpu.md, Limits
    if (!(gap < limits.lse)) return fmt::format("lse {} is {}, expected {}", i, lse[i], want);
  }
  return "";
}

DeviceOperands::DeviceOperands(cpu::Operands& host) : host_(host) {
  std::vector<cpu::GuardedTensor*> tensors = {&host.q,    &host.k,    &host.v,
                                              &host.out,  &host.lse,  &host.slopes,
                                              &host.bias, &host.sink, &host.position_bias};
  for (cpu::GuardedTensor& table : host.score_tables) tensors.push_back(&table);
  for (cpu::GuardedTensor* tensor : tensors)
    copies_.push_back({tensor, {tensor->bytes().size(), "an operand"}});
  upload();
}

void DeviceOperands::upload() const {
  for (const Copy& copy : copies_)
    if (copy.host->defined())
      driver().check(driver().cuMemcpyHtoDAsync(copy.memory.address(), copy.host->bytes().data(),
                                                copy.host->bytes().size(), nullptr),
                     "upload");
  driver().check(driver().cuStreamSynchronize(nullptr), "upload");
}

AttentionTensors DeviceOperands::tensors() const {
  AttentionTensors t;
  t.q = on_device(host_.q, copies_[0].memory);
  t.k = on_device(host_.k, copies_[1].memory);
  t.v = on_device(host_.v, copies_[2].memory);
  t.out = on_device(host_.out, copies_[3].memory);
  t.lse = on_device(host_.lse, copies_[4].memory);
  t.alibi_slopes = on_device(host_.slopes, copies_[5].memory);
  t.bias = on_device(host_.bias, copies_[6].memory);
  t.sink = on_device(host_.sink, copies_[7].memory);
  t.position_bias = on_device(host_.position_bias, copies_[8].memory);
  for (std::size_t i = 0; i < host_.score_tables.size(); ++i)
    t.score_tables.push_back(on_device(host_.score_tables[i], copies_[9 + i].memory));
  return t;
}

void DeviceOperands::poison() const {
  for (const std::size_t output : {3, 4}) {
    const cuda::DeviceBuffer& memory = copies_[output].memory;
    if (memory.bytes() > 0)
      driver().check(driver().cuMemsetD8Async(memory.address(), 0xff, memory.bytes(), nullptr),
                     "poisoning");
  }
}

void DeviceOperands::download_outputs() const {
  for (const std::size_t output : {3, 4})
    download(copies_[output].memory, &copies_[output].host->bytes());
}

bool DeviceOperands::inputs_unchanged() const {
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    if (i == 3 || i == 4) continue;
    std::vector<std::uint8_t> now(copies_[i].host->bytes().size());
    download(copies_[i].memory, &now);
    if (now != copies_[i].host->bytes()) return false;
  }
  return true;
}

std::string run_twice(const AttentionProblem& problem, cpu::Operands& operands,
                      const DeviceOperands& device, const cpu::Result& expected,
                      const std::function<void()>& run) {
  std::vector<std::uint8_t> first_out, first_lse;
  for (int repeat = 0; repeat < 2; ++repeat) {
    device.poison();
    run();
    device.download_outputs();
    std::string wrong =
        difference(operands.out.values(), operands.lse.values(), expected, limits_of(problem));
    if (!operands.out.guards_intact() || !operands.lse.guards_intact())
      wrong = "wrote outside its outputs";
    if (!wrong.empty()) return wrong;
    if (repeat == 0) {
      first_out = operands.out.bytes();
      first_lse = operands.lse.bytes();
    } else if (first_out != operands.out.bytes() || first_lse != operands.lse.bytes()) {
      return "a second run gave other bits";
    }
  }
  return device.inputs_unchanged() ? "" : "changed an input";
}

cpu::Layouts random_layouts(Draw& draw) {
  const auto written = [&] {
    return draw.one_of({cpu::Layout::kContiguous, cpu::Layout::kRowsFirst, cpu::Layout::kPadded});
  };
  const auto read = [&] {
    return draw.one_of({cpu::Layout::kContiguous, cpu::Layout::kRowsFirst, cpu::Layout::kPadded,
                        cpu::Layout::kExpandedBatch, cpu::Layout::kExpandedRows});
  };
  cpu::Layouts layouts;
  layouts.q = written();
  layouts.k = read();
  layouts.v = read();
  layouts.out = written();
  layouts.bias =
      draw.one_of({cpu::Layout::kContiguous, cpu::Layout::kRowsFirst, cpu::Layout::kTransposed});
  return layouts;
}

}  // namespace stof::check

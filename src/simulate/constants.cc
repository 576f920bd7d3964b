// All constants of the model, with their sources. What is marked as an estimate is ours.

#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "core/check.h"
#include "core/text.h"
#include "stof/simulate.h"

namespace stof::simulate {

const std::vector<Constant>& constants() {
  static constexpr const char* kNvidia =
      "NVIDIA H100 Tensor Core GPU Architecture, white paper, 2022";
  static constexpr const char* kJouppi =
      "Jouppi et al., Ten Lessons From Three Generations Shaped Google's TPUv4i, ISCA 2021, table "
      "2 (7 nm)";
  static constexpr const char* kGuide =
      "CUDA C++ Programming Guide, throughput of instructions, 9.0";
  static const std::vector<Constant> all = {
      {"num_sms", &Machine::num_sms, "SMs", kNvidia, false, true},
      {"macs_per_cycle", &Machine::macs_per_cycle, "16-bit MACs / cycle / tensor core", kNvidia,
       false, true},
      {"shared_bytes_per_cycle", &Machine::shared_bytes_per_cycle, "bytes / cycle / SM",
       "32 banks of 4 bytes: CUDA C++ Programming Guide, shared memory", false, true},
      {"register_bytes_per_cycle", &Machine::register_bytes_per_cycle,
       "bytes read / cycle / tensor core",
       "two banks of 32 lanes x 4 bytes: Jia et al., Dissecting the NVIDIA Volta GPU Architecture "
       "via Microbenchmarking, arXiv 1804.06826; 1024 bits a bank are read each cycle: Huerta et "
       "al., Analyzing Modern NVIDIA GPU Cores, arXiv 2503.20481, section 5.3; that tensor cores "
       "share them and that writes have ports of their own is our reading",
       true, true},
      {"mma_issue_cycles", &Machine::mma_issue_cycles, "cycles / mma instruction",
       "beside its operands' reads: a dense m16n8k16 takes 6.0 on an H200, of which 5 are reads "
       "(bench/gpu/tensor_cores.cc)",
       true, false},
      {"shared_ports", &Machine::shared_ports, "reads of a B operand served at once",
       "1 today: each instruction reads its own; more is a broadcast to several", true, true},
      {"exps_per_cycle", &Machine::exps_per_cycle, "exponentials / cycle / SM", kGuide, false,
       true},
      {"lanes_per_cycle", &Machine::lanes_per_cycle, "float32 operations / cycle / SM", kGuide,
       false, true},
      {"l2_bytes_per_cycle", &Machine::l2_bytes_per_cycle, "bytes / cycle / SM from L2",
       "64 bytes a cycle and SM: white paper of the A100, 2020", false, true},
      {"ops_per_score", &Machine::ops_per_score, "float32 operations a score",
       "maximum, scale and subtract, add, and half of a pack: the loop of our attention kernel",
       true, false},
      {"select_ops_per_score", &Machine::select_ops_per_score, "float32 operations a score",
       "2 of 4 by six comparisons and packing, in the epilogue of Q K^T", true, false},
      {"overlap", &Machine::overlap, "0..1",
       "share of the shorter of products and softmax that hides behind the longer", true, false},
      {"gemm_utilisation", &Machine::gemm_utilisation, "0..1",
       "of dense products outside attention, as libraries reach it", true, true},
      {"mac_pj", &Machine::mac_pj, "pJ / bfloat16 MAC into float32", kJouppi, false, false},
      {"register_pj_per_byte", &Machine::register_pj_per_byte, "pJ / byte", kJouppi, false, false},
      {"shared_pj_per_byte", &Machine::shared_pj_per_byte, "pJ / byte", kJouppi, false, false},
      {"metadata_pj_per_byte", &Machine::metadata_pj_per_byte, "pJ / byte", "as a register's byte",
       true, false},
      {"select_pj", &Machine::select_pj, "pJ / MAC with a selected operand",
       "an M:1 multiplexer of 16 bits, a twentieth of the MAC", true, false},
      {"lane_op_pj", &Machine::lane_op_pj, "pJ / float32 operation of a lane",
       "0.38 pJ of the addition (Jouppi et al.) and 8 of operands' bytes; issue is in the static "
       "part",
       true, false},
      {"exp_pj", &Machine::exp_pj, "pJ / exponential", "half as much again as a lane's operation",
       true, false},
      {"l2_pj_per_byte", &Machine::l2_pj_per_byte, "pJ / byte",
       "14 pJ for 8 bytes of 1 MiB (Jouppi et al.), and four times that for the way across the die",
       true, false},
      {"dram_pj_per_byte", &Machine::dram_pj_per_byte, "pJ / byte",
       "3.9 pJ a bit of HBM2: O'Connor et al., Fine-Grained DRAM, MICRO 2017", false, false},
      {"static_pj_per_cycle", &Machine::static_pj_per_cycle, "pJ / cycle / SM",
       "leakage, clocks and issue: about 140 W of 132 SMs at 1.7 GHz", true, false},
  };
  return all;
}

void Machine::validate() const {
  for (const Constant& constant : constants()) {
    const double value = this->*constant.value;
    STOF_CHECK(std::isfinite(value) && value >= 0 && !(constant.divides && value == 0),
               kInvalidArgument, "{}: expected a number {} 0, got {}", constant.name,
               constant.divides ? "above" : "of at least", value);
  }
  STOF_CHECK(overlap <= 1 && gemm_utilisation <= 1, kInvalidArgument,
             "overlap, gemm_utilisation: expected at most 1, got {} and {}", overlap,
             gemm_utilisation);
}

void set_constant(Machine& machine, std::string_view assignment) {
  const std::size_t equals = assignment.find('=');
  STOF_CHECK(equals != std::string_view::npos, kInvalidArgument,
             "constant: expected NAME=NUMBER, got {}", quote_text(assignment));
  const std::string_view name = assignment.substr(0, equals);
  const std::string_view text = assignment.substr(equals + 1);
  std::vector<std::string_view> names;
  for (const Constant& constant : constants()) {
    names.emplace_back(constant.name);
    if (name != constant.name) continue;
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    STOF_CHECK(error == std::errc() && end == text.data() + text.size(), kInvalidArgument,
               "{}: expected a number, got {}", constant.name, quote_text(text));
    Machine changed = machine;
    changed.*constant.value = value;
    changed.validate();
    machine = changed;
    return;
  }
  throw_error(ErrorCode::kInvalidArgument, "constant: expected one of {}, got {}{}",
              fmt::join(names, ", "), quote_text(name), near_name_hint(name, names));
}

const std::vector<LayerShape>& model_shapes() {
  static const std::vector<LayerShape> all = {
      {"attention", 12, 12, 64, 0, 0, 2},        {"minilm", 12, 12, 32, 384, 1536, 2},
      {"smollm2-135m", 9, 3, 64, 576, 1536, 3},  {"bert-base", 12, 12, 64, 768, 3072, 2},
      {"bert-large", 16, 16, 64, 1024, 4096, 2}, {"gpt2", 12, 12, 64, 768, 3072, 2},
      {"vit-base", 12, 12, 64, 768, 3072, 2},    {"llama-3-8b", 32, 8, 128, 4096, 14336, 3},
  };
  return all;
}

const char* to_string(Mode mode) {
  switch (mode) {
    case Mode::kDense:
      return "dense";
    case Mode::kSparse24:
      return "2:4";
    case Mode::kExtension:
      break;
  }
  return "extension";
}

}  // namespace stof::simulate

#include "backend/cuda/attention/calibration.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <mutex>

#include "core/check.h"
#include "core/env.h"
#include "core/file.h"
#include "core/json.h"
#include "core/log.h"

namespace stof::cuda {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "stof.calibration";
constexpr int kVersion = 1;

/// Fields of one object of a profile; errors name file and field.
class Fields {
 public:
  Fields(const nlohmann::json& object, std::string where)
      : object_(object), where_(std::move(where)) {
    STOF_CHECK(object.is_object(), kCorrupt, "{}: expected an object, got {}", where_,
               object.dump());
  }
  double number(const char* field, double low, double high) const {
    const nlohmann::json& value = get(field);
    if (!value.is_number() || !(value.get<double>() >= low && value.get<double>() <= high))
      fail(field, fmt::format("a number from {} to {}", low, high), value);
    return value.get<double>();
  }
  int integer(const char* field, int low, int high) const {
    const double value = number(field, low, high);
    if (value != std::floor(value)) fail(field, "a whole number", get(field));
    return static_cast<int>(value);
  }
  bool boolean(const char* field) const {
    if (!get(field).is_boolean()) fail(field, "true or false", get(field));
    return get(field).get<bool>();
  }
  std::string string(const char* field) const {
    if (!get(field).is_string()) fail(field, "a string", get(field));
    return get(field).get<std::string>();
  }
  const nlohmann::json& get(const char* field) const {
    const auto found = object_.find(field);
    STOF_CHECK(found != object_.end(), kCorrupt, "{}: {}: missing", where_, field);
    return *found;
  }

 private:
  [[noreturn]] void fail(const char* field, const std::string& expected,
                         const nlohmann::json& got) const {
    throw_error(ErrorCode::kCorrupt, "{}: {}: expected {}, got {}", where_, field, expected,
                got.dump());
  }
  const nlohmann::json& object_;
  std::string where_;
};

CalibratedKernel kernel_from_json(const nlohmann::json& json, const std::string& where) {
  constexpr double kMaxNs = 1e9;
  const Fields fields(json, where);
  CalibratedKernel kernel;
  kernel.kernel = fields.string("kernel");
  kernel.head_dim = fields.integer("head_dim", 8, 512);
  kernel.rows = fields.integer("rows", 16, 1024);
  kernel.warpgroups = fields.integer("warpgroups", 1, 4);
  kernel.tile_kv = fields.integer("tile_kv", 16, 512);
  kernel.pack_heads = fields.boolean("pack_heads");
  kernel.ping_pong = fields.boolean("ping_pong");
  kernel.costs = {fields.number("full_ns", 1, kMaxNs), fields.number("partial_ns", 1, kMaxNs),
                  fields.number("item_ns", 0, kMaxNs), fields.number("launch_ns", 0, kMaxNs)};
  return kernel;
}

/// Fitted to the benchmark grid of 2026-11-30 (bench/results/attention_h200.jsonl), to the times
/// and to which kernel is fastest.
constexpr const char* kShipped = R"({
  "format": "stof.calibration", "version": 1, "gpu": "NVIDIA H200", "kernels": [
  {"kernel": "sm90_qk128_v128_w1_kv64_s2q1_b2r232", "head_dim": 128, "rows": 64,
   "warpgroups": 1, "tile_kv": 64, "pack_heads": false, "ping_pong": false,
   "full_ns": 964, "partial_ns": 942, "item_ns": 1687, "launch_ns": 1295},
  {"kernel": "sm90_qk128_v128_w1_kv64_s2q1_b2r232_qreg", "head_dim": 128, "rows": 64,
   "warpgroups": 1, "tile_kv": 64, "pack_heads": false, "ping_pong": false,
   "full_ns": 994, "partial_ns": 954, "item_ns": 987, "launch_ns": 2840},
  {"kernel": "sm90_qk128_v128_w2_kv128_s2q1_b1r240_qreg_pingpong", "head_dim": 128, "rows": 128,
   "warpgroups": 2, "tile_kv": 128, "pack_heads": false, "ping_pong": true,
   "full_ns": 1717, "partial_ns": 1625, "item_ns": 1065, "launch_ns": 1553},
  {"kernel": "sm90_qk128_v128_w2_kv128_s2q2_b1r240", "head_dim": 128, "rows": 128,
   "warpgroups": 2, "tile_kv": 128, "pack_heads": false, "ping_pong": false,
   "full_ns": 1557, "partial_ns": 1604, "item_ns": 2330, "launch_ns": 872},
  {"kernel": "sm90_qk128_v128_w2_kv128_s2q2_b1r240_packed", "head_dim": 128, "rows": 128,
   "warpgroups": 2, "tile_kv": 128, "pack_heads": true, "ping_pong": false,
   "full_ns": 1620, "partial_ns": 1608, "item_ns": 1581, "launch_ns": 1611},
  {"kernel": "sm90_qk128_v128_w2_kv128_s2q2_b1r240_pingpong", "head_dim": 128, "rows": 128,
   "warpgroups": 2, "tile_kv": 128, "pack_heads": false, "ping_pong": true,
   "full_ns": 1648, "partial_ns": 1614, "item_ns": 1007, "launch_ns": 3856},
  {"kernel": "sm90_qk128_v128_w2_kv160_s2q1_b1r240_pingpong", "head_dim": 128, "rows": 128,
   "warpgroups": 2, "tile_kv": 160, "pack_heads": false, "ping_pong": true,
   "full_ns": 1928, "partial_ns": 1988, "item_ns": 2811, "launch_ns": 2646},
  {"kernel": "sm90_qk128_v128_w2_kv64_s4q2_b1r240_packed", "head_dim": 128, "rows": 128,
   "warpgroups": 2, "tile_kv": 64, "pack_heads": true, "ping_pong": false,
   "full_ns": 871, "partial_ns": 878, "item_ns": 1057, "launch_ns": 4273},
  {"kernel": "sm90_qk128_v128_w2_kv64_s5q1_b1r240_qreg_packed", "head_dim": 128, "rows": 128,
   "warpgroups": 2, "tile_kv": 64, "pack_heads": true, "ping_pong": false,
   "full_ns": 926, "partial_ns": 869, "item_ns": 524, "launch_ns": 4034},
  {"kernel": "sm90_qk128_v128_w2_kv64_s5q1_b1r240_qreg_packed_pingpong", "head_dim": 128, "rows": 128,
   "warpgroups": 2, "tile_kv": 64, "pack_heads": true, "ping_pong": true,
   "full_ns": 877, "partial_ns": 879, "item_ns": 1227, "launch_ns": 1808},
  {"kernel": "sm90_qk64_v64_w1_kv128_s2q1_b2r232", "head_dim": 64, "rows": 64,
   "warpgroups": 1, "tile_kv": 128, "pack_heads": false, "ping_pong": false,
   "full_ns": 1152, "partial_ns": 1283, "item_ns": 1855, "launch_ns": 1725},
  {"kernel": "sm90_qk64_v64_w1_kv128_s2q1_b2r232_qreg", "head_dim": 64, "rows": 64,
   "warpgroups": 1, "tile_kv": 128, "pack_heads": false, "ping_pong": false,
   "full_ns": 1224, "partial_ns": 1316, "item_ns": 1033, "launch_ns": 2422},
  {"kernel": "sm90_qk64_v64_w1_kv64_s3q1_b3r136", "head_dim": 64, "rows": 64,
   "warpgroups": 1, "tile_kv": 64, "pack_heads": false, "ping_pong": false,
   "full_ns": 850, "partial_ns": 903, "item_ns": 2427, "launch_ns": 804},
  {"kernel": "sm90_qk64_v64_w1_kv64_s3q1_b3r136_qreg", "head_dim": 64, "rows": 64,
   "warpgroups": 1, "tile_kv": 64, "pack_heads": false, "ping_pong": false,
   "full_ns": 771, "partial_ns": 727, "item_ns": 2396, "launch_ns": 914},
  {"kernel": "sm90_qk64_v64_w3_kv128_s3q2_b1r160_pingpong", "head_dim": 64, "rows": 192,
   "warpgroups": 3, "tile_kv": 128, "pack_heads": false, "ping_pong": true,
   "full_ns": 1307, "partial_ns": 1371, "item_ns": 2399, "launch_ns": 2205}]
})";

const char* family_prefix(const codegen::AttentionConfig& config) {
  return config.family == codegen::KernelFamily::kSm90 ? "sm90_" : "sm80_";
}

/// Matrix operations of a tile, up to a factor that all share.
double work_of(int rows, int tile_kv, int head_dims) { return 1.0 * rows * tile_kv * head_dims; }

}  // namespace

std::string calibration_name(codegen::AttentionConfig config) {
  config.softcap = config.merge = false;
  std::string name = config.name();
  // The element type stands behind the family: "sm90_bf16_qk128...".
  const std::size_t begin = name.find('_') + 1;
  return name.erase(begin, name.find('_', begin) + 1 - begin);
}

const CalibratedKernel* Calibration::find(const codegen::AttentionConfig& config) const {
  const std::string name = calibration_name(config);
  for (const CalibratedKernel& kernel : kernels)
    if (kernel.kernel == name) return &kernel;
  return nullptr;
}

const CalibratedKernel* Calibration::nearest(const codegen::AttentionConfig& config) const {
  const double mine = work_of(config.query_rows() * config.heads_per_record(), config.tile_kv,
                              config.head_dim_qk + config.head_dim_v);
  const CalibratedKernel* nearest = nullptr;
  double best = 0;
  for (const CalibratedKernel& kernel : kernels) {
    if (!kernel.kernel.starts_with(family_prefix(config))) continue;
    const double same =
        (kernel.warpgroups == config.warpgroups) + (kernel.tile_kv == config.tile_kv) +
        (kernel.pack_heads == config.pack_heads) + (kernel.ping_pong == config.ping_pong);
    const double ratio = mine / work_of(kernel.rows, kernel.tile_kv, 2 * kernel.head_dim);
    const double score = same - 4 * std::abs(ratio - 1);
    if (nearest == nullptr || score > best) {
      nearest = &kernel;
      best = score;
    }
  }
  return nearest;
}

std::string Calibration::to_json() const {
  Json json = {
      {"format", kFormat}, {"version", kVersion}, {"gpu", gpu}, {"kernels", Json::array()}};
  for (const CalibratedKernel& kernel : kernels)
    json["kernels"].push_back({{"kernel", kernel.kernel},
                               {"head_dim", kernel.head_dim},
                               {"rows", kernel.rows},
                               {"warpgroups", kernel.warpgroups},
                               {"tile_kv", kernel.tile_kv},
                               {"pack_heads", kernel.pack_heads},
                               {"ping_pong", kernel.ping_pong},
                               {"full_ns", kernel.costs.full_ns},
                               {"partial_ns", kernel.costs.partial_ns},
                               {"item_ns", kernel.costs.item_ns},
                               {"launch_ns", kernel.costs.launch_ns}});
  return json.dump(1) + "\n";
}

Calibration Calibration::from_json(const std::string& text, const std::string& name) {
  const nlohmann::json json = parse_json(text, name);
  const Fields fields(json, name);
  const std::string format = fields.string("format");
  STOF_CHECK(format == kFormat, kCorrupt, "{}: format: expected {}, got {}", name, kFormat, format);
  fields.integer("version", kVersion, kVersion);
  Calibration calibration;
  calibration.gpu = fields.string("gpu");
  const nlohmann::json& kernels = fields.get("kernels");
  STOF_CHECK(kernels.is_array(), kCorrupt, "{}: kernels: expected a list", name);
  for (std::size_t i = 0; i < kernels.size(); ++i)
    calibration.kernels.push_back(
        kernel_from_json(kernels[i], fmt::format("{}: kernels[{}]", name, i)));
  const auto is_hopper = [](const CalibratedKernel& k) { return k.kernel.starts_with("sm90_"); };
  STOF_CHECK(std::any_of(calibration.kernels.begin(), calibration.kernels.end(), is_hopper),
             kCorrupt, "{}: kernels: expected at least one that begins with sm90_", name);
  return calibration;
}

const Calibration& Calibration::shipped() {
  static const Calibration calibration = from_json(kShipped, "the shipped calibration");
  return calibration;
}

std::string Calibration::default_path(const std::string& gpu) {
  std::string file = gpu;
  for (char& c : file)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-') c = '_';
  return cache_folder() + "/calibration/" + file + ".json";
}

const Calibration& Calibration::of_gpu(const std::string& gpu) {
  if (gpu.empty()) return shipped();
  static std::mutex mutex;
  static std::map<std::string, Calibration> read;  // by path: tests change the cache folder
  const std::string path = default_path(gpu);
  const std::lock_guard lock(mutex);
  const auto found = read.find(path);
  if (found != read.end()) return found->second;
  Calibration calibration = shipped();
  if (file_exists(path)) {
    constexpr std::uint64_t kMaxBytes = 4 << 20;
    try {
      Calibration own = from_json(read_text_file(path, kMaxBytes), path);
      STOF_CHECK(own.gpu == gpu, kCorrupt, "{}: gpu: expected {}, got {}", path, gpu, own.gpu);
      calibration = std::move(own);
    } catch (const Error& error) {
      log_warn("{}; taking the shipped figures", error.what());
    }
  }
  return read.emplace(path, std::move(calibration)).first->second;
}

}  // namespace stof::cuda

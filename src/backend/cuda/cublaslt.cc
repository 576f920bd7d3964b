#include "backend/cuda/cublaslt.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/check.h"
#include "jit/dynamic_library.h"

namespace stof::cuda {
namespace {

// cuBLASLt's C interface, as its documentation gives it; declared here so that building stof needs
// no CUDA toolkit. Descriptors are handles.
using Status = int;
using Handle = struct OpaqueHandle*;
using Descriptor = struct OpaqueDescriptor*;
using Layout = struct OpaqueLayout*;
using Preference = struct OpaquePreference*;

struct Algorithm {
  std::uint64_t data[8];
};
struct HeuristicResult {
  Algorithm algorithm;
  std::size_t workspace_bytes;
  Status state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(HeuristicResult) == 96);

constexpr int kFloat32 = 0, kFloat16 = 2, kBFloat16 = 14;    // cudaDataType
constexpr int kComputeFloat32 = 68;                          // cublasComputeType_t
constexpr std::int32_t kTranspose = 1;                       // cublasOperation_t
constexpr int kTransA = 3, kEpilogue = 7, kBiasPointer = 8;  // cublasLtMatmulDescAttributes_t
constexpr int kMaxWorkspaceBytes = 1;                        // cublasLtMatmulPreferenceAttributes_t
constexpr int kReductionInFloat32 = 2;                       // cublasLtReductionScheme_t

/// Results asked for; the library gives about eight.
constexpr int kMaxAlgorithms = 16;

int data_type(DType element) {
  switch (element) {
    case DType::kFloat16:
      return kFloat16;
    case DType::kBFloat16:
      return kBFloat16;
    default:
      throw_error(ErrorCode::kUnsupported,
                  "element type: GPU products take float16 and bfloat16, got {}",
                  to_string(element));
  }
}

/// cublasLtEpilogue_t
std::int32_t epilogue_code(Epilogue epilogue) {
  constexpr std::int32_t kDefault = 1, kRelu = 2, kBias = 4, kGelu = 32;
  switch (epilogue) {
    case Epilogue::kNone:
      return kDefault;
    case Epilogue::kBias:
      return kBias;
    case Epilogue::kBiasRelu:
      return kBias | kRelu;
    case Epilogue::kBiasGeluTanh:
      return kBias | kGelu;
  }
  return kDefault;
}

const char* epilogue_text(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kNone:
      return "";
    case Epilogue::kBias:
      return " + bias";
    case Epilogue::kBiasRelu:
      return " + bias, ReLU";
    case Epilogue::kBiasGeluTanh:
      return " + bias, GELU (tanh)";
  }
  return "";
}

const std::vector<std::string> kLibraryNames = {"libcublasLt.so.13", "libcublasLt.so.12"};

jit::DynamicLibrary open_library() {
  try {
    return jit::DynamicLibrary::open(kLibraryNames);
  } catch (const Error& error) {
    throw_error(ErrorCode::kNotFound,
                "cuBLASLt, which GPU encoders multiply matrices with, is missing: install a CUDA "
                "toolkit or pip's nvidia-cublas ({})",
                error.what());
  }
}

}  // namespace

std::string locate_cublaslt() { return jit::DynamicLibrary::locate(kLibraryNames); }

/// The library and a handle of the current context.
class CublasLt {
 public:
  CublasLt() {
    check(create_(&handle_), "starting cuBLASLt");
    const std::size_t version = version_();  // 130101: 13.1.1
    version_text_ = fmt::format("{}.{}", version / 10000, version / 100 % 100);
  }
  ~CublasLt() { destroy_(handle_); }
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  void check(Status status, const std::string& what) const {
    if (status == 0) return;
    constexpr Status kAllocFailed = 3;
    throw_error(status == kAllocFailed ? ErrorCode::kOutOfMemory : ErrorCode::kCuda,
                "{}: cuBLASLt {}: {} (status {})", what, version_text_, status_text_(status),
                status);
  }

  Handle handle() const { return handle_; }
  std::string describe() const {
    return fmt::format("cuBLASLt {} ({})", version_text_, library_.path());
  }

 private:
  jit::DynamicLibrary library_ = open_library();
  template <class Function>
  Function bind(const char* name) const {
    return library_.function<Function>(name);
  }
  Status (*create_)(Handle*) = bind<Status (*)(Handle*)>("cublasLtCreate");
  Status (*destroy_)(Handle) = bind<Status (*)(Handle)>("cublasLtDestroy");
  std::size_t (*version_)() = bind<std::size_t (*)()>("cublasLtGetVersion");
  const char* (*status_text_)(Status) = bind<const char* (*)(Status)>("cublasLtGetStatusString");

 public:
  Status (*create_descriptor)(Descriptor*, int,
                              int) = bind<decltype(create_descriptor)>("cublasLtMatmulDescCreate");
  Status (*destroy_descriptor)(Descriptor) =
      bind<decltype(destroy_descriptor)>("cublasLtMatmulDescDestroy");
  Status (*set_descriptor)(Descriptor, int, const void*, std::size_t) =
      bind<decltype(set_descriptor)>("cublasLtMatmulDescSetAttribute");
  Status (*create_layout)(Layout*, int, std::uint64_t, std::uint64_t, std::int64_t) =
      bind<decltype(create_layout)>("cublasLtMatrixLayoutCreate");
  Status (*destroy_layout)(Layout) = bind<decltype(destroy_layout)>("cublasLtMatrixLayoutDestroy");
  Status (*create_preference)(Preference*) =
      bind<decltype(create_preference)>("cublasLtMatmulPreferenceCreate");
  Status (*destroy_preference)(Preference) =
      bind<decltype(destroy_preference)>("cublasLtMatmulPreferenceDestroy");
  Status (*set_preference)(Preference, int, const void*, std::size_t) =
      bind<decltype(set_preference)>("cublasLtMatmulPreferenceSetAttribute");
  Status (*choose)(Handle, Descriptor, Layout, Layout, Layout, Layout, Preference, int,
                   HeuristicResult*,
                   int*) = bind<decltype(choose)>("cublasLtMatmulAlgoGetHeuristic");
  Status (*read_algorithm)(const Algorithm*, int, void*, std::size_t, std::size_t*) =
      bind<decltype(read_algorithm)>("cublasLtMatmulAlgoConfigGetAttribute");
  Status (*write_algorithm)(Algorithm*, int, const void*, std::size_t) =
      bind<decltype(write_algorithm)>("cublasLtMatmulAlgoConfigSetAttribute");
  Status (*init_algorithm)(Handle, int, int, int, int, int, int, int,
                           Algorithm*) = bind<decltype(init_algorithm)>("cublasLtMatmulAlgoInit");
  Status (*check_algorithm)(Handle, Descriptor, Layout, Layout, Layout, Layout, const Algorithm*,
                            HeuristicResult*) =
      bind<decltype(check_algorithm)>("cublasLtMatmulAlgoCheck");
  Status (*multiply)(Handle, Descriptor, const void*, const void*, Layout, const void*, Layout,
                     const void*, const void*, Layout, void*, Layout, const Algorithm*, void*,
                     std::size_t, void*) = bind<decltype(multiply)>("cublasLtMatmul");

 private:
  Handle handle_ = nullptr;
  std::string version_text_;
};

namespace {

/// Descriptor of the operation. cuBLASLt is column-major: it computes y^T = (W^T)^T x^T, in which
/// our W [out, in] is a matrix of `out` columns that is transposed, and bias runs down the columns.
class Operation {
 public:
  Operation(const CublasLt& library, const GemmShape& shape, CUdeviceptr bias) : library_(library) {
    library.check(library.create_descriptor(&handle_, kComputeFloat32, kFloat32),
                  "describing " + shape.describe());
    set(kTransA, kTranspose);
    set(kEpilogue, epilogue_code(shape.epilogue));
    if (shape.epilogue != Epilogue::kNone) set(kBiasPointer, bias);
  }
  ~Operation() { library_.destroy_descriptor(handle_); }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  Descriptor handle() const { return handle_; }

 private:
  template <class Value>
  void set(int attribute, const Value& value) {
    library_.check(library_.set_descriptor(handle_, attribute, &value, sizeof value),
                   "describing a product");
  }
  const CublasLt& library_;
  Descriptor handle_ = nullptr;
};

class MatrixLayout {
 public:
  MatrixLayout(const CublasLt& library, DType element, std::int64_t rows, std::int64_t columns)
      : library_(library) {
    library.check(
        library.create_layout(&handle_, data_type(element), static_cast<std::uint64_t>(rows),
                              static_cast<std::uint64_t>(columns), rows),
        "describing a matrix");
  }
  ~MatrixLayout() { library_.destroy_layout(handle_); }
  MatrixLayout(const MatrixLayout&) = delete;
  MatrixLayout& operator=(const MatrixLayout&) = delete;
  Layout handle() const { return handle_; }

 private:
  const CublasLt& library_;
  Layout handle_ = nullptr;
};

/// Attributes of an algorithm in the order of cublasLtMatmulAlgoConfigAttributes_t.
constexpr int kSplitK = 2, kReduction = 3;
constexpr std::int32_t GemmAlgorithm::*kAttributes[] = {
    &GemmAlgorithm::id,        &GemmAlgorithm::tile,    &GemmAlgorithm::split_k,
    &GemmAlgorithm::reduction, &GemmAlgorithm::swizzle, &GemmAlgorithm::custom,
    &GemmAlgorithm::stages,    &GemmAlgorithm::inner,   &GemmAlgorithm::cluster};

/// Attributes are of two or four bytes; what an older library does not know stays 0.
GemmAlgorithm numbers_of(const CublasLt& library, const Algorithm& algorithm) {
  GemmAlgorithm numbers;
  for (int i = 0; i < static_cast<int>(std::size(kAttributes)); ++i) {
    std::int32_t value = 0;  // little-endian: a short fills the low half
    std::size_t bytes = 0;
    if (library.read_algorithm(&algorithm, i, nullptr, 0, &bytes) == 0 && bytes <= sizeof value &&
        library.read_algorithm(&algorithm, i, &value, bytes, &bytes) == 0)
      numbers.*kAttributes[i] = value;
  }
  return numbers;
}

}  // namespace

std::string GemmShape::describe() const {
  return fmt::format("{} [{}, {}] x [{}, {}]^T{}{}", to_string(element), rows, in, out, in,
                     residual ? " + residual" : "", epilogue_text(epilogue));
}

/// Layouts of a shape and the algorithms for it.
struct GemmPlanner::Known {
  Known(std::shared_ptr<const CublasLt> owner, const GemmShape& s)
      : cublas(std::move(owner)),
        shape(s),
        weight(*cublas, s.element, s.in, s.out),
        x(*cublas, s.element, s.in, s.rows),
        y(*cublas, s.element, s.out, s.rows) {}

  std::shared_ptr<const CublasLt> cublas;
  GemmShape shape;
  MatrixLayout weight, x, y;
  std::vector<std::pair<GemmAlgorithm, Algorithm>> algorithms;

  void add(const Algorithm& algorithm) {
    const GemmAlgorithm numbers = numbers_of(*cublas, algorithm);
    for (const auto& [other, unused] : algorithms)
      if (other == numbers) return;
    algorithms.emplace_back(numbers, algorithm);
  }
  /// Whether the library runs the algorithm on this shape.
  bool takes(const Operation& operation, const Algorithm& algorithm) const {
    HeuristicResult checked{};
    return cublas->check_algorithm(cublas->handle(), operation.handle(), weight.handle(),
                                   x.handle(), y.handle(), y.handle(), &algorithm, &checked) == 0 &&
           checked.state == 0 && checked.workspace_bytes <= GemmPlanner::kWorkspaceBytes;
  }
  /// The algorithm of these numbers, as another shape's heuristics gave them; none where it does
  /// not run this shape.
  std::optional<Algorithm> of_numbers(const Operation& operation,
                                      const GemmAlgorithm& numbers) const {
    const int type = data_type(shape.element);
    Algorithm algorithm{};
    if (cublas->init_algorithm(cublas->handle(), kComputeFloat32, kFloat32, type, type, type, type,
                               numbers.id, &algorithm) != 0)
      return std::nullopt;
    for (int i = 1; i < static_cast<int>(std::size(kAttributes)); ++i) {  // 0: the id
      const std::int32_t value = numbers.*kAttributes[i];
      std::size_t bytes = 0;
      const bool known =
          cublas->read_algorithm(&algorithm, i, nullptr, 0, &bytes) == 0 && bytes <= sizeof value;
      if (known ? cublas->write_algorithm(&algorithm, i, &value, bytes) != 0 : value != 0)
        return std::nullopt;
    }
    if (!takes(operation, algorithm)) return std::nullopt;
    return algorithm;
  }
  /// The algorithm with its sum split, where the library takes that.
  void add_split(const Operation& operation, Algorithm algorithm, std::uint32_t parts) {
    const std::uint32_t reduction = kReductionInFloat32;
    if (cublas->write_algorithm(&algorithm, kSplitK, &parts, sizeof parts) == 0 &&
        cublas->write_algorithm(&algorithm, kReduction, &reduction, sizeof reduction) == 0 &&
        takes(operation, algorithm))
      add(algorithm);
  }
};

struct Gemm::Impl {
  Impl(std::shared_ptr<const GemmPlanner::Known> k, const Algorithm& a, const CublasLt& library,
       const GemmShape& shape, CUdeviceptr bias)
      : known(std::move(k)), algorithm(a), operation(library, shape, bias) {}

  std::shared_ptr<const GemmPlanner::Known> known;
  Algorithm algorithm;
  Operation operation;
};

Gemm::Gemm(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Gemm::~Gemm() = default;
Gemm::Gemm(Gemm&&) noexcept = default;
Gemm& Gemm::operator=(Gemm&&) noexcept = default;

void Gemm::run(CUdeviceptr x, CUdeviceptr weight, CUdeviceptr y, CUdeviceptr workspace,
               CUstream stream, CUdeviceptr residual) const {
  const GemmPlanner::Known& known = *impl_->known;
  STOF_ASSERT((residual != 0) == known.shape.residual);
  const CublasLt& cublas = *known.cublas;
  const float one = 1, zero = 0;
  const auto pointer = device_pointer;
  const Status status = cublas.multiply(
      cublas.handle(), impl_->operation.handle(), &one, pointer(weight), known.weight.handle(),
      pointer(x), known.x.handle(), residual != 0 ? &one : &zero,
      pointer(residual != 0 ? residual : y), known.y.handle(), pointer(y), known.y.handle(),
      &impl_->algorithm, pointer(workspace), GemmPlanner::kWorkspaceBytes, stream);
  if (status != 0) cublas.check(status, "computing " + known.shape.describe());
}

GemmPlanner::GemmPlanner(const Device& device) {
  device.use();
  library_ = std::make_shared<const CublasLt>();
}

GemmPlanner& GemmPlanner::of(const Device& device) {
  // Never destroyed: at the end of the process the driver may be gone before our static objects.
  static std::mutex& mutex = *new std::mutex;
  static auto& planners = *new std::map<int, std::unique_ptr<GemmPlanner>>;
  const std::lock_guard lock(mutex);
  device.use();
  std::unique_ptr<GemmPlanner>& planner = planners[device.facts().ordinal];
  if (planner == nullptr) planner.reset(new GemmPlanner(device));
  return *planner;
}

std::string GemmPlanner::describe() const { return library_->describe(); }

std::shared_ptr<const GemmPlanner::Known> GemmPlanner::known(const GemmShape& shape) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const Known>& found = known_[shape.describe()];
  if (found != nullptr) return found;
  const auto fresh = std::make_shared<Known>(library_, shape);
  constexpr CUdeviceptr kAnyAddress = 256;  // aligned as a real bias is; never read
  const Operation operation(*library_, shape, shape.epilogue == Epilogue::kNone ? 0 : kAnyAddress);
  Preference preference = nullptr;
  library_->check(library_->create_preference(&preference), "choosing an algorithm");
  const std::size_t limit = GemmPlanner::kWorkspaceBytes;
  Status status = library_->set_preference(preference, kMaxWorkspaceBytes, &limit, sizeof limit);
  HeuristicResult results[kMaxAlgorithms] = {};
  int count = 0;
  if (status == 0)
    status = library_->choose(library_->handle(), operation.handle(), fresh->weight.handle(),
                              fresh->x.handle(), fresh->y.handle(), fresh->y.handle(), preference,
                              kMaxAlgorithms, results, &count);
  library_->destroy_preference(preference);
  if (status != 0) count = 0;
  for (int i = 0; i < count; ++i)
    if (results[i].state == 0) fresh->add(results[i].algorithm);
  // A long sum over few rows has too few tiles to fill the GPU.
  if (shape.rows <= 512 && shape.in >= 2048 && !fresh->algorithms.empty()) {
    const std::vector<std::pair<GemmAlgorithm, Algorithm>> heuristic = fresh->algorithms;
    for (std::size_t i = 0; i < std::min<std::size_t>(3, heuristic.size()); ++i)
      for (const std::uint32_t parts : {2u, 4u})
        fresh->add_split(operation, heuristic[i].second, parts);
  }
  found = fresh;
  return found;
}

std::vector<GemmAlgorithm> GemmPlanner::algorithms(const GemmShape& shape) {
  std::vector<GemmAlgorithm> algorithms;
  for (const auto& [numbers, algorithm] : known(shape)->algorithms) algorithms.push_back(numbers);
  return algorithms;
}

Gemm GemmPlanner::plan(const GemmShape& shape, const GemmAlgorithm& algorithm, CUdeviceptr bias) {
  STOF_ASSERT((bias != 0) == (shape.epilogue != Epilogue::kNone));
  const std::shared_ptr<const Known> all = known(shape);
  auto impl = std::make_unique<Gemm::Impl>(all, Algorithm{}, *library_, shape, bias);
  for (const auto& [numbers, found] : all->algorithms)
    if (numbers == algorithm) {
      impl->algorithm = found;
      return Gemm(std::move(impl));
    }
  if (const auto made = all->of_numbers(impl->operation, algorithm)) {
    impl->algorithm = *made;
    return Gemm(std::move(impl));
  }
  throw_error(ErrorCode::kUnsupported, "{}: {} does not run it by algorithm {} with tile {}",
              shape.describe(), library_->describe(), algorithm.id, algorithm.tile);
}

}  // namespace stof::cuda

#include "jit/nvrtc.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "core/check.h"
#include "jit/dynamic_library.h"
#include "jit/embedded_sources.h"

namespace stof::jit {

// NVRTC's C interface, as its documentation gives it; declared here so that building stof needs no
// CUDA toolkit.
using Program = struct OpaqueProgram*;
using Result = int;

struct Nvrtc::Functions {
  DynamicLibrary library =
      DynamicLibrary::open({"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"});
  Result (*version)(int*, int*) = library.function<Result (*)(int*, int*)>("nvrtcVersion");
  Result (*create)(Program*, const char*, const char*, int, const char* const*,
                   const char* const*) = library.function<decltype(create)>("nvrtcCreateProgram");
  Result (*destroy)(Program*) = library.function<decltype(destroy)>("nvrtcDestroyProgram");
  Result (*compile)(Program, int, const char* const*) =
      library.function<decltype(compile)>("nvrtcCompileProgram");
  Result (*cubin_size)(Program,
                       std::size_t*) = library.function<decltype(cubin_size)>("nvrtcGetCUBINSize");
  Result (*cubin)(Program, char*) = library.function<decltype(cubin)>("nvrtcGetCUBIN");
  Result (*log_size)(Program,
                     std::size_t*) = library.function<decltype(log_size)>("nvrtcGetProgramLogSize");
  Result (*log)(Program, char*) = library.function<decltype(log)>("nvrtcGetProgramLog");
  const char* (*error)(Result) = library.function<decltype(error)>("nvrtcGetErrorString");

  void check(Result result, const std::string& name, const char* call) const {
    STOF_CHECK(result == 0, kJit, "{}: {} failed: {}", name, call, error(result));
  }
};

Nvrtc::Nvrtc() : functions_(new Functions) {
  int major = 0, minor = 0;
  functions_->check(functions_->version(&major, &minor), "NVRTC", "nvrtcVersion");
  version_ = fmt::format("{}.{}", major, minor);
  path_ = functions_->library.path();
  // NVRTC opens its built-in functions by bare name, which a pip or cache folder is not searched
  // for.
  functions_->library.load_neighbour("libnvrtc-builtins.so." + version_);
}

const Nvrtc& Nvrtc::instance() {
  static const Nvrtc compiler;
  return compiler;
}

const std::vector<const char*>& Nvrtc::options() {
  // -default-device: NVRTC would take lambdas for host functions. -v: the resource report.
  static const std::vector<const char*> list = {"--std=c++17", "-default-device",
                                                "--ptxas-options=-v", "-lineinfo"};
  return list;
}

CompiledModule Nvrtc::compile(const std::string& name, const std::string& source,
                              const std::string& target) const {
  const Functions& nvrtc = *functions_;
  std::vector<const char*> texts, names;
  for (const EmbeddedSource& header : embedded_sources()) {
    texts.push_back(header.text.data());
    names.push_back(header.name.data());
  }
  Program program = nullptr;
  nvrtc.check(nvrtc.create(&program, source.c_str(), (name + ".cu").c_str(),
                           static_cast<int>(texts.size()), texts.data(), names.data()),
              name, "nvrtcCreateProgram");
  struct Guard {
    const Functions& nvrtc;
    Program program;
    ~Guard() { nvrtc.destroy(&program); }
  } guard{nvrtc, program};

  const std::string arch = "--gpu-architecture=" + target;
  std::vector<const char*> all_options = options();
  all_options.push_back(arch.c_str());
  const Result result =
      nvrtc.compile(program, static_cast<int>(all_options.size()), all_options.data());

  CompiledModule module;
  std::size_t size = 0;
  nvrtc.check(nvrtc.log_size(program, &size), name, "nvrtcGetProgramLogSize");
  module.log.resize(size);
  nvrtc.check(nvrtc.log(program, module.log.data()), name, "nvrtcGetProgramLog");
  while (!module.log.empty() && module.log.back() == '\0') module.log.pop_back();
  STOF_CHECK(result == 0, kJit, "{} for {}: {}\n{}", name, target, nvrtc.error(result), module.log);

  nvrtc.check(nvrtc.cubin_size(program, &size), name, "nvrtcGetCUBINSize");
  module.cubin.resize(size);
  nvrtc.check(nvrtc.cubin(program, module.cubin.data()), name, "nvrtcGetCUBIN");
  return module;
}

namespace {

/// The largest number that stands right before `text` anywhere in the log; 0 where it never does.
int largest_before(const std::string& log, std::string_view text) {
  int largest = 0;
  for (std::size_t at = log.find(text); at != std::string::npos; at = log.find(text, at + 1)) {
    std::size_t begin = at;
    while (begin > 0 && log[begin - 1] >= '0' && log[begin - 1] <= '9') --begin;
    int value = 0;
    std::from_chars(log.data() + begin, log.data() + at, value);
    largest = std::max(largest, value);
  }
  return largest;
}

}  // namespace

ResourceReport parse_resources(const std::string& log) {
  ResourceReport report;
  report.registers = largest_before(log, " registers");
  report.spill_bytes = std::max(largest_before(log, " bytes spill stores"),
                                largest_before(log, " bytes spill loads"));
  report.stack_bytes = largest_before(log, " bytes stack frame");
  report.wgmma_serialized =
      log.find("C7510") != std::string::npos ||
      log.find("wgmma.mma_async instructions are serialized") != std::string::npos;
  return report;
}

}  // namespace stof::jit

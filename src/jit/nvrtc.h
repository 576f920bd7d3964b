#pragma once
// NVRTC, opened at run time: CUDA C++ text in, cubin out. Needs neither a GPU nor a driver.

#include <string>
#include <vector>

namespace stof::jit {

/// A compiled kernel module and what the assembler said about it.
struct CompiledModule {
  std::string cubin;
  std::string log;  ///< compiler and ptxas output, with the resource report
};

/// The compiler of this process.
class Nvrtc {
 public:
  /// Throws NotFound when there is no libnvrtc.
  static const Nvrtc& instance();

  /// "13.0"
  const std::string& version() const { return version_; }
  const std::string& path() const { return path_; }

  /// Options of every compilation, without the target.
  static const std::vector<const char*>& options();

  /// Compiles for a full target such as "sm_90a". Throws Jit with the compiler's log and the name.
  CompiledModule compile(const std::string& name, const std::string& source,
                         const std::string& target) const;

 private:
  Nvrtc();
  struct Functions;
  const Functions* functions_;
  std::string version_, path_;
};

/// What ptxas reports for the entry of a module.
struct ResourceReport {
  int registers = 0;
  int spill_bytes = 0;
  int stack_bytes = 0;
  bool wgmma_serialized = false;
};
/// Reads the log of Nvrtc::compile().
ResourceReport parse_resources(const std::string& log);

}  // namespace stof::jit

#pragma once
// Functions of a shared library in the Python package's, which is not linked with it: they jump to
// those of the library that open_functions() has opened, so that only models need one.

#include <dlfcn.h>

#include <cstddef>
#include <string>

#include "core/check.h"
#include "core/env.h"

// F is a macro of a list of names, with the macro that it applies to each. `name` jumps to where
// stof_at_name points; arguments and the stack stay as they are.
#define STOF_JUMP(name)                                                                \
  asm(".text\n.hidden " #name "\n.globl " #name "\n.type " #name ", @function\n" #name \
      ":\n  jmp *stof_at_" #name "(%rip)\n.size " #name ", . - " #name "\n");          \
  extern "C" {                                                                         \
  [[gnu::visibility("hidden")]] void* stof_at_##name = nullptr;                        \
  }
#define STOF_ENTRY(name) {#name, &stof_at_##name},

namespace stof {

struct RunTimeFunction {
  const char* name;
  void** at;
};

/// The folder of the library that this is part of.
inline std::string own_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0) return {};
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/') + 1);
}

/// Opens `file`: of the folder $STOF_LIBRARIES alone where that is set; else one that is loaded
/// already, the one beside this library (after `needed`, unless null, from there) or the system's.
/// Null where there is none.
inline void* open_library(const char* file, const char* needed, std::string* reason) {
  constexpr int kFlags = RTLD_NOW | RTLD_LOCAL;
  void* handle = nullptr;
  if (const auto folder = env_string("STOF_LIBRARIES")) {
    handle = ::dlopen((*folder + "/" + file).c_str(), kFlags);
  } else {
    handle = ::dlopen(file, kFlags | RTLD_NOLOAD);
    if (handle == nullptr) {
      const std::string beside = own_folder();
      if (needed != nullptr) ::dlopen((beside + needed).c_str(), kFlags);
      handle = ::dlopen((beside + file).c_str(), kFlags);
    }
    if (handle == nullptr) handle = ::dlopen(file, kFlags);
  }
  const char* error = handle == nullptr ? ::dlerror() : nullptr;
  if (error != nullptr) *reason = error;
  return handle;
}

/// Fills in `functions` from that library. Throws NotFound: `what` names the library, `use` says
/// who needs it, `package` is Debian's.
template <std::size_t kCount>
void open_functions(const RunTimeFunction (&functions)[kCount], const char* what, const char* file,
                    const char* needed, const char* use, const char* package) {
  std::string reason;
  void* handle = open_library(file, needed, &reason);
  STOF_CHECK(handle != nullptr, kNotFound,
             "{}: expected {}, by which {}, got none: {}; install it (Debian: {}), name its folder "
             "by STOF_LIBRARIES, or build the wheel with STOF_BUNDLE_LIBRARIES=ON",
             what, file, use, reason, package);
  for (const RunTimeFunction& function : functions) {
    *function.at = ::dlsym(handle, function.name);
    STOF_CHECK(*function.at != nullptr, kNotFound,
               "{}: expected {} to have {}, got none; is it another release?", what, file,
               function.name);
  }
}

}  // namespace stof

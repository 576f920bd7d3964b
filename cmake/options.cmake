# Build options, and the flags every target of ours shares.
include(GNUInstallDirs)

option(STOF_DEVELOPER "Warnings are errors" OFF)
option(STOF_PYTHON "Build what the Python package carries, and nothing else (pyproject.toml)" OFF)
option(STOF_BUILD_CLI "Build the stof program" ${PROJECT_IS_TOP_LEVEL})
option(STOF_BUILD_C "Build the shared library with the C interface" ${PROJECT_IS_TOP_LEVEL})
option(STOF_INSTALL "Add install rules" ${PROJECT_IS_TOP_LEVEL})
option(STOF_BUILD_TESTS "Build the tests" OFF)
option(STOF_BUILD_BENCH "Build the benchmarks" OFF)
option(STOF_BUILD_FUZZERS "Build the libFuzzer targets (needs clang)" OFF)
option(STOF_PACK_CUBINS "Compile the common GPU kernels now and put them into the library (needs NVRTC)" OFF)
set(STOF_PACK_TARGETS sm_90a CACHE STRING "What STOF_PACK_CUBINS compiles for")
set(STOF_SANITIZE "" CACHE STRING "Sanitizers for every target, e.g. address,undefined")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(STOF_CCACHE ccache)
if(STOF_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${STOF_CCACHE})
endif()

# Linked by every target of ours; never exported.
add_library(stof_flags INTERFACE)
# -Wpass-failed: clang reports "omp simd" loops that it leaves scalar under sanitizers.
target_compile_options(stof_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
  $<$<CXX_COMPILER_ID:Clang,AppleClang>:-Wno-pass-failed>
  $<$<BOOL:${STOF_DEVELOPER}>:-Werror>)
if(STOF_SANITIZE)
  add_compile_options(-fsanitize=${STOF_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${STOF_SANITIZE})
endif()

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
option(STOF_BUNDLE_LIBRARIES "Put this machine's oneDNN and SentencePiece into the Python package" OFF)
set(STOF_PACK_TARGETS sm_90a CACHE STRING "What STOF_PACK_CUBINS compiles for")
set(STOF_UNITY OFF CACHE STRING "Compile the sources of the folders in cmake/unity_folders.txt as one: \
OFF, ON, or AROUND, those around the library only (cli, tests)")
set_property(CACHE STOF_UNITY PROPERTY STRINGS OFF AROUND ON)
set(STOF_UNITY_MORE "" CACHE STRING "Further folders for STOF_UNITY, for checks that link nothing")
set(STOF_OBJECTS_FROM "" CACHE PATH "Link what this other build compiled the library's sources to")
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
# Two warnings ask which file a name is from: builds of single files give them.
set(STOF_AS_ONE $<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>)
target_compile_options(stof_flags INTERFACE -Wall -Wextra -Wpedantic
  $<$<NOT:${STOF_AS_ONE}>:-Wshadow> -Wnon-virtual-dtor
  $<$<AND:${STOF_AS_ONE},$<CXX_COMPILER_ID:GNU>>:-Wno-subobject-linkage>
  $<$<CXX_COMPILER_ID:Clang,AppleClang>:-Wno-pass-failed>
  $<$<BOOL:${STOF_DEVELOPER}>:-Werror>)
if(STOF_SANITIZE)
  add_compile_options(-fsanitize=${STOF_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${STOF_SANITIZE})
endif()

# Of what is built around the library, which alone must be fast: half the time to build it.
if(STOF_SANITIZE)
  set(STOF_QUICK_TO_BUILD -O0)
else()
  set(STOF_QUICK_TO_BUILD $<$<CONFIG:Release>:-O1>)
endif()

# Compiles TARGET's sources of the folders in unity_folders.txt in groups where STOF_UNITY asks for it: headers
# are read, and templates made, once a group. Sources with options of their own stay alone.
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/unity_folders.txt STOF_UNITY_FOLDERS REGEX "^[a-z]")
list(APPEND STOF_UNITY_FOLDERS ${STOF_UNITY_MORE})
if(STOF_UNITY STREQUAL AROUND)
  list(FILTER STOF_UNITY_FOLDERS EXCLUDE REGEX "^src/")
endif()
function(stof_unity target)
  if(NOT STOF_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  set(groups OFF)
  foreach(folder ${STOF_UNITY_FOLDERS})
    string(MAKE_C_IDENTIFIER ${folder} name)
    set(count 0)
    foreach(source ${sources})
      cmake_path(GET source PARENT_PATH source_folder)
      if(source_folder STREQUAL "${PROJECT_SOURCE_DIR}/${folder}")
        math(EXPR group "${count} / 12")
        math(EXPR count "${count} + 1")
        set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${name}_${group})
        set(groups ON)
      endif()
    endforeach()
  endforeach()
  if(groups)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  endif()
endfunction()

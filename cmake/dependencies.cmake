# What stof stands on; docs/dependencies.md says why each was chosen.

find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)

include(${CMAKE_CURRENT_LIST_DIR}/stof_libraries.cmake)
find_path(DNNL_INCLUDE_DIR dnnl.hpp REQUIRED)
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
find_path(UTF8PROC_INCLUDE_DIR utf8proc.h REQUIRED)
find_path(STB_INCLUDE_DIR stb/stb_image_write.h REQUIRED)

if(STOF_BUILD_CLI)
  find_package(CLI11 REQUIRED)
endif()
if(STOF_BUILD_TESTS)
  find_package(GTest REQUIRED)
  find_package(rapidcheck REQUIRED)
endif()
if(STOF_BUILD_BENCH)
  find_package(benchmark REQUIRED)
endif()

# What the wheel holds beside python/stof: the C library, as one file that loads with nothing but glibc
# around it, and GCC's OpenMP run time next to it (the static one cannot go into a shared library).
if(NOT STOF_PYTHON)
  return()
endif()

set_target_properties(stof_c PROPERTIES VERSION "" SOVERSION "" NO_SONAME ON)
target_link_options(stof_c PRIVATE -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL
  -Wl,--as-needed -Wl,--gc-sections -Wl,-s)
target_sources(stof_c PRIVATE $<TARGET_OBJECTS:stof_run_time>)
install(TARGETS stof_c LIBRARY DESTINATION stof/_native COMPONENT python NAMELINK_SKIP)

# libgomp.so.1 is what the loader asks for; an OpenMP run time of that name which is loaded already is used.
set(run_time "")
foreach(library IN LISTS OpenMP_CXX_LIB_NAMES)
  if(library STREQUAL "gomp")
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libgomp.so.1
      OUTPUT_VARIABLE run_time OUTPUT_STRIP_TRAILING_WHITESPACE)
  endif()
endforeach()
if(NOT IS_ABSOLUTE "${run_time}")
  message(FATAL_ERROR "STOF_PYTHON: expected GCC's OpenMP run time (libgomp.so.1), got "
    "\"${OpenMP_CXX_LIB_NAMES}\"; build the wheel with g++")
endif()
file(REAL_PATH "${run_time}" run_time)
install(FILES ${run_time} DESTINATION stof/_native RENAME libgomp.so.1 COMPONENT python)

# Likewise what run_time_functions.h looks for there first, and what Debian's oneDNN needs beyond glibc and
# GCC's run times.
if(STOF_BUNDLE_LIBRARIES)
  file(STRINGS ${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h major REGEX "define DNNL_VERSION_MAJOR [0-9]+")
  string(REGEX MATCH "[0-9]+$" major "${major}")
  foreach(library libdnnl.so.${major} libOpenCL.so.1 libsentencepiece.so.0)
    find_library(STOF_BUNDLED_${library} NAMES ${library} REQUIRED)
    file(REAL_PATH ${STOF_BUNDLED_${library}} real)
    install(FILES ${real} DESTINATION stof/_native RENAME ${library} COMPONENT python)
  endforeach()
endif()

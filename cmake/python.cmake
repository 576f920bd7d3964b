# What the wheel holds beside python/stof: the C library, as one file that loads with nothing but glibc
# around it, and GCC's OpenMP run time next to it (the static one cannot go into a shared library).
if(NOT STOF_PYTHON)
  return()
endif()

set_target_properties(stof_c PROPERTIES VERSION "" SOVERSION "" NO_SONAME ON)
target_link_options(stof_c PRIVATE -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL
  -Wl,--as-needed -Wl,--gc-sections -Wl,-s)
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

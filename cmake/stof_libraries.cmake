# The libraries without a CMake package that works everywhere, as targets stof_deps::<name>. Used by the
# build and, installed, by those who link the static library.
#
# Debian's dnnl-config.cmake asks for OpenCL development files that stof has no use for; Debian's
# xxHash, utf8proc and SentencePiece come without one.
foreach(library dnnl xxhash utf8proc sentencepiece)
  if(TARGET stof_deps::${library})
    continue()
  endif()
  string(TOUPPER ${library} upper)
  find_library(${upper}_LIBRARY ${library} REQUIRED)
  add_library(stof_deps::${library} UNKNOWN IMPORTED)
  set_target_properties(stof_deps::${library} PROPERTIES IMPORTED_LOCATION ${${upper}_LIBRARY})
endforeach()

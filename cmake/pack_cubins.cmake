# Writes OUTPUT, a C++ file that holds the bytes of ARCHIVE (none: an empty one) for
# src/jit/packed_cubins.h. The assembler includes the file: as C++ text megabytes take minutes.
# cmake -DOUTPUT=... [-DARCHIVE=...] -P pack_cubins.cmake
if(ARCHIVE)
  set(body "
asm(\".section .rodata\\n.balign 16\\n.local stof_packed_begin\\n.local stof_packed_end\\n\"
    \"stof_packed_begin:\\n.incbin \\\"${ARCHIVE}\\\"\\nstof_packed_end:\\n.byte 0\\n.text\\n\");
extern \"C\" __attribute__((visibility(\"hidden\"))) const char stof_packed_begin[], stof_packed_end[];
namespace stof::jit {
std::string_view packed_archive() {
  return {stof_packed_begin, static_cast<std::size_t>(stof_packed_end - stof_packed_begin)};
}
}  // namespace stof::jit
")
else()
  set(body "
namespace stof::jit {
std::string_view packed_archive() { return {}; }
}  // namespace stof::jit
")
endif()
file(WRITE ${OUTPUT} "// Made by cmake/pack_cubins.cmake; do not edit.\n#include \"jit/packed_cubins.h\"\n${body}")

# Writes OUTPUT, a C++ file that holds every FILES text as a raw string.
# cmake -DOUTPUT=... -DROOT=kernels -DFILES="a;b" -P embed_sources.cmake
set(text "// Made by cmake/embed_sources.cmake from kernels/; do not edit.\n#include \"jit/embedded_sources.h\"\nnamespace stof::jit {\nnamespace {\nusing namespace std::string_view_literals;  // whose lengths the compiler need not count\nconstexpr EmbeddedSource kSources[] = {\n")
foreach(file IN LISTS FILES)
  file(READ ${file} content)
  file(RELATIVE_PATH name ${ROOT} ${file})
  string(APPEND text "{\"${name}\", R\"stof_source(${content})stof_source\"sv},\n")
endforeach()
string(APPEND text "};\n}  // namespace\nstd::span<const EmbeddedSource> embedded_sources() { return kSources; }\n}  // namespace stof::jit\n")
file(WRITE ${OUTPUT} "${text}")

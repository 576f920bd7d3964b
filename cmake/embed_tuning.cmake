# Writes OUTPUT, a C++ file that holds every FILES text (archives of tuning records) as a raw string.
# cmake -DOUTPUT=... -DFILES="a;b" -P embed_tuning.cmake
set(text "// Made by cmake/embed_tuning.cmake from data/tuning/; do not edit.\n#include \"tune/database.h\"\nnamespace stof::tune {\nstd::vector<std::string> shipped_archives() {\n  return {\n")
foreach(file IN LISTS FILES)
  file(READ ${file} content)
  string(APPEND text "R\"stof_tuning(${content})stof_tuning\",\n")
endforeach()
string(APPEND text "  };\n}\n}  // namespace stof::tune\n")
file(WRITE ${OUTPUT} "${text}")

# Installs this build into an empty prefix; configures, builds and runs consumer/ against it, and compiles
# the C++ that README.md and docs/ show.
set(prefix ${WORK_DIR}/prefix)
set(build ${WORK_DIR}/consumer)
file(REMOVE_RECURSE ${prefix} ${build})
set(flags)
if(SANITIZE)
  set(flags "-DCMAKE_CXX_FLAGS=-fsanitize=${SANITIZE}")
endif()

execute_process(COMMAND ${CMAKE_COMMAND} --install ${STOF_BINARY_DIR} --prefix ${prefix} --component stof
  COMMAND_ERROR_IS_FATAL ANY)
file(GLOB documents ${STOF_SOURCE_DIR}/README.md ${STOF_SOURCE_DIR}/docs/*.md)
execute_process(COMMAND ${PYTHON} ${STOF_SOURCE_DIR}/tools/extract_snippets.py ${documents}
  --out ${WORK_DIR}/snippets.cc COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/consumer -B ${build} -G ${GENERATOR}
  -DCMAKE_CXX_COMPILER=${CXX_COMPILER} -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_BUILD_TYPE=Release
  -DSTOF_VERSION=${STOF_VERSION} -DSNIPPETS=${WORK_DIR}/snippets.cc ${flags} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${build} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${build}/consumer COMMAND_ERROR_IS_FATAL ANY)

# Whatever names the source or build folder would break once they are gone.
file(GLOB_RECURSE installed ${prefix}/lib/cmake/* ${prefix}/lib/*/cmake/* ${prefix}/include/*)
foreach(file ${installed})
  file(READ ${file} text)
  foreach(folder ${STOF_SOURCE_DIR} ${STOF_BINARY_DIR})
    string(FIND "${text}" "${folder}" position)
    if(NOT position EQUAL -1)
      message(FATAL_ERROR "${file} names ${folder}: an installed file must not depend on it")
    endif()
  endforeach()
endforeach()

# Installs this build into an empty prefix; configures, builds and runs consumer/ against it, and compiles
# the C++ and C that README.md and docs/ show; the C programs run, and are built by what the .pc file says too.
set(prefix ${WORK_DIR}/prefix)
set(build ${WORK_DIR}/consumer)
file(REMOVE_RECURSE ${prefix} ${build})
set(flags)
if(SANITIZE)
  set(flags "-DCMAKE_CXX_FLAGS=-fsanitize=${SANITIZE}" "-DCMAKE_C_FLAGS=-fsanitize=${SANITIZE}")
endif()

execute_process(COMMAND ${CMAKE_COMMAND} --install ${STOF_BINARY_DIR} --prefix ${prefix} --component stof
  COMMAND_ERROR_IS_FATAL ANY)
file(GLOB documents ${STOF_SOURCE_DIR}/README.md ${STOF_SOURCE_DIR}/docs/*.md)
execute_process(COMMAND ${PYTHON} ${STOF_SOURCE_DIR}/tools/extract_snippets.py ${documents}
  --out ${WORK_DIR}/snippets.cc --c-out ${WORK_DIR} --c-programs 2 COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/consumer -B ${build} -G ${GENERATOR}
  -DCMAKE_CXX_COMPILER=${CXX_COMPILER} -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_BUILD_TYPE=Release
  -DSTOF_VERSION=${STOF_VERSION} -DSNIPPETS=${WORK_DIR}/snippets.cc ${flags}
  -DCMAKE_C_COMPILER=${C_COMPILER} -DC_EXAMPLES=${WORK_DIR} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${build} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${build}/consumer COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${build}/c_example_1 OUTPUT_VARIABLE c_example_says COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${build}/c_example_2 ${WORK_DIR}/nothing ERROR_VARIABLE c_models_say COMMAND_ERROR_IS_FATAL ANY)
if(NOT c_models_say MATCHES "/nothing: expected the folder of a model")
  message(FATAL_ERROR "the C example of models says\n${c_models_say}")
endif()

# What pkg-config would answer: its variables are written as CMake's.
file(GLOB_RECURSE pc ${prefix}/*/stof_c.pc)
cmake_path(GET pc PARENT_PATH pcfiledir)
file(STRINGS ${pc} lines)
foreach(line ${lines})
  string(CONFIGURE "${line}" line)
  if(line MATCHES "^([A-Za-z]+)(=|: )(.*)$")
    set(${CMAKE_MATCH_1} ${CMAKE_MATCH_3})
  endif()
endforeach()
separate_arguments(arguments UNIX_COMMAND "${Cflags} ${Libs} -Wl,-rpath,${libdir}")
if(SANITIZE)
  list(APPEND arguments -fsanitize=${SANITIZE})
endif()
foreach(number 1 2)
  execute_process(COMMAND ${C_COMPILER} -std=c99 -Wall -Wextra -Wpedantic -Werror ${WORK_DIR}/c_example_${number}.c
    ${arguments} -o ${build}/c_example_${number}_pc COMMAND_ERROR_IS_FATAL ANY)
endforeach()
execute_process(COMMAND ${build}/c_example_1_pc OUTPUT_VARIABLE c_example_pc_says COMMAND_ERROR_IS_FATAL ANY)
if(NOT c_example_says STREQUAL c_example_pc_says OR NOT c_example_says MATCHES "2.00")
  message(FATAL_ERROR "the C example says\n${c_example_says}and, built by the .pc file,\n${c_example_pc_says}")
endif()

# Whatever names the source or build folder would break once they are gone.
file(GLOB_RECURSE installed ${prefix}/lib/cmake/* ${prefix}/lib/*/cmake/* ${pc} ${prefix}/include/*)
foreach(file ${installed})
  file(READ ${file} text)
  foreach(folder ${STOF_SOURCE_DIR} ${STOF_BINARY_DIR})
    string(FIND "${text}" "${folder}" position)
    if(NOT position EQUAL -1)
      message(FATAL_ERROR "${file} names ${folder}: an installed file must not depend on it")
    endif()
  endforeach()
endforeach()

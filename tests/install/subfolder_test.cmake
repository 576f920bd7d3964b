# Configures subproject/, which adds stof's source tree as a folder. Configuring resolves every link
# dependency; compiling the library once more would add nothing but minutes.
set(build ${WORK_DIR}/subproject)
file(REMOVE_RECURSE ${build})
execute_process(COMMAND ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/subproject -B ${build} -G ${GENERATOR}
  -DCMAKE_CXX_COMPILER=${CXX_COMPILER} -DSTOF_SOURCE_DIR=${STOF_SOURCE_DIR} COMMAND_ERROR_IS_FATAL ANY)

# cmake -D FUZZER=program -D SEEDS=folder -D WORK=folder -D SECONDS=20 -P run_fuzzer.cmake
# Fuzzes on a copy of the seeds, so that the source tree stays as it is. Inputs that crash are kept
# in WORK/findings.
file(REMOVE_RECURSE ${WORK}/corpus)
file(MAKE_DIRECTORY ${WORK}/corpus ${WORK}/findings)
file(COPY ${SEEDS}/ DESTINATION ${WORK}/corpus)
execute_process(
  COMMAND ${FUZZER} -max_total_time=${SECONDS} -rss_limit_mb=512 -max_len=65536 -timeout=5
    -print_final_stats=1 -artifact_prefix=${WORK}/findings/ ${WORK}/corpus
  WORKING_DIRECTORY ${WORK}
  RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${FUZZER} stopped with ${result}; the input is in ${WORK}/findings")
endif()

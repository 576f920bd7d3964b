# Install rules, so that another project can say find_package(stof) and link stof::stof.
if(NOT STOF_INSTALL)
  return()
endif()
include(CMakePackageConfigHelpers)
set(STOF_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/stof)

install(TARGETS stof EXPORT stof_targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT stof
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT stof)
if(STOF_BUILD_C)
  install(TARGETS stof_c EXPORT stof_targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT stof)
  # Relative to itself, so that the prefix may be chosen, or moved, after configuring.
  file(RELATIVE_PATH STOF_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
  configure_file(${PROJECT_SOURCE_DIR}/cmake/stof_c.pc.in ${PROJECT_BINARY_DIR}/stof_c.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/stof_c.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT stof)
endif()
install(EXPORT stof_targets NAMESPACE stof:: FILE stofTargets.cmake DESTINATION ${STOF_CMAKE_DIR} COMPONENT stof)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/stof DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT stof
  FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT stof)

# Only a static library hands its own dependencies on to whoever links it.
get_target_property(stof_type stof TYPE)
if(stof_type STREQUAL "STATIC_LIBRARY")
  set(STOF_IS_STATIC ON)
else()
  set(STOF_IS_STATIC OFF)
endif()
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/stofConfig.cmake.in
  ${PROJECT_BINARY_DIR}/stofConfig.cmake INSTALL_DESTINATION ${STOF_CMAKE_DIR})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/stofConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/stofConfig.cmake ${PROJECT_BINARY_DIR}/stofConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/stof_libraries.cmake DESTINATION ${STOF_CMAKE_DIR} COMPONENT stof)

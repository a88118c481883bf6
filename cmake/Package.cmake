# What `cmake --install` installs beside the program: libzeroplan.a, zeroplan/zeroplan.hpp, and the files by which
# find_package(zeroplan) gives zeroplan::zeroplan. tests/package builds a program against it.
#
# The archive has the objects of the library's layer and of those below it. Its users need no header of other
# libraries; of fmt what was compiled (fmt::fmt), where the program was not built portable, and libyaml, where it was found.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
find_package(Threads REQUIRED)

add_library(zeroplan_package STATIC $<TARGET_OBJECTS:zeroplan_library> $<TARGET_OBJECTS:zeroplan_tuner>
  $<TARGET_OBJECTS:zeroplan_foreign> $<TARGET_OBJECTS:zeroplan_simulator> $<TARGET_OBJECTS:zeroplan_model> $<TARGET_OBJECTS:zeroplan_base>)
set_target_properties(zeroplan_package PROPERTIES OUTPUT_NAME zeroplan EXPORT_NAME zeroplan LINKER_LANGUAGE CXX)
target_compile_features(zeroplan_package PUBLIC cxx_std_20)
target_sources(zeroplan_package PUBLIC FILE_SET HEADERS BASE_DIRS ${CMAKE_SOURCE_DIR}/include
  FILES ${CMAKE_SOURCE_DIR}/include/zeroplan/zeroplan.hpp)
target_link_libraries(zeroplan_package PRIVATE Threads::Threads)
if(NOT ZEROPLAN_PORTABLE)
  target_link_libraries(zeroplan_package PRIVATE fmt::fmt)
endif()
if(ZEROPLAN_YAML_INCLUDE AND ZEROPLAN_YAML_LIBRARY)
  target_link_libraries(zeroplan_package PRIVATE yaml)  # by name, which the linker of its users finds
endif()
add_library(zeroplan::zeroplan ALIAS zeroplan_package)

# A wheel holds the program alone.
if(SKBUILD)
  return()
endif()
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/zeroplan)
install(TARGETS zeroplan_package EXPORT zeroplanTargets ARCHIVE FILE_SET HEADERS)
install(EXPORT zeroplanTargets NAMESPACE zeroplan:: DESTINATION ${package_folder})
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/zeroplanConfig.cmake.in ${CMAKE_BINARY_DIR}/zeroplanConfig.cmake
  INSTALL_DESTINATION ${package_folder} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/zeroplanConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_BINARY_DIR}/zeroplanConfig.cmake ${CMAKE_BINARY_DIR}/zeroplanConfigVersion.cmake
  DESTINATION ${package_folder})

# Data files become part of the program: it answers from any folder and needs no installation path.
#
# zeroplan_embed(TARGET FUNCTION [namespace::]f PATTERNS glob... [GENERATED file...]) adds a generated source to TARGET
# that defines
#   std::span<const zeroplan::EmbeddedFile> zeroplan::[namespace::]f();       (base/embedded.hpp)
# with one entry a file, named by its path from the repository root; files that the build makes are
# named by their name alone.
function(zeroplan_embed target)
  cmake_parse_arguments(ARG "" "FUNCTION" "PATTERNS;GENERATED" ${ARGN})
  set(files)
  foreach(pattern IN LISTS ARG_PATTERNS)
    file(GLOB found RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${pattern})
    list(APPEND files ${found})
  endforeach()
  list(SORT files)
  set(depends ${files})
  list(TRANSFORM depends PREPEND ${CMAKE_SOURCE_DIR}/)
  list(APPEND files ${ARG_GENERATED})
  list(APPEND depends ${ARG_GENERATED})
  string(REGEX REPLACE ".*::" "" function ${ARG_FUNCTION})
  set(output ${CMAKE_BINARY_DIR}/${function}.cpp)
  set(listing ${CMAKE_BINARY_DIR}/${function}.txt)
  string(REPLACE ";" "\n" lines "${files}")
  file(CONFIGURE OUTPUT ${listing} CONTENT "${lines}\n" @ONLY)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DLISTING=${listing} -DROOT=${CMAKE_SOURCE_DIR} -DFUNCTION=${ARG_FUNCTION} -DOUTPUT=${output}
            -P ${CMAKE_SOURCE_DIR}/cmake/WriteEmbedded.cmake
    DEPENDS ${depends} ${listing} ${CMAKE_SOURCE_DIR}/cmake/WriteEmbedded.cmake
    COMMENT "Embedding data files")
  # A file is one literal, longer than the 65,536 characters that every compiler must take.
  set_source_files_properties(${output} PROPERTIES COMPILE_OPTIONS -Wno-overlength-strings)
  target_sources(${target} PRIVATE ${output})
endfunction()

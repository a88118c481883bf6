# Libraries of zeroplan, one a layer. Sources are found by folder, so that a new file needs no edit
# here; CONFIGURE_DEPENDS makes the build notice it.
include(Portable)
include(Folders)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/folders.txt)

option(ZEROPLAN_PRECOMPILE "Precompile the standard headers (a source that forgets an include goes unnoticed)" ON)

# zeroplan_precompile(TARGET [FROM other] [header...]): what most sources include, parsed once. FROM: what the other
# target has parsed, whose options for code generation must be the same. The preset `dev` builds without, which finds a
# source that forgot an include.
function(zeroplan_precompile target)
  cmake_parse_arguments(ARG "" "FROM" "" ${ARGN})
  if(NOT ZEROPLAN_PRECOMPILE)
    return()
  endif()
  if(ARG_FROM AND NOT ARG_FROM STREQUAL target)
    target_precompile_headers(${target} REUSE_FROM ${ARG_FROM})
    return()
  endif()
  target_precompile_headers(${target} PRIVATE <algorithm> <array> <cmath> <cstdint> <filesystem>
    <functional> <map> <memory> <optional> <set> <span> <string> <string_view> <utility> <vector>
    ${ARG_UNPARSED_ARGUMENTS})
endfunction()

# zeroplan_layer(NAME [OWN_OPTIONS]) makes the static library zeroplan_NAME from the layer's folders of
# cmake/folders.txt. Includes are written from the repository root. OWN_OPTIONS: it is compiled by other options than the
# model.
function(zeroplan_layer name)
  cmake_parse_arguments(ARG "OWN_OPTIONS" "" "" ${ARGN})
  zeroplan_folders_of(${name} folders)
  set(sources)
  foreach(directory IN LISTS folders)
    file(GLOB found CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${directory}/*.cpp)
    list(APPEND sources ${found})
  endforeach()
  add_library(zeroplan_${name} STATIC ${sources})
  target_include_directories(zeroplan_${name} PUBLIC ${CMAKE_SOURCE_DIR})
  if(ARG_OWN_OPTIONS)
    zeroplan_precompile(zeroplan_${name})
  else()
    zeroplan_precompile(zeroplan_${name} FROM zeroplan_model)
  endif()
endfunction()

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

option(ZEROPLAN_TOGETHER "Compile the sources of a folder in batches: a third of the time, and none twice for one change" OFF)
set(ZEROPLAN_BATCH_BYTES 160000 CACHE STRING "Source of a batch: a compiler takes less than 1.5 GB for it")

# zeroplan_together(TARGET): its sources, compiled in batches of one folder each. Names of unnamed namespaces are then unique
# in a folder. Sources with options of their own stay alone.
function(zeroplan_together target)
  if(NOT ZEROPLAN_TOGETHER)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    if(NOT source MATCHES "\\.cpp$" OR NOT EXISTS ${source})
      continue()
    endif()
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE group)
    string(REPLACE "/" "_" group ${group})
    file(SIZE ${source} size)
    if(NOT DEFINED batch_${group})
      set(batch_${group} 1)
      set(bytes_${group} 0)
    endif()
    math(EXPR bytes_${group} "${bytes_${group}} + ${size}")
    if(bytes_${group} GREATER ZEROPLAN_BATCH_BYTES)
      math(EXPR batch_${group} "${batch_${group}} + 1")
      set(bytes_${group} ${size})
    endif()
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group}_${batch_${group}})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # A tenth of the compiler's time goes into collecting garbage below 1.5 GB.
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1500000>)
  endif()
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
    zeroplan_precompile(zeroplan_${name} FROM zeroplan_base)
  endif()
  zeroplan_together(zeroplan_${name})
endfunction()

# Checks what includes say about the layers (docs/style.md, section 2):
#   cmake -DSOURCE_DIR=<root> -P cmake/CheckLayers.cmake
# Arrows: model <- simulator <- tuner <- evidence; model <- runtime; simulator <- rehearsal; cli and tests see all.
# Third-party headers stay where they are allowed; headers open with #pragma once and have no using
# directive at file scope; quoted includes are written from the root and exist.
cmake_minimum_required(VERSION 3.25)
if(NOT SOURCE_DIR)
  get_filename_component(SOURCE_DIR "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
endif()

set(layers model simulator tuner evidence runtime rehearsal cli tests)
set(sees_model model)
set(sees_simulator model simulator)
set(sees_tuner model simulator tuner)
set(sees_evidence model simulator tuner evidence)
set(sees_runtime model runtime)
set(sees_rehearsal model simulator rehearsal)
set(sees_cli model simulator tuner evidence runtime rehearsal cli)
set(sees_tests ${layers})

# Inside model: the folders each folder may see besides itself and the files at model's top, which see no
# folder.
set(sees_model_hardware)
set(sees_model_knobs)
set(sees_model_families graph)
set(sees_model_engine)
set(sees_model_graph)
set(sees_model_implementations graph)
set(sees_model_cost hardware graph)
set(sees_model_plan cost hardware knobs families engine graph implementations)
set(sees_model_predict cost hardware knobs families engine graph implementations plan)
set(sees_model_lint hardware knobs families engine plan predict)

# Prefix of a system include | the files that may have it, as a regular expression of the path.
set(confined
  "nlohmann/|^model/json(_print)?\\.cpp$"
  "fmt/|\\.cpp$"
  "catch2/|^tests/(catch\\.hpp|catch_main\\.cpp)$"
  "benchmark/|^tests/bench/"
  "Eigen/|^(evidence/calibrate|runtime/)[^:]*\\.cpp$"
  "cuda|^(runtime/cuda/|tests/gpu/emulated/|tests/rehearsal/abi_test\\.cpp$)"
  "cublas|^runtime/cuda/"
  "cudnn|^runtime/cuda/cudnn/"
  "cupti|^runtime/cuda/"
  "nccl|^(runtime/cuda/|tests/gpu/emulated/)"
  "mpi\\.h|^runtime/"
  "liburing|^runtime/swap/"
  "torch/|^$")

set(problems)
set(file_count 0)
set(include_count 0)

function(problem text)
  set(problems ${problems} "${text}" PARENT_SCOPE)
endfunction()

foreach(layer IN LISTS layers)
  file(GLOB_RECURSE files RELATIVE "${SOURCE_DIR}" "${SOURCE_DIR}/${layer}/*.hpp"
       "${SOURCE_DIR}/${layer}/*.cpp" "${SOURCE_DIR}/${layer}/*.cu" "${SOURCE_DIR}/${layer}/*.cuh")
  foreach(path IN LISTS files)
    math(EXPR file_count "${file_count} + 1")
    file(STRINGS "${SOURCE_DIR}/${path}" includes REGEX "^[ \t]*#[ \t]*include")
    foreach(line IN LISTS includes)
      math(EXPR include_count "${include_count} + 1")
      if(line MATCHES "include[ \t]+\"([^\"]+)\"")
        set(target "${CMAKE_MATCH_1}")
        string(REGEX REPLACE "/.*" "" folder "${target}")
        if(NOT EXISTS "${SOURCE_DIR}/${target}")
          problem("${path}: includes \"${target}\": no such file from the root")
        elseif(NOT folder IN_LIST sees_${layer})
          problem("${path}: includes \"${target}\": ${layer} may not see ${folder}")
        elseif(path MATCHES "^model/" AND target MATCHES "^model/([a-z_]+)/")
          set(seen_room "${CMAKE_MATCH_1}")
          set(own_room "")
          if(path MATCHES "^model/([a-z_]+)/")
            set(own_room "${CMAKE_MATCH_1}")
          endif()
          if(NOT seen_room STREQUAL own_room AND NOT seen_room IN_LIST sees_model_${own_room})
            problem("${path}: includes \"${target}\": model/${own_room} may not see model/${seen_room}")
          endif()
        endif()
      elseif(line MATCHES "include[ \t]+<([^>]+)>")
        set(target "${CMAKE_MATCH_1}")
        foreach(rule IN LISTS confined)
          string(REGEX REPLACE "\\|.*" "" prefix "${rule}")
          string(LENGTH "${prefix}|" skip)
          string(SUBSTRING "${rule}" ${skip} -1 allowed)
          if(target MATCHES "^${prefix}" AND NOT path MATCHES "${allowed}")
            problem("${path}: includes <${target}>, which is confined to ${allowed}")
          endif()
        endforeach()
      endif()
    endforeach()
    if(path MATCHES "\\.(hpp|cuh)$")
      file(STRINGS "${SOURCE_DIR}/${path}" once REGEX "^#pragma once")
      if(NOT once)
        problem("${path}: a header without #pragma once")
      endif()
      file(STRINGS "${SOURCE_DIR}/${path}" using REGEX "^using namespace")
      if(using)
        problem("${path}: a header with `using namespace`")
      endif()
    endif()
  endforeach()
endforeach()

if(NOT DEFINED LEAST_INCLUDES)
  set(LEAST_INCLUDES 100)
endif()
if(include_count LESS LEAST_INCLUDES)
  problem("only ${include_count} includes in ${file_count} files: is ${SOURCE_DIR} the repository?")
endif()
if(problems)
  list(JOIN problems "\n  " text)
  message(FATAL_ERROR "layers:\n  ${text}")
endif()
message(STATUS "layers: ${include_count} includes in ${file_count} files keep to the arrows")

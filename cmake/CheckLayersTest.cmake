# The check of the layers notices what it is for:
#   cmake -DWORK_DIR=<scratch> -P cmake/CheckLayersTest.cmake
# Writes a small tree with one mistake of each kind and expects one sentence about each.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${WORK_DIR}")
file(WRITE "${WORK_DIR}/model/good.hpp" "#pragma once\n#include <vector>\n")
file(WRITE "${WORK_DIR}/model/back.cpp" "#include \"tuner/fit.hpp\"\n")
file(WRITE "${WORK_DIR}/model/plan/plan.hpp" "#pragma once\n")
file(WRITE "${WORK_DIR}/model/engine/up.cpp" "#include \"model/plan/plan.hpp\"\n")
file(WRITE "${WORK_DIR}/tuner/fit.hpp" "#pragma once\n#include \"model/good.hpp\"\n")
file(WRITE "${WORK_DIR}/tuner/sideways.cpp" "#include \"runtime/train/train.hpp\"\n")
file(WRITE "${WORK_DIR}/runtime/train/train.hpp" "#include \"model/good.hpp\"\n")
file(WRITE "${WORK_DIR}/runtime/data/up.cpp" "#include \"runtime/train/train.hpp\"\n")
file(WRITE "${WORK_DIR}/tuner/new_folder/new.cpp" "#include <vector>\n")
file(WRITE "${WORK_DIR}/tests/deep/below/any.cpp" "#include \"runtime/train/train.hpp\"\n")
file(WRITE "${WORK_DIR}/include/zeroplan/own.hpp" "#pragma once\n#include \"model/good.hpp\"\n")
file(WRITE "${WORK_DIR}/include/zeroplan/other.hpp" "#pragma once\n#include <Eigen/Core>\n")
file(WRITE "${WORK_DIR}/model/json_user.cpp" "#include <nlohmann/json.hpp>\n")
file(WRITE "${WORK_DIR}/model/device.cpp" "#include <cuda_runtime.h>\n")
file(WRITE "${WORK_DIR}/runtime/engine/on_gpu.cpp" "#include <cuda_runtime_api.h>\n")
file(WRITE "${WORK_DIR}/model/text.hpp" "#pragma once\n#include <fmt/format.h>\n")
file(WRITE "${WORK_DIR}/cli/names.hpp" "#pragma once\nusing namespace zeroplan;\n")
file(WRITE "${WORK_DIR}/cli/elsewhere.hpp" "#pragma once\nnamespace zeroplan {\n}\n")
file(WRITE "${WORK_DIR}/cli/gone.cpp" "#include \"good.hpp\"\n")

# A circle of three modules, closed by a source.
file(WRITE "${WORK_DIR}/model/first.hpp" "#pragma once\n#include \"model/second.hpp\"\n")
file(WRITE "${WORK_DIR}/model/second.hpp" "#pragma once\n")
file(WRITE "${WORK_DIR}/model/second.cpp" "#include \"model/second.hpp\"\n#include \"model/third.hpp\"\n")
file(WRITE "${WORK_DIR}/model/third.hpp" "#pragma once\n#include \"model/first.hpp\"\n")
file(WRITE "${WORK_DIR}/model/fourth.cpp" "#include \"model/first.hpp\"\n")

file(WRITE "${WORK_DIR}/docs/design.md"
  "<!-- folders: made of cmake/folders.txt -->\n| an old map |\n<!-- end of folders -->\n")

execute_process(
  COMMAND ${CMAKE_COMMAND} -DSOURCE_DIR=${WORK_DIR} -DLEAST_INCLUDES=1 -P
          "${CMAKE_CURRENT_LIST_DIR}/CheckLayers.cmake"
  RESULT_VARIABLE result
  ERROR_VARIABLE output
  OUTPUT_VARIABLE ignored)
if(result EQUAL 0)
  message(FATAL_ERROR "a tree full of mistakes passed")
endif()
foreach(expected
        "model/back.cpp: includes \"tuner/fit.hpp\": model may not see tuner"
        "tuner/sideways.cpp: includes \"runtime/train/train.hpp\": tuner may not see runtime/train"
        "runtime/train/train.hpp: a header without"
        "runtime/data/up.cpp: includes \"runtime/train/train.hpp\": runtime/data may not see runtime/train"
        "tuner/new_folder/new.cpp: tuner/new_folder has no row"
        "include/zeroplan/own.hpp: includes \"model/good.hpp\": include/zeroplan may not see model"
        "include/zeroplan/other.hpp: includes <Eigen/Core>: the installed header needs"
        "docs/design.md: the map is not that of"
        "model/engine/up.cpp: includes \"model/plan/plan.hpp\": model/engine may not see model/plan"
        "model/json_user.cpp: includes <nlohmann/json.hpp>"
        "model/device.cpp: includes <cuda_runtime.h>"
        "runtime/engine/on_gpu.cpp: includes <cuda_runtime_api.h>"
        "model/text.hpp: includes <fmt/format.h>"
        "cli/names.hpp: a header with"
        "cli/elsewhere.hpp: not in namespace zeroplan::cli"
        "cli/gone.cpp: includes \"good.hpp\": no such file"
        "modules in a circle: model/first -> model/second -> model/third -> model/first")
  string(FIND "${output}" "${expected}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "not noticed: ${expected}\n${output}")
  endif()
endforeach()
string(FIND "${output}" "model/good.hpp:" at)
string(FIND "${output}" "tests/deep/below/any.cpp:" of_test)
if(NOT at EQUAL -1 OR NOT of_test EQUAL -1)
  message(FATAL_ERROR "a clean file was reported\n${output}")
endif()

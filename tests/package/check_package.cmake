# The installed package is whole:
#   cmake -DBUILD=<build folder> -DSCRATCH=<folder> -DMAJOR=<version> -DCXX=<compiler> -DFLAGS=<of the build>
#         -DGENERATOR=<name> -DPYTHON=<python3 or nothing> -P tests/package/check_package.cmake
# Installs into a folder of its own, builds consumer/ there by find_package, runs it, and holds its documents against
# those of the installed program and of the Python package, for each case of cases.json: they are the same bytes.
cmake_minimum_required(VERSION 3.25)
set(prefix ${SCRATCH}/prefix)
file(REMOVE_RECURSE ${SCRATCH})
set(quiet OUTPUT_FILE ${SCRATCH}/log ERROR_FILE ${SCRATCH}/errors)
file(MAKE_DIRECTORY ${SCRATCH}/cases)

# step(NAME COMMAND...): runs it; where it fails, what it printed ends the test.
function(step name)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${name} failed (${result}):\n${output}")
  endif()
endfunction()

step("cmake --install" ${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})
step("configuring the consumer" ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/consumer -B ${SCRATCH}/consumer
  -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_CXX_FLAGS=${FLAGS}
  -DZEROPLAN_MAJOR=${MAJOR})
step("building the consumer" ${CMAKE_COMMAND} --build ${SCRATCH}/consumer)
set(consumer ${SCRATCH}/consumer/consumer)
step("the consumer's own checks" ${consumer})

# Nothing of the repository, and no other library's header, is needed: the header says so itself.
file(GLOB_RECURSE headers ${prefix}/include/*)
foreach(header IN LISTS headers)
  file(STRINGS ${header} includes REGEX "#include")
  foreach(line IN LISTS includes)
    if(NOT line MATCHES "^#include <[a-z_]+>$")
      message(FATAL_ERROR "${header}: ${line}: installed headers include the standard library alone")
    endif()
  endforeach()
endforeach()

# What a command or the consumer says: exit code (0 for an answer, 2 for bad input), document, messages. How long a
# search took differs from run to run.
function(ask said program)
  execute_process(COMMAND ${program} ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE log
                  WORKING_DIRECTORY ${SCRATCH}/cases)
  if(code EQUAL 3)
    set(code 0)  # the answer is no
  elseif(NOT code EQUAL 0 AND NOT code EQUAL 2)
    message(FATAL_ERROR "${program} ${ARGN} ended with ${code}:\n${log}")
  endif()
  string(REGEX REPLACE "\n  \"seconds\": [0-9.e+-]+," "\n  \"seconds\": 0," out "${out}")
  if(code EQUAL 2)
    set(out "")  # the error as a document is the command line's
    string(REPLACE "error: command line: --" "error: options: " log "${log}")  # what the library calls them
  else()
    set(log "")  # what was assumed
  endif()
  set(${said} "${code}\n${out}\n${log}" PARENT_SCOPE)
endfunction()

set(ENV{LC_ALL} C)
file(READ ${CMAKE_CURRENT_LIST_DIR}/cases.json cases)
string(JSON count LENGTH "${cases}")
math(EXPR last "${count} - 1")
set(answers 0)
foreach(i RANGE ${last})
  string(JSON command GET "${cases}" ${i} command)
  string(JSON scenario GET "${cases}" ${i} scenario)
  file(WRITE ${SCRATCH}/cases/${i}.json "${scenario}")
  set(words ${command} --scenario ${i}.json)
  string(JSON word_count ERROR_VARIABLE none LENGTH "${cases}" ${i} words)
  if(NOT none)
    math(EXPR last_word "${word_count} - 1")
    foreach(j RANGE ${last_word})
      string(JSON word GET "${cases}" ${i} words ${j})
      list(APPEND words "${word}")
    endforeach()
  endif()
  string(JSON training ERROR_VARIABLE none GET "${cases}" ${i} from)  # a job script
  if(NOT none)
    file(WRITE ${SCRATCH}/cases/${i}.sh "${training}")
    list(APPEND words --from ${i}.sh)
  endif()
  ask(of_command ${prefix}/bin/zeroplan ${words} --json)
  ask(of_library ${consumer} ${words})
  if(NOT of_command STREQUAL of_library)
    file(WRITE ${SCRATCH}/of_command "${of_command}")
    file(WRITE ${SCRATCH}/of_library "${of_library}")
    message(FATAL_ERROR "case ${i} (${words}): the library's answer is not the command's: "
                        "diff ${SCRATCH}/of_command ${SCRATCH}/of_library")
  endif()
  if(of_command MATCHES "^0")
    math(EXPR answers "${answers} + 1")
    file(WRITE ${SCRATCH}/cases/${i}.answer "${of_command}")
  endif()
  if(PYTHON AND of_command MATCHES "^0")
    execute_process(COMMAND ${CMAKE_COMMAND} -E env ZEROPLAN_PROGRAM=${prefix}/bin/zeroplan
      PYTHONPATH=${CMAKE_CURRENT_LIST_DIR}/../../python PYTHONDONTWRITEBYTECODE=1
      ${PYTHON} ${CMAKE_CURRENT_LIST_DIR}/python_door.py ${i}.answer ${words}
      WORKING_DIRECTORY ${SCRATCH}/cases RESULT_VARIABLE result ERROR_VARIABLE log)
    if(NOT result EQUAL 0)
      message(FATAL_ERROR "case ${i} (${words}) from Python:\n${log}")
    endif()
  endif()
endforeach()
if(answers LESS 8)
  message(FATAL_ERROR "only ${answers} of ${count} cases have an answer")
endif()
message(STATUS "installed, found, built; ${count} cases, ${answers} answers alike")

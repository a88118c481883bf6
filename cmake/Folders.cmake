# Reads cmake/folders.txt, THE list of folders with sources.
#
# zeroplan_read_folders(FILE) sets, for each folder f of FOLDERS: SEES_f, WHAT_f, START_f, MARKS_f.
# zeroplan_folders_of(LAYER RESULT) gives the folders whose sources are in the layer's library.

macro(zeroplan_read_folders file)
  set(FOLDERS)
  file(STRINGS "${file}" folder_lines REGEX "^[^#]")
  foreach(folder_line IN LISTS folder_lines)
    # An empty column stays one: "a | | b".
    string(REGEX MATCH "^([^ |]+) \\|([^|]*)\\|([^|]*)\\|([^|]*)\\|([^|]*)$" folder_whole "${folder_line}")
    if(NOT folder_whole)
      message(FATAL_ERROR "${file}: expected folder | sees | what | start | marks, got ${folder_line}")
    endif()
    set(folder "${CMAKE_MATCH_1}")
    string(STRIP "${CMAKE_MATCH_2}" folder_sees)
    string(STRIP "${CMAKE_MATCH_3}" WHAT_${folder})
    string(STRIP "${CMAKE_MATCH_4}" START_${folder})
    string(STRIP "${CMAKE_MATCH_5}" folder_marks)
    string(REPLACE " " ";" SEES_${folder} "${folder_sees}")
    string(REPLACE " " ";" MARKS_${folder} "${folder_marks}")
    list(APPEND FOLDERS "${folder}")
  endforeach()
endmacro()

function(zeroplan_folders_of layer result)
  zeroplan_read_folders(${CMAKE_CURRENT_FUNCTION_LIST_DIR}/folders.txt)
  set(found)
  foreach(folder IN LISTS FOLDERS)
    if("${folder}/" MATCHES "^${layer}/" AND NOT apart IN_LIST MARKS_${folder})
      list(APPEND found ${folder})
    endif()
  endforeach()
  set(${result} ${found} PARENT_SCOPE)
endfunction()

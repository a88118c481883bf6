# The planner for browsers: the command line as a function of a WebAssembly module, without what a browser has not
# (cli/browser). Included before the layers where emscripten compiles (preset `page`); zeroplan_browser() adds the module
# behind them.
add_compile_options(-fwasm-exceptions "SHELL:-include ${CMAKE_SOURCE_DIR}/cli/browser/missing_std.hpp")
add_link_options(-fwasm-exceptions)

function(zeroplan_browser)
  include(Questions)
  zeroplan_question_sources(cli_sources evidence_sources)
  # Measurements stay where they were made.
  set_target_properties(zeroplan_evidence PROPERTIES SOURCES "${evidence_sources}")
  list(FILTER cli_sources EXCLUDE REGEX "/cli/(interrupt|tokenized_dataset)[.]cpp")
  file(GLOB browser_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/cli/browser/*.cpp)
  list(APPEND cli_sources ${browser_sources})
  add_executable(zeroplan_browser ${cli_sources} ${CMAKE_SOURCE_DIR}/runtime/data/disk_file.cpp)
  zeroplan_precompile(zeroplan_browser FROM zeroplan_base)
  target_compile_definitions(zeroplan_browser PRIVATE ZEROPLAN_VERSION="${PROJECT_VERSION}")
  target_link_libraries(zeroplan_browser PRIVATE zeroplan_tuner zeroplan_evidence nlohmann_json::nlohmann_json fmt::fmt)
  zeroplan_embed(zeroplan_browser FUNCTION cli::report_files PATTERNS configs/report/*)
  target_link_options(zeroplan_browser PRIVATE
    -sMODULARIZE=1 -sEXPORT_NAME=zeroplanModule -sENVIRONMENT=web,worker,node -sFORCE_FILESYSTEM=1 -sALLOW_MEMORY_GROWTH=1
    -sDYNAMIC_EXECUTION=0
    -sINITIAL_MEMORY=64MB -sTOTAL_STACK=4MB -sEXPORTED_FUNCTIONS=_malloc,_free,_zeroplan_run,_zeroplan_output,_zeroplan_messages
    --no-entry
    -sEXPORTED_RUNTIME_METHODS=FS,cwrap,stringToUTF8,lengthBytesUTF8,UTF8ToString,setValue)

  # The page (docs/page.md), one file.
  include(Vega)
  find_program(ZEROPLAN_NODE NAMES node nodejs REQUIRED)
  if(NOT ZEROPLAN_VEGA)
    message(FATAL_ERROR "The page needs Vega, which draws its plots: sudo apt-get install libjs-vega")
  endif()
  file(GLOB parts CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/page/* ${CMAKE_SOURCE_DIR}/configs/report/*)
  set(page ${CMAKE_BINARY_DIR}/page/index.html)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/page)
  add_custom_command(
    OUTPUT ${page}
    COMMAND ${ZEROPLAN_NODE} ${CMAKE_SOURCE_DIR}/page/join.mjs ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}
            $<TARGET_FILE_DIR:zeroplan_browser> ${page}
    DEPENDS ${parts} ${CMAKE_SOURCE_DIR}/configs/messages/zh.json ${ZEROPLAN_VEGA} zeroplan_browser
    COMMENT "Joining the page"
    VERBATIM)
  add_custom_target(page ALL DEPENDS ${page})
endfunction()

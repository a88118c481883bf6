# What the questions of a planner need: all commands but those that train, measure a machine or start other programs. The
# browser's module and ./zeroplan's first program are made of it (zeroplan_questions); ./zeroplan builds the rest when a
# command asks for it, which cli/browser/commands_none.cpp refuses.

# zeroplan_question_sources(CLI EVIDENCE) sets CLI to the sources of cli, EVIDENCE to those of evidence, which read logs.
function(zeroplan_question_sources cli_result evidence_result)
  set(cli ${CMAKE_SOURCE_DIR}/cli)
  file(GLOB sources CONFIGURE_DEPENDS ${cli}/*.cpp ${cli}/language/*.cpp ${cli}/report/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/cli/(rehears|calibrate_|validate_|run_command|run_fingerprint|host_memory|embedded_|training_setup|said_gpus)")
  list(FILTER sources EXCLUDE REGEX "/cli/(doctor|import|plot|profile|replay|trace|verify|watch)_command|/cli/unknown_model")
  list(FILTER sources EXCLUDE REGEX "/cli/(main|rank_end|report/draw|report/validation_plot)[.]cpp")
  set(${cli_result} ${sources} PARENT_SCOPE)
  file(GLOB evidence CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/evidence/log_*.cpp ${CMAKE_SOURCE_DIR}/evidence/oom_*.cpp
       ${CMAKE_SOURCE_DIR}/evidence/failure_*.cpp
       ${CMAKE_SOURCE_DIR}/evidence/accuracy.cpp ${CMAKE_SOURCE_DIR}/evidence/text_scanner*.cpp)
  set(${evidence_result} ${evidence} PARENT_SCOPE)
endfunction()

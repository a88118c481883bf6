// The commands; each stands in its own file <name>_command.cpp and in the table of commands.cpp.
#pragma once

#include "cli/arguments.hpp"

namespace zeroplan::cli {

int run_fit(const Arguments& arguments, Streams streams);
int run_simulate(const Arguments& arguments, Streams streams);
int run_scenario(const Arguments& arguments, Streams streams);
int run_models(const Arguments& arguments, Streams streams);
int run_gpus(const Arguments& arguments, Streams streams);
int run_knobs(const Arguments& arguments, Streams streams);
int run_lint(const Arguments& arguments, Streams streams);
int run_import(const Arguments& arguments, Streams streams);
int run_watch(const Arguments& arguments, Streams streams);
int run_calibrate(const Arguments& arguments, Streams streams);
int run_profile(const Arguments& arguments, Streams streams);
int run_validate(const Arguments& arguments, Streams streams);
int run_doctor(const Arguments& arguments, Streams streams);
int run_explain(const Arguments& arguments, Streams streams);
int run_run(const Arguments& arguments, Streams streams);
int run_verify(const Arguments& arguments, Streams streams);
int run_report(const Arguments& arguments, Streams streams);
int run_plot(const Arguments& arguments, Streams streams);
int run_rehearse(const Arguments& arguments, Streams streams);
int run_trace(const Arguments& arguments, Streams streams);
int run_mcp(const Arguments& arguments, Streams streams);
int run_replay(const Arguments& arguments, Streams streams);

}  // namespace zeroplan::cli

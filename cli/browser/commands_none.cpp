// The commands that are in the whole program alone: they train, measure a machine, start other
// programs or read what those wrote. A browser has none of that; ./zeroplan builds the whole
// program when it is asked for one of them, which it looks up here.
#include "base/diagnostic.hpp"
#include "cli/commands.hpp"
#include "cli/unknown_model.hpp"

namespace zeroplan::cli {
namespace {

int refuse(const char* command) {
#if defined(__EMSCRIPTEN__)
  throw InputError({kCommandLine,
                    "",
                    "a command that works in a browser: fit, simulate, tune, lint, explain, ...",
                    command,
                    "zeroplan on your own machine has it"});
#else
  throw InputError(
      {kCommandLine,
       "",
       "a command of the program that ./zeroplan builds first: fit, simulate, tune, ...",
       command,
       "./zeroplan builds the whole program when it is asked for this"});
#endif
}

}  // namespace

int run_calibrate(const Arguments& /*arguments*/, Streams /*streams*/) {
  return refuse("calibrate");
}
int run_doctor(const Arguments& /*arguments*/, Streams /*streams*/) { return refuse("doctor"); }
int run_import(const Arguments& /*arguments*/, Streams /*streams*/) { return refuse("import"); }
int run_plot(const Arguments& /*arguments*/, Streams /*streams*/) { return refuse("plot"); }
int run_profile(const Arguments& /*arguments*/, Streams /*streams*/) { return refuse("profile"); }
int run_rehearse(const Arguments& /*arguments*/, Streams /*streams*/) { return refuse("rehearse"); }
int run_mcp(const Arguments& /*arguments*/, Streams /*streams*/) { return refuse("mcp"); }
int run_replay(const Arguments& /*arguments*/, Streams /*streams*/) { return refuse("replay"); }
int run_run(const Arguments& /*arguments*/, Streams /*streams*/) { return refuse("run"); }
int run_trace(const Arguments& /*arguments*/, Streams /*streams*/) { return refuse("trace"); }
int run_validate(const Arguments& /*arguments*/, Streams /*streams*/) { return refuse("validate"); }
int run_verify(const Arguments& /*arguments*/, Streams /*streams*/) { return refuse("verify"); }
int run_watch(const Arguments& /*arguments*/, Streams /*streams*/) { return refuse("watch"); }

// No class is asked here: the command refuses the model, and says how to trace it.
std::optional<TracedModel> traced_if_unknown(const Json& /*model*/,
                                             const std::string& /*file*/,
                                             const ModelUse& /*use*/,
                                             std::ostream& /*log*/,
                                             const Translation& /*words*/) {
  return std::nullopt;
}
Scenario with_known_model(Scenario scenario, std::ostream& /*log*/, const Translation& /*words*/) {
  return scenario;
}
void trace_unknown_model(Arguments& /*arguments*/,
                         std::ostream& /*log*/,
                         const Translation& /*words*/) {}

}  // namespace zeroplan::cli

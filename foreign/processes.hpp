// How many processes a training starts, and on what.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "foreign/said_elsewhere.hpp"
#include "foreign/shell.hpp"

namespace zeroplan::foreign {

// What could not be followed, with its place.
void leave_unread(const std::string& what, const std::string& file, int line, Part& part);

// The options of a job, "--nodes=2", "-N 2", as settings whose names are the flags.
std::vector<Setting> job_settings(const std::vector<Word>& words, const std::string& file);
// How many processes Slurm starts, by the lines of sbatch or the options of srun: settings whose
// names are the flags.
void read_job(const std::vector<Setting>& settings, Part& part);
// What Slurm tells the script of it.
std::map<std::string, std::string> environment_of(const Processes& processes);

// OpenRLHF and verl start their processes by Ray: the part's settings that say how many, the
// policy's, become processes.
void take_ray_options(Part& part);

// Adds what the part's launcher says; what was there before counts where both say it.
void add_processes(const Part& part, Meaning& meaning);

// The cluster's text, "2x8xa100"; empty where the number or the kind of the GPUs is not said.
std::string cluster_of(const Processes& processes);

// The cluster of a GPU's name beside a file that says how many start, "2x8xA100-80G"; nothing where
// one of them says something else.
std::optional<std::string> cluster_with(Processes started, const ExplicitValue* said);

}  // namespace zeroplan::foreign

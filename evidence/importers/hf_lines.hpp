// Lines that Hugging Face's Trainer and tqdm write into a training log, and the Trainer's state.
#pragma once

#include <memory>

#include "base/json.hpp"
#include "evidence/importers/line_reader.hpp"

namespace zeroplan::evidence {

// "***** Running training *****" and the counts below it, and what the Trainer prints at its end:
//   {'train_runtime': 976.5155, 'train_samples_per_second': 4.864, 'train_steps_per_second': 0.304,
//   ...} train_samples_per_second =      4.864
// Source: transformers trainer.py:_inner_training_loop, trainer_callback.py:ProgressCallback.on_log
// (5.x prints the numbers as strings), trainer_pt_utils.py:metrics_format, log_metrics.
std::unique_ptr<LogLineReader> hf_trainer_lines();

// tqdm's bars: " 2%|#   | 1/42 [02:52<1:48:00, 158.06s/it]". The training bar is the one without a
// name that runs longest (the Trainer's), else one named like "Training"; bars of downloads, data
// sets and evaluations are left. Its rate is an average over the last ticks. Source: tqdm
// std.py:format_meter; transformers trainer_callback.py:ProgressCallback (a tick is an optimizer
// step).
std::unique_ptr<LogLineReader> tqdm_lines();

// LLaMA-Factory's trainer_log.jsonl, one document a line: {"current_steps": 10, "total_steps": 300,
// ..., "elapsed_time": "0:01:02", ...}. Source: llamafactory/train/callbacks.py:LogCallback.
std::unique_ptr<LogLineReader> llama_factory_lines();

// trainer_state.json, all_results.json, train_results.json: the last row with train_runtime.
// Evaluations inside the run are taken off its time. Source: transformers trainer_callback.py:
// TrainerState, trainer_utils.py:speed_metrics, TrainerMemoryTracker.
bool is_trainer_state(const Json& document);
void read_trainer_state(const Json& document, RunFindings& findings);

}  // namespace zeroplan::evidence

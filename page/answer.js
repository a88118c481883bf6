// The answer of `zeroplan fit --json` as the document that the plots and the tables of a report read
// (zeroplan.report/1, docs/report.md): what a search would add is missing. Pure, as question.js.
"use strict";
const zeroplanAnswer = (() => {
  const gpuBytes = (row) => row.result.gpu.peak_total_bytes;
  const speedOf = (row) => row.result.step.tokens_per_second_per_gpu;

  // Nothing that fits is as fast with as little GPU memory.
  const onFront = (row, rows) => row.fits && !rows.some((other) => other.fits && other !== row
    && gpuBytes(other) <= gpuBytes(row) && speedOf(other) >= speedOf(row)
    && (gpuBytes(other) < gpuBytes(row) || speedOf(other) > speedOf(row)));

  const strategyOf = (row, rows) => ({
    name: row.name, stage: row.stage, offload_optimizer: row.offload_optimizer, offload_param: row.offload_param,
    activation_checkpointing: row.activation_checkpointing, micro_batch_size: row.micro_batch_size,
    gradient_accumulation_steps: row.gradient_accumulation_steps, front: onFront(row, rows), fits: row.fits,
    fit_probability: row.result.fit_probability, tokens_per_second_per_gpu: speedOf(row), gpu_bytes: gpuBytes(row),
    host_bytes: row.result.host.peak_bytes, breakdown_at_peak: row.result.gpu.breakdown_at_peak,
  });

  const pointOf = (row) => ({
    gpu_bytes: gpuBytes(row), host_bytes: row.result.host.peak_bytes, tokens_per_second_per_gpu: speedOf(row),
    step_seconds: row.result.step.seconds, front: true, chosen: true,
    configuration: { stage: row.stage, offload_optimizer: row.offload_optimizer, offload_param: row.offload_param,
                     activation_checkpointing: row.activation_checkpointing, micro_batch_size: row.micro_batch_size,
                     gradient_accumulation_steps: row.gradient_accumulation_steps },
  });

  // `question`: {model, cluster} as they were said.
  function documentOf(fit, question) {
    const best = fit.recommended;
    const any = best ?? fit.strategies[0];
    return {
      schema: "zeroplan.report/1", fits: fit.fits,
      question: { ...question, capacity_bytes: any.result.gpu.capacity_bytes, parameters: any.result.parameters.total,
                  sequence_length: any.workload.sequence_length, precision: any.workload.precision },
      trade_offs: best ? [pointOf(best)] : [],
      chosen: best && { name: best.name, ds_config: best.ds_config, workload: best.workload, result: best.result },
      memory_timeline: null, stream_timeline: null,
      strategies: fit.strategies.map((row) => strategyOf(row, fit.strategies)),
      sensitivity: [], remedies: fit.remedies.map((one) => ({ change: one.change })),
      assumptions: any.result.assumptions, warnings: any.result.warnings,
    };
  }

  return { documentOf };
})();
if (typeof module !== "undefined") module.exports = zeroplanAnswer;

// The parts of the page that touch no document: the command line that a form makes, its link, the document of an answer.
//   node question_test.cjs ROOT
"use strict";
const assert = require("node:assert/strict");
const { join } = require("node:path");
const page = (name) => require(join(process.argv[2], "page", name));
const { fields, asked, commandOf, lineOf, linkOf, questionOf, shellWords } = page("question.js");
const answer = page("answer.js");

let count = 0;
function test(name, body) {
  ++count;
  try {
    body();
  } catch (error) {
    console.error(`FAILED  ${name}\n${error.stack}`);
    process.exitCode = 1;
  }
}

test("a form with nothing typed asks for the model and the GPUs alone", () => {
  const { words, files } = commandOf({});
  assert.deepEqual(words, [fields.model.value, `8x${fields.gpu.value}`]);
  assert.deepEqual(files, {});
});

test("several nodes stand before the GPUs of one", () => {
  assert.equal(commandOf({ nodes: "2", gpus: "4", gpu: "A800-80G" }).words[1], "2x4xA800-80G");
});

test("every field of the form comes to the command line", () => {
  const typed = { model: "10B", seq: "4k", batch: "64", mbs: "2", trainer: "dpo", precision: "fp16", optimizer: "lion", attention: "flash",
                  ckpt: "full", host: "512G", network: "100" };
  assert.deepEqual(commandOf(typed).words.slice(2), [
    "--seq", "4k", "--global-batch", "64", "--mbs", "2", "--trainer", "dpo", "--precision", "fp16", "--optimizer", "lion",
    "--attention", "flash", "--ckpt", "full", "--host-memory", "512G", "--network", "100"]);
});

test("a method, its rank", () => {
  assert.deepEqual(commandOf({ method: "full", rank: "8" }).words.length, 2);
  assert.deepEqual(commandOf({ method: "lora" }).words.slice(2), ["--method", "lora"]);
  assert.deepEqual(commandOf({ method: "qlora", rank: "16" }).words.slice(2), ["--method", '{"qlora":{"rank":16}}']);
});

test("a pasted config.json takes the place of the name", () => {
  const { words, files } = commandOf({ config: '{"model_type": "llama"}' });
  assert.equal(words[0], "config.json");
  assert.deepEqual(files, { "config.json": '{"model_type": "llama"}' });
});

test("flags are read as a shell reads them", () => {
  assert.deepEqual(shellWords("  --a 'b c' \"d \\\" e\" f\\ g '' "), ["--a", "b c", 'd " e', "f g", ""]);
  assert.throws(() => shellWords("--a 'b"), /not closed/);
  assert.deepEqual(commandOf({ flags: "--fused-loss true" }).words.slice(2), ["--fused-loss", "true"]);
});

test("a line for a terminal has the same words", () => {
  const words = ["7B", "8xH100", "--method", '{"lora":{"rank":8}}', "it's"];
  assert.deepEqual(shellWords(lineOf("fit", words)), ["zeroplan", "fit", ...words]);
});

test("a link holds the question, and nothing that nobody said", () => {
  assert.equal(linkOf({}), "model=" + fields.model.value);
  for (const question of [
    {}, { model: "10B", nodes: "2", gpus: "4", gpu: "A800-80G-SXM", seq: "4096", method: "lora", rank: "8" },
    { config: '{"model_type": "llama", "name": "<a&b=c> 模型 #1"}', flags: "--zero 3 'a b'" }]) {
    assert.deepEqual(questionOf("#" + linkOf(question)), asked(question));
    assert.deepEqual(questionOf("?" + linkOf(question) + "&lang=zh"), asked(question));
  }
  assert.equal(questionOf(""), null);
  assert.equal(questionOf("#lang=zh"), null);
  assert.ok(!("other" in questionOf("#model=7B&other=1")));
});

const row = (name, fits, bytes, speed) => ({
  name, stage: 3, offload_optimizer: "none", offload_param: "none", activation_checkpointing: "full", micro_batch_size: 2,
  gradient_accumulation_steps: 4, fits, ds_config: { stage: name }, workload: { sequence_length: 2048, precision: "bf16" },
  result: { fit_probability: 0.99, gpu: { capacity_bytes: 80, peak_total_bytes: bytes, breakdown_at_peak: { logits: 1 } },
            host: { peak_bytes: 7 }, step: { seconds: 2, tokens_per_second_per_gpu: speed }, parameters: { total: 10 },
            assumptions: ["a"], warnings: ["w"] } });

test("an answer as a report's document", () => {
  const strategies = [row("fast", true, 60, 100), row("small", true, 40, 90), row("beaten", true, 61, 99),
                      row("same", true, 60, 100), row("large", false, 90, 120)];
  const doc = answer.documentOf({ fits: true, recommended: strategies[0], strategies, remedies: [] },
                                { model: "7B", cluster: "8xH100" });
  assert.deepEqual(doc.strategies.map((one) => one.front), [true, true, false, true, false]);
  assert.equal(doc.chosen.name, "fast");
  assert.equal(doc.question.capacity_bytes, 80);
  assert.deepEqual(doc.trade_offs.map((one) => [one.gpu_bytes, one.tokens_per_second_per_gpu, one.chosen]), [[60, 100, true]]);
});

test("an answer that is no has its remedies, and what is assumed", () => {
  const strategies = [row("large", false, 90, 120)];
  const doc = answer.documentOf({ fits: false, recommended: null, strategies, remedies: [{ change: "use 2 nodes", result: {} }] },
                                { model: "7B", cluster: "8xH100" });
  assert.equal(doc.chosen, null);
  assert.deepEqual(doc.trade_offs, []);
  assert.deepEqual(doc.remedies, [{ change: "use 2 nodes" }]);
  assert.deepEqual(doc.assumptions, ["a"]);
});

console.log(`${count} tests of the page's own parts${process.exitCode ? " FAILED" : ""}`);

// The parts of the page that touch no document: the command line that a form makes, its link.
//   node question_test.cjs ROOT
"use strict";
const assert = require("node:assert/strict");
const { join } = require("node:path");
const page = (name) => require(join(process.argv[2], "page", name));
const { fields, asked, commandOf, comparedOf, lineOf, linkOf, questionOf, shellWords } = page("question.js");

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

test("what a training costs is asked of an answer, not of a file that is checked", () => {
  const typed = { model: "7B", tokens: "3B", price: "2.5", seq: "4096" };
  assert.deepEqual(commandOf(typed).words.slice(2), ["--seq", "4096", "--tokens", "3B", "--price", "2.5"]);
  assert.deepEqual(commandOf(typed, false).words.slice(2), ["--seq", "4096"]);
});

test("a link holds the questions that its own is compared with", () => {
  const others = [asked({ model: "13B", method: "lora" }), asked({ config: '{"a": "&vs=b"}' })];
  const link = "#" + linkOf({ model: "7B" }) + others.map((one) => "&vs=" + encodeURIComponent(linkOf(one))).join("");
  assert.deepEqual(comparedOf(link), others);
  assert.deepEqual(questionOf(link), asked({ model: "7B" }));
  assert.deepEqual(comparedOf("#model=7B"), []);
});

console.log(`${count} tests of the page's own parts${process.exitCode ? " FAILED" : ""}`);

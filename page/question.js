// The question of the page: the fields of its form, the command line that they make, the link that holds them.
// No document is touched here: tests/page/question_test.cjs runs it in Node.js.
"use strict";
const zeroplanQuestion = (() => {
  // Each field by its name in the link, with what it is where nobody says otherwise. A field with `flag` is a flag of
  // the command line where it is not empty.
  const fields = {
    model: { value: "qwen3-8b" },
    config: { value: "" }, // the text of a config.json, in the place of a name
    nodes: { value: "1" },
    gpus: { value: "8" },
    gpu: { value: "H100-80G-SXM" },
    seq: { value: "", flag: "--seq" },
    batch: { value: "", flag: "--global-batch" },
    mbs: { value: "", flag: "--mbs" },
    method: { value: "full" },
    rank: { value: "" }, // of LoRA and QLoRA
    trainer: { value: "", flag: "--trainer" },
    precision: { value: "", flag: "--precision" },
    optimizer: { value: "", flag: "--optimizer" },
    attention: { value: "", flag: "--attention" },
    ckpt: { value: "", flag: "--ckpt" },
    host: { value: "", flag: "--host-memory" },
    network: { value: "", flag: "--network" },
    tokens: { value: "", flag: "--tokens", costs: true }, // lint and explain ask for no costs
    price: { value: "", flag: "--price", costs: true },
    flags: { value: "" }, // more of them, as they are typed
  };
  const names = Object.keys(fields);
  const configFile = "config.json";

  const asked = (some) => Object.fromEntries(names.map((name) => [name, String(some[name] ?? fields[name].value).trim()]));

  class OpenQuote extends Error {}

  // The words of a line as a shell reads it: quotes and backslashes, no variables. Throws OpenQuote.
  function shellWords(line) {
    const words = [];
    let word = null, quote = "";
    for (let i = 0; i < line.length; ++i) {
      const c = line[i];
      if (quote !== "") {
        if (c === quote) quote = "";
        else word += quote === '"' && c === "\\" && '"\\'.includes(line[i + 1]) ? line[++i] : c;
      } else if (c === "'" || c === '"') {
        quote = c;
        word ??= "";
      } else if (/\s/.test(c)) {
        if (word !== null) words.push(word);
        word = null;
      } else {
        word = (word ?? "") + (c === "\\" && i + 1 < line.length ? line[++i] : c);
      }
    }
    if (quote !== "") throw new OpenQuote("a quote that is not closed");
    if (word !== null) words.push(word);
    return words;
  }

  const quoted = (word) => /^[\w@%+=:,./-]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\\''") + "'";

  const clusterOf = (q) => (Number(q.nodes) > 1 ? q.nodes + "x" : "") + q.gpus + "x" + q.gpu;

  function methodWords(q) {
    if (q.method === "full" || q.method === "") return [];
    return ["--method", q.rank === "" ? q.method : JSON.stringify({ [q.method]: { rank: Number(q.rank) } })];
  }

  // What stands behind the command's name: `zeroplan fit WORDS`; and the files that the words name.
  function commandOf(some, costs = true) {
    const q = asked(some);
    const words = [q.config === "" ? q.model : configFile, clusterOf(q)];
    for (const name of names) {
      if (fields[name].flag && q[name] !== "" && (costs || !fields[name].costs)) words.push(fields[name].flag, q[name]);
    }
    words.push(...methodWords(q), ...shellWords(q.flags));
    return { words, files: q.config === "" ? {} : { [configFile]: q.config } };
  }

  // As it is typed in a terminal.
  const lineOf = (command, words) => ["zeroplan", command, ...words].map(quoted).join(" ");

  // "model=7B&gpus=4": what differs from what is there when the page opens. The model, or its config.json, always.
  function linkOf(some) {
    const q = asked(some);
    const said = new URLSearchParams();
    for (const name of names) {
      if (name === "config" ? q.config !== "" : name === "model" ? q.config === "" : q[name] !== fields[name].value) {
        said.set(name, q[name]);
      }
    }
    return said.toString();
  }

  // Of a link; null where it has no question.
  function questionOf(link) {
    const said = new URLSearchParams(link.replace(/^[#?]/, ""));
    const known = names.filter((name) => said.has(name));
    return known.length === 0 ? null : asked(Object.fromEntries(known.map((name) => [name, said.get(name)])));
  }

  // Questions that a link compares with: "model=7B&vs=model%3D13B".
  const comparedOf = (link) =>
    new URLSearchParams(link.replace(/^[#?]/, "")).getAll("vs").map(questionOf).filter(Boolean);

  return { OpenQuote, fields, asked, commandOf, comparedOf, lineOf, linkOf, questionOf, shellWords };
})();
if (typeof module !== "undefined") module.exports = zeroplanQuestion;

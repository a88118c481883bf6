// Joins the page: node page/join.mjs ROOT VEGA PLANNER OUTPUT
//   ROOT  the repository    VEGA  the folder of vega.js    PLANNER  that of zeroplan_browser.js and .wasm
// The WebAssembly module stands in the page as text, gzip within base64: a page that was opened as a file may not read
// another file.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const [root, vega, planner, output] = process.argv.slice(2);
const read = (...path) => readFileSync(join(...path), "utf8");
const report = (name) => read(root, "configs/report", name);
const own = (name) => read(root, "page", name);

// Within a <script> element nothing may end or change it (as script_json of cli/report/report_page.cpp).
const inScript = (text, name) => {
  if (/<\/script|<!--/i.test(text)) throw new Error(`${name} cannot stand in a <script> element`);
  return text;
};
const json = (value) => JSON.stringify(value).replaceAll("<", "\\u003c").replaceAll("\u2028", "\\u2028").replaceAll("\u2029", "\\u2029");

const chinese = JSON.parse(read(root, "configs/messages/zh.json")).messages.page;
const glue = read(planner, "zeroplan_browser.js");
const parts = {
  STYLE: report("page.css") + own("page.css"),
  ANSWER: report("answer.html"),
  CHINESE: json(chinese),
  SCRIPTS: [own("language.js"), read(vega, "vega.js"), report("words.js"), report("plots.js"), report("shell.js"), report("answer.js")].join("\n"),
  GLUE: inScript(glue, "zeroplan_browser.js"),
  WORKER: own("planner.js") + own("worker.js"),
  WASM: gzipSync(readFileSync(join(planner, "zeroplan_browser.wasm")), { level: 9 }).toString("base64"),
  PAGE: [own("question.js"), own("workers.js"), own("page.js")].join("\n"),
};
for (const name of ["SCRIPTS", "WORKER", "PAGE"]) inScript(parts[name], name);
writeFileSync(output, own("index.html").replace(/@([A-Z]+)@/g, (all, name) => parts[name] ?? all));

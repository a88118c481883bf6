// zeroplan's command line as a function: `await zeroplanPlanner(module)` runs the WebAssembly module (cli/browser) that
// was compiled to `module`; `run(words, files)` answers as the program does in a terminal.
//
// In a worker, in Node.js, and in a page that may have no worker. `zeroplanModule` is emscripten's loader.
"use strict";
const zeroplanPlanner = async (compiled) => {
  const messages = [];
  const made = await zeroplanModule({
    instantiateWasm(imports, done) {
      WebAssembly.instantiate(compiled, imports).then((instance) => done(instance, compiled));
      return {};
    },
    print: (line) => messages.push(line), // nothing but what the last words of a failure are
    printErr: (line) => messages.push(line),
  });
  const { FS } = made;

  // A text in the module's memory, which whoever asked for it frees.
  function placed(text) {
    const size = made.lengthBytesUTF8(text) + 1;
    const at = made._malloc(size);
    made.stringToUTF8(text, at, size);
    return at;
  }

  // `words` behind the program's name; `files` by name, in the folder where the command runs. Returns
  // {code, out, log}: exit code, standard output, standard error.
  function run(words, files = {}) {
    messages.length = 0;
    for (const [name, text] of Object.entries(files)) FS.writeFile(name, text);
    const places = ["zeroplan", ...words].map(placed);
    const list = made._malloc(4 * places.length);
    places.forEach((place, i) => made.setValue(list + 4 * i, place, "i32"));
    try {
      const code = made._zeroplan_run(places.length, list);
      return { code, out: made.UTF8ToString(made._zeroplan_output()),
               log: made.UTF8ToString(made._zeroplan_messages()) + messages.join("\n") };
    } finally {
      for (const place of [...places, list]) made._free(place);
      for (const name of Object.keys(files)) FS.unlink(name);
    }
  }

  return { run };
};
if (typeof module !== "undefined") module.exports = zeroplanPlanner;

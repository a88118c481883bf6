// Planners for the page: each in a worker of its own, so that the page answers while one computes and a question that
// nobody waits for any more can be given up. Where a browser makes no worker of a text, the page computes itself.
"use strict";
const zeroplanWorkers = (() => {
  const text = (id) => document.getElementById(id).textContent;

  async function compile() {
    const packed = atob(text("wasm").trim());
    const bytes = new Uint8Array(packed.length);
    for (let i = 0; i < packed.length; ++i) bytes[i] = packed.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return WebAssembly.compile(await new Response(stream).arrayBuffer());
  }

  let compiled; // once for all workers
  const moduleOf = () => (compiled ??= compile());

  let address; // of the worker's text
  const addressOf = () => (address ??= URL.createObjectURL(
    new Blob([text("glue"), "\n", text("worker")], { type: "text/javascript" })));

  // The planner in the page itself: the texts of the worker as scripts, without what answers messages.
  let here;
  async function plannerHere() {
    const module = await moduleOf();
    if (typeof zeroplanPlanner === "undefined") {
      for (const script of [text("glue"), text("worker")]) {
        const made = document.createElement("script");
        made.textContent = script;
        document.head.append(made);
      }
      onmessage = null;
    }
    return zeroplanPlanner(module);
  }

  class Planner {
    #worker = null;
    #ready = null;
    #waiting = new Map();
    #last = 0;

    get busy() { return this.#waiting.size > 0; }

    // What was asked is answered by nobody.
    stop() {
      this.#worker?.terminate();
      this.#worker = this.#ready = null;
      this.#waiting.clear();
    }

    // {code, out, log, seconds} of a command line.
    run(words, files) { return this.#ask({ words, files }); }

    async #ask(question) {
      const id = ++this.#last;
      const answer = new Promise((done, fail) => this.#waiting.set(id, { done, fail }));
      this.#ready ??= this.#start();
      const send = await this.#ready;
      if (this.#waiting.has(id)) send({ id, ...question });
      return answer;
    }

    #answered(data) {
      const waiting = this.#waiting.get(data.id);
      this.#waiting.delete(data.id);
      if (data.failed) waiting?.fail(new Error(data.failed));
      else waiting?.done(data);
    }

    async #start() {
      const module = await moduleOf();
      try {
        return await this.#startWorker(module);
      } catch {
        return (question) => setTimeout(() => this.#answerHere(question));
      }
    }

    #startWorker(module) {
      return new Promise((done, fail) => {
        const worker = new Worker(addressOf());
        this.#worker = worker;
        worker.onerror = worker.onmessageerror = (event) => fail(new Error(event.message || "no worker"));
        worker.onmessage = ({ data }) => {
          if (data.ready) done((question) => worker.postMessage(question));
          else if (data.id === undefined) fail(new Error(data.failed));
          else this.#answered(data);
        };
        worker.postMessage({ module });
      });
    }

    async #answerHere(question) {
      try {
        const planner = await (here ??= plannerHere());
        const began = performance.now();
        this.#answered({ id: question.id, ...planner.run(question.words, question.files),
                         seconds: (performance.now() - began) / 1000 });
      } catch (error) {
        this.#answered({ id: question.id, failed: String(error) });
      }
    }
  }

  return { Planner };
})();

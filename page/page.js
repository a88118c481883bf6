// The page: its form asks, the planner answers, tables and plots show it (shell.js, plots.js of the report).
// Text of an answer becomes text nodes and nothing else.
"use strict";
{
  const { say, gib, time, count, condition, element, number, show } = zeroplanPage;
  const { fields, commandOf, lineOf, linkOf, questionOf } = zeroplanQuestion;
  const chinese = zeroplanLanguage === "zh";
  const at = (id) => document.getElementById(id);
  const form = at("question");
  const quick = new zeroplanWorkers.Planner(); // the first answer, and what is pasted
  const full = new zeroplanWorkers.Planner(); // all strategies simulated
  const slow = new zeroplanWorkers.Planner(); // what takes longer still
  const inLanguage = ["--lang", zeroplanLanguage];
  let asked = 0; // counts the questions: an answer to an earlier one is not shown
  let shown = null; // {words, files, document} of the answer on the page

  // --- words of the page

  for (const one of document.querySelectorAll("[data-say]")) one.textContent = say(one.textContent);
  for (const one of document.querySelectorAll("[aria-label]")) one.setAttribute("aria-label", say(one.getAttribute("aria-label")));
  at("language").textContent = chinese ? "English" : "中文";
  at("language").lang = chinese ? "en" : "zh";
  at("language").addEventListener("click", () => {
    const other = chinese ? "en" : "zh";
    try {
      localStorage.setItem("zeroplan-language", other);
    } catch {
      // Then the link alone says it.
    }
    location.hash = linkOf(said()) + "&lang=" + other;
    location.reload();
  });

  // --- the form and the link

  const said = () => Object.fromEntries(Object.keys(fields).map((name) => [name, form.elements[name].value]));
  function fill(question) {
    for (const [name, value] of Object.entries(question)) form.elements[name].value = value;
    at("more").open ||= ["rank", "mbs", "precision", "optimizer", "attention", "ckpt", "host", "network", "flags", "config"]
      .some((name) => question[name] !== fields[name].value);
  }
  const address = () => location.href.replace(/#.*/, "") + "#" + linkOf(said());

  async function copied(text, status, pre) {
    try {
      await navigator.clipboard.writeText(text);
      status.textContent = say("copied");
    } catch {
      // Browsers that keep the clipboard from pages opened as files: select, so that Ctrl-C copies.
      getSelection().selectAllChildren(pre);
      status.textContent = pre.textContent === text && document.execCommand("copy") ? say("copied")
        : say("selected: press Ctrl-C");
    }
  }

  async function takeFile(input, text) {
    if (input.files.length === 0) return;
    text.value = await input.files[0].text();
    text.dispatchEvent(new Event("change", { bubbles: true }));
  }

  // --- the answer

  function problem(text) {
    at("problem").textContent = text;
    at("problem").hidden = text === "";
  }

  function clear() {
    for (const id of ["numbers", "remedies"]) at(id).replaceChildren();
    at("took").textContent = "";
    for (const id of ["strategies", "config-section", "search", "assumed"]) at(id).hidden = true;
    for (const section of document.querySelectorAll("section[data-plot]")) section.hidden = true;
  }

  function answer(doc) {
    const result = doc.chosen && doc.chosen.result;
    const where = say("{} on {}", doc.question.model, doc.question.cluster);
    document.title = where + " – zeroplan";
    at("answer").className = result ? "" : "no";
    at("answer").textContent = result
      ? say("{}: yes, {}, micro-batch {} x accumulation {}", where, doc.chosen.name,
            doc.chosen.workload.micro_batch_size, doc.chosen.workload.gradient_accumulation_steps) + condition(result)
      : say("{}: no, nothing fits", where);
    at("remedies").replaceChildren(...doc.remedies.map((one) => element("li", say("It would with: {}.", one.change))));
    at("numbers").replaceChildren();
    const parameters = doc.question.parameters;
    number(say("parameters"), parameters >= 1e9 ? (parameters / 1e9).toFixed(2) + " B" : count(parameters / 1e6) + " M",
           say("{} tokens, {}", count(doc.question.sequence_length), doc.question.precision));
    if (result) numbers(result, doc.chosen);
  }

  function numbers(result, chosen) {
    const step = result.step;
    number(say("GPU memory"), gib(result.gpu.peak_total_bytes),
           say("in all, of {}; peak in {}", gib(result.gpu.capacity_bytes), say(result.gpu.peak_phase)));
    number(say("host memory"), gib(result.host.peak_bytes), result.host_condition
      ? say("have {} a node; usual: {}", gib(result.host_condition.enough_bytes), gib(result.host.capacity_bytes))
      : say("of {} a node", gib(result.host.capacity_bytes)));
    number(say("tokens/s per GPU"), count(step.tokens_per_second_per_gpu),
           say("bound by {}", say(step.bound.replace(/_/g, " "))));
    number(say("step"), time(step.seconds), say("90 %: {} to {}", ...result.intervals.step_seconds.map(time)));
    number(say("probability that it fits"), result.fit_probability.toFixed(3),
           say("GPU memory, 90 %: {} to {}", ...result.intervals.peak_total_bytes.map(gib)));
    number(say("micro-batch"), count(chosen.workload.micro_batch_size),
           say("accumulation {}", chosen.workload.gradient_accumulation_steps));
  }

  function strategies(doc) {
    const section = at("strategies");
    section.querySelector(".about").textContent =
      say("Each ZeRO stage with each offload, with the fastest way to make the batch; GPU memory in all, at the peak.");
    const line = (cells, kind) => {
      const row = element("tr");
      row.append(...cells.map((cell) => element(kind, cell)));
      return row;
    };
    const head = line([say("strategy"), say("fits"), say("GPU GiB"), say("host GiB"), say("tokens/s per GPU"),
                       say("micro-batch")], "th");
    for (const cell of head.children) cell.scope = "col";
    section.querySelector("thead").replaceChildren(head);
    section.querySelector("tbody").replaceChildren(...doc.strategies.map((one) => {
      const row = line([one.name, one.host_to_have_bytes ? say("yes, if a node has {} of host memory", gib(one.host_to_have_bytes))
                          : say(one.fits ? "yes" : "no"), (one.gpu_bytes / 2 ** 30).toFixed(1),
                        (one.host_bytes / 2 ** 30).toFixed(1), count(one.tokens_per_second_per_gpu),
                        one.micro_batch_size + " x " + one.gradient_accumulation_steps], "td");
      if (!one.fits) row.className = "no";
      if (doc.chosen && one.name === doc.chosen.name) row.className = "chosen";
      return row;
    }));
    section.hidden = false;
  }

  function config(doc) {
    const section = at("config-section");
    section.hidden = !doc.chosen;
    if (!doc.chosen) return;
    section.querySelector("pre").textContent = JSON.stringify(doc.chosen.ds_config, null, 2);
    at("copied").textContent = "";
    at("trainer").textContent = doc.chosen.launch ? say("Start it with: {}", doc.chosen.launch) : "";
  }

  function assumptions(doc) {
    const lines = [...doc.warnings.map((text) => say("Warning: {}", text)),
                   ...doc.assumptions.map((text) => say("Assumed: {}", text))];
    at("assumed").querySelector("ul").replaceChildren(...lines.map((line) => element("li", line)));
    at("assumed").hidden = lines.length === 0;
  }

  const aboutOf = (doc) => ({
    tradeoff: () => say("Triangles are the ZeRO strategies as they come; the line is the front: nothing else that was simulated is as fast with as little memory."),
    stages: () => say("At the peak of a run, by category."),
    memory: () => doc.memory_timeline && say("The chosen configuration; of several micro-steps the last one, and the optimizer's step. Fragmentation is what PyTorch's allocator keeps and nothing uses."),
    streams: () => doc.stream_timeline && say("The same time, stream by stream. Tasks of one layer in a row are one bar."),
    "knobs-memory": () => doc.sensitivity.length > 0 && say("One key of the chosen configuration moved, the step simulated again. Red: it does not fit then."),
    "knobs-time": () => doc.sensitivity.length > 0 && say("The same moves, those that change the speed most."),
  });

  // A command of the question. Returns nothing when another question was asked meanwhile; throws what the program says
  // of a question that it does not understand.
  async function answerOf(mine, planner, words, files) {
    const got = await planner.run([...words, "--json", ...inLanguage], files);
    if (mine !== asked) return null;
    if (got.code !== 0 && got.code !== 3) throw Object.assign(new Error(got.log.trim()), { refused: got.code === 2 });
    return got;
  }

  async function fitted(mine, planner, flags) {
    const { words, files } = shown;
    const got = await answerOf(mine, planner, ["fit", ...words, ...flags], files);
    if (got === null) return false;
    const doc = zeroplanAnswer.documentOf(JSON.parse(got.out), { model: words[0], cluster: words[1] });
    shown.document = doc;
    answer(doc);
    strategies(doc);
    config(doc);
    assumptions(doc);
    show(aboutOf(doc), doc);
    return true;
  }

  async function plan() {
    const mine = ++asked;
    const began = performance.now();
    const passed = () => ((performance.now() - began) / 1000).toFixed(2);
    for (const planner of [full, slow, ...(quick.busy ? [quick] : [])]) planner.stop();
    searching(false);
    at("searched").textContent = "";
    at("search").querySelector("pre").hidden = true;
    at("result").setAttribute("aria-busy", "true");
    delete at("result").dataset.done;
    try {
      const { words, files } = commandOf(said());
      shown = { words, files, document: null };
      at("line").textContent = lineOf("fit", words);
      history.replaceState(null, "", "#" + linkOf(said()));
      if (!await fitted(mine, quick, ["--quick"])) return;
      problem("");
      at("search").hidden = false;
      at("result").setAttribute("aria-busy", "false");
      at("result").dataset.done = "quick";
      const first = passed();
      names().catch(() => {}); // a question that comes meanwhile asks for them again
      at("took").textContent = say("A first answer, in {} s: the strategies that offload least, by formulas; the best of them simulated. All are being simulated.", first);
      const detailed = details(mine, words, files).catch((error) => error);
      if (!await fitted(mine, full, [])) return;
      at("took").textContent = say("First answer in {} s; all strategies simulated in {} s.", first, passed());
      at("result").dataset.done = "full";
      const doc = await detailed;
      if (mine !== asked || doc === null) return;
      if (doc instanceof Error) at("took").textContent += " " + say("No plots of the step: {}", doc.message);
      else withDetails(doc);
    } catch (error) {
      if (mine !== asked) return;
      clear();
      at("answer").className = "no";
      const open = error instanceof zeroplanQuestion.OpenQuote;
      at("answer").textContent = error.refused || open ? say("No answer: the question is not understood.") : say("No answer.");
      problem(open ? say("Other flags: a quote is not closed.") : error.message);
      at("result").setAttribute("aria-busy", "false");
      at("result").dataset.done = "problem";
    }
  }

  // What is simulated beside the answer: the step's timeline, and each knob moved. Null where nothing fits.
  async function details(mine, words, files) {
    const got = await answerOf(mine, slow, ["report", ...words, "--no-search"], files);
    return got && got.code === 0 ? JSON.parse(got.out) : null;
  }

  function withDetails(doc) {
    const all = { ...shown.document, memory_timeline: doc.memory_timeline, stream_timeline: doc.stream_timeline,
                  sensitivity: doc.sensitivity, chosen: { ...shown.document.chosen, launch: doc.chosen.launch } };
    shown.document = all;
    config(all);
    show(aboutOf(all), all);
    at("result").dataset.done = "details";
  }

  // --- the search

  function searching(on) {
    at("search-start").disabled = on;
    at("search-stop").hidden = !on;
  }

  async function search() {
    const mine = asked;
    slow.stop();
    searching(true);
    at("searched").textContent = say("Searching; the page can be used meanwhile.");
    try {
      const got = await answerOf(mine, slow, ["report", ...shown.words], shown.files);
      const doc = got && got.code === 0 ? JSON.parse(got.out) : null;
      if (mine !== asked) return;
      searching(false);
      if (doc) found(doc);
      else at("searched").textContent = say("Nothing was found that fits.");
    } catch (error) {
      searching(false);
      at("searched").textContent = error.message;
    }
  }

  function found(doc) {
    const speed = doc.chosen.result.step.tokens_per_second_per_gpu;
    const before = shown.document.chosen && shown.document.chosen.result.step.tokens_per_second_per_gpu;
    at("searched").textContent = say("{}: {} tokens/s per GPU, {} of GPU memory; {} simulations.", doc.chosen.name, count(speed),
                                     gib(doc.chosen.result.gpu.peak_total_bytes), count(doc.search.evaluated))
      + (before ? " " + say("Against the answer above: {} %.", (100 * (speed / before - 1)).toFixed(1)) : "");
    const pre = at("search").querySelector("pre");
    pre.textContent = JSON.stringify(doc.chosen.ds_config, null, 2);
    pre.hidden = false;
    show(aboutOf(doc), doc);
  }

  // --- a file or a log

  async function check(command, file) {
    const text = at("text").value;
    at("findings").hidden = true;
    if (text.trim() === "") {
      at("checked").textContent = say("Nothing was pasted.");
      return;
    }
    at("checked").textContent = say("Checking…");
    try {
      const { words, files } = commandOf(said());
      const [model, cluster, ...rest] = words;
      const got = await quick.run([...command, "--model", model, "--cluster", cluster, ...rest, ...inLanguage],
                                  { ...files, [file]: text });
      at("findings").textContent = (got.out + got.log).trim();
      at("checked").textContent = command[0] === "lint" && got.code === 0 ? say("No errors.")
        : got.code === 2 ? say("It could not be read.") : say("Done.");
      at("findings").hidden = false;
    } catch (error) {
      at("checked").textContent = error.message;
    }
  }

  // Names to choose from; any other that the command line knows can be typed.
  async function names() {
    if (at("version").textContent !== "") return;
    const list = (id, values) => at(id).replaceChildren(...values.map((value) => {
      const option = element("option");
      option.value = value;
      return option;
    }));
    const models = JSON.parse((await quick.run(["models", "--json"], {})).out);
    const gpus = JSON.parse((await quick.run(["gpus", "--json"], {})).out);
    list("models", models.presets.map((one) => one.name));
    list("cards", gpus.gpus.map((one) => one.name));
    at("version").textContent = (await quick.run(["--version"], {})).out.trim();
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    plan();
  });
  form.addEventListener("change", (event) => {
    if (event.target.name) plan();
  });
  at("link").addEventListener("click", () => {
    history.replaceState(null, "", address());
    at("line").textContent = address();
    copied(address(), at("linked"), at("line"));
  });
  at("copy").addEventListener("click", () => {
    const pre = at("config-section").querySelector("pre");
    copied(pre.textContent, at("copied"), pre);
  });
  at("save").addEventListener("click", () => {
    const made = element("a");
    made.href = URL.createObjectURL(new Blob([at("config-section").querySelector("pre").textContent + "\n"],
                                             { type: "application/json" }));
    made.download = "ds_config.json";
    made.click();
    URL.revokeObjectURL(made.href);
  });
  at("config-file").addEventListener("change", () => takeFile(at("config-file"), at("config")));
  at("text-file").addEventListener("change", () => takeFile(at("text-file"), at("text")));
  at("search-start").addEventListener("click", search);
  at("search-stop").addEventListener("click", () => {
    slow.stop();
    searching(false);
    at("searched").textContent = say("Stopped.");
  });
  at("lint").addEventListener("click", () => check(["lint", "ds_config.json"], "ds_config.json"));
  at("explain-config").addEventListener("click", () => check(["explain", "ds_config.json"], "ds_config.json"));
  at("explain-log").addEventListener("click", () => check(["explain", "train.log"], "train.log"));
  addEventListener("hashchange", () => {
    const question = questionOf(location.hash);
    if (question && linkOf(question) !== linkOf(said())) {
      fill(question);
      plan();
    }
  });

  fill(questionOf(location.hash) ?? zeroplanQuestion.asked({}));
  plan();
}

// The page: its form asks, the planner answers, tables and plots show it (shell.js, plots.js of the report).
// Text of an answer becomes text nodes and nothing else.
"use strict";
{
  const { say, count, element } = zeroplanPage;
  const { copy } = zeroplanAnswer;
  const { fields, commandOf, comparedOf, lineOf, linkOf, questionOf } = zeroplanQuestion;
  const chinese = zeroplanLanguage === "zh";
  const at = (id) => document.getElementById(id);
  const form = at("question");
  const quick = new zeroplanWorkers.Planner(); // the first answer, sliders, and what is pasted
  const full = new zeroplanWorkers.Planner(); // all strategies simulated
  const slow = new zeroplanWorkers.Planner(); // what stands beside the answer, and searches
  const inLanguage = ["--lang", zeroplanLanguage];
  let asked = 0; // counts the questions: an answer to an earlier one is not shown
  let shown = null; // {words, files, document} of the answer on the page
  let kept = []; // {question, link, row} to compare with; the row of `compared` once it is known

  // --- words of the page

  at("language").textContent = chinese ? "English" : "中文";
  at("language").lang = chinese ? "en" : "zh";
  at("language").addEventListener("click", () => {
    const other = chinese ? "en" : "zh";
    try {
      localStorage.setItem("zeroplan-language", other);
    } catch {
      // Then the link alone says it.
    }
    location.hash = link() + "&lang=" + other;
    location.reload();
  });

  // --- the form and the link

  const said = () => Object.fromEntries(Object.keys(fields).map((name) => [name, form.elements[name].value]));
  function fill(question) {
    for (const [name, value] of Object.entries(question)) form.elements[name].value = value;
    at("more").open ||= ["rank", "mbs", "precision", "optimizer", "attention", "ckpt", "host", "network", "tokens", "price", "flags", "config"]
      .some((name) => question[name] !== fields[name].value);
  }
  const link = () => [linkOf(said()), ...kept.map((one) => "vs=" + encodeURIComponent(one.link))].join("&");
  const address = () => location.href.replace(/#.*/, "") + "#" + link();

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

  // The chosen configuration with another length and micro-batch, as a cell of a report's `sizes`: by formulas, in
  // milliseconds, or `exact`ly, which waits until the strategies are simulated.
  async function resized(tokens, sequences, exact) {
    const scenario = structuredClone(shown.document.chosen.scenario);
    Object.assign(scenario.workload, { sequence_length: tokens, micro_batch_size: sequences });
    for (const key of ["train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"]) delete scenario.ds_config[key];
    const got = await (exact ? full : quick).run(["simulate", ...(exact ? [] : ["--estimate"]), "--batch", "sizes.jsonl"],
                                                 { "sizes.jsonl": JSON.stringify(scenario) + "\n" });
    const { error, fits, gpu, step } = JSON.parse(got.out);
    return error ? null : { fits, gpu_bytes: gpu.peak_total_bytes, step_seconds: step.seconds,
                            tokens_per_second_per_gpu: step.tokens_per_second_per_gpu };
  }

  function present(doc) {
    const mine = linkOf(said());
    doc.asked = shown.words.join(" ");
    doc.compared = kept.filter((one) => one.row && one.link !== mine).map((one) => one.row);
    shown.document = doc;
    zeroplanAnswer.draw(doc, resized);
    document.title += " – zeroplan";
    at("shown").hidden = false;
    at("drop").hidden = kept.length === 0;
  }

  // A command of the question. Returns nothing when another question was asked meanwhile; throws what the program says
  // of a question that it does not understand.
  async function answerOf(mine, planner, words, files) {
    const got = await planner.run([...words, "--json", ...inLanguage], files);
    if (mine !== asked) return null;
    if (got.code !== 0 && got.code !== 3) throw Object.assign(new Error(got.log.trim()), { refused: got.code === 2 });
    return got;
  }

  // Of a question its report, without a search; null as answerOf().
  async function reportOf(mine, planner, { words, files }, flags) {
    const got = await answerOf(mine, planner, ["report", ...words, "--no-search", ...flags], files);
    return got && JSON.parse(got.out);
  }

  async function plan() {
    const mine = ++asked;
    const began = performance.now();
    const passed = () => ((performance.now() - began) / 1000).toFixed(2);
    for (const planner of [full, slow, ...(quick.busy ? [quick] : [])]) planner.stop();
    searching(false);
    at("searched").textContent = "";
    at("result").setAttribute("aria-busy", "true");
    delete at("result").dataset.done;
    try {
      shown = { ...commandOf(said()), document: null };
      at("line").textContent = lineOf("fit", shown.words);
      history.replaceState(null, "", "#" + link());
      const first = await reportOf(mine, quick, shown, ["--quick"]);
      if (!first) return;
      problem("");
      present(first);
      at("result").setAttribute("aria-busy", "false");
      at("result").dataset.done = "quick";
      const quickly = passed();
      at("about-question").textContent += " – " + say("a first answer, in {} s; all strategies are being simulated", quickly);
      names().catch(() => {}); // a question that comes meanwhile asks for them again
      const details = reportOf(mine, slow, shown, []).catch((error) => error);
      const all = await reportOf(mine, full, shown, ["--brief"]);
      if (!all) return;
      present(all);
      const took = say("first answer in {} s, all strategies simulated in {} s", quickly, passed());
      at("about-question").textContent += " – " + took;
      at("result").dataset.done = "full";
      await answerKept(mine);
      const doc = await details;
      if (mine !== asked || !doc) return;
      if (doc instanceof Error) throw doc;
      present(doc);
      at("about-question").textContent += " – " + took;
      at("result").dataset.done = "details";
    } catch (error) {
      if (mine !== asked) return;
      at("shown").hidden = true;
      at("title").textContent = say("The answer");
      at("about-question").textContent = "";
      at("answer").className = "no";
      const open = error instanceof zeroplanQuestion.OpenQuote;
      at("answer").textContent = error.refused || open ? say("No answer: the question is not understood.") : say("No answer.");
      problem(open ? say("Other flags: a quote is not closed.") : error.message);
      at("result").setAttribute("aria-busy", "false");
      at("result").dataset.done = "problem";
    }
  }

  // --- what the answer is compared with

  // Of those that came with a link, one after another; one that has no answer is not compared.
  async function answerKept(mine) {
    for (const one of kept.filter((other) => !other.row)) {
      const question = commandOf(one.question);
      const doc = await reportOf(mine, full, question, ["--brief"]).catch(() => null);
      if (mine !== asked) return;
      if (!doc) continue;
      one.row = zeroplanAnswer.rowOf(doc, question.words.join(" "));
      present(shown.document);
    }
  }

  function keep() {
    const question = said(), mine = linkOf(question);
    if (!shown.document || kept.some((one) => one.link === mine)) return;
    kept.push({ question, link: mine, row: zeroplanAnswer.rowOf(shown.document, shown.words.join(" ")) });
    history.replaceState(null, "", "#" + link());
    at("linked").textContent = say("kept: ask another question, and both are compared below");
    at("drop").hidden = false;
  }

  function drop() {
    kept = [];
    history.replaceState(null, "", "#" + link());
    at("linked").textContent = "";
    present(shown.document);
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
      if (mine !== asked) return;
      searching(false);
      if (got && got.code === 0) found(JSON.parse(got.out));
      else at("searched").textContent = say("Nothing was found that fits.");
    } catch (error) {
      searching(false);
      at("searched").textContent = error.message;
    }
  }

  function found(doc) {
    const before = shown.document.chosen && shown.document.chosen.result.step.tokens_per_second_per_gpu;
    present(doc);
    at("searched").textContent = say("All that stands above is of the search: {} simulations.", count(doc.search.evaluated))
      + (before ? " " + say("Against the answer before: {} %.", (100 * (doc.chosen.result.step.tokens_per_second_per_gpu / before - 1)).toFixed(1)) : "");
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
      const { words, files } = commandOf(said(), false);
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
    at("address").textContent = address();
    at("address").hidden = false;
    copy(address(), at("linked"), at("address"));
  });
  at("keep").addEventListener("click", keep);
  at("drop").addEventListener("click", drop);
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
    if (question && linkOf(question) !== linkOf(said())) take(location.hash);
  });

  function take(hash) {
    fill(questionOf(hash) ?? zeroplanQuestion.asked({}));
    kept = comparedOf(hash).map((question) => ({ question, link: linkOf(question), row: null }));
    plan();
  }
  take(location.hash);
}

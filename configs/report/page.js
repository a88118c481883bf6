// The page of a report: reads the document, draws with Vega, follows mouse, touch and keyboard. Text of
// the document becomes text nodes and nothing else.
"use strict";
{
  const doc = JSON.parse(document.getElementById("document").textContent);
  const GiB = 2 ** 30;
  const gib = (bytes) => (bytes / GiB).toFixed(1) + " GiB";
  const time = (seconds) => seconds >= 1 ? seconds.toFixed(2) + " s" : (seconds * 1e3).toFixed(1) + " ms";
  const count = (value) => Math.round(value).toLocaleString("en");
  const element = (name, text) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const chosen = doc.chosen;
  const result = chosen && chosen.result;

  // --- words

  function words() {
    const question = doc.question;
    document.getElementById("answer").textContent = chosen
      ? (doc.search.objective === "memory" ? "Least memory" : "Fastest")
        + (doc.search.optimal ? " that fits: " : " that was found in the time: ") + chosen.name
      : "Nothing that was searched fits." + doc.remedies.map((one) => " It would with: " + one.change + ".").join("");
    const numbers = document.getElementById("numbers");
    const number = (what, value, more) => {
      const box = element("div");
      const shown = element("dd", value);
      if (more) shown.append(element("small", more));
      box.append(element("dt", what), shown);
      numbers.append(box);
    };
    number("parameters", question.parameters >= 1e9 ? (question.parameters / 1e9).toFixed(2) + " B"
      : count(question.parameters / 1e6) + " M", count(question.sequence_length) + " tokens, " + question.precision);
    if (result) {
      number("tokens/s per GPU", count(result.step.tokens_per_second_per_gpu), "bound by " + result.step.bound.replace(/_/g, " "));
      number("step", time(result.step.seconds), "90 %: " + result.intervals.step_seconds.map(time).join(" to "));
      number("GPU memory", gib(result.gpu.peak_total_bytes), "of " + gib(result.gpu.capacity_bytes)
             + ", peak in " + result.gpu.peak_phase);
      number("host memory", gib(result.host.peak_bytes), "of " + gib(result.host.capacity_bytes) + " a node");
      number("probability that it fits", result.fit_probability.toFixed(3));
    }
    number("simulations", count(doc.search.evaluated), "in a space of " + count(doc.search.points)
           + " configurations" + (doc.search.complete ? "" : "; cut by the time limit"));
  }

  const about = {
    tradeoff: () => "Every point is a configuration that was simulated; triangles are the ZeRO strategies as they come, at "
      + "micro-batch " + doc.strategies[0].micro_batch_size + ". The line is the front: nothing else that was found is as "
      + "fast with as little memory. "
      + (doc.search.complete
        ? "The searches under falling limits of memory were complete, each to within " + 100 * doc.search.gap + " %."
        : "The time limit cut the searches, so more may be possible: zeroplan report --time-limit 60 looks longer."),
    memory: () => "The chosen configuration, " + (steps() > 1 ? "the last of " + steps() + " micro-steps and the optimizer's step" : "one step")
      + ". Fragmentation is what PyTorch's allocator keeps and nothing uses. Highest moment of the step: "
      + gib(doc.memory_timeline.peak_bytes) + ".",
    streams: () => "The same time, stream by stream. Tasks of one layer in a row are one bar; zeroplan simulate --trace "
      + "writes each of them for Perfetto.",
    stages: () => "At the peak, micro-batch " + doc.strategies[0].micro_batch_size + ", "
      + (checkpointing() === "none" ? "without" : "with " + checkpointing()) + " activation checkpointing.",
    "knobs-memory": () => "One key of the chosen configuration moved, the step simulated again. Red: it does not fit then.",
    "knobs-time": () => "The same moves, those that change the speed most.",
  };
  const checkpointing = () =>
    (chosen ? chosen.workload : doc.strategies[0]).activation_checkpointing;
  const steps = () => chosen.workload.gradient_accumulation_steps;

  const has = {
    tradeoff: () => true,
    memory: () => doc.memory_timeline,
    streams: () => doc.stream_timeline,
    stages: () => true,
    "knobs-memory": () => doc.sensitivity.length > 0,
    "knobs-time": () => doc.sensitivity.length > 0,
  };

  // --- what is pointed at

  const tip = document.getElementById("tip");
  function showTip(rows, x, y) {
    tip.replaceChildren(...rows.map(([what, value]) => {
      const line = element("div");
      if (what) line.append(element("span", what));
      line.append(element("span", value));
      return line;
    }));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = x + 14 + box.width > innerWidth ? x - 14 - box.width : x + 14;
    tip.style.left = Math.max(4, left) + "px";
    tip.style.top = Math.max(4, Math.min(y + 14, innerHeight - box.height - 4)) + "px";
  }
  const hideTip = () => { tip.hidden = true; };
  const sentence = (rows) => rows.map(([what, value]) => (what ? what + " " : "") + value).join("; ");

  // --- plots

  let theme = "light";
  const drawn = [];

  class Plot {
    constructor(section) {
      this.name = section.dataset.plot;
      this.box = element("div");
      this.box.className = "plot";
      this.box.tabIndex = 0;
      this.box.setAttribute("role", "group");
      this.box.setAttribute("aria-label", section.querySelector("h2").textContent
        + ": a plot. Arrow keys go through what it shows.");
      this.shown = element("p", "");
      this.shown.className = "shown";
      this.shown.setAttribute("aria-live", "polite");
      this.hint = "Point at it, tap it, or use the arrow keys.";
      this.shown.textContent = this.hint;
      section.append(this.box, this.shown);
      this.place = -1;
      this.width = 0;
      this.box.addEventListener("keydown", (event) => this.key(event));
      this.box.addEventListener("blur", () => { hideTip(); this.point(-1); });
      new ResizeObserver(() => { if (this.box.clientWidth !== this.width) this.draw(); }).observe(this.box);
    }

    draw() {
      this.width = this.box.clientWidth;
      if (this.width < 50) return;
      const colors = zeroplanPlots.themes[theme];
      const spec = zeroplanPlots.plots[this.name](doc, colors, this.width);
      this.rows = spec.usermeta.rows;
      if (this.view) this.view.finalize();
      // The interpreter: the page's policy lets nobody make code of text.
      const runtime = vega.parse(spec, zeroplanPlots.configOf(colors), { ast: true });
      this.view = new vega.View(runtime, {
        renderer: "svg", container: this.box, expr: vega.expressionInterpreter, hover: false,
        tooltip: (handler, event, item, value) => this.hovered(event, item, value),
      });
      this.view.addEventListener("click", (event, item) => {
        if (item && item.datum && item.datum.tip) this.say(item.datum);
      });
      this.ready = this.view.runAsync().then(() => { this.box.dataset.drawn = this.name; });
    }

    hovered(event, item, value) {
      if (!value || !Array.isArray(value)) {
        hideTip();
        this.point(-1);
        return;
      }
      showTip(value, event.clientX, event.clientY);
      this.point(item.datum.index);
    }

    say(row) {
      this.shown.textContent = sentence(row.tip);
      this.point(row.index);
    }

    point(index) { this.view.signal("active", index).runAsync(); }

    key(event) {
      const last = this.rows.length - 1;
      const next = { ArrowRight: this.place + 1, ArrowDown: this.place + 1, ArrowLeft: this.place - 1,
                     ArrowUp: this.place - 1, Home: 0, End: last }[event.key];
      if (event.key === "Escape") {
        this.place = -1;
        this.shown.textContent = this.hint;
        this.point(-1);
      }
      if (next === undefined || last < 0) return;
      event.preventDefault();
      this.place = Math.max(0, Math.min(last, next));
      this.say(this.rows[this.place]);
    }
  }

  function useTheme(name) {
    theme = name;
    document.documentElement.dataset.theme = name;
    document.getElementById("theme").textContent = name === "dark" ? "Light colours" : "Dark colours";
    for (const plot of drawn) plot.draw();
  }

  // --- ds_config.json, assumptions

  function config() {
    const section = document.getElementById("config");
    if (!chosen) {
      section.remove();
      return;
    }
    const text = JSON.stringify(chosen.ds_config, null, 2);
    const pre = section.querySelector("pre");
    pre.textContent = text;
    const said = document.getElementById("copied");
    document.getElementById("copy").addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text);
        said.textContent = "copied";
      } catch {
        // Browsers that keep the clipboard from pages opened as files: select, so that Ctrl-C copies.
        getSelection().selectAllChildren(pre);
        said.textContent = document.execCommand("copy") ? "copied" : "selected: press Ctrl-C";
      }
    });
  }

  function assumptions() {
    const section = document.getElementById("assumed");
    const body = section.querySelector("tbody");
    const row = (what, value) => {
      const line = element("tr");
      const head = element("th", what);
      head.scope = "row";
      line.append(head, element("td", value));
      body.append(line);
    };
    if (result) {
      row("allocated by PyTorch, 90 % interval", result.intervals.peak_allocated_bytes.map(gib).join(" to "));
      row("step, 90 % interval", result.intervals.step_seconds.map(time).join(" to "));
      row("probability that it fits", result.fit_probability.toFixed(3));
    } else {
      section.querySelector("table").remove();
    }
    const list = section.querySelector("ul");
    for (const text of doc.assumptions) list.append(element("li", "Assumed: " + text));
    for (const text of doc.warnings) list.append(element("li", "Warning: " + text));
    if (!list.children.length) list.append(element("li", "Nothing was assumed."));
  }

  words();
  for (const section of document.querySelectorAll("section[data-plot]")) {
    if (!has[section.dataset.plot]()) {
      section.remove();
      continue;
    }
    section.querySelector(".about").textContent = about[section.dataset.plot]();
    drawn.push(new Plot(section));
  }
  config();
  assumptions();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", () => useTheme(dark.matches ? "dark" : "light"));
  document.getElementById("theme").addEventListener("click", () => useTheme(theme === "dark" ? "light" : "dark"));
  useTheme(dark.matches ? "dark" : "light");
}

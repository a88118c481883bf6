// The page of a report: what it says beside its plots (shell.js).
"use strict";
{
  const { say, doc, gib, time, count, condition, element, number, show } = zeroplanPage;
  const chosen = doc.chosen;
  const result = chosen && chosen.result;

  const hours = (value) => value >= 100 ? say("{} days", (value / 24).toFixed(1))
    : value < 1 ? say("{} minutes", (value * 60).toFixed(0)) : say("{} hours", value.toFixed(1));
  const money = (value) => value < 10 ? value.toFixed(2) : count(value);

  // --- words

  // What was chosen, as what it is.
  function choice() {
    if (!doc.search.searched) return say("Recommended: {}", chosen.name);
    const points = doc.trade_offs, best = points.find((point) => point.chosen);
    const within = 100 * doc.search.gap;
    if (doc.search.objective === "memory") {
      const least = Math.min(...points.map((point) => point.gpu_bytes));
      return best.gpu_bytes <= least ? say("Smallest of what was simulated: {}", chosen.name)
        : say("Simplest within {} % of the smallest ({}): {}", within, gib(least), chosen.name);
    }
    const most = Math.max(...points.map((point) => point.tokens_per_second_per_gpu));
    if (best.tokens_per_second_per_gpu * (1 + doc.search.gap) < most)
      return say("Simplest within {} % of the fastest with room on the GPU (at its limit the fastest makes {} tokens/s per GPU): {}",
                 within, count(most), chosen.name);
    return best.tokens_per_second_per_gpu >= most ? say("Fastest of what was simulated: {}", chosen.name)
      : say("Simplest within {} % of the fastest ({} tokens/s per GPU): {}", within, count(most), chosen.name);
  }

  function words() {
    const question = doc.question;
    document.title = document.getElementById("title").textContent = say("{} on {}", question.model, question.cluster);
    document.getElementById("answer").textContent = chosen
      ? choice() + condition(result)
      : say(doc.search.proven_empty ? "Nothing in the space fits." : "Nothing was found so far that fits.") + doc.remedies.map((one) => " " + say("It would with: {}.", one.change)).join("");
    number(say("parameters"), question.parameters >= 1e9 ? (question.parameters / 1e9).toFixed(2) + " B"
      : count(question.parameters / 1e6) + " M", say("{} tokens, {}", count(question.sequence_length), question.precision));
    if (result) {
      number(say("tokens/s per GPU"), count(result.step.tokens_per_second_per_gpu), say("bound by {}", say(result.step.bound.replace(/_/g, " "))));
      number(say("step"), time(result.step.seconds), say("90 %: {} to {}", ...result.intervals.step_seconds.map(time)));
      number(say("GPU memory"), gib(result.gpu.peak_total_bytes),
             say("in all, of {}; peak in {}", gib(result.gpu.capacity_bytes), say(result.gpu.peak_phase)));
      number(say("batch"), count(chosen.batch.sequences),
             say("sequences: {} x {} x {} ranks", chosen.batch.micro_batch_size, chosen.batch.gradient_accumulation_steps,
                 chosen.batch.ranks));
      const training = chosen.training;
      number(training.of, hours(training.hours),
             training.cost === null ? "" : money(training.cost) + " " + training.currency);
      number(say("host memory"), gib(result.host.peak_bytes), result.host_condition
        ? say("have {} a node; usual: {}", gib(result.host_condition.enough_bytes), gib(result.host.capacity_bytes))
        : say("of {} a node", gib(result.host.capacity_bytes)));
      number(say("probability that it fits"), result.fit_probability.toFixed(3));
    }
    number(say("simulations"), count(doc.search.evaluated),
           say(doc.search.interrupted ? "in a space of {} configurations; interrupted"
             : doc.search.complete ? "in a space of {} configurations"
                                   : "in a space of {} configurations; cut by --time-limit", count(doc.search.points)));
  }

  const about = {
    tradeoff: () => say("Every point is a configuration that was simulated; triangles are the ZeRO strategies as they come, each with its best micro-batch. The line is the front: nothing else that was found is as fast with as little memory.") + " "
      + (doc.search.interrupted
        ? say("The searches were interrupted, so more may be possible.")
        : !doc.search.complete
        ? say("--time-limit cut the searches, so more may be possible.")
        : doc.search.counted_out
        ? say("Each search under a falling limit of memory ended after a number of simulations without a better one.")
        : say("The searches under falling limits of memory were complete, each to within {} %.", 100 * doc.search.gap)),
    memory: () => doc.memory_timeline && (steps() > 1
      ? say("The chosen configuration, the last of {} micro-steps and the optimizer's step.", steps())
      : say("The chosen configuration, one step.")) + " "
      + say("Fragmentation is what PyTorch's allocator keeps and nothing uses. Highest moment shown: {}; the GPU memory above, {}, is the peak of the whole run, from loading on.",
            gib(doc.memory_timeline.peak_bytes), gib(result.gpu.peak_total_bytes))
      + (expandable() ? " " + say("With expandable_segments:True (--expandable-segments true) that peak is {}.",
                                  gib(result.gpu.peak_total_bytes + expandable().gpu_bytes)) : ""),
    streams: () => doc.stream_timeline && say(
      "The same time, stream by stream. Tasks of one layer in a row are one bar; zeroplan simulate --trace writes each of them for Perfetto."),
    stages: () => checkpointing() === "none"
      ? say("At the peak, each with its best micro-batch, without activation checkpointing.")
      : say("At the peak, each with its best micro-batch, with {} activation checkpointing.", say(checkpointing())),
    "knobs-memory": () => doc.sensitivity.length > 0 && say("One key of the chosen configuration moved, the step simulated again. Red: it does not fit then."),
    "knobs-time": () => doc.sensitivity.length > 0 && say("The same moves, those that change the speed most."),
  };
  const checkpointing = () =>
    (chosen ? chosen.workload : doc.strategies[0]).activation_checkpointing;
  const steps = () => chosen.workload.gradient_accumulation_steps;
  const expandable = () => doc.sensitivity.find((move) => move.change.startsWith("--expandable-segments "));

  // --- how to start it, the strategies as a table

  function launch() {
    const section = document.getElementById("launch");
    if (!chosen) {
      section.remove();
      return;
    }
    section.querySelector(".about").textContent =
      say("With the ds_config.json below and a script of your own; zeroplan tune -o plan writes both, and all that starts them.");
    section.querySelector("pre").textContent = chosen.launch;
  }

  function strategies() {
    const section = document.getElementById("strategies");
    section.querySelector(".about").textContent =
      say("Each with its best micro-batch and accumulation. GPU memory is that of the whole run in all, as above.");
    const line = (cells, kind) => {
      const row = element("tr");
      row.append(...cells.map((cell) => element(kind, cell)));
      return row;
    };
    section.querySelector("thead").append(line([say("strategy"), say("batch"), say("fits"), say("GPU GiB"), say("host GiB"),
                                                say("tokens/s per GPU")], "th"));
    for (const one of doc.strategies) {
      const row = line([one.name, one.micro_batch_size + " x " + one.gradient_accumulation_steps,
                        one.host_to_have_bytes ? say("yes, if a node has {} of host memory", gib(one.host_to_have_bytes))
                          : say(one.fits ? "yes" : "no"), (one.gpu_bytes / 2 ** 30).toFixed(1),
                        (one.host_bytes / 2 ** 30).toFixed(1), count(one.tokens_per_second_per_gpu)], "td");
      if (!one.fits) row.className = "no";
      section.querySelector("tbody").append(row);
    }
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
        said.textContent = say("copied");
      } catch {
        // Browsers that keep the clipboard from pages opened as files: select, so that Ctrl-C copies.
        getSelection().selectAllChildren(pre);
        said.textContent = document.execCommand("copy") ? say("copied") : say("selected: press Ctrl-C");
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
      row(say("GPU memory, 90 % interval"), say("{} to {}", ...result.intervals.peak_total_bytes.map(gib)));
      row(say("of it allocated by PyTorch"), gib(result.gpu.peak_allocated_bytes));
      row(say("step, 90 % interval"), say("{} to {}", ...result.intervals.step_seconds.map(time)));
      row(say("probability that it fits"), result.fit_probability.toFixed(3));
    } else {
      section.querySelector("table").remove();
    }
    const list = section.querySelector("ul");
    for (const text of doc.assumptions) list.append(element("li", say("Assumed: {}", text)));
    for (const text of doc.warnings) list.append(element("li", say("Warning: {}", text)));
    if (!list.children.length) list.append(element("li", say("Nothing was assumed.")));
  }

  words();
  launch();
  strategies();
  config();
  assumptions();
  show(about);
}

// The page of a report: what it says beside its plots (shell.js).
"use strict";
{
  const { doc, gib, time, count, element, number, show } = zeroplanPage;
  const chosen = doc.chosen;
  const result = chosen && chosen.result;

  // --- words

  function words() {
    const question = doc.question;
    document.getElementById("answer").textContent = chosen
      ? (doc.search.objective === "memory" ? "Least memory" : "Fastest")
        + (doc.search.optimal ? " that fits: " : " that was found in the time: ") + chosen.name
      : "Nothing that was searched fits." + doc.remedies.map((one) => " It would with: " + one.change + ".").join("");
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
    memory: () => doc.memory_timeline && "The chosen configuration, " + (steps() > 1 ? "the last of " + steps() + " micro-steps and the optimizer's step" : "one step")
      + ". Fragmentation is what PyTorch's allocator keeps and nothing uses. Highest moment of the step: "
      + gib(doc.memory_timeline.peak_bytes) + ".",
    streams: () => doc.stream_timeline && "The same time, stream by stream. Tasks of one layer in a row are one bar; zeroplan simulate --trace "
      + "writes each of them for Perfetto.",
    stages: () => "At the peak, micro-batch " + doc.strategies[0].micro_batch_size + ", "
      + (checkpointing() === "none" ? "without" : "with " + checkpointing()) + " activation checkpointing.",
    "knobs-memory": () => doc.sensitivity.length > 0 && "One key of the chosen configuration moved, the step simulated again. Red: it does not fit then.",
    "knobs-time": () => doc.sensitivity.length > 0 && "The same moves, those that change the speed most.",
  };
  const checkpointing = () =>
    (chosen ? chosen.workload : doc.strategies[0]).activation_checkpointing;
  const steps = () => chosen.workload.gradient_accumulation_steps;

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
  config();
  assumptions();
  show(about);
}

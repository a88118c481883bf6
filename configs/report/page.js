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
    document.getElementById("question").textContent = say("{} parameters, {} tokens, {}",
      question.parameters >= 1e9 ? (question.parameters / 1e9).toFixed(2) + " B" : count(question.parameters / 1e6) + " M",
      count(question.sequence_length), question.precision);
    document.getElementById("answer").textContent = chosen
      ? say("Yes: {}", chosen.name) + condition(result)
      : say(doc.search.proven_empty ? "Nothing in the space fits." : "Nothing was found so far that fits.") + doc.remedies.map((one) => " " + say("It would with: {}.", one.change)).join("");
  }

  // --- the answer at a glance: what is taken of each kind of memory, speed, cost

  // A bar of `parts`, [name, bytes, colour], of what there is.
  function bar(what, text, parts, all) {
    const box = element("div");
    const head = element("p", what);
    head.append(element("strong", text));
    const filled = element("div");
    filled.className = "bar";
    filled.setAttribute("role", "img");
    filled.setAttribute("aria-label", what + ": " + text);
    const most = Math.max(all, parts.reduce((sum, [, bytes]) => sum + bytes, 0));
    for (const [name, bytes, color] of parts) {
      const part = element("span");
      part.style.width = 100 * bytes / most + "%";
      part.style.background = color;
      part.title = name + " " + gib(bytes);
      filled.append(part);
    }
    box.append(head, filled);
    document.getElementById("takes").append(box);
    return box;
  }

  // What each colour of a bar is.
  function legend(box, parts) {
    const list = element("ul");
    for (const [name, bytes, color] of parts) {
      const item = element("li");
      const mark = element("span");
      mark.style.background = color;
      item.append(mark, name + " " + gib(bytes));
      list.append(item);
    }
    box.append(list);
  }

  const of = (bytes, all) => say("{} of {}", (bytes / 2 ** 30).toFixed(1), gib(all));

  function glance() {
    const section = document.getElementById("glance");
    if (!result) {
      section.remove();
      return;
    }
    const gpu = result.gpu, { stackOrder, categoryColors, plain } = zeroplanPlots.parts;
    const parts = stackOrder.filter((category) => gpu.breakdown_at_peak[category] > 0).map((category) =>
      [plain(category), gpu.breakdown_at_peak[category], categoryColors[category] || "var(--unused)"]);
    const box = bar(say("GPU memory"), of(gpu.peak_total_bytes, gpu.capacity_bytes), parts, gpu.capacity_bytes);
    legend(box, [...parts.filter(([, bytes]) => bytes >= 0.05 * 2 ** 30), [say("free"), Math.max(0, gpu.capacity_bytes - gpu.peak_total_bytes), "var(--page)"]]);
    bar(say("host memory of a node"), chosen.host_memory_stated ? of(result.host.peak_bytes, result.host.capacity_bytes)
      : say("{}; usual: {}", gib(result.host.peak_bytes), gib(result.host.capacity_bytes)),
        [[say("host memory"), result.host.peak_bytes, "var(--accent)"]], result.host.capacity_bytes);
    if (result.nvme.bytes > 0) bar(say("drive of a node"), of(result.nvme.bytes, chosen.nvme_capacity_bytes),
                                   [["NVMe", result.nvme.bytes, "var(--accent)"]], chosen.nvme_capacity_bytes);
    const lost = gpu.breakdown_at_peak.fragmentation || 0, expanded = doc.with_expandable_segments;
    section.querySelector(".about").textContent =
      say("It fits with a probability of {}: the peak of a GPU, in {}, is between {} and {} (90 %), of which PyTorch has {} allocated.",
          result.fit_probability.toFixed(3), say(gpu.peak_phase), ...result.intervals.peak_total_bytes.map(gib),
          gib(gpu.peak_allocated_bytes))
      + (lost < 0.05 * 2 ** 30 ? "" : " " + say("Fragmentation is what PyTorch's allocator keeps and nothing uses.")
        + (!expanded ? "" : " " + say("With expandable_segments:True (--expandable-segments true) the peak is {}.", gib(expanded.gpu_bytes))));
    const speed = result.step.tokens_per_second_per_gpu, seconds = result.step.seconds;
    const [low, high] = result.intervals.step_seconds;
    number(say("tokens/s per GPU"), count(speed), say("90 %: {} to {}", count(speed * seconds / high), count(speed * seconds / low)));
    number(say("step"), time(seconds), say("bound by {}", say(result.step.bound.replace(/_/g, " "))));
    number(say("batch"), count(chosen.batch.sequences),
           say("sequences: {} x {} x {} ranks", chosen.batch.micro_batch_size, chosen.batch.gradient_accumulation_steps,
               chosen.batch.ranks));
    const training = chosen.training;
    number(training.of, hours(training.hours), training.cost === null ? "" : money(training.cost) + " " + training.currency);
  }

  // Two sliders over what was simulated beforehand.
  function sizes() {
    const section = document.getElementById("sizes"), grid = doc.sizes;
    if (!grid || grid.sequence_lengths.length * grid.micro_batch_sizes.length < 2) {
      section.remove();
      return;
    }
    const length = document.getElementById("length"), batch = document.getElementById("batch");
    const filled = section.querySelector(".bar"), shown = section.querySelector(".shown"), all = result.gpu.capacity_bytes;
    section.querySelector(".about").textContent =
      say("The chosen configuration with another sequence length and micro-batch, each simulated; the accumulation stays.");
    const place = (input, values, now) => {
      input.max = values.length - 1;
      input.value = Math.max(0, values.indexOf(now));
      input.addEventListener("input", draw);
    };
    function draw() {
      const tokens = grid.sequence_lengths[+length.value], sequences = grid.micro_batch_sizes[+batch.value];
      const cell = grid.cells[+length.value * grid.micro_batch_sizes.length + +batch.value];
      const texts = [say("sequence length: {} tokens", count(tokens)), say("micro-batch: {}", count(sequences))];
      [length, batch].forEach((input, i) => {
        input.labels[0].textContent = texts[i];
        input.setAttribute("aria-valuetext", texts[i]);
      });
      filled.classList.toggle("no", !cell || !cell.fits);
      filled.firstElementChild.style.width = cell ? Math.min(100, 100 * cell.gpu_bytes / all) + "%" : "0";
      shown.textContent = !cell ? say("not simulated")
        : cell.fits ? say("fits: {}, {} tokens/s per GPU, {} a step", of(cell.gpu_bytes, all), count(cell.tokens_per_second_per_gpu), time(cell.step_seconds))
        : say("does not fit: {}", of(cell.gpu_bytes, all));
      filled.setAttribute("aria-label", shown.textContent);
    }
    place(length, grid.sequence_lengths, doc.question.sequence_length);
    place(batch, grid.micro_batch_sizes, chosen.batch.micro_batch_size);
    draw();
  }

  function why() {
    const section = document.getElementById("why");
    const [others, trust] = section.querySelectorAll("ul");
    others.append(...doc.why.map((one) => element("li", one.text)));
    if (doc.trust) trust.append(...doc.trust.text.map((line) => element("li", line)));
    section.hidden = doc.why.length === 0;
  }

  const every = () => say("Every point is a configuration that was simulated; triangles are the ZeRO strategies as they come, each with its best micro-batch. The line is the front: nothing else that was found is as fast with as little memory.");
  const about = {
    tradeoff: () => !doc.search.searched
      ? say("Triangles are the ZeRO strategies as they come; the line is the front: nothing else that was simulated is as fast with as little memory.")
      : (chosen ? say("{}. {}", choice(), every()) : every()) + " "
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
      + say("Highest moment shown: {}; the GPU memory above, {}, is the peak of the whole run, from loading on.",
            gib(doc.memory_timeline.peak_bytes), gib(result.gpu.peak_total_bytes)),
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

  const line = (cells, kind) => {
    const row = element("tr");
    row.append(...cells.map((cell) => element(kind, cell)));
    return row;
  };

  // The question with other flags, and the chosen one first.
  function compared() {
    const section = document.getElementById("compared");
    if (doc.compared.length === 0) {
      section.remove();
      return;
    }
    const training = chosen && chosen.training;
    section.querySelector(".about").textContent = say("The same question with other flags, as zeroplan fit answers it; speed is that of all GPUs together.");
    section.querySelector("thead").append(line(["", say("strategy"), say("fits"), say("GPU GiB"), say("GPUs"), say("tokens/s"),
      say("time for {}", training ? training.of : doc.compared.map((one) => one.of).find(Boolean) || ""), say("cost")], "th"));
    const rows = section.querySelector("tbody");
    const add = (flags, one) => {
      const row = line([flags, one.name, say(one.fits ? "yes" : "no"), of(one.gpu_bytes, one.capacity_bytes), one.gpus,
                        count(one.tokens_per_second), hours(one.hours), one.cost === null ? "–" : money(one.cost)], "td");
      if (!one.fits) row.className = "no";
      rows.append(row);
    };
    if (chosen) add(say("chosen"), { name: chosen.name, fits: true, gpu_bytes: result.gpu.peak_total_bytes, capacity_bytes: result.gpu.capacity_bytes,
                                     gpus: doc.question.gpus, tokens_per_second: result.step.tokens_per_second_per_gpu * doc.question.gpus,
                                     hours: training.hours, cost: training.cost });
    for (const one of doc.compared) {
      if (one.refusal === undefined) add(one.flags, one);
      else {
        const row = line([one.flags, one.refusal], "td");
        row.lastElementChild.colSpan = 7;
        rows.append(row);
      }
    }
  }

  function strategies() {
    const section = document.getElementById("strategies");
    section.querySelector(".about").textContent =
      say("Each with its best micro-batch and accumulation. GPU memory is that of the whole run in all, as above.");
    const { lacksDrive } = zeroplanPlots.parts;
    section.querySelector("thead").append(line([say("strategy"), say("batch"), say("fits"), say("GPU GiB"), say("host GiB"),
                                                say("tokens/s per GPU")], "th"));
    for (const one of doc.strategies) {
      const row = line([one.name, one.micro_batch_size + " x " + one.gradient_accumulation_steps,
                        one.host_to_have_bytes ? say("yes, if a node has {} of host memory", gib(one.host_to_have_bytes))
                          : say(one.fits ? "yes" : lacksDrive(one) ? "no drive" : "no"), (one.gpu_bytes / 2 ** 30).toFixed(1),
                        (one.host_bytes / 2 ** 30).toFixed(1),
                        lacksDrive(one) ? "–" : count(one.tokens_per_second_per_gpu)], "td");
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
    const [list, wrong] = section.querySelectorAll("ul");
    for (const text of doc.assumptions) list.append(element("li", say("Assumed: {}", text)));
    for (const text of doc.warnings) list.append(element("li", say("Warning: {}", text)));
    if (!list.children.length) list.append(element("li", say("Nothing was assumed.")));
    const speed = result && result.step.tokens_per_second_per_gpu;
    for (const one of doc.if_wrong) {
      const change = 100 * (one.tokens_per_second_per_gpu / speed - 1);
      wrong.append(element("li", one.fits && Math.abs(change) < 0.05 ? say("If {}: it fits, {}", one.if, gib(one.gpu_bytes)) : one.fits
        ? say("If {}: it fits, {}, speed {} %", one.if, gib(one.gpu_bytes), (change < 0 ? "" : "+") + change.toFixed(1))
        : say("If {}: it does not fit, {}", one.if, gib(one.gpu_bytes))));
    }
    for (const other of chosen ? result.at_network || [] : []) {
      wrong.append(element("li", say("If the network between nodes has {} Gb/s: {} tokens/s per GPU", other.gigabits_per_second, count(other.tokens_per_second_per_gpu))));
    }
    if (!wrong.children.length) {
      wrong.previousElementSibling.remove();
      wrong.remove();
    }
  }

  words();
  glance();
  sizes();
  compared();
  why();
  launch();
  strategies();
  config();
  assumptions();
  show(about);
}

// What pages say of an answer beside its plots (shell.js), of a document of zeroplan.report/1. A report shows one; the
// planner's page shows one after another, and has its sliders answered by its planner.
"use strict";
const zeroplanAnswer = (() => {
  const { say, gib, time, count, condition, element, number, show } = zeroplanPage;
  const at = (id) => document.getElementById(id);
  let doc, chosen, result; // of the answer that is shown

  const hours = (value) => value >= 100 ? say("{} days", (value / 24).toFixed(1))
    : value < 1 ? say("{} minutes", (value * 60).toFixed(0)) : say("{} hours", value.toFixed(1));
  const money = (value) => value < 10 ? value.toFixed(2) : count(value);
  const of = (bytes, all) => say("{} of {}", (bytes / 2 ** 30).toFixed(1), gib(all));

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
    document.title = at("title").textContent = say("{} on {}", question.model, question.cluster);
    at("about-question").textContent = say("{} parameters, {} tokens, {}",
      question.parameters >= 1e9 ? (question.parameters / 1e9).toFixed(2) + " B" : count(question.parameters / 1e6) + " M",
      count(question.sequence_length), question.precision);
    at("answer").className = chosen ? "" : "no";
    at("answer").textContent = chosen
      ? say("Yes: {}", chosen.name) + condition(result)
      : doc.search.proven_empty ? say("No: nothing fits.") : say("Nothing was found so far that fits.");
  }

  // --- the answer at a glance: what is taken of each kind of memory, speed, cost

  // A bar of `parts`, [name, bytes, colour], of what there is; a mark where they are more.
  function filled(what, parts, all) {
    const bar = element("div");
    bar.className = "bar";
    bar.setAttribute("role", "img");
    bar.setAttribute("aria-label", what);
    const taken = parts.reduce((sum, [, bytes]) => sum + bytes, 0), most = Math.max(all, taken);
    for (const [name, bytes, color] of parts) {
      const part = element("span");
      part.style.width = 100 * bytes / most + "%";
      part.style.background = color;
      part.title = name + " " + gib(bytes);
      bar.append(part);
    }
    if (taken > all) {
      const limit = element("i");
      limit.style.left = 100 * all / most + "%";
      limit.title = say("capacity") + " " + gib(all);
      bar.append(limit);
    }
    return bar;
  }

  function bar(what, text, parts, all) {
    const box = element("div");
    const head = element("p", what);
    head.append(element("strong", text));
    box.append(head, filled(what + ": " + text, parts, all));
    at("takes").append(box);
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

  function gpuBar(what, bytes, capacity, categories) {
    const { stackOrder, categoryColors, plain } = zeroplanPlots.parts;
    const parts = stackOrder.filter((category) => categories[category] > 0).map((category) =>
      [plain(category), categories[category], categoryColors[category] || "var(--unused)"]);
    const free = capacity > bytes ? [[say("free"), capacity - bytes, "var(--page)"]] : [];
    legend(bar(what, of(bytes, capacity), parts, capacity), [...parts.filter(([, size]) => size >= 0.05 * 2 ** 30), ...free]);
  }

  function glance() {
    const { name, host_memory_stated, nvme_capacity_bytes, result: { gpu, host, nvme } } = chosen ?? doc.nearest;
    const about = at("glance").querySelector(".about");
    at("takes").replaceChildren();
    at("numbers").replaceChildren();
    at("remedies").replaceChildren(...doc.remedies.map((one) => element("li", say("It would with: {}.", one.change))));
    at("warnings").replaceChildren(...doc.warnings.map((text) => element("li", say("Warning: {}", text))));
    gpuBar(chosen ? say("GPU memory") : say("GPU memory of what comes nearest: {}", name), gpu.peak_total_bytes, gpu.capacity_bytes,
           gpu.breakdown_at_peak);
    bar(say("host memory of a node"), host_memory_stated ? of(host.peak_bytes, host.capacity_bytes)
      : say("{}; usual: {}", gib(host.peak_bytes), gib(host.capacity_bytes)),
        [[say("host memory"), host.peak_bytes, "var(--accent)"]], host.capacity_bytes);
    if (nvme.bytes > 0) bar(say("drive of a node"), of(nvme.bytes, nvme_capacity_bytes), [["NVMe", nvme.bytes, "var(--accent)"]], nvme_capacity_bytes);
    about.textContent = chosen ? certainty() : doc.nearest.result.limits.map(shortage).join(" ");
    if (chosen) numbers();
  }

  const resources = { gpu_memory: "GPU memory", host_memory: "host memory of a node", nvme: "drive of a node" };
  const shortage = (limit) => say("{}: it needs {} and a margin of {}, and has {}.", say(resources[limit.resource] ?? limit.resource),
                                  ...[limit.needed_bytes, limit.margin_bytes, limit.available_bytes].map(gib));

  function certainty() {
    const gpu = result.gpu, lost = gpu.breakdown_at_peak.fragmentation || 0, expanded = doc.with_expandable_segments;
    return say("It fits with a probability of {}: the peak of a GPU, in {}, is between {} and {} (90 %), of which PyTorch has {} allocated.",
               result.fit_probability.toFixed(3), say(gpu.peak_phase), ...result.intervals.peak_total_bytes.map(gib),
               gib(gpu.peak_allocated_bytes))
      + (lost < 0.05 * 2 ** 30 ? "" : " " + say("Fragmentation is what PyTorch's allocator keeps and nothing uses.")
        + (!expanded ? "" : " " + say("With expandable_segments:True (--expandable-segments true) the peak is {}.", gib(expanded.gpu_bytes))));
  }

  function numbers() {
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

  // --- two sliders

  // Between neighbours of the grid, in quarters of the lower one: 512, 640, 768, 896, 1024.
  const finer = (values) => [...new Set(values.flatMap((value, i) =>
    i + 1 === values.length ? [value] : [0, 1, 2, 3].map((quarters) => Math.round(value * (1 + quarters / 4)))
      .filter((between) => between < values[i + 1])))];

  // What is known of a length and a micro-batch: the chosen ones, and those of the grid.
  const cellOf = (tokens, sequences) => {
    if (tokens === doc.question.sequence_length && sequences === chosen.batch.micro_batch_size)
      return { fits: true, gpu_bytes: result.gpu.peak_total_bytes, step_seconds: result.step.seconds,
               tokens_per_second_per_gpu: result.step.tokens_per_second_per_gpu };
    const grid = doc.sizes, row = grid.sequence_lengths.indexOf(tokens), column = grid.micro_batch_sizes.indexOf(sequences);
    return row < 0 || column < 0 ? undefined : grid.cells[row * grid.micro_batch_sizes.length + column];
  };

  // Over what was simulated beforehand. What was not, `live` answers: a promise of a cell of `sizes`, an estimate or exact.
  function sizes(live) {
    const section = at("sizes"), grid = doc.sizes, inputs = [at("try-length"), at("try-batch")];
    section.hidden = !grid || (!live && grid.cells.length < 2);
    if (section.hidden) return;
    const axes = [grid.sequence_lengths, grid.micro_batch_sizes].map((values) => live ? finer(values) : values);
    const taken = section.querySelector(".bar"), shown = section.querySelector(".shown"), all = result.gpu.capacity_bytes;
    const of_this = doc;
    section.querySelector(".about").textContent =
      say("The chosen configuration with another sequence length and micro-batch, each simulated; the accumulation stays.");
    const picked = () => axes.map((values, i) => values[+inputs[i].value]);
    function paint(cell, exact) {
      taken.classList.toggle("no", !cell || !cell.fits);
      taken.firstElementChild.style.width = cell ? Math.min(100, 100 * cell.gpu_bytes / all) + "%" : "0";
      shown.textContent = !cell ? say("not simulated") : (exact ? "" : "≈ ")
        + (cell.fits ? say("fits: {}, {} tokens/s per GPU, {} a step", of(cell.gpu_bytes, all), count(cell.tokens_per_second_per_gpu), time(cell.step_seconds))
          : say("does not fit: {}", of(cell.gpu_bytes, all)));
      taken.setAttribute("aria-label", shown.textContent);
    }
    // One at a time of each kind, the last that was asked for: an estimate at once, what is simulated behind it.
    const asking = { false: false, true: false };
    async function ask(exact) {
      if (asking[exact]) return;
      asking[exact] = true;
      const asked = picked();
      const cell = await live(...asked, exact).catch(() => null);
      asking[exact] = false;
      if (doc !== of_this || cellOf(...picked()) !== undefined) return;
      if (String(asked) !== String(picked())) ask(exact);
      else if (exact || !settled) {
        settled = exact;
        paint(cell, exact);
      }
    }
    let settled = false; // what is shown is exact
    function draw() {
      const [tokens, sequences] = picked();
      const texts = [say("sequence length: {} tokens", count(tokens)), say("micro-batch: {}", count(sequences))];
      inputs.forEach((input, i) => {
        input.labels[0].textContent = texts[i];
        input.setAttribute("aria-valuetext", texts[i]);
      });
      const cell = cellOf(tokens, sequences);
      settled = cell !== undefined || !live;
      if (settled) paint(cell, true);
      else [false, true].forEach(ask);
    }
    // Who has moved a slider finds it where it was, if a fuller answer says the same.
    const key = JSON.stringify([axes, chosen.name]), moved = section.dataset.axes === key;
    section.dataset.axes = key;
    [doc.question.sequence_length, chosen.batch.micro_batch_size].forEach((now, i) => {
      inputs[i].max = axes[i].length - 1;
      if (!moved) inputs[i].value = Math.max(0, axes[i].indexOf(now));
      inputs[i].oninput = draw;
    });
    draw();
  }

  function why() {
    const section = at("why");
    const [others, trust] = section.querySelectorAll("ul");
    others.replaceChildren(...doc.why.map((one) => element("li", one.text)));
    trust.replaceChildren(...(doc.trust ? doc.trust.text : []).map((line) => element("li", line)));
    section.hidden = doc.why.length === 0;
  }

  const every = () => say("Every point is a configuration that was simulated; triangles are the ZeRO strategies as they come, each with its best micro-batch. The line is the front: nothing else that was found is as fast with as little memory.");
  const steps = () => chosen.workload.gradient_accumulation_steps;
  const checkpointing = () => (chosen ? chosen.workload : doc.strategies[0]).activation_checkpointing;
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

  // --- tables

  const line = (cells, kind) => {
    const row = element("tr");
    row.append(...cells.map((cell) => {
      const made = element(kind);
      made.append(cell);
      if (kind === "th") made.scope = "col";
      return made;
    }));
    return row;
  };

  // An answer as a row of `compared`, under what sets it apart.
  function rowOf({ question, chosen, nearest }, flags) {
    const { name, result: { gpu, step }, training } = chosen ?? nearest;
    return { flags, name, fits: chosen !== null, gpus: question.gpus, gpu_bytes: gpu.peak_total_bytes, capacity_bytes: gpu.capacity_bytes,
             tokens_per_second: step.tokens_per_second_per_gpu * question.gpus, of: training ? training.of : "",
             hours: training ? training.hours : null, cost: training ? training.cost : null };
  }

  // The answer, and the same question otherwise.
  function compared() {
    const section = at("compared");
    section.hidden = doc.compared.length === 0;
    if (section.hidden) return;
    const all = [rowOf(doc, doc.asked ?? say("chosen")), ...doc.compared];
    const size = all.map((one) => one.of).find(Boolean) || "";
    const takes = (one) => one.hours === null ? "–" : hours(one.hours) + (one.of === size ? "" : " (" + one.of + ")");
    section.querySelector(".about").textContent = say("Each as zeroplan fit answers it; speed is that of all GPUs together.");
    section.querySelector("thead").replaceChildren(line(["", say("strategy"), say("fits"), say("GPU GiB"), say("GPUs"), say("tokens/s"),
      say("time for {}", size), say("cost")], "th"));
    section.querySelector("tbody").replaceChildren(...all.map((one) => {
      if (one.refusal !== undefined) {
        const row = line([one.flags, one.refusal], "td");
        row.lastElementChild.colSpan = 7;
        return row;
      }
      const memory = of(one.gpu_bytes, one.capacity_bytes), gpu = element("div", memory);
      gpu.append(filled(memory, [[say("GPU memory"), one.gpu_bytes, one.fits ? "var(--accent)" : "var(--over)"]], one.capacity_bytes));
      const row = line([one.flags, one.name, say(one.fits ? "yes" : "no"), gpu, one.gpus, count(one.tokens_per_second),
                        takes(one), one.cost === null ? "–" : money(one.cost)], "td");
      if (!one.fits) row.className = "no";
      return row;
    }));
  }

  function strategies() {
    const section = at("strategies");
    section.querySelector(".about").textContent =
      say("Each with its best micro-batch and accumulation. GPU memory is that of the whole run in all, as above.");
    const { lacksDrive } = zeroplanPlots.parts;
    section.querySelector("thead").replaceChildren(line([say("strategy"), say("batch"), say("fits"), say("GPU GiB"), say("host GiB"),
                                                         say("tokens/s per GPU")], "th"));
    section.querySelector("tbody").replaceChildren(...doc.strategies.map((one) => {
      const row = line([one.name, one.micro_batch_size + " x " + one.gradient_accumulation_steps,
                        one.host_to_have_bytes ? say("yes, if a node has {} of host memory", gib(one.host_to_have_bytes))
                          : say(one.fits ? "yes" : lacksDrive(one) ? "no drive" : "no"), (one.gpu_bytes / 2 ** 30).toFixed(1),
                        (one.host_bytes / 2 ** 30).toFixed(1),
                        lacksDrive(one) ? "–" : count(one.tokens_per_second_per_gpu)], "td");
      row.className = one.chosen ? "chosen" : one.fits ? "" : "no";
      return row;
    }));
  }

  // --- how to start it

  function launch() {
    at("launch").hidden = at("ds-config").hidden = !chosen;
    if (!chosen) return;
    at("launch").querySelector(".about").textContent =
      say("With the ds_config.json below and a script of your own; zeroplan tune -o plan writes both, and all that starts them.");
    at("launch").querySelector("pre").textContent = chosen.launch;
    at("ds-config").querySelector("pre").textContent = JSON.stringify(chosen.ds_config, null, 2);
    at("copied").textContent = "";
  }

  async function copy(text, status, pre) {
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
  const config = at("ds-config").querySelector("pre");
  at("copy").addEventListener("click", () => copy(config.textContent, at("copied"), config));

  // --- what was assumed, and what changes where it is wrong

  function wrongly(one) {
    const change = 100 * (one.tokens_per_second_per_gpu / result.step.tokens_per_second_per_gpu - 1);
    return !one.fits ? say("If {}: it does not fit, {}", one.if, gib(one.gpu_bytes))
      : Math.abs(change) < 0.05 ? say("If {}: it fits, {}", one.if, gib(one.gpu_bytes))
      : say("If {}: it fits, {}, speed {} %", one.if, gib(one.gpu_bytes), (change < 0 ? "" : "+") + change.toFixed(1));
  }

  function assumptions() {
    const [wrong, list] = at("assumed").querySelectorAll("ul");
    const networks = (result && result.at_network || []).map((other) =>
      say("If the network between nodes has {} Gb/s: {} tokens/s per GPU", other.gigabits_per_second, count(other.tokens_per_second_per_gpu)));
    wrong.replaceChildren(...[...doc.if_wrong.map(wrongly), ...networks].map((text) => element("li", text)));
    wrong.previousElementSibling.hidden = wrong.hidden = !wrong.children.length;
    list.replaceChildren(...doc.assumptions.map((text) => element("li", text)));
    at("assumed").hidden = !list.children.length;
  }

  // Shows an answer. `live`: see sizes().
  function draw(next, live) {
    doc = next;
    chosen = doc.chosen;
    result = chosen && chosen.result;
    for (const part of [words, glance, why, compared, strategies, launch, assumptions]) part();
    if (chosen) sizes(live);
    else at("sizes").hidden = true;
    show(about, doc);
  }

  return { draw, rowOf, copy };
})();

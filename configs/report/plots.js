// The plots of a report as Vega specifications: zeroplanPlots[name](document, theme, width).
//
// Each data row that can be pointed at has an `index` and a `tip`, a list of [what, value]; the signal
// `active` is the index that is shown as chosen. Rows of `usermeta.rows` are in the order in which the
// arrow keys go through them. Runs in a browser and in Node.js.
"use strict";

const zeroplanPlots = (() => {
  const GiB = 2 ** 30;
  const say = zeroplanSay;

  // Categorical colours: Okabe and Ito 2008, "Color Universal Design", with a grey for what is lost.
  const categoryColors = {
    parameters: "#0072b2", gradients: "#d55e00", optimizer_states: "#009e73", activations: "#e69f00",
    logits: "#cc79a7", communication_buffers: "#56b4e9", temporaries: "#b8a900", cuda_context: "#8d8d8d",
  };
  // From the bottom of a stack to its top: what never changes first, what nothing uses last.
  const stackOrder = ["cuda_context", "parameters", "optimizer_states", "gradients", "communication_buffers",
                      "activations", "logits", "temporaries", "fragmentation"];
  const colorOf = (category, theme) => categoryColors[category] || theme.unused;
  const kindColors = {
    "kernel": "#0072b2", "collective": "#d55e00", "copy to device": "#009e73", "copy to host": "#56b4e9",
    "CPU optimizer": "#cc79a7", "host memory": "#b8a900", "NVMe": "#8d8d8d",
  };
  const themes = {
    light: { paper: "#ffffff", ink: "#1c2430", soft: "#5b6675", rule: "#e3e7ec", accent: "#c2410c", point: "#9aa7b8",
             front: "#0072b2", limit: "#b42318", unused: "#d3d9e0" },
    dark: { paper: "#151b23", ink: "#e6ebf1", soft: "#a3afbd", rule: "#2a333f", accent: "#ff9a5c", point: "#66758a",
            front: "#5cb3ee", limit: "#ff7b72", unused: "#465160" },
  };

  const plain = (name) => say(name.replace(/_/g, " ").replace(/^cuda/, "CUDA"));
  const gib = (bytes) => (bytes / GiB).toFixed(1) + " GiB";
  const signed = (value, digits) => (value > 0 ? "+" : value < 0 ? "−" : "") + Math.abs(value).toFixed(digits);
  const whole = (value) => Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, ",");
  const time = (seconds) => seconds >= 1 ? seconds.toFixed(2) + " s"
    : seconds >= 1e-3 ? (seconds * 1e3).toFixed(2) + " ms" : (seconds * 1e6).toFixed(0) + " µs";
  const cut = (text, length) => text.length > length ? text.slice(0, length - 1) + "…" : text;

  const configOf = (theme) => ({
    background: theme.paper,
    axis: { labelColor: theme.soft, titleColor: theme.ink, domainColor: theme.soft, tickColor: theme.soft,
            gridColor: theme.rule, labelFontSize: 12, titleFontSize: 12, titleFontWeight: 500, labelFont: font,
            titleFont: font, titlePadding: 8 },
    legend: { labelColor: theme.ink, titleColor: theme.ink, labelFontSize: 12, labelFont: font, titleFont: font },
    text: { font: font },
  });
  const font = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";

  const base = (width, height, description) => ({
    width, height, padding: 4, autosize: { type: "fit", contains: "padding" }, description,
    signals: [{ name: "active", value: -1 }],
  });

  // Vega describes axes and legends to screen readers in English: in other languages their texts stand alone.
  function described(spec) {
    if (say("en") === "en") return spec;
    for (const guide of [...(spec.axes || []), ...(spec.legends || [])]) guide.aria = false;
    return spec;
  }

  // Without a browser Vega cuts texts as if every character were 0.8 em wide.
  const atMost = (pixels) => typeof document === "undefined" ? Math.round(1.4 * pixels) : pixels;
  const besideRows = 270;  // pixels for the names of rows, where they stand beside their bars

  // Entries side by side, in as many columns as there is room for below the axis.
  const columnsIn = (width) => Math.max(1, Math.floor(width / 125));
  const legendHeight = (names, width) => 17 * Math.ceil(names.length / columnsIn(width)) + 10;
  const legendBelow = (theme, width, scale, names, channel) => ({
    orient: "bottom", direction: "horizontal", [channel]: scale, values: names, symbolType: "square",
    symbolStrokeWidth: 0, columns: columnsIn(width), columnPadding: 10, rowPadding: 3,
    offset: 6, labelLimit: atMost(190),
    encode: { labels: { update: { text: { signal:
      JSON.stringify(Object.fromEntries(names.map((name) => [name, plain(name)]))) + "[datum.label]" } } } },
  });

  // Its name stands above the plot, or above the line within it.
  const limitLine = (theme, scale, vertical, gibs, label) => [
    { type: "rule", interactive: false,
      encode: { enter: Object.assign(
        { stroke: { value: theme.limit }, strokeWidth: { value: 1.5 }, strokeDash: { value: [6, 4] } },
        vertical ? { x: { scale, value: gibs }, y: { value: 0 }, y2: { signal: "height" } }
                 : { y: { scale, value: gibs }, x: { value: 0 }, x2: { signal: "width" } }) } },
    { type: "text", interactive: false,
      encode: { enter: Object.assign(
        { text: { value: label }, fill: { value: theme.limit }, fontSize: { value: 12 } },
        vertical ? { x: { scale, value: gibs }, y: { value: -5 }, align: { value: "right" } }
                 : { y: { scale, value: gibs, offset: -5 }, x: { signal: "width" }, align: { value: "right" } }) } },
  ];

  const configurationRows = (configuration) => Object.entries(configuration)
    .filter(([, value]) => value !== "none" && value !== null)
    .map(([key, value]) => [key.startsWith("/") ? key.split("/").pop() : say("en") === "en" ? plain(key) : key, String(value)]);

  // A strategy whose drive is not there has no speed.
  const lacksDrive = (row) => !row.fits && !(row.tokens_per_second_per_gpu > 0);

  // --- throughput against GPU memory

  function tradeoff(doc, theme, width) {
    const capacity = doc.question.capacity_bytes / GiB;
    const searched = doc.trade_offs.map((point) => ({
      memory: point.gpu_bytes / GiB, speed: point.tokens_per_second_per_gpu,
      kind: point.chosen ? "chosen" : point.front ? "front" : "simulated",
      on_front: point.front,
      tip: [["tokens/s per GPU", whole(point.tokens_per_second_per_gpu)], ["GPU memory", gib(point.gpu_bytes)],
            ["host memory", gib(point.host_bytes)], ["step", time(point.step_seconds)],
            ...configurationRows(point.configuration)],
    }));
    const strategies = doc.strategies.filter((row) => !lacksDrive(row)).map((row) => ({
      memory: row.gpu_bytes / GiB, speed: row.tokens_per_second_per_gpu,
      kind: row.fits ? "plain strategy" : "does not fit", on_front: row.front,
      tip: [["", row.name], ["tokens/s per GPU", whole(row.tokens_per_second_per_gpu)],
            ["GPU memory", gib(row.gpu_bytes)], ["host memory", gib(row.host_bytes)],
            ["micro-batch", String(row.micro_batch_size)],
            ["fits", row.fits ? say("yes") : say("no, probability {}", row.fit_probability.toFixed(2))]],
    }));
    // Far beyond the GPU, and faster than anything that fits, there is nothing to choose.
    const fastest = Math.max(0, ...searched.map((row) => row.speed),
                             ...strategies.filter((row) => row.kind !== "does not fit").map((row) => row.speed));
    const rows = strategies.filter((row) => row.memory < 1.5 * capacity
      && (row.kind !== "does not fit" || fastest === 0 || row.speed < 1.3 * fastest)).concat(searched);
    const rank = { "does not fit": 0, "plain strategy": 1, "simulated": 2, "front": 3, "chosen": 4 };
    rows.sort((a, b) => rank[a.kind] - rank[b.kind] || a.memory - b.memory);
    rows.forEach((row, index) => { row.index = index; });
    const kinds = ["chosen", "front", "simulated", "plain strategy", "does not fit"]
      .filter((kind) => rows.some((row) => row.kind === kind));
    const colors = { "chosen": theme.accent, "front": theme.front, "simulated": theme.point,
                     "plain strategy": theme.ink, "does not fit": theme.limit };
    const shapes = { "chosen": "diamond", "front": "circle", "simulated": "circle", "plain strategy": "triangle-up",
                     "does not fit": "cross" };
    const sizes = { "chosen": 220, "front": 70, "simulated": 26, "plain strategy": 60, "does not fit": 60 };
    const least = Math.min(capacity, ...rows.map((row) => row.memory));
    const most = Math.max(capacity, ...rows.map((row) => row.memory));
    const spec = base(width, Math.round(Math.min(420, Math.max(300, width * 0.55))),
                      say("Throughput against GPU memory of each configuration"));
    spec.padding = { left: 4, right: 4, top: 20, bottom: 4 };
    spec.data = [
      { name: "rows", values: rows },
      { name: "front", source: "rows", transform: [
        { type: "filter", expr: "datum.on_front" }, { type: "collect", sort: { field: "memory" } }] },
    ];
    spec.scales = [
      { name: "x", type: "linear", domain: [least > most / 2 ? least * 0.9 : 0, most * 1.03], range: "width",
        nice: false },
      { name: "y", type: "linear", domain: [0, 1.06 * Math.max(...rows.map((row) => row.speed))], range: "height" },
      { name: "color", type: "ordinal", domain: kinds, range: kinds.map((kind) => colors[kind]) },
      { name: "shape", type: "ordinal", domain: kinds, range: kinds.map((kind) => shapes[kind]) },
      { name: "size", type: "ordinal", domain: kinds, range: kinds.map((kind) => sizes[kind]) },
    ];
    spec.axes = [
      { orient: "bottom", scale: "x", title: say("GPU memory at the peak, GiB"), grid: true, tickCount: 8 },
      { orient: "left", scale: "y", title: say("tokens/s per GPU"), grid: true, tickCount: 6 },
    ];
    spec.legends = [Object.assign(legendBelow(theme, width - 70, "color", kinds, "fill"), { shape: "shape", symbolType: undefined })];
    spec.marks = [
      ...limitLine(theme, "x", true, capacity, say("capacity {} GiB", capacity.toFixed(1))),
      { type: "line", from: { data: "front" }, interactive: false,
        encode: { enter: { x: { scale: "x", field: "memory" }, y: { scale: "y", field: "speed" },
                           interpolate: { value: "step-after" }, stroke: { value: theme.front },
                           strokeWidth: { value: 2 }, strokeOpacity: { value: 0.7 } } } },
      { name: "points", type: "symbol", from: { data: "rows" },
        encode: { enter: { x: { scale: "x", field: "memory" }, y: { scale: "y", field: "speed" },
                           shape: { scale: "shape", field: "kind" }, tooltip: { field: "tip" },
                           fill: { scale: "color", field: "kind" },
                           fillOpacity: { signal: "datum.kind === 'simulated' ? 0.6 : 0.95" },
                           size: { scale: "size", field: "kind" } },
                  update: { stroke: { signal: "datum.index === active ? '" + theme.ink + "' : '" + theme.paper + "'" },
                            strokeWidth: { signal: "datum.index === active ? 3 : 0.7" } } } },
    ];
    const keys = rows.filter((row) => row.on_front || row.kind !== "simulated");
    keys.sort((a, b) => a.memory - b.memory);
    spec.usermeta = { rows: keys };
    return spec;
  }

  // --- one step: memory, streams

  const phaseMarks = (theme) => [
    { type: "rule", from: { data: "phases" }, interactive: false,
      encode: { enter: { x: { scale: "x", field: "begin" }, y: { value: 0 }, y2: { signal: "height" },
                         stroke: { value: theme.soft }, strokeWidth: { value: 1 }, strokeDash: { value: [2, 3] } } } },
    { type: "text", from: { data: "phases" }, interactive: false,
      encode: { enter: { x: { scale: "x", field: "begin", offset: 3 }, y: { value: -4 }, text: { field: "label" },
                         fill: { value: theme.soft }, fontSize: { value: 12 } } } },
  ];

  // Names where they have room.
  const phaseRows = (phases, seconds, unit, width) => phases.map((phase) => ({
    begin: phase.begin * unit,
    label: (phase.end - phase.begin) / seconds * width > 8 * say(phase.name).length ? say(phase.name) : "",
  }));
  const unitOf = (seconds) => seconds >= 2 ? [1, "s"] : seconds >= 2e-3 ? [1e3, "ms"] : [1e6, "µs"];

  function memory(doc, theme, width) {
    const line = doc.memory_timeline;
    const [unit, name] = unitOf(line.seconds);
    const capacity = doc.question.capacity_bytes / GiB;
    const moments = line.samples.map((sample, index) => ({
      index, from: sample[0] * unit,
      to: (index + 1 < line.samples.length ? line.samples[index + 1][0] : line.seconds) * unit,
      tip: [["time", time(sample[0])],
            ["in all", gib(sample.slice(1).reduce((sum, bytes) => sum + bytes, 0))],
            ...line.categories.map((category, c) => [plain(category), gib(sample[c + 1])])
              .filter(([, size]) => size !== "0.0 GiB")],
    }));
    const areas = [];
    line.samples.concat([[line.seconds, ...line.samples[line.samples.length - 1].slice(1)]]).forEach((sample, moment) => {
      line.categories.forEach((category, c) => areas.push(
        { moment, time: sample[0] * unit, category, order: stackOrder.indexOf(category), size: sample[c + 1] / GiB }));
    });
    const used = stackOrder.filter((category) => {
      const c = line.categories.indexOf(category);
      return line.samples.some((sample) => sample[c + 1] > 0);
    });
    const spec = base(width, Math.round(Math.min(300, Math.max(220, width * 0.4))) + legendHeight(used, width - 70) + 50,
                      say("GPU memory through the step, by category"));
    spec.padding = { left: 4, right: 4, top: 20, bottom: 4 };
    spec.data = [
      { name: "areas", values: areas, transform: [
        { type: "stack", groupby: ["moment"], sort: { field: "order" }, field: "size" }] },
      { name: "moments", values: moments },
      { name: "phases", values: phaseRows(line.phases, line.seconds, unit, width) },
    ];
    spec.scales = [
      { name: "x", type: "linear", domain: [0, line.seconds * unit], range: "width" },
      { name: "y", type: "linear", domain: [0, Math.max(capacity * 1.13, line.peak_bytes / GiB)], range: "height" },
      { name: "color", type: "ordinal", domain: used, range: used.map((category) => colorOf(category, theme)) },
    ];
    spec.axes = [
      { orient: "bottom", scale: "x", title: say("time, {}", name), tickCount: 6 },
      { orient: "left", scale: "y", title: say("GPU memory, GiB"), grid: true, tickCount: 6 },
    ];
    spec.legends = [legendBelow(theme, width - 70, "color", used, "fill")];
    spec.marks = [
      { type: "group", from: { facet: { name: "one", data: "areas", groupby: "category" } }, interactive: false, marks: [
        { type: "area", from: { data: "one" }, interactive: false,
          encode: { enter: { x: { scale: "x", field: "time" }, y: { scale: "y", field: "y0" },
                             y2: { scale: "y", field: "y1" }, interpolate: { value: "step-after" },
                             fill: { scale: "color", field: "category" } } } }] },
      ...limitLine(theme, "y", false, capacity, say("capacity")),
      ...phaseMarks(theme),
      { type: "rect", from: { data: "moments" },
        encode: { enter: { x: { scale: "x", field: "from" }, x2: { scale: "x", field: "to" }, y: { value: 0 },
                           y2: { signal: "height" }, tooltip: { field: "tip" }, fill: { value: theme.ink } },
                  update: { fillOpacity: { signal: "datum.index === active ? 0.35 : 0" } } } },
    ];
    // Forty stops are enough for the keyboard.
    const stride = Math.max(1, Math.floor(moments.length / 40));
    spec.usermeta = { rows: moments.filter((moment) => moment.index % stride === 0) };
    return spec;
  }

  function streams(doc, theme, width) {
    const line = doc.stream_timeline;
    const [unit, name] = unitOf(line.seconds);
    const names = line.streams.map((name) => say(name));
    const bars = line.bars.map((bar, index) => ({
      index, stream: names[bar.stream], kind: bar.kind, begin: bar.begin * unit, end: bar.end * unit,
      tip: [[names[bar.stream], say(bar.kind)], ["begins", time(bar.begin)], ["takes", time(bar.end - bar.begin)],
            ["mostly", bar.task], ["tasks", String(bar.tasks)], ...(bar.for ? [["for", bar.for]] : [])],
    }));
    const kinds = Object.keys(kindColors).filter((kind) => bars.some((bar) => bar.kind === kind));
    const spec = base(width, 34 * names.length + 70 + legendHeight(kinds, width - 70), say("What the streams run, and when"));
    spec.padding = { left: 4, right: 4, top: 20, bottom: 4 };
    spec.data = [
      { name: "bars", values: bars },
      { name: "phases", values: phaseRows(line.phases, line.seconds, unit, width) },
    ];
    spec.scales = [
      { name: "x", type: "linear", domain: [0, line.seconds * unit], range: "width" },
      { name: "y", type: "band", domain: names, range: "height", padding: 0.2 },
      { name: "color", type: "ordinal", domain: kinds, range: kinds.map((kind) => kindColors[kind]) },
    ];
    spec.axes = [
      { orient: "bottom", scale: "x", title: say("time, {}", name), grid: true, tickCount: 6 },
      { orient: "left", scale: "y", domain: false, ticks: false, labelLimit: atMost(90) },
    ];
    spec.legends = [legendBelow(theme, width - 70, "color", kinds, "fill")];
    spec.marks = [
      ...phaseMarks(theme),
      { type: "rect", from: { data: "bars" },
        encode: { enter: { x: { scale: "x", field: "begin" }, x2: { scale: "x", field: "end" },
                           y: { scale: "y", field: "stream" }, height: { scale: "y", band: 1 },
                           fill: { scale: "color", field: "kind" }, tooltip: { field: "tip" } },
                  update: { stroke: { signal: "datum.index === active ? '" + theme.ink + "' : '" + theme.paper + "'" },
                            // Seams only where bars are wide enough to have some left.
                            strokeWidth: { signal: "datum.index === active ? 2.5"
                              + " : scale('x', datum.end) - scale('x', datum.begin) > 5 ? 0.8 : 0" } } } },
    ];
    spec.usermeta = { rows: bars };
    return spec;
  }

  // --- memory by stage

  function stages(doc, theme, width) {
    const capacity = doc.question.capacity_bytes / GiB;
    const wanted = doc.chosen ? doc.chosen.workload.activation_checkpointing : doc.strategies[0].activation_checkpointing;
    const some = doc.strategies.filter((row) => row.activation_checkpointing === wanted);
    const rows = some.length ? some : doc.strategies;
    const short = (row) => row.offload_param === "none" && row.offload_optimizer === "none" ? "ZeRO-" + row.stage
      : say(row.offload_param === "none" ? "ZeRO-{}, optimizer on {}"
        : row.offload_optimizer === "none" ? "ZeRO-{}, parameters on {}" : "ZeRO-{}, optimizer, parameters on {}",
            row.stage, row.offload_param === "none" ? row.offload_optimizer : row.offload_param);
    const categories = stackOrder
      .filter((category) => rows.some((row) => row.breakdown_at_peak[category] > 0));
    // One bar that does not fit would make all others small: it ends at the edge, with its number.
    const edge = Math.max(1.5 * capacity, ...rows.filter((row) => row.fits).map((row) => row.gpu_bytes / GiB));
    const parts = [], whole_rows = [];
    rows.forEach((row, index) => {
      const all = row.gpu_bytes / GiB;
      whole_rows.push({ index, label: short(row), fits: row.fits, all, end: Math.min(all, edge),
        mark: row.fits ? "✓" : all > edge ? "✗ " + gib(row.gpu_bytes) : lacksDrive(row) ? "✗ " + say("no drive") : "✗",
        tip: [["", row.name], ["GPU memory", gib(row.gpu_bytes)], ["host memory", gib(row.host_bytes)],
              ["fits", say(row.fits ? "yes" : "no")], ["tokens/s per GPU", whole(row.tokens_per_second_per_gpu)],
              ...categories.map((category) => [plain(category), gib(row.breakdown_at_peak[category])])
                .filter(([, size]) => size !== "0.0 GiB")] });
      categories.forEach((category, order) => parts.push(
        { index, label: short(row), category, order, edge, size: row.breakdown_at_peak[category] / GiB }));
    });
    const narrow = width < 560;
    const room = narrow ? width - 20 : width - besideRows;
    const spec = base(width, (narrow ? 40 : 26) * rows.length + 70 + legendHeight(categories, room), say("GPU memory at the peak of each ZeRO stage and offload"));
    spec.padding = { left: 4, right: 4, top: 20, bottom: 4 };
    spec.data = [
      { name: "parts", values: parts, transform: [
        { type: "stack", groupby: ["label"], sort: { field: "order" }, field: "size" }] },
      { name: "rows", values: whole_rows },
    ];
    spec.scales = [
      { name: "x", type: "linear", clamp: true, range: "width",
        domain: [0, Math.max(capacity, ...whole_rows.map((row) => row.end)) * (whole_rows.some((row) => row.all > edge) ? 1.14 : 1.06)] },
      { name: "y", type: "band", domain: whole_rows.map((row) => row.label), range: "height",
        paddingInner: narrow ? 0.55 : 0.25, paddingOuter: narrow ? 0.5 : 0.15 },
      { name: "color", type: "ordinal", domain: categories, range: categories.map((name) => colorOf(name, theme)) },
    ];
    spec.axes = [{ orient: "bottom", scale: "x", title: say("GPU memory at the peak, GiB"), grid: true, tickCount: 6 }];
    if (!narrow) spec.axes.push({ orient: "left", scale: "y", domain: false, ticks: false, labelLimit: atMost(besideRows - 10) });
    spec.legends = [legendBelow(theme, room, "color", categories, "fill")];
    spec.marks = [
      { type: "rect", from: { data: "parts" }, interactive: false,
        encode: { enter: { y: { scale: "y", field: "label" }, height: { scale: "y", band: 1 },
                           x: { scale: "x", signal: "min(datum.y0, datum.edge)" },
                           x2: { scale: "x", signal: "min(datum.y1, datum.edge)" },
                           fill: { scale: "color", field: "category" } } } },
      ...(narrow ? [rowTitles(theme)] : []),
      { type: "text", from: { data: "rows" }, interactive: false,
        encode: { enter: { x: { scale: "x", field: "end", offset: 4 }, y: { scale: "y", field: "label", band: 0.5 },
                           text: { field: "mark" }, baseline: { value: "middle" },
                           fill: { signal: "datum.fits ? '" + theme.soft + "' : '" + theme.limit + "'" } } } },
      ...limitLine(theme, "x", true, capacity, say("capacity")),
      rowTargets(theme),
    ];
    spec.usermeta = { rows: whole_rows };
    return spec;
  }

  // Where there is no room beside the bars, their names stand above them.
  const rowTitles = (theme) => ({
    type: "text", from: { data: "rows" }, interactive: false,
    encode: { enter: { x: { value: 2 }, y: { scale: "y", field: "label", offset: -4 }, text: { field: "label" },
                       limit: { signal: "width" }, fill: { value: theme.ink }, fontSize: { value: 11.5 } } },
  });
  const rowTargets = (theme) => ({
    type: "rect", from: { data: "rows" },
    encode: { enter: { x: { value: 0 }, x2: { signal: "width" }, y: { scale: "y", field: "label" },
                       height: { scale: "y", band: 1 }, tooltip: { field: "tip" }, fill: { value: theme.ink } },
              update: { fillOpacity: { signal: "datum.index === active ? 0.18 : 0" } } },
  });

  // --- knobs

  function knobs(doc, theme, width, measure) {
    const step = doc.chosen.result.step.seconds;
    const of = (move) => measure === "memory" ? move.gpu_bytes / GiB : 100 * move.speed_change;
    // The end of a pointer names it; "device" and the like need what they belong to.
    const short = (change) => change.replace(/(^|; |；)--/g, "$1").replace(/(^|; |；)\/(\S+)/g, (all, before, pointer) => {
      const words = pointer.split("/");
      return before + (words[words.length - 1].length > 8 ? words.slice(-1) : words.slice(-2)).join(".");
    }).replace(/zero_optimization\./g, "").replace(/gradient-accumulation-steps/g, "accumulation")
      .replace(/\b[1-9]0{6,}\b/g, (number) => Number(number).toExponential().replace("+", "")).replace(/->/g, "→");
    const rows = doc.sensitivity.filter((move) => Math.abs(of(move)) > (measure === "memory" ? 0.05 : 0.5))
      .sort((a, b) => Math.abs(of(b)) - Math.abs(of(a))).slice(0, 12)
      .map((move, index) => ({
        index, label: cut(short(move.change), 48), value: of(move), fits: move.fits,
        tip: [["", move.change], ["GPU memory", signed(move.gpu_bytes / GiB, 1) + " GiB"],
              ["tokens/s per GPU", signed(100 * move.speed_change, 1) + " %"],
              ["step", say("{} s of {}", signed(move.step_seconds, 3), time(step))],
              ["host memory", signed(move.host_bytes / GiB, 1) + " GiB"], ["fits then", say(move.fits ? "yes" : "no")]],
      }));
    // One name, one row: different moves may shorten to the same words.
    rows.forEach((row) => {
      if (rows.some((other) => other.index < row.index && other.label === row.label)) row.label += " ".repeat(row.index);
    });
    const narrow = width < 560;
    const title = say(measure === "memory" ? "change of GPU memory, GiB" : "change of tokens/s per GPU, %");
    const spec = base(width, (narrow ? 40 : 28) * Math.max(1, rows.length) + 50, say("What one knob changes: {}", title));
    spec.data = [{ name: "rows", values: rows }];
    // Moves that do not fit end at the edge that the others need, with their number.
    const largest = Math.max(...rows.filter((row) => row.fits).map((row) => Math.abs(row.value)), 0);
    const edge = largest > 0 ? 1.5 * largest : Infinity;
    rows.forEach((row) => {
      const over = !row.fits && Math.abs(row.value) > edge;
      row.end = over ? Math.sign(row.value) * edge : row.value;
      row.mark = signed(row.value, measure === "memory" ? 1 : 0);
    });
    // Beyond the longest bar of either side there is room for its number.
    const least = Math.min(0, ...rows.map((row) => row.end)), most = Math.max(0, ...rows.map((row) => row.end));
    const room = (most - least) * 45 / Math.max(100, (narrow ? width : width - besideRows) - 90);
    spec.scales = [
      { name: "x", type: "linear", domain: [least - (least < 0 ? room : 0), most + (most > 0 ? room : 0)], range: "width" },
      { name: "y", type: "band", domain: rows.map((row) => row.label), range: "height",
        paddingInner: narrow ? 0.55 : 0.25, paddingOuter: narrow ? 0.5 : 0.15 },
    ];
    spec.axes = [{ orient: "bottom", scale: "x", title, grid: true, tickCount: 6 }];
    if (!narrow) spec.axes.push({ orient: "left", scale: "y", domain: false, ticks: false, labelLimit: atMost(besideRows - 10) });
    spec.marks = [
      { type: "rect", from: { data: "rows" }, interactive: false,
        encode: { enter: { x: { scale: "x", field: "end" }, x2: { scale: "x", value: 0 },
                           y: { scale: "y", field: "label" }, height: { scale: "y", band: 1 },
                           fill: { signal: "datum.fits ? '" + theme.front + "' : '" + theme.limit + "'" },
                           fillOpacity: { signal: "datum.fits ? 0.9 : 0.55" } } } },
      { type: "text", from: { data: "rows" }, interactive: false,
        encode: { enter: { x: { scale: "x", field: "end" }, y: { scale: "y", field: "label", band: 0.5 },
                           dx: { signal: "datum.end > 0 ? 4 : -4" }, align: { signal: "datum.end > 0 ? 'left' : 'right'" },
                           text: { field: "mark" }, baseline: { value: "middle" }, fill: { value: theme.ink } } } },
      { type: "rule", interactive: false,
        encode: { enter: { x: { scale: "x", value: 0 }, y: { value: 0 }, y2: { signal: "height" },
                           stroke: { value: theme.soft } } } },
      ...(narrow ? [rowTitles(theme)] : []),
      rowTargets(theme),
    ];
    spec.usermeta = { rows };
    return spec;
  }

  return {
    themes, configOf, described, parts: { base, gib, time, atMost, stackOrder, categoryColors, plain, lacksDrive },  // for the plots of other files
    plots: {
      tradeoff, memory, streams, stages,
      "knobs-memory": (doc, theme, width) => knobs(doc, theme, width, "memory"),
      "knobs-time": (doc, theme, width) => knobs(doc, theme, width, "time"),
    },
  };
})();

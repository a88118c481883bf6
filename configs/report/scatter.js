// The plots of `zeroplan validate --plot` as Vega specifications, beside those of plots.js: predicted against
// measured on logarithmic axes; what lies on the diagonal was predicted as it was measured.
"use strict";
{
  const { base, gib, time, atMost } = zeroplanPlots.parts;

  // Sources differ in colour, and past eight of them in shape too (Okabe and Ito 2008, as in plots.js).
  const colors = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#b8a900", "#8d8d8d"];
  const shapes = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-left"];
  const kinds = {
    memory: { title: "Memory", axis: "GiB", unit: 2 ** 30, text: gib },
    time: { title: "Time of a step", axis: "s", unit: 1, text: time },
  };
  const plain = (metric) => metric.replace(/_bytes$/, "").replace(/_/g, " ");
  const percent = (error) => (error > 0 ? "+" : error < 0 ? "−" : "") + Math.abs(100 * error).toFixed(1) + " %";

  const pointsOf = (doc, kind) => doc.points.filter((point) => point.kind === kind)
    .sort((a, b) => a.measured - b.measured)
    .map((point, index) => {
      const { unit, text } = kinds[kind];
      return {
        index, source: point.source, inside: point.inside_interval,
        measured: point.measured / unit, predicted: point.predicted / unit, low: point.low / unit, high: point.high / unit,
        tip: [["", point.id], ["source", point.source], ["strategy", point.strategy], ["metric", plain(point.metric)],
              ["predicted", text(point.predicted)], ["measured", text(point.measured)], ["error", percent(point.error)],
              ["90 % interval", text(point.low) + " to " + text(point.high)]],
      };
    });

  // Scales, axes and marks of one plot: the whole of a specification, or a group of one.
  function parts(points, kind, theme, width, height) {
    const { title, axis } = kinds[kind];
    const values = points.flatMap((point) => [point.measured, point.predicted]);
    const low = Math.min(...values) / 1.3, high = Math.max(...values) * 1.3;
    const scale = (name, range) => ({ name, type: "log", domain: [low, high], range });
    // Decades; the fewer of them there are, the more between them.
    const decades = Math.log10(high / low);
    const steps = decades > 2.5 ? [1] : decades > 1.2 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 7];
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); ++power) {
      for (const step of steps) {
        const tick = Number((step * 10 ** power).toPrecision(2));
        if (tick >= low && tick <= high) ticks.push(tick);
      }
    }
    const axisOf = (orient, scaleName, what) =>
      ({ orient, scale: scaleName, title: what + ", " + axis, grid: true, values: ticks, format: "~g" });
    return {
      data: [{ name: kind, values: points }],
      scales: [scale("x", [0, width]), scale("y", [height, 0])],
      axes: [axisOf("bottom", "x", title + ", measured"), axisOf("left", "y", title + ", predicted")],
      marks: [
        { type: "rule", interactive: false,
          encode: { enter: { x: { value: 0 }, x2: { value: width }, y: { value: height }, y2: { value: 0 },
                             stroke: { value: theme.soft }, strokeWidth: { value: 1 }, strokeDash: { value: [6, 4] } } } },
        { type: "rule", from: { data: kind }, interactive: false, clip: true,
          encode: { enter: { x: { scale: "x", field: "measured" }, y: { scale: "y", field: "low" }, y2: { scale: "y", field: "high" },
                             stroke: { scale: "color", field: "source" }, strokeWidth: { value: 1 } },
                    update: { strokeOpacity: { signal: "datum.index === active ? 1 : 0.35" } } } },
        { type: "symbol", from: { data: kind },
          encode: { enter: { x: { scale: "x", field: "measured" }, y: { scale: "y", field: "predicted" }, size: { value: 46 },
                             shape: { scale: "shape", field: "source" }, fill: { scale: "color", field: "source" },
                             fillOpacity: { value: 0.85 }, tooltip: { field: "tip" } },
                    update: { stroke: { signal: "datum.index === active ? '" + theme.ink + "' : '" + theme.paper + "'" },
                              strokeWidth: { signal: "datum.index === active ? 3 : 0.7" } } } },
      ],
    };
  }

  const sourceScales = (doc) => [
    { name: "color", type: "ordinal", domain: doc.sources, range: doc.sources.map((_, i) => colors[i % colors.length]) },
    { name: "shape", type: "ordinal", domain: doc.sources,
      range: doc.sources.map((_, i) => shapes[Math.floor(i / colors.length) % shapes.length]) },
  ];
  // Names of files and repositories are longer than the words of plots.js.
  const entryWidth = 190, entryHeight = 17;
  const columnsIn = (width) => Math.max(1, Math.floor(width / entryWidth));
  const sourceLegend = (names, width) => ({
    orient: "bottom", direction: "horizontal", fill: "color", shape: "shape", values: names, columns: columnsIn(width),
    columnPadding: 10, rowPadding: 3, offset: 6, labelLimit: atMost(entryWidth - 30), symbolStrokeWidth: 0,
  });
  const describe = (kind) => kinds[kind].title + ", predicted against measured";

  function scatter(doc, theme, width, kind) {
    const points = pointsOf(doc, kind);
    const names = doc.sources.filter((source) => points.some((point) => point.source === source));
    const side = Math.max(140, Math.min(width - 80, 520));
    const one = parts(points, kind, theme, side, side);
    const spec = Object.assign(base(side, side, describe(kind)), one, { autosize: { type: "pad" } });
    spec.scales = sourceScales(doc).concat(one.scales);
    spec.legends = [sourceLegend(names, width - 80)];
    spec.usermeta = { rows: points };
    return spec;
  }

  // Both side by side, for a file.
  function both(doc, theme, width) {
    const there = Object.keys(kinds).filter((kind) => doc.points.some((point) => point.kind === kind));
    const side = Math.round((width - 90 * there.length) / there.length);
    const spec = Object.assign(base(width, side, there.map(describe).join("; ")), { autosize: { type: "pad" } });
    spec.scales = sourceScales(doc);
    spec.layout = { columns: there.length, padding: 30, align: "each" };
    spec.marks = there.map((kind) => Object.assign(
      // Signals of its own: axes draw their grid as wide as `width` says.
      { type: "group", signals: ["width", "height"].map((name) => ({ name, update: String(side) })),
        encode: { enter: { width: { value: side }, height: { value: side } } } },
      parts(pointsOf(doc, kind), kind, theme, side, side)));
    spec.legends = [sourceLegend(doc.sources, width)];
    spec.usermeta = { rows: [] };
    return spec;
  }

  Object.assign(zeroplanPlots.plots, {
    "scatter-memory": (doc, theme, width) => scatter(doc, theme, width, "memory"),
    "scatter-time": (doc, theme, width) => scatter(doc, theme, width, "time"),
    scatter: both,
  });
}

// The page of `zeroplan validate --plot FILE.html`: what it says beside its plots (shell.js).
"use strict";
{
  const { doc, count, element, number, show } = zeroplanPage;
  const percent = (share) => (100 * share).toFixed(1) + " %";
  // Many files have names for a list of their own, not for a sentence.
  const from = doc.files.length > 3 ? doc.files.length + " files" : doc.files.join(", ");
  const shown = (kind) => doc.points.filter((point) => point.kind === kind).length;

  document.getElementById("answer").textContent = count(doc.rows) + " measured values of " + count(doc.scenarios)
    + " scenarios from " + from + "; " + count(doc.skipped) + " measurements skipped.";
  for (const row of doc.errors) {
    number(row.metric.replace(/_/g, " "), percent(row.median_abs_error), count(row.rows) + (row.rows === 1 ? " row" : " rows") + ", 95 % within "
      + percent(row.p95_abs_error) + ", " + percent(row.interval_coverage) + " inside their interval");
  }
  const worst = document.querySelector("#worst tbody");
  for (const row of doc.worst) {
    const line = element("tr");
    line.append(...[(row.error > 0 ? "+" : "") + percent(row.error), row.metric.replace(/_/g, " "), row.id, row.source,
                    row.strategy, row.why].map((text) => element("td", text)));
    worst.append(line);
  }
  if (!doc.worst.length) document.getElementById("worst").remove();

  const scored = "Every point is a scored value; repeats of a scenario are one, at their median. On the dashed diagonal "
    + "a prediction is what was measured; bars are 90 % intervals.";
  show({
    "scatter-memory": () => shown("memory") > 0 && scored,
    "scatter-time": () => shown("time") > 0 && scored + " Rates stand as the time of a step that they come to.",
  });
}

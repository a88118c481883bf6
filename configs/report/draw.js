// One plot as SVG on standard output: `plot` runs this in Node.js behind vega.js, plots.js and two
// constants, the document and what was asked for.
{
  // Without a canvas Vega takes every character for 0.8 em wide. Widths of a sans serif, in em.
  const narrow = new Set("iljtfrI.,:;'|!()[] ");
  const widthOf = (text) => {
    let sum = 0;
    for (const c of String(text)) sum += c >= "\u2e80" ? 1 : narrow.has(c) ? 0.33 : c >= "A" && c <= "Z" ? 0.68 : c === "m" || c === "w" ? 0.85 : 0.57;
    return sum;
  };
  vega.textMetrics.width = (item, text) => widthOf(text === undefined ? item.text : text) * (item.fontSize || 11);
  const theme = zeroplanPlots.themes[zeroplanRequest.theme];
  const spec = zeroplanPlots.described(
    zeroplanPlots.plots[zeroplanRequest.plot](zeroplanDocument, theme, zeroplanRequest.width));
  // A file stands alone: it says what it shows, and of what.
  const question = zeroplanDocument.question;
  if (question) {
    spec.height += 44;
    spec.title = {
      text: spec.description, anchor: "start", color: theme.ink, fontSize: 15, offset: 20, limit: zeroplanRequest.width,
      subtitle: zeroplanSay("{} on {}", question.model, question.cluster)
        + (zeroplanDocument.chosen ? ": " + zeroplanDocument.chosen.name : ""),
      subtitleColor: theme.soft, subtitleFontSize: 12, subtitlePadding: 4,
    };
  }
  const runtime = vega.parse(spec, zeroplanPlots.configOf(theme), { ast: true });
  new vega.View(runtime, { renderer: "none", expr: vega.expressionInterpreter }).toSVG().then(
    (svg) => process.stdout.write(svg + "\n"),
    (error) => { process.stderr.write(String(error) + "\n"); process.exitCode = 1; });
}

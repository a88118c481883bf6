// What all pages have in common: reads the document, draws with Vega, follows mouse, touch and keyboard.
// Text of the document becomes text nodes and nothing else.
"use strict";
const zeroplanPage = (() => {
  const say = zeroplanSay;
  let doc = JSON.parse(document.getElementById("document").textContent); // null: show() brings one
  const GiB = 2 ** 30;
  const gib = (bytes) => (bytes / GiB).toFixed(1) + " GiB";
  const time = (seconds) => seconds >= 1 ? seconds.toFixed(2) + " s" : (seconds * 1e3).toFixed(1) + " ms";
  const count = (value) => Math.round(value).toLocaleString("en");
  const condition = (result) => result.host_condition
    ? say(", if a node has {} of host memory (usual: {})", gib(result.host_condition.enough_bytes), gib(result.host.capacity_bytes))
    : "";
  const element = (name, text) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  // A box under the title.
  function number(what, value, more) {
    const box = element("div");
    const shown = element("dd", value);
    if (more) shown.append(element("small", more));
    box.append(element("dt", what), shown);
    document.getElementById("numbers").append(box);
  }

  // --- what is pointed at

  const tip = document.getElementById("tip");
  function showTip(rows, x, y) {
    tip.replaceChildren(...rows.map(([what, value]) => {
      const line = element("div");
      if (what) line.append(element("span", say(what)));
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
  const sentence = (rows) => rows.map(([what, value]) => (what ? say(what) + " " : "") + value).join("; ");

  // --- plots

  let theme = "light";
  const drawn = new Map(); // by section

  class Plot {
    constructor(section) {
      this.name = section.dataset.plot;
      this.box = element("div");
      this.box.className = "plot";
      this.box.tabIndex = 0;
      this.box.setAttribute("role", "group");
      this.box.setAttribute("aria-label", say("{}: a plot. Arrow keys go through what it shows.",
                                               section.querySelector("h2").textContent));
      this.shown = element("p", "");
      this.shown.className = "shown";
      this.shown.setAttribute("aria-live", "polite");
      this.hint = say("Point at it, tap it, or use the arrow keys.");
      this.shown.textContent = this.hint;
      section.append(this.box, this.shown);
      this.width = 0;
      this.box.addEventListener("keydown", (event) => this.key(event));
      this.box.addEventListener("blur", () => { hideTip(); this.point(-1); });
      new ResizeObserver(() => { if (this.box.clientWidth !== this.width) this.draw(); }).observe(this.box);
    }

    draw() {
      this.width = this.box.clientWidth;
      if (this.width < 50) return;
      this.place = -1;
      this.shown.textContent = this.hint;
      const colors = zeroplanPlots.themes[theme];
      const spec = zeroplanPlots.described(zeroplanPlots.plots[this.name](doc, colors, this.width));
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
    document.getElementById("theme").textContent = say(name === "dark" ? "Light colours" : "Dark colours");
    for (const plot of drawn.values()) plot.draw();
  }

  // What the page's own markup says, in the reader's language.
  document.documentElement.lang = say("en");
  for (const one of document.querySelectorAll("[data-say], h2, th")) one.textContent = say(one.textContent);
  for (const one of document.querySelectorAll("[aria-label]")) one.setAttribute("aria-label", say(one.getAttribute("aria-label")));

  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", () => useTheme(dark.matches ? "dark" : "light"));
  document.getElementById("theme").addEventListener("click", () => useTheme(theme === "dark" ? "light" : "dark"));
  useTheme(dark.matches ? "dark" : "light");

  // Draws the plots of the sections: `about` has the text above each by its name, nothing where there is
  // nothing to draw. Of `next`, where it is another document than the page's.
  function show(about, next = doc) {
    doc = next;
    for (const section of document.querySelectorAll("section[data-plot]")) {
      const text = about[section.dataset.plot]();
      section.hidden = !text;
      if (!text) continue;
      section.querySelector(".about").textContent = text;
      if (!drawn.has(section)) drawn.set(section, new Plot(section));
      drawn.get(section).draw();
    }
  }

  return { say, doc, gib, time, count, condition, element, number, show };
})();

#!/usr/bin/env python3
"""Opens the pages that `zeroplan report` and `zeroplan validate --plot` write in a Chromium without a window and uses it as a reader would.

  check_page.py PROGRAM FOLDER      screenshots are kept in FOLDER

Checks: every plot is drawn, nothing is asked of any network, nothing is thrown, the mouse and the keyboard show
a configuration, no page is wider than its screen, text of the model's config stays text. Without Chromium it
says so and skips (exit 77)."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

from browser import Browser, find_chromium
from checks import check, check_fits_screen, check_quiet, failures, open_page, press, screenshot, set_screen, shown_texts

PLOTS = ["tradeoff", "memory", "streams", "stages", "knobs-memory", "knobs-time"]
# A space whose search ends by itself in five seconds; a limit that cut it would leave knobs out of the plots.
SPACE = ["--time-limit", "60", "--seq", "512", "--fix", "overlap_comm=true", "--fix", "round_robin_gradients=false",
         "--fix", "sub_group_size=1e9", "--fix", "offload_param.device=none", "--search", "micro_batch_size=1,4",
         "--fix", "gas=2"]
# A model whose name would end the data block and run, if it stood there as it is.
EVIL = "</script><script>window.harmed = 1</script><img src=x onerror='window.harmed = 1'>"


def write_report(program, page, model, *more):
    done = subprocess.run([program, "report", model, "2x4xA100-40G", *SPACE, "-o", page, *more], capture_output=True, text=True)
    check("report writes " + os.path.basename(page), done.returncode == 0, f"status {done.returncode}: {done.stderr}")
    return done.returncode == 0


def check_plots(browser):
    for plot in PLOTS:
        browser.wait_for(f"document.querySelector('[data-drawn=\"{plot}\"] svg') !== null", 120)
        marks = browser.evaluate(
            f"[...document.querySelectorAll('[data-drawn=\"{plot}\"] svg path')]"
            ".filter((path) => { const box = path.getBoundingClientRect(); return box.width * box.height > 4; }).length")
        check(f"{plot} is drawn", marks >= 5, f"{marks} shapes")
        frame = browser.evaluate(
            f"(() => {{ const box = document.querySelector('[data-drawn=\"{plot}\"] svg .role-frame.root path.background')"
            ".getBoundingClientRect(); return [box.width, box.height]; })()")
        check(f"{plot} has room", frame[0] > 150 and frame[1] > 50, f"{frame} pixels between its axes")


def check_front(browser):
    above = browser.evaluate("""(() => {
      const report = JSON.parse(document.getElementById('document').textContent);
      const points = report.trade_offs, near = 1 + report.search.gap;
      const front = points.filter((point) => point.front);
      return front.length === 0 ? -1 : points.filter((point) => !front.some((other) =>
        other.gpu_bytes <= near * point.gpu_bytes
        && near * other.tokens_per_second_per_gpu >= point.tokens_per_second_per_gpu)).length;
    })()""")
    check("no point lies beyond the front by more than the gap", above == 0, f"{above} do")
    marked = browser.evaluate("JSON.parse(document.getElementById('document').textContent).trade_offs"
                              ".filter((point) => point.chosen && point.front).length")
    check("the chosen point stands on the front", marked == 1, str(marked))
    bars = browser.evaluate("[...document.querySelectorAll('#takes p')].map((box) => box.textContent).join('; ')")
    result = browser.evaluate("JSON.parse(document.getElementById('document').textContent).chosen.result.gpu.peak_total_bytes")
    point = browser.evaluate("JSON.parse(document.getElementById('document').textContent).trade_offs"
                             ".find((point) => point.chosen).gpu_bytes")
    check("the chosen point's memory is one number", result == point and f"{result / 2**30:.1f} of" in bars,
          f"{result}, {point}, {bars}")
    filled = browser.evaluate("""(() => {
      const bar = document.querySelector('#takes .bar'), parts = [...bar.children];
      return parts.reduce((sum, part) => sum + part.getBoundingClientRect().width, 0) / bar.clientWidth;
    })()""")
    capacity = browser.evaluate("JSON.parse(document.getElementById('document').textContent).question.capacity_bytes")
    check("the bar of GPU memory is as full as the GPU", abs(filled - result / capacity) < 0.01, str(filled))
    moved = browser.evaluate("""(() => {
      const length = document.getElementById('try-length'), shown = document.querySelector('#sizes .shown'), texts = [shown.textContent];
      for (const at of [length.max, 0]) {
        length.value = at;
        length.dispatchEvent(new Event('input'));
        texts.push(shown.textContent);
      }
      return [...texts, length.labels[0].textContent];
    })()""")
    grid = browser.evaluate("JSON.parse(document.getElementById('document').textContent).sizes")
    check("the slider of lengths shows what was simulated", f"{result / 2**30:.1f} of" in moved[0] and len(set(moved)) == 4
          and moved[3].endswith(f"{grid['sequence_lengths'][0]:,} tokens"), str(moved))
    compared = browser.evaluate("[...document.querySelectorAll('#compared tbody tr')].map((row) => row.textContent)")
    check("the page compares with other flags", len(compared) == 3 and compared[0].startswith("chosen")
          and compared[2].startswith("--cluster 3xTPU"), str(compared))
    wrong = browser.evaluate("[...document.querySelectorAll('#assumed > ul li')].map((one) => one.textContent)")
    check("the page says what a wrong assumption changes", any(one.startswith("If ") for one in wrong), str(wrong))
    alternatives = browser.evaluate("document.querySelectorAll('#why li').length")
    check("the page says why not otherwise", alternatives >= 3, str(alternatives))
    launch = browser.evaluate("document.querySelector('#launch pre').textContent")
    check("the launch line is there", "train.py --deepspeed ds_config.json" in launch, launch)
    table = browser.evaluate("document.querySelectorAll('#strategies tbody tr').length")
    wanted = browser.evaluate("JSON.parse(document.getElementById('document').textContent).strategies.length")
    check("the strategies stand in a table", table == wanted, f"{table} of {wanted}")


def check_mouse(browser, folder):
    spot = browser.evaluate("""(() => {
      const points = [...document.querySelectorAll('[data-drawn="tradeoff"] .mark-symbol.role-mark path')];
      const point = points[points.length - 1];  // the chosen one is drawn last
      point.scrollIntoView({block: 'center'});
      const box = point.getBoundingClientRect();
      return [box.x + box.width / 2, box.y + box.height / 2];
    })()""")
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=spot[0] - 60, y=spot[1])
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=spot[0], y=spot[1])
    browser.wait_for("!document.getElementById('tip').hidden", 60)
    tip = browser.evaluate("document.getElementById('tip').textContent")
    speed = browser.evaluate(
        "Math.round(JSON.parse(document.getElementById('document').textContent)"
        ".trade_offs.find((point) => point.chosen).tokens_per_second_per_gpu).toString()")
    check("the mouse shows the configuration of the chosen point",
          "stage" in tip and speed in tip.replace(",", ""), tip)
    screenshot(browser, os.path.join(folder, "hover.png"), whole=False)
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=2, y=2)
    browser.wait_for("document.getElementById('tip').hidden", 60)


def check_keyboard(browser):
    browser.evaluate("document.body.focus(); document.activeElement.blur()")
    reached = []
    for _ in range(2 * len(PLOTS) + 8):
        press(browser, "Tab")
        reached.append(browser.evaluate("(document.activeElement.dataset || {}).drawn || document.activeElement.id"))
        if reached[-1] in PLOTS:
            press(browser, "ArrowRight")
            said = browser.evaluate("document.activeElement.nextElementSibling.textContent")
            check(f"arrow keys go through {reached[-1]}", ";" in said, said)
    check("the keyboard reaches every plot and the copy button", set(PLOTS + ["copy"]) <= set(reached), str(reached))
    browser.evaluate("document.getElementById('copy').focus()")
    press(browser, "Enter")
    browser.wait_for("document.getElementById('copied').textContent !== ''", 60)
    written = browser.evaluate("JSON.parse(document.querySelector('#ds-config pre').textContent)"
                               ".zero_optimization !== undefined")
    check("ds_config.json is there and the copy button answers", written)


def check_text(browser, program, work):
    """Text of a user's file stays text."""
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 512, "intermediate_size": 1024,
              "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 1000,
              "max_position_embeddings": 512, "_name_or_path": EVIL}
    folder = os.path.join(work, "<script>window.harmed=1<")
    os.makedirs(folder)
    model = os.path.join(folder, "config.json")
    with open(model, "w", encoding="utf-8") as file:
        json.dump(config, file)
    page = os.path.join(work, "evil.html")
    if not write_report(program, page, model):
        return
    open_page(browser, page)
    browser.wait_for("document.querySelector('[data-drawn=\"tradeoff\"] svg') !== null", 120)
    check("text of the model's config does not run", browser.evaluate("window.harmed === undefined"))
    title = browser.evaluate("document.getElementById('title').textContent")
    check("it is shown as it is written", "<script>" in title, title)
    check_quiet(browser, page)


def check_chinese(browser, program, folder):
    """With --lang zh every word of the page is Chinese, but names and what somebody types."""
    page = os.path.join(os.path.abspath(folder), "report-zh.html")
    if not write_report(program, page, "llama-3.2-1b", "--lang", "zh"):
        return
    open_page(browser, page)
    check_plots(browser)
    check("the page says its language", browser.evaluate("document.documentElement.lang") == "zh")
    texts = shown_texts(browser)
    # What the plots say of what is pointed at.
    for plot in PLOTS:
        browser.evaluate(f"document.querySelector('[data-drawn=\"{plot}\"]').focus()")
        press(browser, "ArrowRight")
        texts.append(browser.evaluate(f"document.querySelector('[data-drawn=\"{plot}\"]').nextElementSibling.textContent"))
    # Commands, keys with their values, paths, and names that are the same in Chinese.
    typed = re.compile(r"zeroplan [a-z]+(?: -o [a-z]+| --[a-z-]+ ?\d*)?|[\w.-]*[/_][\w./-]*|--[a-z-]+"
                       r"|[a-z-]+ [\w.]+ (?:→ [\w.]+|…)|tokens|token|rank|logits|nvme|cpu|nvswitch|roce|torch|transformers|sdpa|embedding|inputs|stage|full"
                       r"|true|false|none|auto|selective|eager|flash|ratio")
    left = [text for text in texts if re.search(r"(?<![\w-])[a-z]{3,}(?![\w.-])", typed.sub(" ", text))]
    check("the Chinese page has its texts", len(texts) > 100, str(len(texts)))
    check("the Chinese page has no English left", not left, str(left))
    check_fits_screen(browser, "Chinese")
    check_quiet(browser, page)
    screenshot(browser, os.path.join(folder, "chinese.png"))


def check_plot_command(program, work):
    """Each plot as a file: SVG that XML's readers take, one PNG."""
    if shutil.which("node") is None and shutil.which("nodejs") is None:
        print("SKIPPED: NODE.JS IS NOT INSTALLED", file=sys.stderr)
        return
    one_point = ["--seq", "128", "--gas", "1", "--mbs", "1", "--ckpt", "none", "--fix", "stage=1", "--fix",
                 "offload_optimizer.device=none", "--fix", "overlap_comm=true", "--fix", "round_robin_gradients=false",
                 "--fix", "reduce_bucket_size=5e8"]
    jobs = [(plot, "svg") for plot in PLOTS]
    if shutil.which("rsvg-convert"):
        jobs.append(("tradeoff", "png"))
    else:
        print("SKIPPED: RSVG-CONVERT IS NOT INSTALLED", file=sys.stderr)
    for plot, kind in jobs:
        path = os.path.join(work, plot + "." + kind)
        done = subprocess.run([program, "plot", "gpt2", "4xA100-40G", *one_point, "--plot", plot, "--theme", "dark", "-o", path],
                              capture_output=True, text=True)
        check(f"plot writes {plot}.{kind}", done.returncode == 0 and os.path.exists(path), done.stderr)
        if not os.path.exists(path):
            continue
        if kind == "png":
            with open(path, "rb") as file:
                check("the PNG is one", file.read(8) == b"\x89PNG\r\n\x1a\n")
            continue
        root = xml.etree.ElementTree.parse(path).getroot()
        shapes = sum(1 for one in root.iter() if one.tag.endswith("}path"))
        texts = sum(1 for one in root.iter() if one.tag.endswith("}text") and one.text)
        check(f"{plot}.svg has shapes and words", shapes >= 5 and texts >= 5, f"{shapes} and {texts}")


def write_measurements(path):
    """Two sources, memory and time of both, one with a name that would run."""
    with open(path, "w", encoding="utf-8") as file:
        for source, evil, seconds in (("https://github.com/a/b/issues/1", EVIL, 0.1), ("other", "plain", 0.3)):
            for size in (1, 2, 4):
                scenario = {"model": "gpt2", "cluster": "1x2xA100-80G",
                            "workload": {"sequence_length": 512, "micro_batch_size": size, "precision": "bf16",
                                         "gradient_accumulation_steps": 1 if evil == EVIL else 2},
                            "ds_config": {"zero_optimization": {"stage": 2}}}
                rate = {"tokens_per_second_per_gpu": 512 * 2 * size / seconds} if evil == "plain" else {"step_seconds": seconds}
                file.write(json.dumps({"id": f"{evil} {size}", "source": source, "scenario": scenario,
                                       "measured": {"peak_allocated_bytes": 3e9 * size, **rate}}) + "\n")


def check_validation(browser, program, folder):
    """The scatter of `validate --plot` as a page and as SVG."""
    work = os.path.abspath(folder)
    measurements, page = os.path.join(work, "measurements.jsonl"), os.path.join(work, "validation.html")
    write_measurements(measurements)
    done = subprocess.run([program, "validate", measurements, "--plot", page], capture_output=True, text=True)
    check("validate writes validation.html", done.returncode == 0 and "wrote" in done.stderr, done.stderr)
    open_page(browser, page)
    for plot in ("scatter-memory", "scatter-time"):
        browser.wait_for(f"document.querySelector('[data-drawn=\"{plot}\"] svg') !== null", 120)
        points = browser.evaluate(f"document.querySelectorAll('[data-drawn=\"{plot}\"] .mark-symbol.role-mark path').length")
        check(f"{plot} has a point for each scenario", points == 6, str(points))
    # A rate is the time of the step that it comes to.
    times = browser.evaluate("JSON.parse(document.getElementById('document').textContent).points"
                             ".filter((point) => point.kind === 'time').map((point) => point.measured)")
    wanted = [0.1] * 3 + [0.3] * 3
    check("rates stand as times of a step", len(times) == 6 and all(abs(a / b - 1) < 1e-6 for a, b in zip(times, wanted)),
          str(times))
    errors = browser.evaluate("JSON.parse(document.getElementById('document').textContent).points.every((point) =>"
                              " Math.abs((point.metric === 'tokens_per_second_per_gpu' ? point.measured / point.predicted"
                              " : point.predicted / point.measured) - 1 - point.error) < 1e-9)")
    check("points lie where their errors say", errors)
    browser.evaluate("document.querySelector('[data-drawn=\"scatter-memory\"]').focus()")
    press(browser, "End")
    said = browser.evaluate("document.querySelector('[data-drawn=\"scatter-memory\"]').nextElementSibling.textContent")
    check("arrow keys say id, source, strategy and error", all(
        word in said for word in ("source ", "strategy ZeRO-2", "error ", "90 % interval ")), said)
    rows = browser.evaluate("document.querySelectorAll('#worst tbody tr').length")
    check("the worst predictions are listed", rows == 10, str(rows))
    check("text of a measurement does not run", browser.evaluate("window.harmed === undefined"))
    check_fits_screen(browser, "validation")
    check_quiet(browser, page)
    screenshot(browser, os.path.join(folder, "validation.png"))
    if shutil.which("node") is None and shutil.which("nodejs") is None:
        print("SKIPPED: NODE.JS IS NOT INSTALLED", file=sys.stderr)
        return
    picture = os.path.join(work, "validation.svg")
    done = subprocess.run([program, "validate", measurements, "--plot", picture], capture_output=True, text=True)
    check("validate writes validation.svg", done.returncode == 0 and os.path.exists(picture), done.stderr)
    root = xml.etree.ElementTree.parse(picture).getroot()
    texts = {one.text for one in root.iter() if one.tag.endswith("}text")}
    check("validation.svg has two plots", {"Memory, measured, GiB", "Time of a step, measured, s"} <= texts, str(texts))


def main():
    program, folder = sys.argv[1:3]
    chromium = find_chromium()
    if chromium is None:
        print("SKIPPED: CHROMIUM IS NOT INSTALLED", file=sys.stderr)
        return 77
    os.makedirs(folder, exist_ok=True)
    page = os.path.join(os.path.abspath(folder), "report.html")
    if not write_report(program, page, "llama-3.2-1b", "--compare-with", "--method lora; --cluster 3xTPU"):
        return 1
    browser = Browser(chromium)
    try:
        browser.attach()
        set_screen(browser, 1100, 900, False, "light")
        open_page(browser, page)
        check_plots(browser)
        check_front(browser)
        check_fits_screen(browser, "light")
        screenshot(browser, os.path.join(folder, "light.png"))
        check_mouse(browser, folder)
        check_keyboard(browser)
        check_quiet(browser, page)
        for name, width, height, mobile, theme in (("dark", 1100, 900, False, "dark"), ("phone", 390, 844, True, "light")):
            set_screen(browser, width, height, mobile, theme)
            open_page(browser, page)
            check_plots(browser)
            check_fits_screen(browser, name)
            shown = browser.evaluate("document.documentElement.dataset.theme")
            check(f"{name}: the system's colours are taken", shown == theme, shown)
            screenshot(browser, os.path.join(folder, name + ".png"))
        with tempfile.TemporaryDirectory() as work:
            check_text(browser, program, work)
            check_plot_command(program, work)
        set_screen(browser, 1100, 900, False, "light")
        check_validation(browser, program, folder)
        check_chinese(browser, program, folder)
    finally:
        browser.close()
    print(f"page: {len(failures)} failures; screenshots in {folder}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

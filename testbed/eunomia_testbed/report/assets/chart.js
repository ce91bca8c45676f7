// A drawing with axes: hover, keyboard, zoom and redrawing are the same for all; what it shows is its `draw`.
const tip = html("div", { id: "tip", role: "status", hidden: "" });

function showTip(mark, x, y) {
  const [first, ...rest] = mark.text.filter((line) => line);
  const swatch = mark.app ? html("span", { class: "swatch", style: `background:${look(mark.app).hue}` }) : null;
  tip.replaceChildren(html("strong", {}, swatch, first), ...rest.map((line) => html("div", {}, line)));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(6, Math.min(x + 14, innerWidth - box.width - 8)) + "px";
  tip.style.top = (y + 18 + box.height > innerHeight ? Math.max(6, y - box.height - 12) : y + 16) + "px";
}

function hideTip() {
  tip.hidden = true;
}

class Chart {
  // options: title, describe, height, time (its x axis is the run's), x and y ({domain, label, format, log, ticks (as in svg.js)}),
  // margin ({left, right, top, bottom}), app (if it shows one alone), wide, draw(chart)
  constructor(parent, options) {
    this.options = options;
    this.margin = { left: 44, right: 14, top: 10, bottom: 36, ...options.margin };
    this.root = html("figure", { class: options.wide ? "chart wide" : "chart" }, options.title ? html("figcaption", {}, options.title) : null);
    this.frame = svg("svg", { tabindex: 0, role: "img", "aria-label": `${options.title || ""}. ${options.describe || ""}` });
    this.clip = "clip-" + Chart.made;
    Chart.made += 1;
    this.root.append(this.frame);
    parent.append(this.root);
    this.listen();
    onChange(() => this.redraw());
    this.width = 0;
    new ResizeObserver(() => this.root.clientWidth !== this.width && this.redraw()).observe(this.root);
  }

  redraw() {
    const { options, margin } = this;
    this.root.hidden = isFaded(options.app);
    if (this.root.hidden || !this.root.isConnected || this.root.closest("[hidden]")) return;
    const width = Math.max(this.root.clientWidth, 260);
    const height = typeof options.height === "function" ? options.height() : options.height;
    this.width = this.root.clientWidth;
    this.area = { left: margin.left, right: width - margin.right, top: margin.top, bottom: height - margin.bottom };
    const time = options.time && options.time();
    const { left, right, top, bottom } = this.area;
    this.x = scale(time ? chosen.zoom || run.span : options.x().domain, [left, right], !time && options.x().log);
    this.y = scale(options.y().domain, [bottom, top], options.y().log);
    this.marks = [];
    this.at = -1;
    this.frame.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.back = svg("g");
    this.plot = svg("g", { "clip-path": `url(#${this.clip})` });
    this.front = svg("g");
    const clip = svg("clipPath", { id: this.clip }, svg("rect", { x: left - 8, y: 0, width: Math.max(right - left, 1) + 16, height }));
    this.frame.replaceChildren(clip, this.back, this.plot, this.front);
    this.zoomable = time;
    this.axes(time ? { label: run.clock, format: moment } : options.x(), options.y());
    options.draw(this);
    this.cursor = svg("rect", { class: "cursor", visibility: "hidden" });
    this.frame.append(this.cursor);
  }

  axes(x, y) {
    const { left, right, top, bottom } = this.area;
    const across = (this.zoomable ? momentTicks : x.ticks || ticks)(this.x.domain, Math.max(3, (right - left) / (this.zoomable ? 95 : 62)));
    let free = -Infinity; // where the last number ends
    for (const value of across.values) {
      const [at, text] = [this.x(value), x.format(value, x.log ? value : across.step)];
      this.back.append(svg("line", { x1: at, x2: at, y1: top, y2: bottom, class: "rule" }));
      const half = (text.length * 6.3) / 2;
      if (at - half < free) continue;
      free = at + half + 4;
      this.back.append(svg("text", { x: at, y: bottom + 15, class: "tick middle" }, text));
    }
    if (x.label) this.back.append(svg("text", { x: right, y: bottom + 30, class: "label end" }, x.log && !x.label.includes("logarithmic") ? `${x.label}, logarithmic` : x.label));
    if (!y.format) return;
    const up = (y.ticks || (y.log ? logTicks : ticks))(this.y.domain, (bottom - top) / (y.log ? 20 : 38));
    for (const value of up.values) {
      this.back.append(
        svg("line", { x1: left, x2: right, y1: this.y(value), y2: this.y(value), class: "rule" }),
        svg("text", { x: left - 6, y: this.y(value) + 4, class: "tick end" }, y.format(value, y.log ? value : up.step)));
    }
    const unit = y.log ? [y.label, "logarithmic"].filter((each) => each).join(", ") : y.label;
    if (unit) this.back.append(svg("text", { x: left - 36, y: top - 4, class: "label" }, unit));
  }

  // A line through points [x, y]; a point whose y is unknown breaks it.
  line(points, app, attributes = {}) {
    const { hue, dash } = look(app);
    let path = "";
    let pen = "M";
    for (const [x, y] of points) {
      if (y === null) pen = "M";
      else {
        path += `${pen}${this.x(x).toFixed(1)} ${this.y(y).toFixed(1)}`;
        pen = "L";
      }
    }
    const faded = isFaded(app) ? " faded" : "";
    this.plot.append(svg("path", { d: path, stroke: hue, "stroke-dasharray": dash, ...attributes, class: "line" + faded }));
  }

  // A line of a policy: the chosen run's is strong, the others' are pale; their dashes differ.
  policyLine(points, at, attributes = {}) {
    const path = points.map(([x, y], place) => `${place ? "L" : "M"}${this.x(x).toFixed(1)} ${this.y(y).toFixed(1)}`).join("");
    const strong = at === chosen.run ? " strong" : "";
    this.plot.append(svg("path", { d: path, "stroke-dasharray": dashOf(run.runs[at].policy), ...attributes, class: "line policy" + strong }));
  }

  dot(x, y, app, radius) {
    const faded = isFaded(app) ? " faded" : "";
    this.plot.append(svg("circle", { cx: this.x(x), cy: this.y(y), r: radius, fill: look(app).hue, class: "dot" + faded }));
  }

  // Names at the right ends of lines, pushed apart where they would overlap: entries {app, y, text}.
  endLabels(entries) {
    const sorted = entries.map((each) => ({ ...each, at: this.y(each.y) })).sort((a, b) => a.at - b.at);
    sorted.forEach((each, index) => {
      if (index) each.at = Math.max(each.at, sorted[index - 1].at + 14);
    });
    const over = sorted.length ? Math.max(0, sorted[sorted.length - 1].at - this.area.bottom) : 0;
    for (const each of sorted) {
      const attributes = { x: this.area.right + 6, y: each.at - over + 4, class: "name" + (each.app && isFaded(each.app) ? " faded" : "") + (each.strong ? " strong" : "") };
      const sample = each.app ? svg("tspan", { fill: look(each.app).hue }, "■ ") : null;
      this.front.append(svg("text", attributes, ...[sample, shorten(each.text, 16)].filter((part) => part !== null)));
    }
  }

  // Something to hover: a point (x, y in pixels) or a box ({left, right, top, bottom}), with lines of text.
  mark(mark) {
    const { left, right } = this.area;
    const [from, to] = mark.box ? [mark.box.left, mark.box.right] : [mark.x, mark.x];
    if (to >= left - 1 && from <= right + 1) this.marks.push(mark);
  }

  nearest(x, y) {
    const inside = this.marks.findLast(({ box }) => box && x >= box.left && x <= box.right && y >= box.top && y <= box.bottom);
    if (inside) return inside;
    let best = null;
    let distance = 24;
    for (const mark of this.marks) {
      if (mark.box) continue;
      const away = Math.hypot(mark.x - x, mark.y - y);
      if (away < distance && !isFaded(mark.app)) [best, distance] = [mark, away];
    }
    return best;
  }

  point(mark, x, y) {
    this.cursor.setAttribute("visibility", mark ? "visible" : "hidden");
    if (!mark) return hideTip();
    const box = mark.box || { left: mark.x - 5, right: mark.x + 5, top: mark.y - 5, bottom: mark.y + 5 };
    const place = { x: box.left, y: box.top, width: Math.max(box.right - box.left, 1), height: Math.max(box.bottom - box.top, 1) };
    Object.entries(place).forEach(([name, value]) => this.cursor.setAttribute(name, value));
    this.cursor.setAttribute("rx", mark.box ? 2 : 6);
    return showTip(mark, x, y);
  }

  place(event) {
    const box = this.frame.getBoundingClientRect();
    const stretch = (this.area.right + this.margin.right) / box.width;
    return [(event.clientX - box.left) * stretch, (event.clientY - box.top) * stretch];
  }

  listen() {
    const { frame } = this;
    frame.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      this.dragged = this.place(event)[0];
      addEventListener("pointerup", (up) => this.release(up), { once: true }); // wherever the button is let go
    });
    frame.addEventListener("pointermove", (event) => this.hover(event));
    frame.addEventListener("pointerleave", () => this.point(null));
    frame.addEventListener("dblclick", () => choose({ zoom: null }));
    frame.addEventListener("keydown", (event) => this.press(event));
    frame.addEventListener("blur", () => this.point(null));
  }

  hover(event) {
    const [x, y] = this.place(event);
    if (this.zoomable && event.buttons === 1 && this.dragged !== null && Math.abs(x - this.dragged) > 5) {
      if (!this.selection) {
        this.selection = svg("rect", { class: "selection", y: this.area.top, height: this.area.bottom - this.area.top });
        this.frame.append(this.selection);
      }
      this.selection.setAttribute("x", Math.min(x, this.dragged));
      this.selection.setAttribute("width", Math.abs(x - this.dragged));
      return;
    }
    const mark = this.nearest(x, y);
    this.frame.style.cursor = mark && (mark.app || mark.run >= 0) ? "pointer" : this.zoomable ? "crosshair" : "default";
    this.point(mark, event.clientX, event.clientY);
  }

  release(event) {
    const [x, y] = this.place(event);
    const from = this.dragged;
    this.dragged = null;
    if (this.selection) {
      this.selection.remove();
      this.selection = null;
      const [a, b] = [this.x.invert(Math.min(from, x)), this.x.invert(Math.max(from, x))];
      choose({ zoom: clampZoom([a, b]) });
    } else if (from !== null) {
      const mark = this.nearest(x, y);
      if (mark && mark.app) toggleApp(mark.app);
      else if (mark && mark.run >= 0 && mark.run !== chosen.run) choose({ run: mark.run });
      else if (!mark && chosen.app !== null) toggleApp(null);
    }
  }

  press(event) {
    const [from, to] = chosen.zoom || run.span;
    const length = to - from;
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const zooms = { "+": 0.25, "=": 0.25, "-": -0.5, _: -0.5 }[event.key];
    if (step && event.shiftKey && this.zoomable) choose({ zoom: clampZoom([from + (step * length) / 4, to + (step * length) / 4]) });
    else if (step) this.walk(step);
    else if (zooms && this.zoomable) choose({ zoom: clampZoom([from + length * zooms, to - length * zooms]) });
    else if (event.key === "Enter" && this.marks[this.at]) this.take(this.marks[this.at]);
    else return;
    event.preventDefault();
  }

  take(mark) {
    if (mark.app || !(mark.run >= 0)) toggleApp(mark.app || null);
    else choose({ run: mark.run });
  }

  walk(step) {
    if (!this.marks.length) return;
    this.at = (this.at + step + this.marks.length) % this.marks.length;
    const mark = this.marks[this.at];
    const box = this.frame.getBoundingClientRect();
    const shrink = box.width / (this.area.right + this.margin.right);
    const [x, y] = mark.box ? [Math.max(mark.box.left, this.area.left), mark.box.bottom] : [mark.x, mark.y];
    this.point(mark, box.left + x * shrink, box.top + y * shrink);
  }
}
Chart.made = 0;

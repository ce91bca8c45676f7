// Part 5. data: count, unit (app or job), distribution [seconds, share], named [app, seconds], shortest first,
// sizes [{label, jobs, wait, run}].
function drawSpeed(parent, data) {
  const grid = html("div", { class: "grid" });
  parent.append(grid);
  const [left, right] = [html("div"), html("div")];
  grid.append(left, right);
  drawJct(left, data);
  policyKey(left);
  if (data.sizes.length) drawSizes(right, data);
}

function drawJct(parent, data) {
  const curves = () => compared().map((at) => ({ at, points: (viewOf("speed", at) || { distribution: [] }).distribution })).filter((each) => each.points.length);
  const range = () => {
    const all = curves().flatMap(({ points }) => [points[0][0], points[points.length - 1][0]]).filter((value) => value > 0);
    return [Math.max(Math.min(...all, 1e9), 0.1) / 1.15, Math.max(...all, 1) * 1.15];
  };
  const axis = () => {
    const domain = range();
    if (domain[1] > 6 * domain[0]) return { domain, log: true, label: "JCT, logarithmic", format: roundTime, ticks: timeTicks };
    const unit = durationAxis(domain[1]);
    return { domain, label: "JCT", format: unit.format, ticks: unit.round };
  };
  const few = data.named.length <= 24;
  new Chart(parent, {
    title: `JCT: share of ${data.unit}s done within`,
    describe: `${data.count} ${data.unit}s that finished`,
    height: 290,
    margin: { right: 20, top: 18 },
    x: axis,
    y: () => ({ label: `${data.unit}s`, domain: [0, 1.02], format: (value) => number(100 * value) + " %" }),
    draw: (chart) => {
      const all = curves();
      const strongLast = [...all].sort((a, b) => (a.at === chosen.run) - (b.at === chosen.run));
      strongLast.forEach(({ at, points }) => chart.policyLine(stairsOf(points, chart.x.domain[0]), at));
      const dots = [];
      all.forEach(({ at, points }) => markCurve(chart, at, points, (value, share) => [`${number(100 * share, 1)} % within ${duration(value)}`, seconds(value, 0)]));
      data.named.forEach(([app, jct], at) => {
        if (!few && (chosen.app === null || isFaded(app))) return;
        const [x, y] = [chart.x(Math.max(jct, chart.x.domain[0])), chart.y((at + 1) / data.named.length)];
        chart.front.append(svg("circle", { cx: x, cy: y, r: chosen.app === app ? 7 : few ? 5 : 6, fill: look(app).hue, class: "dot" + (isFaded(app) ? " faded" : "") }));
        dots.push({ x, y, r: 7 });
        chart.mark({ x, y, app, text: [app, `JCT ${duration(jct)}`, `${at + 1} of ${data.named.length} ${data.unit}s at or below`] });
      });
      placeLabels(chart, curveLabels(chart, all), { dots, lines: curveBoxes(chart, all) });
    },
  });
}

// An exact distribution as stairs from the left edge; a thinned one as straight pieces.
function stairsOf(points, from) {
  const known = points.map(([value, share]) => [Math.max(value, from), share]);
  const begun = [[from, 0], [known[0][0], 0]];
  if (points.length > 250) return [...begun, ...known];
  return [...begun, ...known.flatMap((point, at) => (at ? [[point[0], known[at - 1][1]], point] : [point]))];
}

// The name of each of several curves, at a height of its own, so that it stands beside its curve.
function curveLabels(chart, curves) {
  if (curves.length < 2) return [];
  return curves.map(({ at, points }, place) => {
    const share = 0.9 - (0.75 * (place + 0.5)) / curves.length;
    const [value] = points.find((point) => point[1] >= share) || points[points.length - 1];
    return { x: chart.x(Math.max(value, chart.x.domain[0])), y: chart.y(share), r: 3, text: shorten(run.runs[at].policy, 20), strong: at === chosen.run };
  });
}

function curveBoxes(chart, curves) {
  return curves.flatMap(({ points }) => boxesAlong([...stairsOf(points, chart.x.domain[0]), [chart.x.domain[1], 1]].map(([value, share]) => [chart.x(value), chart.y(share)])));
}

function markCurve(chart, at, points, words) {
  const every = Math.max(1, Math.floor(points.length / 80));
  points.filter((_, place) => place % every === 0 || place === points.length - 1).forEach(([value, share]) => {
    const name = run.runs.length > 1 ? run.runs[at].name : words(value, share)[0];
    chart.mark({ x: chart.x(Math.max(value, chart.x.domain[0])), y: chart.y(share), run: at, text: [name, ...words(value, share).filter((line) => line !== name)] });
  });
}

function drawSizes(parent, data) {
  const key = html("p", { class: "key" }, keyItem("other", "mean run"), keyItem("wait", "mean wait"));
  const place = html("div");
  parent.append(place, key);
  let shown = null;
  const draw = () => {
    const runs = compared().filter((at) => viewOf("speed", at));
    const name = runs.join() + "/" + chosen.run;
    if (name === shown) return;
    shown = name;
    const few = runs.length * data.sizes.length <= 40 ? runs : [chosen.run];
    const rows = data.sizes.flatMap(({ label }) => few.flatMap((at) => {
      const size = viewOf("speed", at).sizes.find((each) => each.label === label);
      if (!size) return [];
      const jct = size.wait + size.run;
      const group = few.length > 1 ? slots(label) : null;
      return [{
        group, label: few.length > 1 ? run.runs[at].policy : slots(label), strong: few.length > 1 && at === chosen.run, run: at,
        parts: [{ value: size.run, look: "other", text: "mean run" }, { value: size.wait, look: "wait", text: "mean wait" }], end: duration(jct),
        notes: [`${number(size.jobs)} jobs, mean JCT ${duration(jct)}`, `${number((100 * size.wait) / (jct || 1), 0)} % of it waiting`],
      }];
    }));
    const largest = Math.max(...rows.map((row) => row.parts[0].value + row.parts[1].value));
    const unit = durationAxis(largest);
    place.replaceChildren();
    const chart = drawBars(place, { title: "Where the time of finished jobs went, by gang size", rows, format: duration, unit });
    chart.redraw();
  };
  onChange(draw);
}

function slots(label) {
  return label === "1" ? "1 slot" : `${label} slots`;
}

function keyItem(name, text) {
  return html("span", {}, svg("svg", { width: 24, height: 13, "aria-hidden": "true" },
    svg("rect", { width: 24, height: 13, rx: 2, class: "lying " + name }),
    HATCHED.includes(name) ? svg("rect", { width: 24, height: 13, fill: `url(#hatch-${name})` }) : null), text);
}

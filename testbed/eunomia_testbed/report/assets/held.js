// Part 3: a row a slot, by machine; a heat map (heat.js) where there is `heat`. data: rows [{machine, slot}], bars as columns
// {jobs [job, app], by (a way: the group of each of these jobs), activities, row, start, length, job, activity, note (number of its text)}, notes, drawn (what is left out),
// occupied {until, rows [{levels}]} of the leases that are not bars, or null,
// rounds [seconds, number, trigger, free slots, changes, fault], faults [seconds, text, app].
const MACHINE = 18; // letters of a machine's name
let ROW = 30;

function rowHeight(rows) {
  return rows > 40 ? 13 : rows > 16 ? 17 : 30;
}

function drawHeld(parent, data) {
  if (data.heat) return drawHeat(parent, data.heat);
  const top = 26;
  const longest = Math.min(Math.max(...data.rows.map((row) => row.machine.length)), MACHINE);
  const { bars } = data;
  parent.append(heldLegend());
  colourChoice(parent);
  if (data.drawn) parent.append(html("p", { class: "asks" }, data.drawn));
  return new Chart(parent, {
    describe: `${data.rows.length} slots, ${bars.row.length} bars; arrows step through them`,
    height: () => top + data.rows.length * rowHeight(data.rows.length) + 36,
    margin: { left: 60 + 7 * longest, top },
    time: () => true,
    y: () => ({ domain: [data.rows.length, 0] }),
    draw: (chart) => {
      ROW = rowHeight(data.rows.length);
      drawRows(chart, data.rows);
      drawRounds(chart, data.rounds);
      if (data.occupied) drawOccupied(chart, data.occupied);
      chart.thin = new Map();
      const way = wayShown();
      bars.row.forEach((row, at) => {
        const [job, app] = bars.jobs[bars.job[at]];
        const group = way === "app" ? null : bars.by[way][bars.job[at]];
        const held = { app, group, look: way === "app" ? look(app) : groupLook(group), words: groupWords(bars.by, bars.job[at]), faded: isFaded(app) || isGroupFaded(way, group) ? " faded" : "" };
        drawBar(chart, data, [row, bars.start[at], bars.start[at] + bars.length[at], held, job, bars.activities[bars.activity[at]], bars.note[at]]);
      });
      drawThin(chart);
      data.faults.forEach((fault) => drawFault(chart, fault));
    },
  });
}

function heldLegend() {
  const item = (name, text) => html("span", {}, svg("svg", { width: 24, height: 13, "aria-hidden": "true" },
    svg("rect", { width: 24, height: 13, rx: 2, class: "sample " + name }),
    svg("rect", { width: 24, height: 13, fill: `url(#hatch-${name})` })), text);
  return html("p", { class: "key" }, item("run", "run"), item("start", "start"), item("restore", "restore"),
    item("save", "save"), item("idle", "held, idle"), item("free", "free"), html("span", {}, "▾ round"), html("span", { class: "fault" }, "✕ fault"));
}

function gap() {
  return ROW >= 30 ? 3 : 1;
}

function drawRows(chart, rows) {
  const { left, right } = chart.area;
  rows.forEach(({ machine, slot }, at) => {
    const y = chart.y(at);
    chart.back.append(
      svg("rect", { x: left, y: y + gap(), width: right - left, height: ROW - 2 * gap(), rx: 3, class: "track" }),
      svg("text", { x: left - 8, y: y + ROW / 2 + 4, class: ROW < 16 ? "tick end small" : "tick end" }, `slot ${slot}`));
    if (at && rows[at - 1].machine !== machine) chart.back.append(svg("line", { x1: 0, x2: right, y1: y, y2: y, class: "machine" }));
    if (!at || rows[at - 1].machine !== machine) chart.back.append(svg("text", { x: 0, y: y + ROW / 2 + 4, class: "name" }, shorten(machine, MACHINE)));
  });
}

function drawRounds(chart, rounds) {
  const { top, bottom } = chart.area;
  const [from, to] = chosen.zoom || run.span;
  const upright = rounds.filter(([time]) => time >= from && time <= to).length <= 200;
  let labelled = -Infinity;
  for (const [time, round, trigger, free, changes, fault] of rounds) {
    const x = chart.x(time);
    if (x < chart.area.left - 1 || x > chart.area.right + 1) continue;
    chart.plot.append(...(upright ? [svg("line", { x1: x, x2: x, y1: top - 6, y2: bottom, class: "round" })] : []), svg("path", { d: `M${x - 3} ${top - 8}h6l-3 5z`, class: "flag" }));
    if (x - labelled > 14 + 7 * String(round).length) {
      chart.front.append(svg("text", { x: Math.min(x, chart.area.right - 8), y: top - 12, class: "tick middle" }, round));
      labelled = x;
    }
    const text = [`round ${round} at ${seconds(time, 2)}`, trigger && `because: ${trigger.replaceAll("_", " ")}`, free !== null && `${free} slots free`, changes, fault && `fault: ${fault}`];
    chart.mark({ box: { left: x - 4, right: x + 4, top: 0, bottom: top - 1 }, text });
  }
}

function drawBar(chart, { rows, notes }, [row, start, end, held, job, activity, note]) {
  const { app, faded } = held;
  const box = { left: chart.x(start), right: chart.x(end), top: chart.y(row) + gap(), bottom: chart.y(row) + ROW - gap() };
  if (box.right < chart.area.left || box.left > chart.area.right) return;
  const place = { x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top };
  const thin = place.width < THIN;
  if (thin) addThin(chart, row, box, held);
  else chart.plot.append(svg("rect", { ...place, fill: paint(held.look), class: `bar ${activity}${faded}${place.width < 4 ? " close" : ""}` }));
  if (!thin && ["start", "restore", "save", "idle"].includes(activity)) chart.plot.append(svg("rect", { ...place, fill: `url(#hatch-${activity})`, class: faded }));
  const label = job.startsWith(app + "/") ? job.slice(app.length + 1) : job;
  const room = Math.min(box.right, chart.area.right) - Math.max(box.left, chart.area.left);
  const small = ROW <= 15;
  if (activity === "run" && ROW > 10 && room > label.length * (small ? 5.2 : 6.6) + 6) {
    const middle = (Math.min(box.right, chart.area.right) + Math.max(box.left, chart.area.left)) / 2;
    chart.plot.append(svg("text", { x: middle, y: (box.top + box.bottom) / 2 + (small ? 3 : 4), style: `fill:${held.look.ink}`, class: (small ? "inside tiny middle" : "inside middle") + faded }, label));
  }
  const where = `${rows[row].machine}, slot ${rows[row].slot}`;
  const text = [job, `${activity} for ${seconds(end - start, 2)}: ${seconds(start, 2)} to ${seconds(end, 2)}`, where, held.words, ...notes[note].split("; ")];
  chart.mark({ box, app, text });
}

// What leases that are too many to draw one by one took of each bucket of time; grey, as apps share a bucket.
function drawOccupied(chart, { rows, until }) {
  const paths = Array.from({ length: 11 }, () => "");
  rows.forEach(({ levels }, at) => {
    const width = until / levels.length;
    const [top, bottom] = [chart.y(at) + gap(), chart.y(at) + ROW - gap()];
    for (let from = 0; from < levels.length;) {
      let to = from + 1;
      while (to < levels.length && levels[to] === levels[from]) to += 1;
      if (levels[from] !== "0") paths[levelOf(levels[from])] += `M${chart.x(from * width).toFixed(1)} ${top}H${chart.x(to * width).toFixed(1)}V${bottom}H${chart.x(from * width).toFixed(1)}Z`;
      from = to;
    }
  });
  const faded = chosen.app === null ? "" : " faded";
  paths.forEach((path, level) => path && chart.plot.append(svg("path", { d: path, "fill-opacity": 0.25 + 0.075 * level, class: "crowd" + faded })));
}

// Stretches narrower than a pixel are added up by row and pixel column, by colour.
const THIN = 1;

function addThin(chart, row, box, { look, faded }) {
  const colour = look.hue + faded;
  for (let column = Math.floor(box.left); column < box.right || column === Math.floor(box.left); column += 1) {
    const key = `${row} ${column}`;
    if (!chart.thin.has(key)) chart.thin.set(key, { row, column, held: new Map() });
    const { held } = chart.thin.get(key);
    held.set(colour, (held.get(colour) || 0) + Math.max(Math.min(box.right, column + 1) - Math.max(box.left, column), 0));
  }
}

// A column has the colour that held most of it, darker the more of it was held.
function drawThin(chart) {
  for (const { row, column, held } of chart.thin.values()) {
    const total = [...held.values()].reduce((sum, each) => sum + each, 0);
    const [colour] = [...held].reduce((most, each) => (each[1] > most[1] ? each : most));
    const [hue, faded] = colour.split(" ");
    chart.plot.append(svg("rect", { x: column, y: chart.y(row) + gap(), width: 1, height: ROW - 2 * gap(), fill: hue, "fill-opacity": 0.4 + 0.6 * Math.min(total, 1), class: faded ? "occupied faded" : "occupied" }));
  }
}

function drawFault(chart, [time, text, app]) {
  const [x, y] = [chart.x(time), chart.area.top - 5];
  chart.plot.append(svg("text", { x, y: y + 6, class: "fault middle" }, "✕"));
  chart.mark({ box: { left: x - 6, right: x + 6, top: y - 8, bottom: y + 8 }, app, text: ["fault", `at ${seconds(time, 2)}`, text] });
}

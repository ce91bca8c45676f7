// Part 3 of large clusters: rows of machines by buckets of time. data.heat: rows [{name, slots, levels, used}], until,
// by (a way: for each row a letter a bucket, the group that held most of it: a to r, z another, a dot: none),
// stripes [[row, start, end, app, part of the row's slots]] or null.
const HEAT_NAME = 24;

function drawHeat(parent, heat) {
  const { rows, until, stripes } = heat;
  const size = rows.length > 40 ? 9 : rows.length > 20 ? 13 : 18;
  const letters = Math.min(Math.max(...rows.map((row) => row.name.length)), HEAT_NAME);
  parent.append(heatKey());
  colourChoice(parent, "use");
  new Chart(parent, {
    title: `Part of each machine's slots in use${rows.some((row) => row.name.includes(" to ")) ? ", neighbours together" : ""}`,
    describe: `${rows.length} rows; arrows step through them`,
    height: () => rows.length * size + 44,
    margin: { left: 14 + letters * 6.3, top: 6 },
    time: () => true,
    y: () => ({ domain: [rows.length, 0] }),
    draw: (chart) => {
      const faded = chosen.app !== null && stripes ? " faded" : "";
      chart.groups = heat.by[chosen.by];
      rows.forEach((row, at) => drawHeatRow(chart, row, at, until, size));
      drawCells(chart, rows, until, faded, chart.groups);
      if (stripes && chosen.app !== null) stripes.filter((stripe) => stripe[3] === chosen.app).forEach((stripe) => drawStripe(chart, rows, stripe));
    },
  });
}

function heatKey() {
  const cells = [0, 2, 4, 6, 8, 10].map((level) => svg("rect", { x: 8 + level * 9, width: 18, height: 13, class: "cell", "fill-opacity": heatOpacity(level) }));
  return html("p", { class: "key" }, html("span", {}, "none"), svg("svg", { width: 124, height: 13, "aria-hidden": "true" }, ...cells), html("span", {}, "all slots in use"));
}

function heatOpacity(level) {
  return level === 0 ? 0.05 : 0.1 + 0.085 * level;
}

// Who held most of a cell, in words; null: colours show use alone.
function groupText(chart, at, bucket) {
  const letter = chart.groups ? chart.groups[at][bucket] : ".";
  if (letter === ".") return null;
  return letter === "z" ? "most by others" : `most by ${run.groups[chosen.by].names[groupOf(letter)]}`;
}

function drawHeatRow(chart, row, at, until, size) {
  const y = chart.y(at);
  const every = size >= 12 ? 1 : 2;
  if (at % every === 0) chart.back.append(svg("text", { x: chart.area.left - 6, y: y + size / 2 + 4, class: "tick end small" }, shorten(row.name, HEAT_NAME)));
  const [from, to] = chosen.zoom || run.span;
  const width = until / row.levels.length;
  const [first, last] = [Math.max(Math.floor(from / width), 0), Math.min(Math.ceil(to / width), row.levels.length)];
  for (let bucket = first; bucket < last; bucket += 1) {
    const level = levelOf(row.levels[bucket]);
    const box = { left: chart.x(bucket * width), right: chart.x((bucket + 1) * width), top: y, bottom: y + size };
    const use = level === 10 ? "all" : level === 0 ? "none" : `${Math.round(((level - 1) / 9) * 100)} to ${Math.round((level / 9) * 100)} %`;
    chart.mark({ box, text: [row.name, `${use} of ${number(row.slots)} slots in use`, groupText(chart, at, bucket), `${moment(bucket * width, 1)} to ${moment((bucket + 1) * width, 1)}`, `${number(100 * row.used, 1)} % over all`] });
  }
}

function levelOf(letter) {
  return letter === "A" ? 10 : Number(letter);
}

// One path for each level and group: runs of equal cells are one rectangle.
function drawCells(chart, rows, until, faded, groups) {
  const paths = new Map();
  rows.forEach(({ levels }, at) => {
    const width = until / levels.length;
    const [top, bottom] = [chart.y(at), chart.y(at + 1) - 1];
    const cell = (bucket) => levels[bucket] + (groups ? groups[at][bucket] : "");
    for (let from = 0; from < levels.length;) {
      let to = from + 1;
      while (to < levels.length && cell(to) === cell(from)) to += 1;
      const path = `M${chart.x(from * width).toFixed(1)} ${top.toFixed(1)}H${chart.x(to * width).toFixed(1)}V${bottom.toFixed(1)}H${chart.x(from * width).toFixed(1)}Z`;
      paths.set(cell(from), (paths.get(cell(from)) || "") + path);
      from = to;
    }
  });
  for (const [key, path] of paths) {
    const group = groups && key[1] !== "." ? groupOf(key[1]) : null;
    const away = group !== null && isGroupFaded(chosen.by, group) ? " faded" : faded;
    chart.plot.append(svg("path", { d: path, "fill-opacity": heatOpacity(levelOf(key[0])), class: "cell" + away, style: group === null ? null : `fill:${groupLook(group).hue}` }));
  }
}

function groupOf(letter) {
  return letter === "z" ? -1 : letter.charCodeAt(0) - 97;
}

function drawStripe(chart, rows, [row, start, end, app, part]) {
  const height = Math.max((chart.y(row + 1) - chart.y(row) - 1) * part, 2);
  const box = { left: chart.x(start), right: chart.x(end), top: chart.y(row), bottom: chart.y(row) + height };
  chart.plot.append(svg("rect", { x: box.left, y: box.top, width: Math.max(box.right - box.left, 1), height, fill: look(app).hue === "var(--grey)" ? "#D55E00" : look(app).hue }));
  chart.mark({ box, app, text: [app, `${seconds(start, 0)} to ${seconds(end, 0)}`, `${number(part * rows[row].slots)} slots of ${rows[row].name}`] });
}

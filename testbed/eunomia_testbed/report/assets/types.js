// GPU types. data: reference (the type that speeds refer to, or null), types [{name, gpus, held, speed, wait}],
// models [[type, model, GPU-seconds]].
const TYPE_BARS = [
  ["held", "Share of each type's GPU time held", (value) => number(100 * value, 1) + " %", (value) => number(100 * value) + " %"],
  ["speed", "Mean speed", (value) => number(value, 2), tick],
  ["wait", "Mean wait of a job before it got GPUs of the type", duration, null],
];

function drawTypes(parent, data) {
  const grid = html("div", { class: "grid" });
  parent.append(grid);
  TYPE_BARS.forEach(([name, title, format, axis]) => drawByType(grid, name, name === "speed" && data.reference ? `${title} against ${data.reference}` : title, format, axis));
  if (data.models.length) drawModels(grid, data.models);
}

// A bar for each type, of several policies one for each of them.
function drawByType(parent, name, title, format, axis) {
  const place = html("div");
  parent.append(place);
  let shown = null;
  onChange(() => {
    const runs = compared().filter((at) => viewOf("types", at));
    const key = runs.join() + "/" + chosen.run;
    if (key === shown || !runs.length) return;
    shown = key;
    const several = runs.length > 1;
    const rows = viewOf("types", runs[0]).types.flatMap((type) => runs.flatMap((at) => {
      const mine = viewOf("types", at).types.find((each) => each.name === type.name);
      if (!mine || mine[name] === null) return [];
      const policy = run.runs[at].policy;
      return [{
        group: several ? type.name : null, label: several ? policy : type.name, strong: several && at === chosen.run, run: at,
        parts: [{ value: mine[name], look: "other" }], end: format(mine[name]), notes: [`${number(mine.jobs)} jobs on ${number(mine.gpus)} GPUs`],
      }];
    }));
    place.replaceChildren();
    if (!rows.length) return;
    const unit = name === "wait" ? durationAxis(Math.max(...rows.map((row) => row.parts[0].value))) : null;
    drawBars(place, { title, rows, format, axis, unit, most: name === "held" ? 1 : null }).redraw();
  });
}

function drawModels(parent, models) {
  const rows = models.map(([type, model, held]) => ({ group: type, label: model, parts: [{ value: held, look: "other" }], end: duration(held) }));
  const unit = durationAxis(Math.max(...models.map((row) => row[2])));
  drawBars(parent, { title: "GPU time by type and model", rows, format: duration, unit });
}

// Names beside their dots. Each takes the nearest place where it covers neither a dot nor another name and is not cut off;
// a thin line leads to a name that is not next to its dot.
const LETTERS = document.createElement("canvas").getContext("2d");
const LETTER_HEIGHT = 13;

function textWidth(text, strong) {
  if (!LETTERS) return text.length * 7.2;
  LETTERS.font = `${strong ? "700 " : ""}12px ${getComputedStyle(document.body).fontFamily}`;
  return LETTERS.measureText(text).width + 2;
}

// Boxes around a dot, nearest first: to the right and left, above and below, then further away.
function* placesAround({ x, y, r }, width) {
  const beside = (dy, away) => [
    { left: x + r + away, top: y + dy - LETTER_HEIGHT / 2 },
    { left: x - r - away - width, top: y + dy - LETTER_HEIGHT / 2 },
  ];
  yield* beside(0, 4);
  for (const dy of [-(r + 9), r + 9]) yield { left: x - width / 2, top: y + dy - LETTER_HEIGHT / 2 };
  for (let step = 1; step <= 24; step += 1) {
    const dy = step * 9;
    for (const sign of [1, -1]) yield* beside(sign * dy, step < 3 ? 4 : 12);
    if (step > 2) for (const sign of [1, -1]) yield* beside(sign * dy, 40);
  }
}

function meet(one, other) {
  return one.left < other.left + other.width && one.left + one.width > other.left && one.top < other.top + other.height && one.top + one.height > other.top;
}

// Boxes along a line through points in pixels, for names to keep clear of.
function boxesAlong(points) {
  return points.slice(1).flatMap(([x, y], at) => {
    const [fromX, fromY] = points[at];
    const pieces = Math.min(Math.max(1, Math.ceil(Math.hypot(x - fromX, y - fromY) / 6)), 400);
    return Array.from({ length: pieces + 1 }, (_, piece) => {
      const part = piece / pieces;
      return { left: fromX + part * (x - fromX) - 1, top: fromY + part * (y - fromY) - 1, width: 2, height: 2 };
    });
  });
}

// labels: [{x, y, r (of its dot), text, strong, faded}]; dots: [{x, y, r}] of the drawing that no name may cover; lines: boxes
// that names cover only where there is no other room.
function placeLabels(chart, labels, { dots = labels, lines = [] } = {}) {
  const { right, bottom } = chart.area;
  const limit = { left: 0, right: right + chart.margin.right - 2, top: 2, bottom: bottom - 1 };
  const taken = dots.map(({ x, y, r }) => ({ left: x - r - 1, top: y - r - 1, width: 2 * r + 2, height: 2 * r + 2 }));
  const inside = (box) => box.left >= chart.area.left + 2 && box.left + box.width <= limit.right && box.top >= limit.top && box.top + box.height <= limit.bottom;
  for (const { x, y, r, text, strong, faded } of labels) {
    const width = textWidth(text, strong);
    const places = [...placesAround({ x, y, r }, width)].map((place) => ({ ...place, width, height: LETTER_HEIGHT }));
    const open = places.filter((box) => inside(box) && !taken.some((each) => meet(box, each)));
    const found = open.find((box) => !lines.some((each) => meet(box, each))) || open[0];
    if (!found) continue; // no room at all: hover, keyboard and table have the name
    taken.push(found);
    const ends = [found.left, found.left + width];
    const near = Math.abs(ends[0] - x) < Math.abs(ends[1] - x) ? ends[0] : ends[1];
    const [toX, toY] = [x >= ends[0] && x <= ends[1] ? x : near, found.top + LETTER_HEIGHT / 2];
    if (Math.hypot(toX - x, toY - y) > r + 14) chart.back.append(svg("path", { d: `M${x} ${y}L${toX} ${toY}`, class: "leader" + (faded || "") }));
    chart.front.append(svg("text", { x: found.left, y: found.top + LETTER_HEIGHT - 3, class: `name halo${strong ? " strong" : ""}${faded || ""}` }, text));
  }
}

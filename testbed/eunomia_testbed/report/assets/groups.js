// Colours of "Who held what": by app, or by the user, model or length class that the reader chooses, as more jobs than there
// are colours can be told apart by these. run.groups: by way {names (in the order of their colours), others}.
const WAYS = ["user", "model", "length"];
const WAY_TITLES = { app: "app", user: "user", model: "model", length: "length alone" };
const COLOURS = 18;

function ways() {
  return WAYS.filter((way) => run.groups[way]);
}

// The way that colours show: the chosen one; else by app, of more apps than colours by the first way that fits the colours.
function wayShown() {
  if (chosen.by) return chosen.by;
  if (Math.max(run.appCount, run.apps.length) <= COLOURS) return "app";
  return ways().find((way) => !run.groups[way].others) || ways()[0] || "app";
}

function groupLook(group) {
  return group < 0 ? lookOf(-1) : lookOf(group);
}

function isGroupFaded(way, group) {
  return way !== "app" && chosen.group !== null && chosen.group !== group;
}

// "Colour by": a button for each way, and the names of the groups, each of which shows its jobs alone.
function colourChoice(parent, first = "app") {
  const choice = html("div", { class: "switch", role: "group", "aria-label": "Colour by" });
  const names = html("p", { class: "key groups", role: "group", "aria-label": "Groups" });
  parent.append(choice, names);
  onChange(() => {
    const shown = first === "app" ? wayShown() : chosen.by || "app";
    const button = (way) => html("button", { "aria-pressed": String(way === shown), onclick: () => choose({ by: way, group: null }) }, way === "app" ? first : WAY_TITLES[way]);
    const focused = [...choice.children, ...names.children].findIndex((each) => each === document.activeElement);
    if (ways().length) choice.replaceChildren(html("span", { class: "asks" }, "Colour by "), ...["app", ...ways()].map(button));
    names.replaceChildren(...(first === "use" && shown === "app" ? [] : groupNames(shown)));
    if (focused >= 0) ([...choice.children, ...names.children][focused] || choice.lastChild).focus();
  });
}

function groupNames(way) {
  if (way === "app") return run.apps.length > COLOURS ? [] : run.apps.map((app) => html("span", { class: "paper" }, swatchOf(look(app)), app));
  const { names, others } = run.groups[way];
  const named = names.map((name, group) => html("button", { class: "app", "aria-pressed": String(chosen.group === group), title: `Show the jobs of ${name} alone`, onclick: () => choose({ group: chosen.group === group ? null : group }) }, swatchOf(lookOf(group)), name));
  return others ? [...named, html("span", {}, swatchOf(lookOf(-1)), `${number(others)} others`)] : named;
}

function swatchOf({ hue, weave }) {
  return html("span", { class: `swatch weave-${weave}`, style: `background-color:${hue}` });
}

// A job's groups in words, such as "user ana, model ResNet-50, 1 h to 6 h alone".
function groupWords(by, job) {
  const words = ways().filter((way) => by[way] && by[way][job] >= 0).map((way) => {
    const name = run.groups[way].names[by[way][job]];
    return way === "length" ? `${name} alone` : `${way} ${name}`;
  });
  return words.join(", ");
}

// Policies: distinguished by dash and name, never by colour; the chosen run's line is the strong one.
const POLICY_DASHES = [null, "8 4", "2 3", "10 3 2 3", "4 2", "14 4", "8 3 2 3 2 3", "1 4"];

function dashOf(policy) {
  return POLICY_DASHES[run.policies.indexOf(policy) % POLICY_DASHES.length];
}

function dashSample(policy) {
  const line = svg("line", { x1: 1, x2: 29, y1: 6, y2: 6, "stroke-dasharray": dashOf(policy), class: "sampleline" });
  return svg("svg", { width: 30, height: 12, class: "dash", "aria-hidden": "true" }, line);
}

// The policy's name as a button that shows its run in every part.
function policyButton(policy) {
  const at = run.runs.findIndex((each) => each.policy === policy);
  if (at < 0) return html("span", {}, policy);
  const mine = run.runs[chosen.run].policy === policy;
  return html("button", { class: "app", "aria-pressed": String(mine), title: `Show ${policy} in every part`, onclick: () => mine || choose({ run: at }) }, dashSample(policy), policy);
}

function drawRunPicker() {
  const place = document.getElementById("runs");
  place.hidden = run.runs.length < 2;
  if (place.hidden) return;
  onChange(() => {
    const buttons = run.runs.map((each, at) => html("button", { "aria-pressed": String(at === chosen.run), onclick: () => choose({ run: at }) }, dashSample(each.policy), each.name));
    const focused = [...place.children].indexOf(document.activeElement);
    place.replaceChildren(...buttons);
    if (focused >= 0) place.children[focused].focus();
  });
}

// Names of the policies that a drawing compares, each with its dash.
function policyKey(parent) {
  if (run.policies.length < 2) return;
  const key = html("p", { class: "key" });
  parent.append(key);
  onChange(() => key.replaceChildren(...compared().map((at) => {
    const strong = at === chosen.run;
    return html("span", { class: strong ? "strong" : null }, dashSample(run.runs[at].policy), run.runs[at].policy, strong ? " (shown)" : "");
  })));
}

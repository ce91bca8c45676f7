// Sortable tables, filtered by the chosen app. `app` and `group` are positions of columns.
const FIRST_ROWS = 40;

class SortableTable {
  constructor(parent, spec) {
    this.spec = spec;
    this.sorted = { column: null, down: false };
    this.unit = spec.unit || unitOfTable(spec);
    this.all = spec.rows.length <= FIRST_ROWS + 10;
    this.body = html("tbody");
    this.heads = spec.columns.map((column, at) => this.head(column, at));
    this.table = html("table", {}, html("thead", {}, html("tr", {}, ...this.heads)), this.body);
    this.more = html("button", { class: "more", onclick: () => this.showAll() });
    const content = html("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": spec.title }, this.table);
    const wide = html("p", { class: "aside", "aria-hidden": "true" }, "more columns: scroll sideways ⟷");
    const around = spec.folded
      ? html("details", {}, html("summary", {}, spec.title), wide, content, this.more)
      : html("div", {}, html("h3", {}, spec.title), wide, content, this.more);
    parent.append(around);
    showOverflow(around, content);
    addEventListener("beforeprint", () => content.replaceChildren(...this.onPaper()));
    addEventListener("afterprint", () => content.replaceChildren(this.table));
    onChange(() => this.redraw());
    this.redraw();
  }

  head(column, at) {
    const label = this.label(column);
    const button = html("button", { title: column.hint || null, onclick: () => this.sortBy(at) }, label);
    return html("th", { class: column.kind, "aria-sort": "none", scope: "col" }, button);
  }

  sortBy(column) {
    const numeric = ["number", "seconds", "percent", "flag"].includes(this.spec.columns[column].kind);
    const again = this.sorted.column === column;
    this.sorted = { column, down: again ? !this.sorted.down : numeric };
    this.heads.forEach((head, at) => {
      head.setAttribute("aria-sort", at !== column ? "none" : this.sorted.down ? "descending" : "ascending");
    });
    this.redraw();
  }

  showAll() {
    this.all = true;
    this.redraw();
  }

  rows() {
    const { rows, app } = this.spec;
    const shown = rows.filter((row) => app === null || !isFaded(row[app]));
    const { column, down } = this.sorted;
    if (column === null) return shown;
    const compare = (a, b) => {
      if (a === null || b === null) return (a === null) - (b === null); // what is unknown comes last, either way
      const order = typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
      return down ? -order : order;
    };
    return [...shown].sort((one, two) => compare(one[column], two[column]));
  }

  redraw() {
    const { columns, group } = this.spec;
    const rows = this.rows();
    const shown = this.all ? rows : rows.slice(0, FIRST_ROWS);
    const grouped = group !== null && chosen.app === null && (this.sorted.column === null || this.sorted.column === group);
    this.body.replaceChildren(...shown.map((row, at) => {
      const begins = grouped && at > 0 && row[group] !== shown[at - 1][group];
      return html("tr", { class: begins ? "begins" : null }, ...row.map((value, place) => this.cell(value, columns[place])));
    }));
    if (!rows.length) this.body.append(html("tr", {}, html("td", { colspan: columns.length, class: "none" }, "nothing for this app")));
    this.more.hidden = shown.length === rows.length;
    this.more.textContent = `Show all ${number(rows.length)} rows`;
  }

  // Every row; of more columns than a page is wide several tables, each with the first column.
  onPaper() {
    const { columns } = this.spec;
    const rows = this.rows();
    const parts = columnsByPage(columns.map((column, at) => this.paperWidth(column, at, rows)));
    return parts.map((part, at) => html("table", {},
      at ? html("caption", {}, `${this.spec.title}, the other columns${parts.length > 2 ? ` (${at} of ${parts.length - 1})` : ""}`) : null,
      html("thead", {}, html("tr", {}, ...part.map((place) => html("th", { class: columns[place].kind, scope: "col" }, this.label(columns[place]))))),
      html("tbody", {}, ...rows.map((row) => html("tr", {}, ...part.map((place) => this.cell(row[place], columns[place])))))));
  }

  // The width of a column on paper, in letters: of numbers the longest, of words at most as many as wrap well.
  paperWidth(column, at, rows) {
    const longest = rows.reduce((most, row) => Math.max(most, this.text(row[at], column).length), 0);
    const wraps = column.kind === "text" || column.kind === "code";
    const head = Math.max(...this.label(column).split(" ").map((word) => word.length));
    return Math.max(wraps ? Math.min(longest, 34) : longest + (column.kind === "app" ? 3 : column.kind === "policy" ? 7 : 0), head);
  }

  label(column) {
    return column.kind === "seconds" ? `${column.label} (${this.unit})` : column.label;
  }

  text(value, column) {
    return column.kind === "seconds" ? inUnit(value, this.unit, column.digits) : cellText(value, column);
  }

  cell(value, column) {
    const text = this.text(value, column);
    if (column.kind === "app" && value !== null) return html("td", { class: "app" }, appButton(value));
    if (column.kind === "policy") return html("td", {}, policyButton(value));
    if (column.kind === "text" && text.length > 36) return html("td", { class: "text long", title: text }, text);
    return html("td", { class: column.kind + (value === null ? " none" : "") }, column.kind === "code" ? html("code", {}, text) : text);
  }
}

// The columns of each table on paper, given their widths in letters: as many as fit beside the first.
const PAPER_LETTERS = 118;
const PAPER_GAP = 2;

function columnsByPage(widths) {
  const pages = [[0]];
  let taken = widths[0];
  for (let at = 1; at < widths.length; at += 1) {
    const page = pages[pages.length - 1];
    if (page.length > 1 && taken + PAPER_GAP + widths[at] > PAPER_LETTERS) {
      pages.push([0, at]);
      taken = widths[0] + PAPER_GAP + widths[at];
    } else {
      page.push(at);
      taken += PAPER_GAP + widths[at];
    }
  }
  return pages;
}

// One unit for all times of a table: seconds, or hours where a time is very long.
function unitOfTable({ columns, rows }) {
  return rows.some((row) => columns.some(({ kind }, at) => kind === "seconds" && Math.abs(row[at]) >= 1e7)) ? "h" : "s";
}

// Shadows at the sides to which a table goes on, and a line that says so.
function showOverflow(around, content) {
  const look = () => {
    const hidden = content.scrollWidth - content.clientWidth;
    around.classList.toggle("sideways", hidden > 1);
    content.classList.toggle("more-left", content.scrollLeft > 1);
    content.classList.toggle("more-right", content.scrollLeft < hidden - 1);
  };
  content.addEventListener("scroll", look, { passive: true });
  if (typeof ResizeObserver !== "undefined") new ResizeObserver(look).observe(content);
  look();
}

// The app's name as a button that filters the page.
function appButton(app) {
  const swatch = swatchOf(look(app));
  const pressed = String(app === chosen.app);
  return html("button", { class: "app", "aria-pressed": pressed, title: `Show ${app} alone`, onclick: () => toggleApp(app) }, swatch, app);
}

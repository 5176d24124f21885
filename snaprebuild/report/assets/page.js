// The page as a whole: the top, findings, search, filters, colours.

const THEMES = ["auto", "light", "dark"];

function showTop() {
  byId("title").textContent = plain(DATA.title);
  byId("made").textContent = plain(`snaprebuild ${document.querySelector('meta[name="snaprebuild"]').content} · ${counted(DATA.documents.length, "document")}: ${DATA.documents.map((each) => each.name).join(", ")}`);
  const totals = DATA.totals;
  const forgotten = PARTITIONS.reduce((total, each) => total + each.forgotten, 0);
  const isAll = PARTITIONS.every((each) => !each.tones.wrong || !each.differences_left);
  const losers = `${isAll ? "" : "at least "}${counted(forgotten, "producer")} with wrong state`;
  const card = (name, count, tone, below, unknown) =>
    count === null ? [name, "–", "", unknown] : [name, grouped(count), count ? tone : "", below];
  const stuck = PARTITIONS.filter((each) => each.stuck_bytes).length;
  const cards = [
    ["partitions", grouped(PARTITIONS.length), "", totals.segments ? counted(totals.segments, "segment") : "segments are not in the documents"],
    card("fates at the next start", totals.fates, "wrong", "causes, each of one or many partitions", "unknown: run `scan`"),
    card("wrong snapshots", totals.wrong_snapshots, "wrong", totals.wrong_snapshots ? losers : "none proven wrong", "not compared: run `verify`"),
    card("suspect snapshots", totals.suspect_snapshots, "doubted", "`verify` proves them right or wrong", "unknown: run `scan`"),
    card("missing snapshots", totals.missing_snapshots, "missing", "that are needed", "unknown: run `scan`"),
    totals.stuck_partitions === null ? ["stuck partitions", "–", "", "unknown: run `scan`"] : card("stuck partitions", stuck, "missing", sizeText(totals.stuck_bytes) + " held back"),
    openCard(),
    ["findings", grouped(DATA.findings.filter((each) => each.severity !== "note").length), "", `${grouped(DATA.findings.filter((each) => each.severity === "note").length)} notes`],
  ];
  byId("cards").append(...cards.map(([name, value, tone, below]) => el("div", { class: `card ${tone}` }, el("dt", {}, name), el("dd", { class: "value" }, value), el("dd", { class: "below" }, below))));
}

// The first two lines: the answer of the worst document, and its next command. The answers of the others follow.
function showStatus() {
  const first = DATA.status;
  const tone = first.exit_code === 0 ? "fine" : first.exit_code === 1 ? "missing" : "wrong";
  const next = first.next_command ? ["Next: ", el("code", {}, first.next_command)] : [first.exit_code === 0 ? "Next: nothing to do." : "Next: no command corrects this; see the findings."];
  const others = DATA.documents.filter((each) => each.name !== first.document);
  const parts = [
    el("p", { class: `notice ${tone}`, id: "sentence" }, first.sentence),
    el("p", { id: "next" }, ...next),
    first.details ? el("p", { class: "hint" }, first.details) : null,
    DATA.documents.length > 1 ? el("ul", { class: "lacks", id: "answers" }, others.map((each) => el("li", {}, `${each.name}: ${each.answer}`))) : null,
  ];
  byId("status").append(...parts.filter(Boolean));
}

// Only what a document proves: a partition of which none shows its log end has an unknown number.
function openCard() {
  const known = PARTITIONS.filter((each) => each.open_count !== undefined);
  if (!known.length) return ["open transactions", "–", "", "unknown: run `inspect transactions`"];
  const isReplayed = DATA.documents.some((each) => each.schema.startsWith("snaprebuild.inspect-transactions/"));
  const left = PARTITIONS.length - known.length;
  const below = [isReplayed ? "by replay" : "as the snapshots at the log ends show", left ? `${counted(left, "partition")} unknown` : null];
  return ["open transactions", grouped(known.reduce((total, each) => total + each.open_count, 0)), "", below.filter(Boolean).join("; ")];
}

function showUnread() {
  const paths = [...new Set(DATA.documents.flatMap((each) => each.unread_paths))];
  if (!paths.length) return;
  const text = `NOT READ: ${counted(paths.length, "path")}. Nothing on this page covers ${paths.length === 1 ? "it" : "them"}: ${paths.slice(0, 20).join(", ")}${paths.length > 20 ? `, and ${grouped(paths.length - 20)} more` : ""}`;
  byId("unread").append(el("p", { class: "notice wrong", role: "alert" }, text));
}

function showTables() {
  byId("tables").append(
    ...DATA.tables.map((table) => {
      const rows = rowsOf(table.columns, table.rows);
      return el("div", { class: "panel" }, tableOf(table.title, table.columns, rows, table.text) || el("p", {}, `${table.title}: none`));
    }),
  );
}

function showCodes() {
  const byCode = new Map();
  DATA.findings.forEach((finding, number) => {
    const known = byCode.get(finding.code) || { code: finding.code, severity: finding.severity, numbers: [] };
    if (SEVERITIES.indexOf(finding.severity) < SEVERITIES.indexOf(known.severity)) known.severity = finding.severity;
    known.numbers.push(number);
    byCode.set(finding.code, known);
  });
  const codes = [...byCode.values()].sort((one, other) => SEVERITIES.indexOf(one.severity) - SEVERITIES.indexOf(other.severity) || other.numbers.length - one.numbers.length);
  const buttons = codes.map((each) =>
    el("button", { type: "button", class: `code ${each.severity}`, "aria-pressed": "false", "data-code": each.code, onclick: () => chooseCode(each) }, el("span", { class: `severity ${each.severity}` }, each.severity), el("b", {}, each.code), el("span", { class: "many" }, grouped(each.numbers.length))),
  );
  byId("codes").append(...(buttons.length ? buttons : [el("p", { class: "empty" }, "None.")]));
  if (DATA.findings_left) byId("codes").append(el("p", { class: "hint" }, `${grouped(DATA.findings_left)} more findings are in the documents and not on this page.`));
}

function chooseCode(each) {
  state.code = state.code === each.code ? null : each.code;
  for (const button of byId("codes").querySelectorAll("button")) button.setAttribute("aria-pressed", button.dataset.code === state.code ? "true" : "false");
  const rows = state.code === null ? [] : each.numbers.map((number) => findingRow(DATA.findings[number]));
  byId("code").replaceChildren(...[rows.length ? tableOf(each.code, ["", "code", "offset", "message", "path"], rows, "The list below shows the partitions that have it.") : null].filter(Boolean));
  showList();
}

function showFilters() {
  const used = FILTERS.map(([name, text, test]) => [name, text, PARTITIONS.filter(test).length]).filter(([, , count]) => count > 0);
  byId("filters").append(
    ...used.map(([name, text, count]) => {
      const button = el("button", { type: "button", class: "filter", "aria-pressed": "false", "data-filter": name }, text, el("span", { class: "many" }, grouped(count)));
      button.addEventListener("click", () => {
        if (!state.filters.delete(name)) state.filters.add(name);
        button.setAttribute("aria-pressed", state.filters.has(name) ? "true" : "false");
        list.node.scrollTop = 0;
        showList();
      });
      return button;
    }),
  );
}

function showDocuments() {
  const rows = DATA.documents.map((each) =>
    el("tr", {}, cells(each.name, each.schema, each.snaprebuild, ...runCells(each.run), el("ul", { class: "lacks" }, each.facts.map(([name, value]) => el("li", {}, `${name}: ${value}`))), el("ul", { class: "lacks" }, each.lacks.map((text) => el("li", {}, text))))),
  );
  byId("documents").append(tableOf("Made from", ["file", "form", "written by", "made", "host", "cluster id", "command", "contents", "not in it"], rows) || "");
  if (DATA.partitions_left) byId("documents").append(el("p", { class: "hint" }, `${grouped(DATA.partitions_left)} more partitions are in the documents and not on this page: the worst are here.`));
}

function runCells(run) {
  if (!run) return ["unknown", "unknown", "unknown", "unknown"];
  return [secondsText(run.at_ms), run.host || "unknown", run.cluster_ids.join(", ") || "unknown", run.command || "unknown"];
}

function startTheme() {
  const button = byId("theme");
  let at = 0;
  button.addEventListener("click", () => {
    at = (at + 1) % THEMES.length;
    if (at) document.documentElement.dataset.theme = THEMES[at];
    else delete document.documentElement.dataset.theme;
    button.textContent = ["Colours: system", "Colours: light", "Colours: dark"][at];
  });
}

function start() {
  showStatus();
  showUnread();
  showTop();
  showTables();
  showCodes();
  showFilters();
  showDocuments();
  startTheme();
  startList();
  byId("search").addEventListener("input", (event) => {
    state.search = event.target.value;
    list.node.scrollTop = 0;
    showList();
  });
  byId("sort").addEventListener("change", (event) => {
    state.sort = event.target.value;
    showList();
  });
  addEventListener("keydown", (event) => {
    if (event.key === "/" && !(event.target instanceof HTMLInputElement)) {
      byId("search").focus();
      event.preventDefault();
    }
  });
  let width = 0;
  new ResizeObserver(() => {
    const now = byId("detail").clientWidth;
    if (now !== width && state.selected) showDetail(state.selected);
    width = now;
  }).observe(byId("detail"));
  showList();
  document.documentElement.dataset.ready = "true";
}

start();

// The page as a whole: the top, findings, search, filters, colours.

const THEMES = ["auto", "light", "dark"];

function showTop() {
  byId("title").textContent = plain(DATA.title);
  byId("made").textContent = plain(`snaprebuild ${document.querySelector('meta[name="snaprebuild"]').content} · ${counted(DATA.documents.length, "document")}: ${DATA.documents.map((each) => each.name).join(", ")}`);
  byId("cards").append(...cardsOf(DATA.totals).map(([name, value, tone, below]) => el("div", { class: `card ${tone}` }, el("dt", {}, name), el("dd", { class: "value" }, value), el("dd", { class: "below" }, prose(below)))));
}

// A number that no document shows is a dash with the command that shows it, never a zero.
function cardsOf(totals) {
  const card = (name, count, tone, below, unknown) => (count === null ? [name, "–", "unknown", unknown] : [name, grouped(count), count ? tone : "", below]);
  const partitions = PARTITIONS.length + DATA.partitions_left;
  const notes = DATA.findings.filter((each) => each.severity === "note").length;
  const findings = DATA.findings.length - notes;
  const isWrong = totals.wrong_snapshots > 0;
  return [
    ["partitions", grouped(partitions), "", totals.segments ? counted(totals.segments, "segment") : "segments are not in the documents"],
    card("fates at the next start", totals.fates, "wrong", totals.fates ? "causes, each of one or many partitions" : "none found", "unknown: run `scan`"),
    card("wrong snapshots", totals.wrong_snapshots, "wrong", isWrong ? wrongText(totals.wrong_entries) : "none proven wrong", "not compared: run `verify`"),
    card("suspect snapshots", totals.suspect_snapshots, "concern", totals.suspect_snapshots ? "`verify` proves them right or wrong" : "none", "unknown: run `scan`"),
    card("missing snapshots", totals.missing_snapshots, "missing", totals.missing_snapshots ? "that are needed" : "none that is needed", "unknown: run `scan`"),
    card("unverifiable snapshots", totals.unverifiable_snapshots, "", "proven neither right nor wrong; no fault", "not compared: run `verify`"),
    card("stuck partitions", totals.stuck_partitions, "missing", `${sizeText(totals.stuck_bytes)} held back`, "unknown: run `scan`"),
    waitingCard(totals),
    openCard(totals),
    ["findings", grouped(findings), findings ? "concern" : "", counted(notes, "note")],
  ];
}

function wrongText(entries) {
  return entries === null ? "proven by the log" : `proven: ${counted(entries, "entry", "entries")} of producers`;
}

function waitingCard(totals) {
  const waiting = totals.waiting_segments;
  const unknown = totals.waiting_unknown_segments;
  if (waiting === null) return ["waiting segments", "–", "unknown", "unknown: run `scan`"];
  if (!unknown) return ["waiting segments", grouped(waiting), "", "uploaded later, without any action"];
  return ["waiting segments", waiting ? `≥ ${grouped(waiting)}` : "–", "unknown", `unknown for ${counted(unknown, "segment")}`];
}

// Only what a document proves: a partition in which none shows its log end has an unknown number.
function openCard(totals) {
  if (totals.open_transactions === null) return ["open transactions", "–", "unknown", "unknown: run `inspect transactions`"];
  const late = totals.late_transactions;
  const unknown = totals.open_unknown_partitions;
  const number = totals.open_transactions || !unknown ? `${unknown ? "≥ " : ""}${grouped(totals.open_transactions)}` : "–";
  const below = [late === null ? "by the snapshots at the log ends" : `${grouped(late)} late`, unknown ? `unknown in ${counted(unknown, "partition")}` : null];
  return ["open transactions", number, late ? "concern" : number === "–" ? "unknown" : "", below.filter(Boolean).join("; ")];
}

// The answer of the worst document, and the next command. The answers of the others follow.
function showStatus() {
  const first = DATA.status;
  const others = DATA.documents.filter((each) => each.name !== first.document);
  const host = first.next_command && first.host ? ` on ${first.host}` : "";
  const command = first.next_command || first.tool_command;
  const answers = (each) => el("li", {}, el("b", {}, each.name), ": ", prose(linesOf(each.answer).join(" ")));
  const parts = [
    el("p", { id: "sentence" }, prose(first.sentence)),
    ...linesOf(first.details).map((line) => el("p", { class: "more" }, prose(line))),
    el("div", { class: "next", id: "next" }, el("b", {}, `Next${host}`), command ? commandOf(command) : null, first.next_text ? el("span", {}, prose(first.next_text)) : null),
    others.length ? el("ul", { class: "lacks", id: "answers" }, others.map(answers)) : null,
  ];
  byId("status").classList.add(first.tone);
  byId("status").append(...parts.filter(Boolean));
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
  const rows = state.code === null ? [] : each.numbers.map((number) => findingRow(DATA.findings[number], null));
  const count = PARTITIONS.filter((one) => one.codes.has(state.code)).length;
  const text = count ? `The list below shows the ${counted(count, "partition")} that it is about.` : "It is about no single partition of this page: the list below has all of them.";
  const table = tableOf(each.code, ["severity", "code", "offset", "message", "path"], rows, text);
  byId("code").replaceChildren(...(table ? [el("div", { class: "panel" }, table)] : []));
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
  const node = byId("documents");
  const all = firstOf(node, DATA.documents.map(documentOf));
  const left = DATA.partitions_left ? el("p", { class: "hint" }, `${grouped(DATA.partitions_left)} more partitions are in the documents and not on this page: the worst are here.`) : null;
  node.after(...[all, left].filter(Boolean));
}

function documentOf({ name, schema, snaprebuild, run, facts, lacks }) {
  const said = [
    ["form", `${schema}, written by snaprebuild ${snaprebuild}`],
    ["command", run?.command || "unknown"],
    ["made", run ? secondsText(run.at_ms) : "unknown"],
    ["host", run?.host || "unknown"],
    ["cluster id", run?.cluster_ids.join(", ") || "unknown"],
    ...facts,
    ...lacks.map((text) => ["not in it", prose(text)]),
  ];
  return el("article", { class: "panel document" }, el("h3", {}, name), el("dl", { class: "lines" }, said.map(([term, value]) => el("div", {}, el("dt", {}, term), el("dd", {}, value)))));
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

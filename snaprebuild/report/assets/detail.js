// Everything on the chosen partition: the timeline, and the same in tables.

const FIRST_ROWS = 25;

function showDetail(partition) {
  const node = byId("detail");
  if (!partition) {
    node.replaceChildren(el("p", { class: "empty" }, "No partition is chosen."));
    return;
  }
  // A document of `fleet` has partitions without their segments.
  const hasLog = partition.segments.base_offset.length > 0 || partition.boundaries.length > 0;
  const frame = el("div", { class: "frame" });
  const readout = el("p", { class: "readout", role: "status" });
  readout.textContent = "\u00a0";
  const parts = [
    el("h3", { id: "detail-title", tabindex: -1 }, partition.topic_partition),
    el("p", { class: "path" }, partition.place),
    factsOf(partition),
    ...partition.fates.map(({ kind, cause }) => el("p", { class: "notice wrong" }, `Next start: ${words(kind)}: ${cause}.`)),
    partition.next_attempt ? el("p", { class: "notice missing" }, `Next attempt: ${partition.next_attempt}.`) : null,
    ...(hasLog ? [axisButtons(partition), frame, readout, legendOf(partition)] : []),
    ...(partition.tables || []).map(([title, columns, rows]) => tableOf(title, columns, rowsOf(columns, rows))),
    producersOf(partition),
    transactionsOf(partition),
    boundariesOf(partition),
    findingsOf(partition),
    lacksOf(partition),
  ];
  node.replaceChildren(...parts.filter(Boolean));
  if (hasLog) timeline(partition, frame, readout);
}

function factsOf(partition) {
  const end = partition.log_end_offset ?? (partition.log_end_at_least === undefined ? undefined : `at least ${partition.log_end_at_least}`);
  const facts = [
    ["log start", partition.log_start_offset],
    ["log end", end],
    ["high watermark", partition.high_watermark],
    ["last stable offset", partition.last_stable_offset],
    ["segments", partition.segmentCount ? `${grouped(partition.segmentCount)}, ${sizeText(partition.size)}` : undefined],
    ["stuck", partition.stuck_bytes ? sizeText(partition.stuck_bytes) : undefined],
    ["kind", partition.kind],
    ["documents", partition.documents.map((number) => DATA.documents[number].name).join(", ")],
    ...(partition.facts || []),
  ].filter(([, value]) => value !== undefined && value !== null);
  return el("dl", { class: "facts" }, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

function axisButtons(partition) {
  if (!partition.segments.base_offset.length) return null;
  const buttons = Object.entries(AXES).map(([name, [title]]) =>
    el("button", { type: "button", title, "aria-pressed": state.axis === name ? "true" : "false", onclick: () => changeAxis(name, partition) }, name),
  );
  return el("div", { class: "axis", role: "group", "aria-label": "Widths in the timeline" }, el("span", {}, "Widths:"), buttons);
}

function changeAxis(name, partition) {
  state.axis = name;
  showDetail(partition);
  byId("detail").querySelector(`.axis [aria-pressed="true"]`).focus();
}

function legendOf(partition) {
  const fates = [...new Set(partition.segments.fates)].map((fate) => FATES[fate]);
  const tones = { fine: "snapshot is there", missing: "missing", wrong: "proven wrong", doubted: "suspect", written: "written by a run", quiet: "not due" };
  const present = Object.keys(tones).filter((tone) => partition.tones[tone]);
  const picture = (...parts) => svg("svg", { width: 16, height: 14, "aria-hidden": "true" }, ...parts);
  return el(
    "ul",
    { class: "legend" },
    fates.map(([tone, text]) => el("li", {}, picture(svg("rect", { class: `seg ${tone}`, x: 1, y: 2, width: 14, height: 10, rx: 2 })), text)),
    present.map((tone) => el("li", {}, picture(markerOf({ tone, offset: 0 }, 8, 7)), tones[tone])),
    [false, true]
      .filter((isLate) => partition.open.some((each) => Boolean(each.is_late) === isLate))
      .map((isLate) => el("li", {}, picture(svg("rect", { class: `txn${isLate ? " late" : ""}`, x: 1, y: 3, width: 14, height: 8, rx: 3 })), isLate ? "late transaction" : "open transaction")),
  );
}

// A table whose first rows are shown, and the others when they are asked for.
function tableOf(title, columns, rows, text) {
  if (!rows.length) return null;
  const body = el("tbody", {}, rows.slice(0, FIRST_ROWS));
  const all = el("button", { type: "button", class: "all" }, `Show all ${grouped(rows.length)}`);
  all.addEventListener("click", () => {
    body.append(...rows.slice(FIRST_ROWS));
    all.remove();
  });
  return el(
    "section",
    { class: "block" },
    el("h4", {}, title, el("span", { class: "many" }, grouped(rows.length))),
    text ? el("p", { class: "hint" }, text) : null,
    el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, columns.map((name) => el("th", { scope: "col" }, name)))), body)),
    rows.length > FIRST_ROWS ? all : null,
  );
}

// Rows of texts; what a column calls bytes is shown as a size.
function rowsOf(columns, rows) {
  return rows.map((row) => el("tr", {}, cells(...row.map((cell, index) => (/\bbytes\b/.test(columns[index]) ? sizeText(Number(cell)) : cell)))));
}

function cells(...values) {
  return values.map((value) => el("td", { class: typeof value === "number" ? "number" : null }, value ?? "–"));
}

function producersOf(partition) {
  const rows = partition.differences.map((each) => {
    const differs = each.field ? `${words(each.field)}: ${each.found} instead of ${each.expected}` : each.kind === "missing" ? "no entry" : words(each.kind);
    return el("tr", { class: each.is_certain ? "certain" : "uncertain" }, cells(Number(each.offset), String(each.producer_id), differs, each.is_certain ? "proven" : "not proven", each.consequence));
  });
  const left = partition.differences_left ? `${counted(partition.differences_left, "more entry", "more entries")} differ, which the document counts and does not list.` : null;
  return tableOf("Producers with wrong state in snapshots", ["snapshot", "producer id", "differs", "", "what it costs"], rows, left);
}

function transactionsOf(partition) {
  const rows = partition.open.map((each) =>
    el("tr", {}, cells(Number(each.first_offset), String(each.producer_id ?? "unknown (scan does not read the log)"), each.state)),
  );
  return tableOf("Open transactions", ["from", "producer id", ""], rows);
}

function boundariesOf(partition) {
  const ranks = { wrong: 0, missing: 1, doubted: 2, written: 3, quiet: 4, fine: 5 };
  const sorted = partition.boundaries.slice().sort((one, other) => ranks[one.tone] - ranks[other.tone] || Number(one.offset) - Number(other.offset));
  const rows = sorted.map((each) => {
    const expected = each.expected_entries;
    const entries = expected !== undefined && expected !== each.entries ? `${each.entries ?? 0} of ${expected}` : each.entries;
    const said = [each.state && words(each.state), each.status && words(each.status), each.is_log_end ? "log end" : null].filter(Boolean).join(", ");
    const fate = [each.action, each.at_next_start ? `next start: ${each.at_next_start}` : null, ...(each.reasons || [])].filter(Boolean).join("; ");
    return el("tr", { class: each.tone }, cells(Number(each.offset), said, entries ?? null, each.class ?? null, fate));
  });
  return tableOf("Boundaries", ["offset", "snapshot", "producers", "class", "because"], rows, rows.length ? "Wrong and missing snapshots come first." : null);
}

function findingRow({ code, severity, path, message, offset }) {
  return el("tr", { class: severity }, cells(el("span", { class: `severity ${severity}` }, severity), code, offset === undefined ? "" : String(offset), message, path));
}

function findingsOf(partition) {
  return tableOf("Findings", ["", "code", "offset", "message", "path"], partition.findings.map((number) => findingRow(DATA.findings[number])));
}

function lacksOf(partition) {
  const lacks = [...partition.lacks, ...missingFacts(partition)];
  if (!lacks.length) return null;
  return el("section", { class: "block" }, el("h4", {}, "Not in the documents"), el("ul", { class: "lacks" }, lacks.map((each) => el("li", {}, each))));
}

// A fact that one document lacks is not missing if another document of this partition has it.
function missingFacts(partition) {
  const lists = partition.documents.map((number) => DATA.documents[number].lacks);
  if (lists.length === 0) return [];
  const verbs = new Set(partition.documents.map((number) => DATA.documents[number].schema.split(".")[1].split("/")[0]));
  const isHere = (text) => [...verbs].some((verb) => text.includes(`\`${verb.replace("tier-", "tier ")}`));
  return [...new Set(lists.flat())].filter((text) => !isHere(text));
}

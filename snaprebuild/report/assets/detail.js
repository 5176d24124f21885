// Everything on the chosen partition: what to do, the timeline, and the same in tables.

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
    el("p", { class: "path" }, partition.origin ? `${partition.origin}: ` : null, partition.place),
    el("div", { class: "badges wide" }, badgesOf(partition)),
    nextOf(partition),
    ...partition.fates.map(fateOf),
    partition.next_attempt ? el("p", { class: "notice missing" }, `Next attempt: ${partition.next_attempt}.`) : null,
    factsOf(partition),
    ...(hasLog ? [axisButtons(partition), frame, readout, legendOf(partition)] : []),
    ...(partition.tables || []).map(([title, columns, rows]) => tableOf(title, columns, rowsOf(columns, rows))),
    findingsOf(partition),
    transactionsOf(partition),
    producersOf(partition, true),
    boundariesOf(partition),
    producersOf(partition, false),
    lacksOf(partition),
  ];
  node.replaceChildren(...parts.filter(Boolean));
  if (hasLog) timeline(partition, frame, readout);
}

// The next command of the partition, or the sentence in its place: both are in the data.
function nextOf(partition) {
  const where = partition.next_command && partition.origin ? ` on ${partition.origin}` : "";
  const next = partition.next_command ? commandOf(partition.next_command) : el("span", {}, partition.next_text);
  return el("div", { class: "next" }, el("b", {}, `Next${where}`), next);
}

function fateOf({ kind, cause, remedy, releases }) {
  const which = releases ? ` (Kafka ${releases})` : "";
  return el("p", { class: "notice wrong" }, `Next start${which}: ${words(kind)}: ${cause}. ${remedy ? `${remedy}.` : ""}`);
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
    ["waiting segments", waitingText(partition.waiting, partition.waiting_unknown)],
    ["open transactions", partition.open_count === undefined ? "unknown" : partition.open_count],
    ["kind", partition.kind],
    ["documents", partition.documents.map((number) => DATA.documents[number].name).join(", ")],
    ...(partition.facts || []),
  ].filter(([, value]) => value !== undefined && value !== null);
  return el("dl", { class: "facts" }, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

// A number of segments that may wait is no zero where it is unknown.
function waitingText(waiting, unknown) {
  if (unknown) return `at least ${grouped(waiting || 0)}, unknown for ${grouped(unknown)}`;
  return waiting ? grouped(waiting) : undefined;
}

function axisButtons(partition) {
  if (!partition.segments.base_offset.length) return null;
  const buttons = Object.entries(AXES).map(([name, [title]]) =>
    el("button", { type: "button", title, "aria-pressed": state.axis === name ? "true" : "false", onclick: () => changeAxis(partition, name, state.isZoomed) }, name),
  );
  const zoom = el("button", { type: "button", class: "zoom", title: "Wide enough for each segment: the drawing scrolls", "aria-pressed": state.isZoomed ? "true" : "false", onclick: () => changeAxis(partition, state.axis, !state.isZoomed) }, "zoom");
  return el("div", { class: "axis", role: "group", "aria-label": "Widths in the timeline" }, el("span", {}, "Widths:"), buttons, zoom);
}

function changeAxis(partition, axis, isZoomed) {
  const changed = axis === state.axis ? ".axis .zoom" : `.axis [aria-pressed="true"]`;
  state.axis = axis;
  state.isZoomed = isZoomed;
  showDetail(partition);
  byId("detail").querySelector(changed).focus();
}

function legendOf(partition) {
  const fates = [...new Set(partition.segments.fates)].map((fate) => FATES[fate]);
  const present = Object.keys(TONES).filter((tone) => partition.tones[tone]);
  const picture = (...parts) => svg("svg", { width: 16, height: 14, "aria-hidden": "true" }, ...parts);
  return el(
    "ul",
    { class: "legend" },
    fates.map(([tone, text]) => el("li", {}, picture(svg("rect", { class: `seg ${tone}`, x: 1, y: 2, width: 14, height: 10, rx: 2 })), text)),
    present.map((tone) => el("li", {}, picture(markerOf({ tone, offset: 0 }, 8, 7)), TONES[tone])),
    [false, true]
      .filter((isLate) => partition.open.some((each) => Boolean(each.is_late) === isLate))
      .map((isLate) => el("li", {}, picture(svg("rect", { class: `txn${isLate ? " late" : ""}`, x: 1, y: 3, width: 14, height: 8, rx: 3 })), isLate ? "late transaction" : "open transaction")),
  );
}

// The first parts are shown, and the others when they are asked for.
function firstOf(node, parts) {
  node.append(...parts.slice(0, FIRST_ROWS));
  if (parts.length <= FIRST_ROWS) return null;
  const all = el("button", { type: "button", class: "all" }, `Show all ${grouped(parts.length)}`);
  all.addEventListener("click", () => {
    node.append(...parts.slice(FIRST_ROWS));
    all.remove();
  });
  return all;
}

function blockOf(title, count, text, ...parts) {
  return el("section", { class: "block" }, el("h4", {}, title, count === null ? null : el("span", { class: "many" }, grouped(count))), text ? el("p", { class: "hint" }, prose(text)) : null, ...parts);
}

// On a narrow screen each row is a list, with the name of the column at each cell (page.css). The roles keep it a table for screen readers.
function tableOf(title, columns, rows, text, count) {
  if (!rows.length) return null;
  for (const row of rows) [...row.children].forEach((cell, index) => cell.setAttribute("data-label", columns[index]));
  const body = el("tbody", { role: "rowgroup" });
  const all = firstOf(body, rows);
  const head = el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, columns.map((name) => el("th", { scope: "col", role: "columnheader" }, name))));
  return blockOf(title, count ?? rows.length, text, el("div", { class: "scroll" }, el("table", { role: "table" }, head, body)), all);
}

// Rows of texts; what a column calls bytes is shown as a size.
function rowsOf(columns, rows) {
  return rows.map((row) => rowOfCells("", ...row.map((cell, index) => (/\bbytes\b/.test(columns[index]) ? sizeText(Number(cell)) : cell))));
}

function rowOfCells(tone, ...values) {
  const cells = values.map((value) => {
    const isEmpty = value === null || value === undefined || value === "";
    const tones = [typeof value === "number" ? "number" : "", isEmpty ? "none" : ""].filter(Boolean).join(" ");
    return el("td", { role: "cell", class: tones || null }, isEmpty ? "–" : value);
  });
  return el("tr", { role: "row", class: tone || null }, cells);
}

// Proven and unverifiable entries are never in one table.
function producersOf(partition, isProven) {
  const rows = partition.differences
    .filter((each) => each.is_proven === isProven)
    .map((each) => {
      const differs = each.field ? `${words(each.field)}: ${each.found} instead of ${each.expected}` : each.kind === "missing" ? "no entry" : words(each.kind);
      return rowOfCells(isProven ? "wrong" : "unverifiable", Number(each.offset), String(each.producer_id), differs, each.consequence);
    });
  const wrong = partition.wrong_entries || 0;
  const count = isProven ? wrong : (partition.difference_count || 0) - wrong;
  const hint = isProven
    ? "The log proves these entries of producers wrong."
    : "These entries differ from a replay, and what is left of the log proves them neither right nor wrong (compacted, deleted or expired data). They are no fault.";
  const left = count > rows.length ? ` ${counted(count - rows.length, "more is", "more are")} counted and not listed.` : "";
  return tableOf(isProven ? "Producers with wrong state" : "Producers that cannot be verified", ["snapshot", "producer id", "differs", isProven ? "what it costs" : "what it would cost"], rows, hint + left, count);
}

function transactionsOf(partition) {
  if (!partition.open.length) return null;
  const isReplayed = partition.open_document !== undefined;
  const at = isReplayed ? DATA.documents[partition.open_document].as_of_ms : undefined;
  const node = el("div", { class: "transactions" });
  const all = firstOf(node, partition.open.map((each) => transactionOf(each, at)));
  const held = partition.held_segments ? ` ${counted(partition.held_segments, "rolled segment")} (${sizeText(partition.held_segment_bytes || 0)}) cannot be uploaded meanwhile.` : "";
  const text = isReplayed ? `At ${secondsText(at)}.${held}` : "The oldest one that the snapshot at the log end has. `inspect transactions` shows the producer, since when, and the command.";
  const question = partition.question
    ? el("div", { class: "commands" }, el("p", {}, "No abort command is shown for a transaction that may still be alive, or of a replica that may not lead. Ask the coordinators (brokers since 3.0). Put the address of a broker in place of HOST:PORT:"), commandOf(partition.question))
    : null;
  return blockOf("Open transactions", partition.open_count ?? partition.open.length, text, question, node, all);
}

function transactionOf(each, at) {
  const moment = (ms) => (ms === undefined || at === undefined ? "unknown" : secondsText(ms));
  const before = (ms) => (ms === undefined || at === undefined ? "unknown" : durationText(at - ms));
  const facts = [
    ["from offset", String(each.first_offset)],
    ["producer id", each.producer_id === undefined ? "unknown" : String(each.producer_id)],
    ["epoch", each.epoch],
    ["since", moment(each.since_ms)],
    ["age", before(each.since_ms)],
    ["last batch", moment(each.last_ms)],
    ["silent for", before(each.last_ms)],
    ["transactional id", each.transactional_id],
    ["timeout", each.timeout_ms === undefined ? undefined : durationText(each.timeout_ms)],
  ].filter(([, value]) => value !== undefined);
  const commands = each.abort_commands;
  return el(
    "article",
    { class: `transaction${each.is_late ? " late" : ""}` },
    each.state ? el("p", { class: "state" }, el("span", { class: `badge ${each.is_late ? "concern" : "open"}` }, each.state), each.may_have_begun_before ? " may have begun below the first segment" : null) : null,
    el("dl", { class: "facts" }, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    each.reason ? el("p", { class: "hint" }, each.reason, each.missing_evidence ? ` To know more: ${each.missing_evidence}.` : null) : null,
    commands
      ? el("div", { class: "commands" }, el("p", {}, "The transaction is over. To abort it, broker 3.0 or newer:"), commandOf(commands.since_3_0), el("p", {}, "Older broker (2.7 and older: with the tool of Kafka 3):"), commandOf(commands.before_3_0))
      : null,
  );
}

function boundariesOf(partition) {
  const ranks = Object.keys(TONES);
  const sorted = partition.boundaries.slice().sort((one, other) => ranks.indexOf(one.tone) - ranks.indexOf(other.tone) || Number(one.offset) - Number(other.offset));
  const rows = sorted.map((each) => {
    const expected = each.expected_entries;
    const entries = expected !== undefined && expected !== each.entries ? `${each.entries ?? 0} of ${expected}` : each.entries;
    const said = [each.state && words(each.state), each.status && words(each.status), each.is_log_end ? "log end" : null].filter(Boolean).join(", ");
    const fate = [each.action, each.at_next_start ? `next start: ${each.at_next_start}` : null, ...(each.reasons || [])].filter(Boolean).join("; ");
    return rowOfCells(each.tone, Number(each.offset), said, entries, each.class, fate);
  });
  return tableOf("Boundaries", ["offset", "snapshot", "producers", "class", "because"], rows, "The worst come first.");
}

function findingRow({ code, severity, path, message, offset, origin }, place) {
  return rowOfCells(severity, el("span", { class: `severity ${severity}` }, severity), code, offset === undefined ? "" : String(offset), message, `${origin && !place ? `${origin}: ` : ""}${pathBelow(path, place)}`);
}

// The path of a finding without that of its partition, which is at the top.
function pathBelow(path, place) {
  if (path === place) return "";
  return place && path.startsWith(`${place}/`) ? path.slice(place.length + 1) : path;
}

function findingsOf(partition) {
  const findings = partition.findings.map((number) => DATA.findings[number]);
  findings.sort((one, other) => SEVERITIES.indexOf(one.severity) - SEVERITIES.indexOf(other.severity));
  return tableOf("Findings", ["severity", "code", "offset", "message", "file"], findings.map((each) => findingRow(each, partition.place)));
}

function lacksOf(partition) {
  const lacks = [...partition.lacks, ...missingFacts(partition)];
  if (!lacks.length) return null;
  return blockOf("Not in the documents", null, null, el("ul", { class: "lacks" }, lacks.map((each) => el("li", {}, prose(each)))));
}

// A fact that one document lacks is not missing if another document of this partition has it.
function missingFacts(partition) {
  const lists = partition.documents.map((number) => DATA.documents[number].lacks);
  if (lists.length === 0) return [];
  const verbs = new Set(partition.documents.map((number) => DATA.documents[number].verb));
  const isHere = (text) => [...verbs].some((verb) => text.includes(`\`${words(verb)}`));
  return [...new Set(lists.flat())].filter((text) => !isHere(text));
}

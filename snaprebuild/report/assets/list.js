// The list of partitions. Only those in sight are in the document, so that thousands stay quick. Screen readers get their number
// (aria-setsize) and the chosen one (aria-activedescendant).

const ROW = 68;
const BEYOND = 8;
const PRINTED_MAX = 200;
const NAME_END = 10;

const list = { node: byId("list"), rows: byId("rows"), shown: [], drawn: new Map(), isPrinted: false };

function showList() {
  list.shown = chosen();
  list.rows.style.height = `${list.shown.length * ROW}px`;
  for (const row of list.drawn.values()) row.remove();
  list.drawn.clear();
  const all = PARTITIONS.length;
  byId("count").textContent =
    list.shown.length === all ? counted(all, "partition") : `${grouped(list.shown.length)} of ${counted(all, "partition")}`;
  if (!list.shown.includes(state.selected)) select(list.shown[0] || null, false);
  drawRows();
}

function drawRows() {
  if (list.isPrinted) return;
  const first = Math.max(0, Math.floor(list.node.scrollTop / ROW) - BEYOND);
  const last = Math.min(list.shown.length, Math.ceil((list.node.scrollTop + list.node.clientHeight) / ROW) + BEYOND);
  drawRange(first, last);
}

function drawRange(first, last) {
  for (const [index, row] of list.drawn) {
    if (index < first || index >= last) {
      row.remove();
      list.drawn.delete(index);
    }
  }
  for (let index = first; index < last; index += 1) {
    if (!list.drawn.has(index)) {
      const row = rowOf(list.shown[index], index);
      list.drawn.set(index, row);
      list.rows.append(row);
    }
  }
}

function rowOf(partition, index) {
  const row = el(
    "div",
    {
      class: `row ${partition.tone}`,
      role: "option",
      id: `row-${partition.index}`,
      "aria-selected": partition === state.selected ? "true" : "false",
      "aria-setsize": list.shown.length,
      "aria-posinset": index + 1,
      "data-name": partition.topic_partition,
      onclick: () => select(partition, true),
    },
    el("div", { class: "who" }, nameOf(partition.topic_partition), el("span", { class: "place", title: plain(partition.place) }, placeText(partition))),
    partition.segments.base_offset.length || partition.boundaries.length ? miniature(partition) : el("span", {}),
    el("div", { class: "badges" }, badgesOf(partition)),
  );
  row.style.top = `${index * ROW}px`;
  return row;
}

// The number of a partition is at the end of its name: a long name loses its middle.
function nameOf(text) {
  const shown = plain(text);
  return el("span", { class: "name", title: shown }, el("span", { class: "head" }, shown.slice(0, -NAME_END)), el("span", { class: "end" }, shown.slice(-NAME_END)));
}

// The end of a path distinguishes places, and is the part that does not fit.
const HAS_ONE_NODE = new Set(PARTITIONS.map((each) => each.node_id)).size < 2;

function placeText(partition) {
  const host = partition.origin ? `${partition.origin} · ` : "";
  const node = partition.node_id === undefined || HAS_ONE_NODE ? "" : `node ${partition.node_id} · `;
  const parent = partition.place.endsWith(`/${partition.topic_partition}`) ? partition.place.slice(0, -partition.topic_partition.length - 1) : partition.place;
  return host + node + parent;
}

const BADGES_MAX = 4;

function badgesOf(partition) {
  const { tones } = partition;
  const all = [
    [partition.outcome, partition.outcome === "elect" ? "open" : "concern", partition.outcome],
    [partition.fates.length, "wrong", partition.fates.length ? words(partition.fates[0].kind) : ""],
    [tones.wrong, "wrong", `${tones.wrong} wrong`],
    [partition.damaged, "wrong", "damaged"],
    [tones.suspect, "concern", `${tones.suspect} suspect`],
    [partition.stuck_bytes, "missing", `${sizeText(partition.stuck_bytes || 0)} stuck`],
    [tones.missing, "missing", `${tones.missing} missing`],
    [partition.is_unread, "wrong", "not read"],
    [tones.removed, "concern", `${tones.removed} removed at start`],
    [partition.late, "concern", `${partition.late} late`],
    [(partition.open_count || 0) - (partition.late || 0), "open", `${counted((partition.open_count || 0) - (partition.late || 0), "transaction")} open`],
    [tones.written, "written", `${tones.written} written`],
    [partition.concerns && !tones.wrong && !tones.missing && !tones.suspect && !partition.late, "concern", counted(partition.concerns || 0, "finding")],
    [tones.unverifiable, "unknown", `${tones.unverifiable} unverifiable`],
    [partition.kind, "quiet", partition.kind],
    [partition.tone === "fine", "quiet", "nothing found"],
  ].filter(([isShown]) => Boolean(isShown) && isShown !== 0);
  return all.slice(0, BADGES_MAX).map(([, tone, text]) => el("span", { class: `badge ${tone}` }, text));
}

function select(partition, isSeen) {
  const before = state.selected;
  state.selected = partition;
  for (const each of [before, partition]) {
    const row = each && byId(`row-${each.index}`);
    if (row) row.setAttribute("aria-selected", each === partition ? "true" : "false");
  }
  if (partition && isSeen) bringIntoSight(list.shown.indexOf(partition));
  if (partition) list.node.setAttribute("aria-activedescendant", `row-${partition.index}`);
  else list.node.removeAttribute("aria-activedescendant");
  showDetail(partition);
}

function bringIntoSight(index) {
  if (index < 0) return;
  const top = index * ROW;
  if (top < list.node.scrollTop) list.node.scrollTop = top;
  const below = top + ROW - list.node.clientHeight;
  if (below > list.node.scrollTop) list.node.scrollTop = below;
  drawRows();
}

function moved(event) {
  const page = Math.max(1, Math.floor(list.node.clientHeight / ROW) - 1);
  const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
  if (event.key === "Enter") {
    byId("detail-title")?.focus();
    event.preventDefault();
  } else if (event.key in steps && list.shown.length) {
    const at = list.shown.indexOf(state.selected);
    const next = Math.min(list.shown.length - 1, Math.max(0, at + steps[event.key]));
    select(list.shown[next], true);
    event.preventDefault();
  }
}

function startList() {
  let isAsked = false;
  list.node.addEventListener("scroll", () => {
    if (isAsked) return;
    isAsked = true;
    requestAnimationFrame(() => {
      isAsked = false;
      drawRows();
    });
  });
  list.node.addEventListener("keydown", moved);
  new ResizeObserver(drawRows).observe(list.node);
  // Paper does not scroll.
  addEventListener("beforeprint", () => {
    list.isPrinted = true;
    const printed = Math.min(list.shown.length, PRINTED_MAX);
    list.rows.style.height = `${printed * ROW}px`;
    drawRange(0, printed);
    byId("count").textContent += printed < list.shown.length ? `; the first ${printed} are printed` : "";
  });
  addEventListener("afterprint", () => {
    list.isPrinted = false;
    showList();
  });
}

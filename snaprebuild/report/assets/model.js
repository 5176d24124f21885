// The model of the page: its data, and the facts of each partition that follow from them.

const DATA = JSON.parse(byId("data").textContent);

const FATES = {
  u: ["uploadable", "would be uploaded"],
  x: ["bad", "would be uploaded with a bad snapshot"],
  b: ["blocked", "blocked"],
  h: ["behind", "waits for a blocked one"],
  w: ["waits", "waits for a transaction, for replication, or by remote.copy.lag.*"],
  k: ["unknown", "last stable offset not known"],
  a: ["active", "active segment"],
  s: ["below", "below the log start"],
  n: ["never", "of a topic that is never uploaded"],
  p: ["unsaid", "listed"],
  r: ["copy", "copy in remote storage"],
};

// The worst comes first: where several segments share one mark, it has the colour of the worst.
const FATE_RANK = "bxhwkaurpns";

const SEVERITIES = ["storage", "refused", "damaged", "finding", "note"];

const MISSING = new Set(["missing", "irregular"]);
const DOUBTED = new Set(["suspect", "corrupt", "unreadable"]);

function toneOfBoundary({ state, proven_wrong: isWrong, at_next_start: next, action }) {
  if (isWrong || state === "corrupt") return "wrong";
  if (MISSING.has(state)) return "missing";
  if (DOUBTED.has(state) || next === "removed" || next === "empty") return "doubted";
  if (action) return "written";
  return state === "not due" || state === "regenerated" ? "quiet" : "fine";
}

function stateOfTransaction({ is_late: isLate, hang_reason: reason }) {
  return isLate ? `late${reason ? `: ${words(reason)}` : ""}` : "";
}

function finish(partition, index) {
  partition.index = index;
  for (const boundary of partition.boundaries) boundary.tone = toneOfBoundary(boundary);
  partition.differences = partition.differences || [];
  // An audit lists only what the log proves.
  for (const difference of partition.differences) difference.is_certain = difference.is_certain !== false;
  partition.open = partition.open || [];
  for (const transaction of partition.open) transaction.state = stateOfTransaction(transaction);
  partition.findings = partition.findings || [];
  partition.lacks = partition.lacks || [];
  const columns = partition.segments;
  partition.size = columns.size_bytes.reduce((sum, size) => sum + (size || 0), 0);
  partition.segmentCount = columns.counts ? columns.counts.reduce((sum, count) => sum + count, 0) : columns.base_offset.length;
  const tones = { wrong: 0, missing: 0, doubted: 0, written: 0, quiet: 0, fine: 0 };
  for (const boundary of partition.boundaries) tones[boundary.tone] += 1;
  partition.tones = tones;
  partition.matters = !partition.kind || partition.kind === "remote";
  // Differences of snapshots that nothing proves wrong are no loss.
  const wrong = new Set(partition.boundaries.filter((each) => each.tone === "wrong").map((each) => String(each.offset)));
  partition.forgotten = partition.differences.filter((each) => each.is_certain && wrong.has(String(each.offset))).length;
  partition.fates = (partition.fates || []).map((number) => DATA.fates[number]);
  const codes = new Set(partition.findings.map((number) => DATA.findings[number].code));
  partition.codes = codes;
  partition.text = [partition.topic_partition, partition.place, partition.kind || "", ...codes, ...partition.differences.map((each) => each.producer_id)]
    .concat(partition.outcome || [])
    .join("\n")
    .toLowerCase();
  return partition;
}

const PARTITIONS = DATA.partitions.map(finish);

// Name, and whether a partition is one: the same for the buttons and for the numbers at the top.
const FILTERS = [
  ["start", "Next start", (each) => each.fates.length > 0],
  ["wrong", "Wrong snapshots", (each) => each.tones.wrong > 0],
  ["stuck", "Stuck", (each) => (each.stuck_bytes || 0) > 0],
  ["missing", "Missing snapshots", (each) => each.tones.missing > 0 && each.matters],
  ["doubted", "Suspect", (each) => each.tones.doubted > 0 && each.matters],
  ["open", "Open transactions", (each) => each.open_count > 0],
  ["written", "Written by a run", (each) => each.boundaries.some((boundary) => boundary.action)],
  ["elect", "Elect", (each) => each.outcome === "elect"],
  ["repair", "Repair", (each) => each.outcome === "repair"],
  ["clean", "Nothing found", (each) => toneOf(each) === "fine"],
];

function toneOf(partition) {
  if (partition.fates.length || partition.tones.wrong) return "wrong";
  if (partition.matters && ((partition.stuck_bytes || 0) > 0 || partition.tones.missing)) return "missing";
  if ((partition.matters && partition.tones.doubted) || partition.is_concerned) return "doubted";
  return "fine";
}

const SORTS = {
  worst: (one, other) => one.index - other.index,
  name: (one, other) => one.topic_partition.localeCompare(other.topic_partition, "en", { numeric: true }) || one.index - other.index,
  stuck: (one, other) => (other.stuck_bytes || 0) - (one.stuck_bytes || 0) || one.index - other.index,
  size: (one, other) => other.size - one.size || one.index - other.index,
};

const state = { search: "", filters: new Set(), code: null, sort: "worst", axis: "segments", selected: null };

function chosen() {
  const wanted = state.search.toLowerCase().split(/\s+/).filter(Boolean);
  const tests = FILTERS.filter(([name]) => state.filters.has(name)).map(([, , test]) => test);
  return PARTITIONS.filter(
    (each) =>
      wanted.every((word) => each.text.includes(word)) &&
      tests.every((test) => test(each)) &&
      (state.code === null || each.codes.has(state.code)),
  ).sort(SORTS[state.sort]);
}

// The model of the page: its data, and texts of each partition for the search. Counts and tones are in the data: the script judges nothing.

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

// The tones of boundaries (page_tones.py), the worst first.
const TONES = {
  wrong: "proven wrong",
  suspect: "suspect",
  missing: "missing",
  removed: "removed by the next start",
  unverifiable: "unverifiable",
  written: "written by a run",
  quiet: "none needed",
  fine: "snapshot is there",
};

function stateOfTransaction({ is_late: isLate, hang_reason: reason, two_phase: twoPhase }) {
  if (twoPhase === "yes") return "two-phase commit, may be prepared: never expires";
  if (isLate) return !reason || reason === "unknown" ? "late, cause unknown" : `late: ${words(reason)}`;
  return isLate === undefined ? "" : "open, not late";
}

function finish(partition, index) {
  partition.index = index;
  partition.differences = partition.differences || [];
  partition.open = partition.open || [];
  for (const transaction of partition.open) transaction.state = stateOfTransaction(transaction);
  partition.findings = partition.findings || [];
  partition.lacks = partition.lacks || [];
  const columns = partition.segments;
  partition.size = columns.size_bytes.reduce((sum, size) => sum + (size || 0), 0);
  partition.segmentCount = columns.counts ? columns.counts.reduce((sum, count) => sum + count, 0) : columns.base_offset.length;
  partition.fates = (partition.fates || []).map((number) => DATA.fates[number]);
  partition.codes = new Set(partition.findings.map((number) => DATA.findings[number].code));
  partition.text = [
    partition.topic_partition,
    partition.place,
    partition.origin || "",
    partition.kind || "",
    partition.outcome || "",
    ...partition.codes,
    ...partition.differences.map((each) => each.producer_id),
    ...partition.open.map((each) => `${each.producer_id ?? ""} ${each.transactional_id ?? ""}`),
  ]
    .join("\n")
    .toLowerCase();
  return partition;
}

const PARTITIONS = DATA.partitions.map(finish);

// Name, text, and whether a partition is one.
const FILTERS = [
  ["start", "Next start", (each) => each.fates.length > 0],
  ["wrong", "Proven wrong", (each) => each.tones.wrong > 0],
  ["suspect", "Suspect", (each) => each.tones.suspect > 0],
  ["missing", "Missing", (each) => each.tones.missing > 0],
  ["stuck", "Stuck", (each) => each.stuck_bytes > 0],
  ["finding", "Findings", (each) => each.concerns > 0],
  ["unread", "Not read", (each) => each.is_unread],
  ["removed", "Removed by the next start", (each) => each.tones.removed > 0],
  ["late", "Late transactions", (each) => each.late > 0],
  ["open", "Open transactions", (each) => each.open_count > 0],
  ["unverifiable", "Unverifiable", (each) => each.tones.unverifiable > 0],
  ["written", "Written by a run", (each) => each.tones.written > 0],
  ["elect", "Elect", (each) => each.outcome === "elect"],
  ["repair", "Repair", (each) => each.outcome === "repair"],
  ["clean", "Nothing found", (each) => each.tone === "fine"],
];

const SORTS = {
  worst: (one, other) => one.index - other.index,
  name: (one, other) => one.topic_partition.localeCompare(other.topic_partition, "en", { numeric: true }) || one.index - other.index,
  stuck: (one, other) => (other.stuck_bytes || 0) - (one.stuck_bytes || 0) || one.index - other.index,
  size: (one, other) => other.size - one.size || one.index - other.index,
};

const state = { search: "", filters: new Set(), code: null, sort: "worst", axis: "segments", isZoomed: false, selected: null };

// A finding about something that no partition of this page is in leaves the list as it is.
function chosen() {
  const hasCode = PARTITIONS.some((each) => each.codes.has(state.code));
  const wanted = state.search.toLowerCase().split(/\s+/).filter(Boolean);
  const tests = FILTERS.filter(([name]) => state.filters.has(name)).map(([, , test]) => test);
  return PARTITIONS.filter(
    (each) =>
      wanted.every((word) => each.text.includes(word)) &&
      tests.every((test) => test(each)) &&
      (!hasCode || each.codes.has(state.code)),
  ).sort(SORTS[state.sort]);
}

// A partition's log from left to right: segments, the snapshot at each boundary, open transactions, and producers that a wrong snapshot lacks.

const GUTTER = 118;
const RIGHT = 14;
const MINI = { width: 1000, height: 22, most: 240 };
const BARS_MAX = 40;
const WIDTH_MIN = 120;
const SEGMENT_WIDTH_MIN = 2;
const ZOOMED_WIDTH_MIN = 9;
const WIDTH_MAX = 12000;
const MARKER_GAP = 3;

const AXES = {
  segments: ["each segment as wide as the next", (partition, index) => (partition.segments.counts ? partition.segments.counts[index] : 1)],
  offsets: ["by offset", (partition, index, points) => Math.max(1, Number(points[index + 1]) - Number(points[index]))],
  bytes: ["by size", (partition, index) => Math.max(1, partition.segments.size_bytes[index] || 0)],
};

// The position of each offset, from 0 to 1. Inside a segment offsets are spread evenly, because their positions are unknown.
function axisOf(partition, name) {
  const known = partition.segments.base_offset.length > 0;
  const points = known ? partition.segments.base_offset.slice() : [partition.log_start_offset || 0, ...partition.boundaries.map((each) => each.offset)];
  const last = Number(points[points.length - 1]);
  const ends = [partition.log_end_offset, partition.log_end_at_least, ...partition.boundaries.slice(-1).map((each) => each.offset)].map((each) => Number(each ?? 0));
  const unfinished = known || points.length === 1;
  if (unfinished) points.push(Math.max(last + 1, ...ends));
  const weight = AXES[known ? name : "segments"][1];
  const edges = [0];
  for (let index = 0; index + 1 < points.length; index += 1) edges.push(edges[index] + weight(partition, index, points));
  const whole = edges[edges.length - 1] || 1;
  const numbers = points.map(Number);
  return {
    known,
    points,
    edges: edges.map((edge) => edge / whole),
    segmentAt(offset) {
      let low = 0;
      let high = numbers.length - 2;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (numbers[middle] <= offset) low = middle;
        else high = middle - 1;
      }
      return Math.max(0, low);
    },
    at(offset) {
      const value = Number(offset);
      const index = this.segmentAt(value);
      const span = numbers[index + 1] - numbers[index] || 1;
      const share = Math.min(1, Math.max(0, (value - numbers[index]) / span));
      return this.edges[index] + share * (this.edges[index + 1] - this.edges[index]);
    },
    indexAt(place) {
      let index = 0;
      while (index + 2 < this.edges.length && this.edges[index + 1] <= place) index += 1;
      return index;
    },
  };
}

function worstOf(fates) {
  return [...FATE_RANK].find((fate) => fates.includes(fate)) || "p";
}

function miniature(partition) {
  const axis = axisOf(partition, "segments");
  const picture = svg("svg", { class: "mini", viewBox: `0 0 ${MINI.width} ${MINI.height}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  const count = axis.edges.length - 1;
  const step = Math.max(1, Math.ceil(count / MINI.most));
  const gap = count <= 120 ? 1.5 : 0;
  for (let index = 0; index < count; index += step) {
    const behind = Math.min(count, index + step);
    const fates = axis.known ? partition.segments.fates.slice(index, behind) : "p";
    const worst = worstOf(fates);
    const x = axis.edges[index] * MINI.width;
    const width = Math.max(1, axis.edges[behind] * MINI.width - x - gap);
    picture.append(svg("rect", { class: `seg ${FATES[worst][0]}`, x: x.toFixed(1), y: 1, width: width.toFixed(1), height: 12 }));
  }
  let lastX = -9;
  for (const boundary of partition.boundaries) {
    if (["fine", "quiet", "unverifiable"].includes(boundary.tone)) continue;
    const x = axis.at(boundary.offset) * MINI.width;
    if (boundary.tone !== "wrong" && x - lastX < 4) continue;
    lastX = x;
    picture.append(svg("rect", { class: `mark ${boundary.tone}`, x: Math.min(MINI.width - 5, Math.max(0, x - 2.5)).toFixed(1), y: 15, width: 5, height: 6 }));
  }
  return picture;
}

function boundaryText(boundary) {
  const parts = [`offset ${boundary.offset}: ${boundary.state ? words(boundary.state) : "snapshot"}`];
  if (boundary.status) parts.push(words(boundary.status));
  if (boundary.entries !== undefined) parts.push(counted(boundary.entries, "producer"));
  if (boundary.class) parts.push(boundary.class);
  if (boundary.action) parts.push(boundary.action);
  if (boundary.at_next_start) parts.push(`next start: ${boundary.at_next_start}`);
  return parts.join(", ");
}

function segmentText(partition, axis, index) {
  if (!axis.known) return `offsets ${axis.points[index]} to ${axis.points[index + 1]}; segments are not listed`;
  const many = partition.segments.counts && partition.segments.counts[index] > 1 ? `${partition.segments.counts[index]} segments, ` : "segment ";
  const next = index + 1 < partition.segments.base_offset.length ? partition.segments.base_offset[index + 1] : (partition.log_end_offset ?? "the log end");
  const parts = [`${many}${partition.segments.base_offset[index]} to ${next}`];
  if (partition.segments.size_bytes[index] !== null) parts.push(sizeText(partition.segments.size_bytes[index]));
  parts.push(FATES[partition.segments.fates[index]][1]);
  if (partition.segments.modified_ms[index] !== null) parts.push(`last modified ${timeText(partition.segments.modified_ms[index])}`);
  return parts.join(", ");
}

// Shapes differ as colours do, for those who see no colours and for paper.
function markerOf(boundary, x, y) {
  const title = svg("title", {}, boundaryText(boundary));
  const place = { class: `marker ${boundary.tone}`, transform: `translate(${x.toFixed(1)} ${y})` };
  switch (boundary.tone) {
    case "wrong":
      return svg("g", place, title, svg("circle", { r: 6 }), svg("path", { d: "M-2.6 -2.6L2.6 2.6M2.6 -2.6L-2.6 2.6", class: "cut" }));
    case "missing":
      return svg("g", place, title, svg("path", { d: "M0 -6L6 0L0 6L-6 0Z" }));
    case "suspect":
    case "removed":
      return svg("g", place, title, svg("path", { d: "M0 -6L6 5L-6 5Z" }));
    case "written":
      return svg("g", place, title, svg("circle", { r: 5 }), svg("path", { d: "M-2.5 0L-0.5 2.2L2.8 -2.2", class: "cut" }));
    case "unverifiable":
      return svg("g", place, title, svg("circle", { r: 4 }));
    case "quiet":
      return svg("g", place, title, svg("circle", { r: 2 }));
    default:
      return svg("g", place, title, svg("rect", { x: -1.5, y: -5, width: 3, height: 10, rx: 1 }));
  }
}

function laneName(text, y) {
  return svg("text", { class: "lane", x: 0, y }, text);
}

function idText(number) {
  const id = String(number);
  return id.length > 13 ? `${id.slice(0, 6)}…${id.slice(-6)}` : id;
}

// The whole log fits, so that nothing is out of sight; zoomed in, each segment is wide enough to be pointed at, and the frame scrolls.
function timeline(partition, frame, readout) {
  const axis = axisOf(partition, state.axis);
  const count = axis.edges.length - 1;
  const room = Math.max(frame.clientWidth - 12 - GUTTER - RIGHT, WIDTH_MIN);
  const width = state.isZoomed ? Math.min(WIDTH_MAX, Math.max(room, count * ZOOMED_WIDTH_MIN)) : room;
  const xOf = (offset) => GUTTER + axis.at(offset) * width;
  const picture = svg("svg", {
    class: "timeline",
    tabindex: 0,
    role: "img",
    "aria-label": plain(`Timeline of ${partition.topic_partition}: ${counted(partition.segmentCount, "segment")}, ${counted(partition.boundaries.length, "boundary", "boundaries")}. The arrow keys go from segment to segment; the tables below say the same.`),
    width: GUTTER + width + RIGHT,
  });
  const lines = svg("g", {});
  picture.append(svg("defs", {}, hatch("hatch-blocked", "blocked"), hatch("hatch-bad", "bad")), lines);
  drawTicks(picture, axis, width);
  picture.append(laneName("segments", 44));
  drawSegments(picture, partition, axis, width);
  picture.append(laneName("snapshots", 74));
  drawMarkers(picture, partition, xOf);
  let y = 96;
  y = drawTransactions(picture, partition, xOf, y, width);
  y = drawProducers(picture, partition, xOf, y);
  y = drawMarks(picture, lines, partition, xOf, y, width);
  picture.setAttribute("height", y + 4);
  followPointer(picture, partition, axis, width, y, readout);
  frame.replaceChildren(picture);
  keepInside(picture);
}

// Segments that are too narrow to be seen share one mark, which has the colour of the worst.
function drawSegments(picture, partition, axis, width) {
  const count = axis.edges.length - 1;
  let index = 0;
  while (index < count) {
    let end = index + 1;
    while (end < count && (axis.edges[end] - axis.edges[index]) * width < SEGMENT_WIDTH_MIN) end += 1;
    const fate = axis.known ? FATES[worstOf(partition.segments.fates.slice(index, end))][0] : "unlisted";
    const x = GUTTER + axis.edges[index] * width;
    const wide = Math.max(0.8, (axis.edges[end] - axis.edges[index]) * width - (end > index + 1 ? 0 : 1));
    const place = { x: x.toFixed(1), y: 26, width: wide.toFixed(1), height: 28, rx: wide > 6 ? 2 : 0 };
    picture.append(svg("rect", { class: `seg ${fate}`, ...place }));
    if (fate === "blocked" || fate === "bad") picture.append(svg("rect", { fill: `url(#hatch-${fate})`, ...place }));
    index = end;
  }
}

// The worst are drawn last, on top; of equal ones that are too close to be told apart only the first one.
function drawMarkers(picture, partition, xOf) {
  for (const tone of Object.keys(TONES).reverse()) {
    let lastX = -1e9;
    for (const boundary of partition.boundaries) {
      if (boundary.tone !== tone) continue;
      const x = xOf(boundary.offset);
      if (x - lastX < MARKER_GAP) continue;
      lastX = x;
      picture.append(markerOf(boundary, x, 70));
    }
  }
}

// A text that would leave the drawing moves back into it. One that is wider than the drawing loses its end, and has it as its title.
function keepInside(picture) {
  const right = Number(picture.getAttribute("width")) - 2;
  for (const text of picture.querySelectorAll("text")) {
    const box = text.getBBox();
    const over = box.x + box.width - right;
    let move = over > 0 ? -over : 0;
    if (box.x + move < 0) move = -box.x;
    if (move) text.setAttribute("x", (Number(text.getAttribute("x")) + move).toFixed(1));
  }
}

function hatch(id, tone) {
  return svg("pattern", { id, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, svg("rect", { class: `hatch ${tone}`, width: 2, height: 6 }));
}

function drawTicks(picture, axis, width) {
  let lastX = -1e9;
  axis.points.forEach((point, index) => {
    const x = GUTTER + axis.edges[index] * width;
    const text = String(point);
    const wide = text.length * 7;
    const isLast = index === axis.points.length - 1;
    const left = Math.min(isLast ? x - wide : x, GUTTER + width + RIGHT - wide);
    if (left - lastX < 14) return;
    lastX = left + wide;
    picture.append(svg("text", { class: "tick", x: x.toFixed(1), y: 12, "text-anchor": isLast ? "end" : "start" }, text), svg("line", { class: "tick", x1: x.toFixed(1), x2: x.toFixed(1), y1: 16, y2: 24 }));
  });
}

function drawTransactions(picture, partition, xOf, y, width) {
  const bars = partition.open.slice(0, BARS_MAX);
  if (!bars.length) return y;
  picture.append(laneName("open transactions", y + 9));
  for (const each of bars) {
    const x = xOf(each.first_offset);
    const end = GUTTER + width;
    const text = `transaction${each.producer_id === undefined ? "" : ` of producer ${each.producer_id}`} open from ${each.first_offset} to the log end${each.state && `, ${each.state}`}`;
    const place = { x: x.toFixed(1), y: y + 2, width: Math.max(4, end - x).toFixed(1), height: 8, rx: 3 };
    picture.append(svg("rect", { class: `txn${each.is_late ? " late" : ""}`, ...place }, svg("title", {}, text)));
    y += 13;
  }
  return more(picture, (partition.open_count || 0) - bars.length, y) + 8;
}

// Only what is proven wrong; without any, what cannot be verified.
function drawProducers(picture, partition, xOf, y) {
  const proven = partition.differences.filter((each) => each.is_proven);
  const all = proven.length ? proven : partition.differences;
  const ranked = all.slice(0, BARS_MAX);
  if (!ranked.length) return y;
  picture.append(laneName(proven.length ? "wrong about" : "unverifiable", y + 9));
  y += 12;
  for (const each of ranked) {
    const isOffset = each.kind === "missing" || each.field === "last_offset";
    const from = isOffset && each.expected !== undefined ? each.expected : each.open_from;
    const end = xOf(each.offset);
    const begin = from === undefined ? end : Math.min(xOf(from), end);
    const row = svg("g", { class: `producer ${each.is_proven ? "proven" : "open"}` }, svg("title", {}, `producer ${each.producer_id} at the snapshot of ${each.offset}: ${each.consequence}`));
    row.append(
      svg("text", { class: "id", x: GUTTER - 6, y: y + 9 }, idText(each.producer_id)),
      svg("line", { x1: begin.toFixed(1), x2: end.toFixed(1), y1: y + 6, y2: y + 6 }),
      svg("circle", { cx: begin.toFixed(1), cy: y + 6, r: 3 }),
      svg("path", { d: `M${(end - 3).toFixed(1)} ${y + 3}l6 6m0 -6l-6 6` }),
    );
    picture.append(row);
    y += 12;
  }
  const count = proven.length ? partition.wrong_entries : partition.difference_count;
  return more(picture, (count || 0) - ranked.length, y) + 8;
}

function more(picture, count, y) {
  if (count <= 0) return y;
  picture.append(svg("text", { class: "lane", x: GUTTER, y: y + 9 }, `and ${grouped(count)} more`));
  return y + 13;
}

function drawMarks(picture, lines, partition, xOf, y, width) {
  const marks = [
    ["log start", partition.log_start_offset],
    ["last stable offset", partition.last_stable_offset],
    ["high watermark", partition.high_watermark],
    ["log end", partition.log_end_offset],
  ].filter(([, offset]) => offset !== undefined && offset !== null);
  const byOffset = new Map();
  for (const [name, offset] of marks) byOffset.set(offset, [...(byOffset.get(offset) || []), name]);
  const placed = [...byOffset].map(([offset, names]) => ({ x: xOf(offset), text: `${names.join(", ")} ${offset}` }));
  for (const mark of placed) {
    const isRight = mark.x > GUTTER + (width) / 2;
    lines.append(svg("line", { class: "bound", x1: mark.x.toFixed(1), x2: mark.x.toFixed(1), y1: 20, y2: y + 6 }));
    picture.append(svg("text", { class: "bound", x: mark.x.toFixed(1), y: y + 16, "text-anchor": isRight ? "end" : "start" }, mark.text));
    y += 14;
  }
  return y + 6;
}

function followPointer(picture, partition, axis, width, height, readout) {
  const cursor = svg("line", { class: "cursor", y1: 20, y2: height, visibility: "hidden" });
  picture.append(cursor);
  let at = -1;
  const show = (index, x) => {
    at = index;
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    cursor.setAttribute("visibility", "visible");
    readout.textContent = plain(segmentText(partition, axis, index));
  };
  picture.addEventListener("pointermove", (event) => {
    const x = event.clientX - picture.getBoundingClientRect().left;
    if (x >= GUTTER && x <= GUTTER + width) show(axis.indexAt((x - GUTTER) / width), x.toFixed(1));
  });
  picture.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    const index = Math.min(axis.edges.length - 2, Math.max(0, at + step));
    const x = GUTTER + ((axis.edges[index] + axis.edges[index + 1]) / 2) * width;
    show(index, x.toFixed(1));
    picture.parentNode.scrollLeft = x - picture.parentNode.clientWidth / 2;
    event.preventDefault();
  });
}

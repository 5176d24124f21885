// What the tests measure in a page. Each function is called in the page (opened_page.py).

const UNSEEN = ".hidden, .skip, thead, script, style, noscript, option";

function nameOf(each) {
  return `${each.tagName}.${each.getAttribute("class") || each.id} ${(each.textContent || "").slice(0, 60)}`;
}

function visibleTexts(without) {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const texts = [];
  while (walker.nextNode()) {
    const each = walker.currentNode.parentElement;
    if (walker.currentNode.data.trim() && each.checkVisibility() && !each.closest(without)) texts.push(walker.currentNode);
  }
  return texts;
}

// What is out of its place: texts that leave their box or the window, boxes that scroll sideways or cut their content.
function misplaced() {
  const wrong = [];
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) wrong.push(`the page scrolls sideways: ${document.documentElement.scrollWidth}`);
  for (const each of document.querySelectorAll("body *")) {
    if (!each.checkVisibility() || each.closest(UNSEEN) || each instanceof SVGElement) continue;
    const style = getComputedStyle(each);
    if (style.textOverflow === "ellipsis" && each.closest("[title]")) continue;
    if (style.overflowX !== "visible" && each.scrollWidth > each.clientWidth + 1) wrong.push(`scrolls sideways: ${nameOf(each)}`);
    const isCut = ["hidden", "clip"].includes(style.overflowY) && each.scrollHeight > each.clientHeight + 1;
    if (isCut) wrong.push(`is cut off: ${nameOf(each)}`);
  }
  const texts = visibleTexts(`${UNSEEN}, .head, .place`);
  for (const text of texts) {
    const range = document.createRange();
    range.selectNodeContents(text);
    const owner = text.parentElement.closest(".row, td, .panel, #detail, .card, button, svg") || document.body;
    const box = owner.getBoundingClientRect();
    for (const rect of range.getClientRects()) {
      const isOut = rect.left < box.left - 1 || rect.right > box.right + 1 || rect.right > width + 1;
      if (isOut) wrong.push(`sticks out: ${nameOf(text.parentElement)}`);
    }
  }
  if (texts.length < 30) wrong.push(`only ${texts.length} texts were measured`);
  return [...new Set(wrong)];
}

// Labels of the timeline that leave it, or cover each other.
function labels() {
  const wrong = [];
  for (const picture of document.querySelectorAll("svg.timeline")) {
    const frame = picture.getBoundingClientRect();
    const texts = [...picture.querySelectorAll("text")].map((each) => [each.textContent, each.getBoundingClientRect()]);
    if (texts.length < 3) wrong.push("a drawing without labels");
    texts.forEach(([text, box], index) => {
      const isOut = box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1;
      if (isOut) wrong.push(`leaves the drawing: ${text}`);
      for (const [other, its] of texts.slice(index + 1)) {
        const across = Math.min(box.right, its.right) - Math.max(box.left, its.left);
        const down = Math.min(box.bottom, its.bottom) - Math.max(box.top, its.top);
        if (across > 1 && down > 3) wrong.push(`${text} covers ${other}`);
      }
    });
    if (frame.right > picture.parentElement.getBoundingClientRect().right + 1) wrong.push("the drawing is wider than its frame");
  }
  return wrong;
}

// The number of rows of tables, and what is wrong with them: higher than their content, or parts that leave a row of the list.
function rows() {
  const wrong = [];
  const range = document.createRange();
  const visible = [...document.querySelectorAll("tbody tr")].filter((row) => row.checkVisibility());
  for (const row of visible) {
    const boxes = [...row.children].flatMap((cell) => {
      range.selectNodeContents(cell);
      return [...range.getClientRects()].filter((box) => box.height > 0);
    });
    const content = Math.max(...boxes.map((box) => box.bottom)) - Math.min(...boxes.map((box) => box.top));
    const height = row.getBoundingClientRect().height;
    if (height - content > 24) wrong.push(`${row.textContent.slice(0, 50)}: ${height} for ${content}`);
  }
  for (const row of document.querySelectorAll(".row")) {
    const box = row.getBoundingClientRect();
    for (const part of row.querySelectorAll(".name, .end, .badge")) {
      const its = part.getBoundingClientRect();
      const isOut = its.top < box.top || its.bottom > box.bottom || its.right > box.right || its.left < box.left;
      if (isOut) wrong.push(`${part.textContent} leaves its row`);
    }
    if (row.querySelector(".name").getBoundingClientRect().width < 30) wrong.push(`no room for ${row.dataset.name}`);
  }
  return [visible.length, wrong];
}

// Colour and background of each visible text, also in drawings, with the element that it is in; each pair once.
function colours() {
  const found = new Map();
  for (const text of visibleTexts(UNSEEN)) {
    const each = text.parentElement;
    const style = getComputedStyle(each);
    const colour = each instanceof SVGElement ? style.fill : style.color;
    const back = backgroundOf(each);
    const what = `${each.tagName} ${each.getAttribute("class") || each.id} in ${each.parentElement.getAttribute("class") || each.parentElement.id}`;
    found.set(`${colour} ${back} ${what}`, [colour, back, what]);
  }
  return [...found.values()];
}

function backgroundOf(each) {
  for (let node = each; node; node = node.parentElement) {
    const back = getComputedStyle(node).backgroundColor;
    if (back !== "rgba(0, 0, 0, 0)") return back;
  }
  return null;
}

// The cards by name: number, and text below.
function cards() {
  const texts = (card) => [card.querySelector("dt").innerText, [card.querySelector(".value").innerText, card.querySelector(".below").innerText]];
  return Object.fromEntries([...document.querySelectorAll("#cards .card")].map(texts));
}

// The facts of an open transaction by name.
function facts(number) {
  const transaction = document.querySelectorAll(".transaction")[number];
  const text = (fact) => [fact.querySelector("dt").innerText, fact.querySelector("dd").innerText];
  return Object.fromEntries([...transaction.querySelectorAll(".facts > div")].map(text));
}

// The outline of the element with the focus, and which element that is.
function focus() {
  const each = document.activeElement;
  const style = getComputedStyle(each);
  const order = [...document.querySelectorAll("*")].indexOf(each);
  return [`${style.outlineStyle} ${style.outlineWidth}`, `${each.tagName} ${each.id} ${order} ${each.textContent.slice(0, 30)}`];
}

"use strict";
// Text and elements. The page shows all content of documents as text of a node or value of an attribute, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

// Characters that are invisible, or change the direction of the text around them, are shown as their escapes.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\u2028\u2029]/gu;

function plain(text) {
  return String(text).replace(UNSEEN, (char) => `\\u{${char.codePointAt(0).toString(16)}}`);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "onclick" || name === "oninput" || name === "onchange") node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : plain(child));
  }
  return node;
}

function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function byId(id) {
  return document.getElementById(id);
}

function counted(count, noun, several) {
  return `${grouped(count)} ${count === 1 ? noun : several || noun + "s"}`;
}

// Counts have groups of three digits; offsets are shown as they are, for somebody who copies them.
function grouped(count) {
  return String(count).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

function sizeText(bytes) {
  let value = bytes;
  let unit = "B";
  for (const larger of ["KiB", "MiB", "GiB", "TiB", "PiB"]) {
    if (value < 1024) break;
    value /= 1024;
    unit = larger;
  }
  return unit === "B" ? `${bytes} B` : `${value.toFixed(1)} ${unit}`;
}

// A moment, to the minute; one without a date is a number.
function timeText(ms) {
  const moment = new Date(Number(ms));
  return isNaN(moment) ? `${ms} ms` : moment.toISOString().slice(0, 16).replace("T", " ") + " UTC";
}

function secondsText(ms) {
  const moment = new Date(Number(ms));
  return isNaN(moment) ? `${ms} ms` : moment.toISOString().slice(0, 19).replace("T", " ") + " UTC";
}

function words(name) {
  return String(name).replace(/[_-]/g, " ");
}

// A duration, in its two largest units.
function durationText(ms) {
  if (!(ms >= 0)) return "unknown";
  let seconds = Math.floor(ms / 1000);
  const parts = [];
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]) {
    const count = Math.floor(seconds / size);
    seconds -= count * size;
    if (count || (unit === "s" && !parts.length)) parts.push(`${count} ${unit}`);
  }
  return parts.slice(0, 2).join(" ");
}

// A sentence; words between backticks are those of a command.
function prose(text) {
  const parts = String(text).split("`");
  return parts.length % 2 ? parts.map((part, index) => (index % 2 ? el("code", {}, part) : part)) : [text];
}

function linesOf(text) {
  return String(text).split("\n").filter(Boolean);
}

// A command with a button that copies it. A text with characters that cannot be seen is shown and not copied: a terminal may obey them.
function commandOf(text) {
  const code = el("code", {}, plain(text).split(" ").flatMap((word, index) => [index ? " " : null, el("span", {}, word)]));
  if (plain(text) !== text) return el("div", { class: "command" }, code, el("span", { class: "hint" }, "Not to be copied: it has characters that cannot be seen."));
  const button = el("button", { type: "button", class: "copy", "aria-label": `Copy: ${text}` }, "Copy");
  button.addEventListener("click", () => copy(text, code, button));
  return el("div", { class: "command" }, code, button);
}

async function copy(text, code, button) {
  let isCopied = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without the permission, or in a page from a file: the text is selected, and copied as with the keyboard.
    getSelection().selectAllChildren(code);
    isCopied = document.execCommand("copy");
  }
  button.textContent = isCopied ? "Copied" : "Press Ctrl+C";
  byId("said").textContent = isCopied ? "Command copied" : "Command selected: press Ctrl+C";
  setTimeout(() => {
    button.textContent = "Copy";
    byId("said").textContent = "";
  }, 2000);
}

"use strict";
// What a document is made of. All text goes in as text, never as HTML.
const byId = (id) => document.getElementById(id);

function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined && text !== null) element.textContent = text;
  if (className) element.className = className;
  return element;
}

// Puts these into a place that has others: a region that is read aloud is not read again for nothing.
function renew(place, elements) {
  const next = place.cloneNode(false);
  next.append(...elements);
  if (!next.isEqualNode(place)) place.replaceChildren(...next.childNodes);
}

function fillList(id, sentences) {
  renew(byId(id), sentences.map((sentence) => make("li", sentence)));
}

function fillPart(id, sentences) {
  byId(`${id}-part`).hidden = !sentences.length;
  fillList(id, sentences);
}

// rows: as `makeRow` makes them.
function makeTable(titles, rows) {
  const table = make("table");
  const head = table.createTHead().insertRow();
  for (const title of titles) {
    const cell = make("th", title);
    cell.scope = "col";
    head.append(cell);
  }
  table.createTBody().append(...rows);
  return table;
}

function makeRow(cells, className) {
  const row = make("tr", null, className);
  row.append(...cells);
  return row;
}

"use strict";
// The question stands in the address, so that it can be kept and sent.
const LONGEST_MODEL = 4000;  // as it is escaped there, below the 8 kB that proxies let through

// entries: of the form as it was asked. Whether all of it has room there.
function keepInAddress(entries, { model }) {
  const kept = new URLSearchParams(entries.filter(([name, value]) => name !== "model" && value !== ""));
  const text = typeof model === "string" ? model : JSON.stringify(model);
  const hasRoom = new URLSearchParams({ model: text }).toString().length <= LONGEST_MODEL;
  if (hasRoom) kept.set("model", text);
  history.replaceState(null, "", `?${kept}`);
  return hasRoom;
}

// Fill the form from the address. Only a question that measures nothing is asked at once: a link starts no measurement.
// What is asked is what the form holds by then, whatever the address says twice.
function askFromAddress() {
  const form = byId("question");
  const given = new Map(new URLSearchParams(location.search));
  for (const [name, value] of given) fillField(form.querySelector(`[name="${CSS.escape(name)}"]`), value);
  if (given.get("model") && form.elements.effort.value === "instant") form.requestSubmit();
}

function fillField(field, value) {
  if (!field || !value) return;
  const before = field.value;
  if (field.id === "model") {
    field.value = value;
    if (field.value === value) return;
    field.value = before;
    writeOwn(value);
    return;
  }
  if (field.tagName === "SELECT") offer(field, value);  // of what there is not the service says so
  field.value = value;
  if (field.value !== before) openAround(field);
}

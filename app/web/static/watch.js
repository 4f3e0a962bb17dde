"use strict";
// What changes on the machine, each second. It is read there only while somebody looks at it: a hidden tab lets go.
let watched = null;
let wantsToWatch = false;
let again = null;
let compareAfter = 0;  // as performance.now() has it
let comparedFor = AGAIN_SECONDS;

function watchMachine() {
  clearTimeout(again);
  if (!wantsToWatch || document.hidden) {
    stopWatching();
  } else if (watched === null) {
    const source = watched = new EventSource("/hardware/events");
    source.addEventListener("hardware", (event) => hear(JSON.parse(event.data)));
    source.addEventListener("open", showMachine);  // at first, and when the service is there again
    source.addEventListener("error", () => missEvents(source));
  }
}

function stopWatching() {
  if (watched !== null) watched.close();
  watched = null;
  showNow([]);
  say("");
}

function hear(reading) {
  say("");
  showNow(nowLines(reading));
  compareCards(reading.accelerators);
}

const MOST_SECONDS = 60;

// A card came or went. The survey may learn of it later than the events do, so that it is asked until they agree, each
// time after twice as long, up to a minute: they may never do.
function compareCards(accelerators) {
  if (nameCards(accelerators) === shownCards) {
    compareAfter = 0;
    comparedFor = AGAIN_SECONDS;
  } else if (performance.now() >= compareAfter) {
    compareAfter = performance.now() + comparedFor * 1000;
    comparedFor = Math.min(2 * comparedFor, MOST_SECONDS);
    showMachine();
  }
}

// A browser asks again by itself where the connection was lost, and never after an answer other than 200.
async function missEvents(source) {
  showNow([]);
  const isOver = source.readyState === EventSource.CLOSED;
  const refusal = isOver ? await askWhyNot() : null;
  if (source !== watched) return;  // stopped meanwhile
  say(refusal === null ? "The service sends nothing now." : refusal.said);
  if (!isOver) return;
  watched = null;
  if (refusal === null || !refusal.isFinal) again = setTimeout(watchMachine, AGAIN_SECONDS * 1000);
  else pressWatch(false);
}

// An EventSource tells nothing of a refusal, so that it is asked for once more; null: it would be answered now.
async function askWhyNot() {
  const asking = new AbortController();
  try {
    const response = await fetch("/hardware/events", { signal: asking.signal });
    if (response.ok) return null;
    const problem = await response.json().catch(() => null);
    return { said: describeProblem(problem, response.status), isFinal: response.status === 409 };
  } catch {
    return null;
  } finally {
    asking.abort();
  }
}

function pressWatch(isDown) {
  wantsToWatch = isDown;
  byId("watch").setAttribute("aria-pressed", String(isDown));
}

function showNow(lines) {
  fillList("now", lines);
}

// Read aloud, as the readings are not.
function say(sentence) {
  renew(byId("watch-status"), sentence ? [sentence] : []);
}

function nowLines({ load, memory, accelerators, reason }) {
  const cpu = `CPU ${units.share(load.busy_fraction)} busy, ${units.share(load.steal_fraction)} stolen; ${units.bytes(memory.usable_bytes)} of memory usable`;
  return [cpu, ...accelerators.map(cardLine), ...(reason ? [reason] : [])];
}

function cardLine(card) {
  const parts = [
    card.utilization_percent === null ? null : `${Math.round(card.utilization_percent)} % busy`,
    card.memory_free_bytes === null ? null : `${units.bytes(card.memory_free_bytes)} free of ${units.bytes(card.memory_total_bytes)}`,
    card.temperature_celsius === null ? null : `${Math.round(card.temperature_celsius)} °C`,
    card.power_watts === null ? null : `${Math.round(card.power_watts)} W`,
    ...(card.throttle_reasons || []),
  ].filter(Boolean);
  return `${card.torch_device || card.name || card.id}: ${parts.join(", ") || card.why_not || "nothing is known now"}`;
}

byId("watch").addEventListener("click", () => {
  pressWatch(!wantsToWatch);
  watchMachine();
});
document.addEventListener("visibilitychange", watchMachine);

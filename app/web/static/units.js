"use strict";
// Numbers as people read them; the same forms as on the command line (app/cli/units.py).
const units = (() => {
  const UNKNOWN = "?";
  const digits = (value) => (value >= 99.95 ? value.toFixed(0) : String(Number(value.toPrecision(3))));

  function seconds(value) {
    if (value === null || value === undefined) return UNKNOWN;
    if (value < 0) return "-" + seconds(-value);
    if (value >= 48 * 3600) return digits(value / 86400) + " days";
    if (value >= 2 * 3600) return digits(value / 3600) + " h";
    if (value >= 120) return `${Math.floor(Math.round(value) / 60)} min ${Math.round(value) % 60} s`;
    for (const [size, unit] of [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]) {
      if (value >= size * 0.9995) return `${digits(value / size)} ${unit}`;
    }
    return value === 0 ? "0 s" : digits(value / 1e-9) + " ns";
  }

  function scaled(value, names) {
    if (value === null || value === undefined) return UNKNOWN;
    if (value < 0) return "-" + scaled(-value, names);
    let index = 0;
    while (value >= 999.5 && index < names.length - 1) { value /= 1000; index += 1; }
    return digits(value) + names[index];
  }

  const bytes = (value) => scaled(value, [" B", " kB", " MB", " GB", " TB", " PB"]);
  const count = (value) => (typeof value === "number" && Math.abs(value) < 10000
    ? digits(value) : scaled(value, ["", " thousand", " million", " billion", " trillion", " quadrillion"]));

  function share(value) {
    if (value === null || value === undefined) return UNKNOWN;
    if (value > 0 && value < 0.001) return "<0.1 %";
    return `${(value * 100).toFixed(value < 0.0995 ? 1 : 0)} %`;
  }

  function plan(document) {
    const threads = document.threads === null || document.threads === undefined
      ? "" : `, ${document.threads} thread${document.threads === 1 ? "" : "s"}`;
    const environment = Object.entries(document.environment || {}).map(([name, value]) => ` ${name}=${value}`).join("");
    const words = { channels_last: "channels-last", compiled: "compiled", flush_denormal: "denormals flushed" };
    const changes = Object.entries(words).filter(([name]) => document[name]).map(([, word]) => `, ${word}`).join("");
    return `${document.device} ${document.precision}${threads}${changes}${environment}`;
  }

  return { UNKNOWN, seconds, bytes, count, share, plan };
})();

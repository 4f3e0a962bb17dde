"use strict";
// Asking the service.
const AGAIN_SECONDS = 5;  // as a 429 asks for in Retry-After

class Problem extends Error {}

// The answer's document, or a Problem in sentences.
async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Problem("The service does not answer. Is it still running?");
  }
  const document = await response.json().catch(() => null);
  if (!response.ok) throw new Problem(describeProblem(document, response.status));
  if (document === null) throw new Problem("The service answered with something that is no JSON.");
  return document;
}

// A problem document (RFC 9457) in a sentence or two.
function describeProblem(problem, status) {
  if (problem === null || typeof problem !== "object") return `The service answered with status ${status}.`;
  const parts = [problem.detail || problem.title || `The service answered with status ${status}.`];
  for (const error of Array.isArray(problem.errors) ? problem.errors : []) {
    const said = error && (error.detail || error.message);
    if (said && !parts.join(" ").includes(said)) parts.push(said);  // the detail may hold them all
  }
  const near = (problem.suggestions || []).filter((name) => !parts.join(" ").includes(name));
  if (near.length) parts.push(`Near: ${near.join(", ")}.`);
  return parts.join(" ");
}

// A service that starts anew does not answer for a while: asks again until it does. onProblem: is told why it did not.
async function askUntilAnswered(path, onProblem) {
  for (;;) {
    try {
      return await ask(path);
    } catch (error) {
      onProblem(error.message);
      await new Promise((resolve) => setTimeout(resolve, AGAIN_SECONDS * 1000));
    }
  }
}

"use strict";
// The page: reads the machine and what can be chosen, asks POST /recommend, shows the answer.
async function answerQuestion(event) {
  event.preventDefault();
  const button = byId("ask");
  if (button.getAttribute("aria-disabled") === "true") return;
  button.setAttribute("aria-disabled", "true");  // `disabled` would take the focus away
  const form = event.target;
  const clock = startClock(byId("status"));
  showProblem("");
  try {
    const question = readQuestion(form);
    const asked = [...new FormData(form)];  // the form may be changed while the answer is waited for
    showAnswer(await ask("/recommend", {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(question),
    }));
    const isKept = keepInAddress(asked, question);
    clock.stop((seconds) => `Answered in ${units.seconds(seconds)}.${isKept ? "" : " The model is too long for this page's address."}`);
  } catch (error) {
    clock.stop(() => "");
    byId("answer").hidden = true;
    showProblem(error instanceof Problem ? error.message : `The page failed: ${error.message}`);
  } finally {
    button.removeAttribute("aria-disabled");
    showMachine();  // answering may have asked torch of the cards, and took a while
  }
}

// Tells that something is under way, and for how long; it is not read aloud each second.
function startClock(place) {
  const begun = performance.now();
  const seconds = () => (performance.now() - begun) / 1000;
  const shown = make("span");
  shown.setAttribute("aria-hidden", "true");
  const tick = () => { shown.textContent = `${seconds().toFixed(0)} s`; };
  place.replaceChildren("Working … ", shown);
  tick();
  const timer = setInterval(tick, 1000);
  return {
    stop(say) {
      clearInterval(timer);
      place.textContent = say(seconds());
    },
  };
}

function showProblem(message) {
  const place = byId("problem");
  place.textContent = message;
  place.hidden = !message;
}

byId("question").addEventListener("submit", answerQuestion);
document.addEventListener("visibilitychange", () => { if (!document.hidden) showMachine(); });
showMachine();
showProfiles();
showModels().then(askFromAddress);

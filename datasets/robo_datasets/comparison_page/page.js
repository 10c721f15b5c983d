// The page of `robo-rl prefer --rater person`: shows the question at hand and sends its answer.
// Every text of a dataset is foreign: it becomes text content, never HTML.
"use strict";

const TOKEN = document.querySelector("meta[name=robo-token]").content;
const PERIOD = 125; // [ms] between two pictures of a clip
const LOOK = 150; // [ms] until the next look for a question
const node = (id) => document.getElementById(id);
const buttons = [...document.querySelectorAll("#choices button")];
let question = { number: null };
let session = null; // of the program; another one has questions of its own
let sent = 0; // number of the last question that was answered
let answered = 0;
let tick = 0;

function show(found) {
  question = found;
  tick = 0;
  const waits = found.number === null;
  document.body.dataset.question = found.number ?? "";
  for (const button of buttons) button.disabled = waits;
  if (waits) return;
  const [first, second] = found.instructions;
  node("task").textContent = first === second ? first : "";
  node("task-first").textContent = first === second ? "" : first;
  node("task-second").textContent = first === second ? "" : second;
  node("state").textContent = `${answered} answered here${found.total ? `, pair ${found.number} of ${found.total}` : ""}; each answer is kept at once.`;
  play();
}

function play() {
  if (question.number === null) return;
  for (const side of ["first", "second"]) node(side).src = question[side][tick % question[side].length];
  tick += 1;
}

async function answer(value) {
  if (question.number === null) return;
  const body = JSON.stringify({ number: question.number, answer: value === "skip" ? value : Number(value) });
  sent = question.number;
  show({ number: null });
  try {
    const reply = await fetch("/api/answers", { method: "POST", headers: { "X-Robo-Token": TOKEN }, body });
    if (reply.ok) answered += 1;
    else node("state").textContent = (await reply.json()).error;
  } catch {
    node("state").textContent = "The program has ended; what was answered before is kept.";
  }
}

async function look() {
  try {
    const found = await (await fetch("/api/question")).json();
    session ??= found.session;
    if (found.session !== session) location.reload();
    else if (found.number !== question.number && found.number > sent) show(found);
  } catch {
    node("state").textContent = "The program has ended; what was answered is kept.";
  }
  setTimeout(look, LOOK);
}

for (const button of buttons) button.addEventListener("click", () => answer(button.dataset.answer));
document.addEventListener("keydown", (event) => {
  const button = buttons.find((each) => each.dataset.key.split(" ").includes(event.key));
  if (button === undefined || event.repeat) return;
  event.preventDefault();
  answer(button.dataset.answer);
});
setInterval(play, PERIOD);
look();

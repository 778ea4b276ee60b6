// Updates the page. Everything on it also works without this script.
"use strict";

const home = new URL("..", document.currentScript.src).pathname;
const policy = window.trustedTypes?.createPolicy("page", { createHTML: (text) => text });
let known = new Set();

function newsOf(root) {
  return new Map([...root.querySelectorAll("[data-news]")].map((article) => [article.id, article.dataset.news]));
}

// Announces a new question, on the desktop too if the person allows notifications and the page is hidden.
function tellNews() {
  const questions = newsOf(document);
  for (const [id, words] of questions) {
    if (known.has(id)) continue;
    document.getElementById("news").textContent = `New question: ${words}`;
    if (document.hidden && window.Notification?.permission === "granted") {
      const notification = new Notification("coretools-mcp has a question", { body: words, tag: id });
      notification.onclick = () => window.focus();
    }
  }
  known = new Set(questions.keys());
}

// Why the page may be out of date; empty if it is current.
let problem = "";
let isRefused = false;

function tellProblem() {
  const words = problem || (isRefused ? "Too many pages are open, so this one is updated only every 5 seconds. Close some." : "");
  const lost = document.getElementById("lost");
  if (lost.textContent !== words) lost.textContent = words;
}

// The page as the server renders it now; undefined if the server fails, does not answer, or has signed this page out.
async function shownNow() {
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (answer.status === 403) return location.reload();
    const text = await answer.text();
    problem = answer.status < 500 ? "" : "The server failed to update this page; run coretools-mcp logs to see why.";
    return problem ? undefined : new DOMParser().parseFromString(policy ? policy.createHTML(text) : text, "text/html");
  } catch {
    problem = "The server does not answer, and has probably ended. This page is out of date.";
    isStale = true;
  }
}

// One refresh at a time, at most once a second. If the server does not answer, this repeats until it does.
let isBusy = false;
let isStale = false;

async function follow() {
  isStale = true;
  if (isBusy) return;
  isBusy = true;
  while (isStale) {
    isStale = false;
    await refresh();
    tellProblem();
    await new Promise((resolve) => setTimeout(resolve, problem || isRefused ? 5000 : 1000));
    listen();
  }
  isBusy = false;
}

async function refresh() {
  const fresh = await shownNow();
  if (!fresh) return;
  document.title = fresh.title;
  update(document.getElementById("waiting"), fresh.getElementById("waiting"));
  for (const live of document.querySelectorAll("[data-live]")) {
    const now = fresh.querySelector(`[data-live="${live.dataset.live}"]`);
    if (now && live.querySelector(":scope > article")) merge(live, now);
    else if (now) update(live, now);
  }
  tellNews();
  showTimes();
}

// The content without the countdowns, with all details closed.
function textOf(element) {
  const copy = element.cloneNode(true);
  for (const details of copy.querySelectorAll("details")) details.open = false;
  for (const time of copy.querySelectorAll("[data-seconds]")) time.remove();
  return copy.innerHTML;
}

// Counts down from the server's last value, because timers in a hidden page run rarely.
function showTimes() {
  for (const time of document.querySelectorAll("[data-seconds]")) {
    time.deadline ??= performance.now() + time.dataset.seconds * 1000;
    const seconds = Math.max(0, Math.round((time.deadline - performance.now()) / 1000));
    time.textContent = seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  }
}

// Replaces content that differs, and keeps scroll positions, the focus, and open details whose text is unchanged.
// Details with new text stay closed, so that nobody approves a version that they have not opened.
function update(old, now) {
  if (!old || !now || textOf(old) === textOf(now)) return;
  const boxes = () => [old, ...old.querySelectorAll(".scroll")];
  const places = boxes().map((box) => [box.scrollLeft, box.scrollTop]);
  const isHeld = old.contains(document.activeElement);
  const held = boxes().indexOf(document.activeElement);
  const opened = new Set([...old.querySelectorAll("details[open]")].map((details) => details.textContent));
  old.replaceChildren(...now.childNodes);
  for (const details of old.querySelectorAll("details")) details.open ||= opened.has(details.textContent);
  if (isHeld && document.activeElement === document.body) (boxes()[held] ?? document.getElementById("content")).focus({ preventScroll: true });
  boxes().forEach((box, at) => {
    if (places[at]) [box.scrollLeft, box.scrollTop] = places[at];
  });
}

// Updates a list of articles, except those that have the focus or unsent input.
function merge(live, now) {
  const fresh = new Map([...now.children].map((child, at) => [child.id || at, child]));
  for (const child of [...live.children]) {
    const same = fresh.get(child.id);
    const isAt = child.contains(document.activeElement);
    const isWritten = [...child.querySelectorAll("input")].some((input) => input.value && input.type !== "hidden");
    if (same && child.id) {
      if (!isWritten && (!isAt || document.activeElement.matches(".scroll"))) update(child, same);
      const time = same.querySelector("[data-seconds]"); // already moved if `child` was updated
      if (time) child.querySelector("[data-seconds]").replaceWith(time);
      fresh.set(child.id, child);
    } else if ((isAt || isWritten) && child.matches("article")) {
      if (!child.querySelector(".ended")) {
        const ended = document.createElement("p");
        ended.className = "ended reason";
        ended.textContent = live.dataset.gone;
        child.prepend(ended);
        for (const button of child.querySelectorAll("button")) button.disabled = true;
        for (const time of child.querySelectorAll("[data-seconds]")) time.closest("p").remove();
      }
      fresh.set(child.id, child);
    } else child.remove();
  }
  // An element is moved only if its position differs, because a moved element loses the focus.
  let before = null;
  for (const child of fresh.values()) {
    const place = before ? before.nextElementSibling : live.firstElementChild;
    if (place !== child) live.insertBefore(child, place);
    before = child;
  }
}

// A browser allows six connections per host, so hidden pages close theirs, except the page with the questions.
let events;

function listen() {
  const name = location.pathname.slice(home.length);
  if (document.hidden && name) return events?.close();
  if (events && events.readyState !== EventSource.CLOSED) return;
  const page = name.startsWith("servers/") ? "log" : name;
  events = new EventSource(`${home}events?page=${encodeURIComponent(page)}`);
  events.onmessage = follow;
  events.onopen = () => { isRefused = false; tellProblem(); };
  // A browser reconnects after a lost connection, but not after a refused one.
  events.onerror = () => { isRefused = events.readyState === EventSource.CLOSED; follow(); };
}

// A key only moves the focus to an answer, so that an accidental press does not send the answer.
function choose(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || event.repeat || event.target.matches("input")) return;
  const article = document.activeElement.closest("article") ?? document.querySelector("article");
  article?.querySelector(`button[aria-keyshortcuts="${CSS.escape(event.key)}"]:enabled`)?.focus();
}

document.querySelector("form[data-at-once]")?.submit();
if (document.getElementById("news")) {
  known = new Set(newsOf(document).keys());
  listen();
  document.addEventListener("visibilitychange", listen);
  const notify = document.getElementById("notify");
  if (window.Notification?.permission === "default") {
    notify.hidden = false;
    notify.onclick = async () => { notify.hidden = (await Notification.requestPermission()) !== "default"; };
  }
  showTimes();
  setInterval(showTimes, 1000);
  document.addEventListener("keydown", choose);
  document.documentElement.classList.add("has-keys");
  if (location.hash === "#next") (document.querySelector("article h2") ?? document.getElementById("next"))?.focus();
}

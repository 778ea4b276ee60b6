// Keeps the page up to date. Everything on it works without this script.
"use strict";

const policy = window.trustedTypes?.createPolicy("page", { createHTML: (text) => text });
let known = new Set();

function newsOf(root) {
  return new Map([...root.querySelectorAll("[data-news]")].map((each) => [each.id, each.dataset.news]));
}

// A new question is said, and shown on the desktop where the person wants that and looks elsewhere.
function tellNews() {
  const found = newsOf(document);
  for (const [id, words] of found) {
    if (known.has(id)) continue;
    document.getElementById("news").textContent = `New question: ${words}`;
    if (document.hidden && window.Notification?.permission === "granted") {
      const shown = new Notification("coretools-mcp asks", { body: words, tag: id });
      shown.onclick = () => window.focus();
    }
  }
  known = new Set(found.keys());
}

function tellEnd() {
  document.getElementById("ended").textContent = "The server has ended. This page is not updated any more.";
}

// What the server shows now, or nothing where it is gone.
async function shownNow() {
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (answer.status === 403) return location.reload();
    const text = await answer.text();
    return new DOMParser().parseFromString(policy ? policy.createHTML(text) : text, "text/html");
  } catch {
    tellEnd();
  }
}

// One at a time, and not more often than a person looks.
let isBusy = false;
let isStale = false;

async function follow() {
  isStale = true;
  if (isBusy) return;
  isBusy = true;
  while (isStale) {
    isStale = false;
    await refresh();
    await new Promise((resolve) => setTimeout(resolve, 1000));
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
}

// Without what the clock alone changes.
function textOf(element) {
  const copy = element.cloneNode(true);
  for (const each of copy.querySelectorAll("[data-seconds]")) each.remove();
  return copy.innerHTML;
}

// Put new content in place of the old one where they differ, and leave boxes scrolled as they are.
function update(old, now) {
  if (!old || !now || textOf(old) === textOf(now)) return;
  const places = [old, ...old.querySelectorAll(".scroll")].map((each) => [each.scrollLeft, each.scrollTop]);
  const isHeld = old.contains(document.activeElement);
  old.replaceChildren(...now.childNodes);
  if (isHeld && document.activeElement === document.body) document.getElementById("content").focus({ preventScroll: true });
  [old, ...old.querySelectorAll(".scroll")].forEach((each, at) => {
    if (places[at]) [each.scrollLeft, each.scrollTop] = places[at];
  });
}

// Of several articles those stay that the person is at, or has written into.
function merge(live, now) {
  const fresh = new Map([...now.children].map((child, at) => [child.id || at, child]));
  for (const child of [...live.children]) {
    const same = fresh.get(child.id);
    const isHeld = child.contains(document.activeElement) || [...child.querySelectorAll("input")].some((each) => each.value && each.type !== "hidden");
    if (same && child.id) {
      if (!isHeld) update(child, same);
      fresh.set(child.id, child);
    } else if (isHeld && child.matches("article")) {
      if (!child.querySelector(".ended")) {
        const ended = document.createElement("p");
        ended.className = "ended reason";
        ended.textContent = "This question does not wait any more.";
        child.prepend(ended);
        for (const button of child.querySelectorAll("button")) button.disabled = true;
        for (const each of child.querySelectorAll("[data-seconds]")) each.closest("p").remove();
      }
      fresh.set(child.id, child);
    } else child.remove();
  }
  // Moved only where its place is another one: moving an element takes the focus from it.
  let before = null;
  for (const child of fresh.values()) {
    const place = before ? before.nextElementSibling : live.firstElementChild;
    if (place !== child) live.insertBefore(child, place);
    before = child;
  }
}

function listen() {
  const page = location.pathname.startsWith("/servers/") ? "log" : location.pathname.slice(1);
  const events = new EventSource(`/events?page=${encodeURIComponent(page)}`);
  events.onmessage = follow;
  events.onerror = shownNow;
  return events;
}

document.querySelector("form[data-at-once]")?.submit();
if (document.getElementById("news")) {
  known = new Set(newsOf(document).keys());
  let events = listen();
  // A browser has six connections to a host: pages that nobody sees leave them to others, but for the questions.
  document.addEventListener("visibilitychange", () => {
    if (location.pathname === "/") return;
    if (document.hidden) events.close();
    else events = listen();
  });
  const notify = document.getElementById("notify");
  if (window.Notification?.permission === "default") {
    notify.hidden = false;
    notify.onclick = async () => { notify.hidden = (await Notification.requestPermission()) !== "default"; };
  }
  setInterval(() => {
    for (const each of document.querySelectorAll("[data-seconds]")) {
      each.dataset.seconds = Math.max(0, each.dataset.seconds - 1);
      const minutes = Math.floor(each.dataset.seconds / 60);
      each.textContent = minutes ? `${minutes} min ${each.dataset.seconds % 60} s` : `${each.dataset.seconds} s`;
    }
  }, 1000);
  if (location.hash === "#next") (document.querySelector("article h2") ?? document.getElementById("next"))?.focus();
}

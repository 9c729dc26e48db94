// The page is whole without this; here it is kept up to date, part by part.
"use strict";

const live = document.getElementById("live");

// a link may carry the token behind its #, which browsers tell no server; it need not stay in sight
const token = new URLSearchParams(location.hash.slice(1)).get("token");
if (token) history.replaceState(null, "", location.pathname);

if (live) {
  const source = new EventSource("events");
  source.onopen = () => say("live", "on");
  source.onerror = () => say("connection lost, trying again", "off");
  source.onmessage = (event) => {
    for (const [name, html] of Object.entries(JSON.parse(event.data))) {
      const part = document.getElementById(name);
      if (part && part.innerHTML !== html) part.innerHTML = html;
    }
  };
} else if (token) {
  document.getElementById("token").value = token;
  document.getElementById("login").submit();
}

function say(text, state) {
  live.textContent = text;
  live.className = state;
}

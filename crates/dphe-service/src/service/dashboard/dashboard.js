// The page is complete without this script. The script keeps its parts up to date.
"use strict";

const live = document.getElementById("live");

// A link may carry the token in its fragment, which browsers do not send to servers. It is removed from the address bar.
const token = new URLSearchParams(location.hash.slice(1)).get("token");
if (token) history.replaceState(null, "", location.pathname);

if (live) {
  const source = new EventSource("events");
  source.onopen = () => show("live", "on");
  source.onerror = () => show("connection lost, retrying", "off");
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

function show(text, state) {
  live.textContent = text;
  live.className = state;
}

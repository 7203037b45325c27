// Keeps the API key that was entered for as long as this tab is open, for the pages of this server.

const KEY = "weft.key";

function readKey() {
  return sessionStorage.getItem(KEY);
}

// Calls the API with the key that was entered, or without one where the server asks for none.
function callApi(path) {
  const key = readKey();
  return fetch(path, { headers: key === null ? {} : { Authorization: `Bearer ${key}` } });
}

// `use` is called with each key that the server has taken, also with one from an earlier page of this tab.
function askForKey(use) {
  const form = document.getElementById("key-form");
  if (form === null) return; // the server has no keys
  const field = document.getElementById("key");
  const state = document.getElementById("key-state");
  const check = async () => {
    const answer = await callApi("/v1/workflows?limit=1");
    if (answer.ok) {
      state.textContent = "The server has taken this key.";
      use(readKey());
    } else {
      state.textContent =
        answer.status === 401 ? "The server does not know this key." : `The server answered ${answer.status}.`;
      sessionStorage.removeItem(KEY);
    }
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(KEY, field.value.trim());
    field.value = "";
    check();
  });
  // Disabled until now: the browser would send the form itself, which the content security policy refuses.
  for (const element of form.elements) element.disabled = false;
  if (readKey() !== null) check();
}

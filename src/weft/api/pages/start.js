// Where the server has keys, a link to data is called with the key and its answer is shown on the page.

const answer = document.getElementById("answer");

if (document.getElementById("key-form") !== null) {
  for (const link of document.querySelectorAll("a[data-key]")) {
    link.addEventListener("click", async (event) => {
      event.preventDefault();
      const response = await callApi(link.getAttribute("href"));
      const text = await response.text();
      try {
        answer.textContent = JSON.stringify(JSON.parse(text), null, 2);
      } catch {
        answer.textContent = text; // the metrics
      }
    });
  }
}
askForKey(() => {});

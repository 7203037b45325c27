// Draws /openapi.json with Swagger UI, above the table of problems.

// The type of a problem links to its row. Swagger UI's deep links would take that fragment for one of theirs.
const row = document.getElementById(location.hash.slice(1));

let complete;
const drawn = new Promise((resolve) => (complete = resolve));
const ui = SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  // Without this, Swagger UI asks a server on the internet whether the document is valid.
  validatorUrl: null,
  deepLinking: row === null,
  onComplete: () => {
    complete();
    // The row has moved down while the calls were drawn.
    row?.scrollIntoView();
  },
});

// The name of the scheme in /openapi.json: each call of this page sends the key from here on.
askForKey((key) => drawn.then(() => ui.preauthorizeApiKey("key", key)));

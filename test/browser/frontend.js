/** What runs in the page: the tests call it by name. Plain JavaScript, for the browser reads it as it stands. */

globalThis.frontend = {
  /** What a script of the page sees when it asks the gateway; a failure where the browser keeps the answer from it. */
  async ask(address, headers) {
    try {
      const response = await fetch(address, { headers });
      const body = await response.text();
      return { answer: { status: response.status, fields: Object.fromEntries(response.headers), body } };
    } catch (error) {
      return { failure: String(error) };
    }
  },

  /** Ways to load something without asking for leave, and what each came to. */
  async loadWithoutLeave(address) {
    const opaque = await fetch(address, { mode: 'no-cors' }).then(
      ({ type, status }) => `${type} ${status}`,
      () => 'refused',
    );
    const results = { opaque };
    for (const tag of ['img', 'script', 'iframe']) {
      results[tag] = await new Promise((resolve) => {
        const element = document.createElement(tag);
        // A frame always shows something; whether the page may look into it is what counts.
        element.onload = () =>
          resolve(tag === 'iframe' && element.contentDocument === null ? 'unreadable' : 'loaded');
        element.onerror = () => resolve('refused');
        element.src = address;
        document.body.append(element);
      });
    }
    return results;
  },

  /** What the page has stored or remembers, everywhere a page can. */
  async stored() {
    return {
      local: { ...localStorage },
      session: { ...sessionStorage },
      cookies: document.cookie,
      databases: await indexedDB.databases(),
      workers: (await navigator.serviceWorker.getRegistrations()).length,
      caches: await caches.keys(),
      resources: performance.getEntries().map((entry) => JSON.stringify(entry)),
      document: document.documentElement.outerHTML,
    };
  },
};

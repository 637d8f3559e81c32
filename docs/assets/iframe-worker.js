/* Search without a server. Browsers refuse to start a Worker from a file:// page, so this Worker runs its script in a hidden
   frame instead. mkdocs-material's `offline` plugin loads such a script from the network unless `extra.polyfills` names one. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inner = this.frame.contentWindow;
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inner.importScripts = (...urls) => urls.reduce((before, next) => before.then(() => this.load(next)), Promise.resolve());
      this.load(new URL(url, location.href).href).then(() => {
        const waiting = this.waiting;
        this.waiting = null;
        waiting.forEach((data) => this.deliver(data));
      });
    }

    load(url) {
      const inside = this.frame.contentDocument;
      return new Promise((resolve, reject) => {
        const script = inside.createElement("script");
        script.onload = resolve;
        script.onerror = reject;
        script.src = url;
        inside.body.appendChild(script);
      });
    }

    deliver(data) {
      const inner = this.frame.contentWindow;
      inner.dispatchEvent(new inner.MessageEvent("message", { data }));
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.deliver(data);
    }

    terminate() {
      this.frame.remove();
    }
  };
}

// Search in pages that were opened from a folder: browsers refuse workers of file: addresses, so that the one which
// searches runs in a hidden frame. (The theme's script looks for the name IFrameWorker, and its offline plugin for
// this file's name.)
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc = "<!doctype html><title>search</title>";
      this.ready = new Promise((resolve) => this.frame.addEventListener("load", resolve, { once: true })).then(() => {
        const inside = this.frame.contentWindow;
        inside.IFrameWorker = this.constructor;
        inside.importScripts = (...all) => all.reduce((before, one) => before.then(() => this.load(one)), Promise.resolve());
        inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        return this.load(address);
      });
      document.body.append(this.frame);
    }

    load(address) {
      return new Promise((resolve, reject) => {
        const script = this.frame.contentDocument.createElement("script");
        script.src = address;
        script.onload = resolve;
        script.onerror = reject;
        this.frame.contentDocument.body.append(script);
      });
    }

    dispatchEvent(event) {
      this.onmessage?.(event);
      return super.dispatchEvent(event);
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new this.frame.contentWindow.MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}

/* The search of the site, when the site is opened from a folder.

   The theme searches in a `Worker`, and browsers refuse workers to a page whose address begins with
   file://. For such pages, this script replaces `Worker` by `FrameWorker`, which runs the worker's
   script in a hidden frame. The frame is of the page's own origin, so both sides can reach each
   other. The search then runs in the thread of the page, which a reader does not notice.

   What a script in the frame finds is as in a worker, but `importScripts` returns a promise, because
   a page cannot load a script and wait for it.

   The plugin `offline` of the theme fetches a script for this purpose from the network, unless the
   name of one in `extra.polyfills` contains "iframe-worker". */

"use strict";

{
  /** Load a script into a document; the promise is kept when the script has run. */
  const load = (inside, address) =>
    new Promise((resolve, reject) => {
      const script = inside.createElement("script");
      script.onload = resolve;
      script.onerror = () => reject(new Error(`cannot load ${address}`));
      script.src = address;
      inside.head.append(script);
    });

  class FrameWorker extends EventTarget {
    onmessage = null;
    onerror = null;
    // As between a page and a worker: values are copied, in order, and wait until somebody listens.
    #channel = new MessageChannel();
    #frame = document.createElement("iframe");

    constructor(script) {
      super();
      this.addEventListener("message", (event) => this.onmessage?.(event));
      this.addEventListener("error", (event) => this.onerror?.(event));
      this.#channel.port1.onmessage = ({ data, ports }) =>
        this.dispatchEvent(new MessageEvent("message", { data, ports }));

      const address = new URL(script, document.baseURI).href;
      this.#frame.hidden = true;
      this.#frame.srcdoc = "<!doctype html><title>A worker</title>";
      this.#frame.addEventListener("load", () => this.#run(address), { once: true });
      document.body.append(this.#frame);
    }

    /** Give the frame what a worker has, run the script, then let the messages in. */
    async #run(address) {
      const scope = this.#frame.contentWindow;
      const port = this.#channel.port2;
      scope.postMessage = (data, transfer) => port.postMessage(data, transfer);
      scope.close = () => this.terminate();
      scope.importScripts = async (...scripts) => {
        for (const each of scripts) await load(scope.document, new URL(each, address).href);
      };
      scope.addEventListener("error", ({ message, filename, lineno, colno, error }) =>
        this.#report({ message, filename, lineno, colno, error }),
      );
      try {
        await load(scope.document, address);
      } catch (error) {
        this.#report({ message: error.message, filename: address, error });
        return;
      }
      port.onmessage = ({ data, ports }) =>
        scope.dispatchEvent(new scope.MessageEvent("message", { data, ports }));
    }

    #report(what) {
      this.dispatchEvent(new ErrorEvent("error", what));
    }

    postMessage(data, transfer) {
      this.#channel.port1.postMessage(data, transfer);
    }

    terminate() {
      this.#channel.port1.close();
      this.#channel.port2.close();
      this.#frame.remove();
    }
  }

  if (location.protocol === "file:") window.Worker = FrameWorker;
}

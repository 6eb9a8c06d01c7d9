/** The tabs of one browser: who is open, and which images each of them holds, so that two never show the same one. */

const ROLL_CALL = 150; // ms; also a tab in the background answers at once

/** @typedef {{annotator: string, images: Set<string>}} Peer */

/**
 * @param {object} needs
 * @param {string} needs.campaign
 * @param {string} needs.tab
 * @param {() => {annotator: string, images: string[]}} needs.mine   what this tab holds
 * @param {(images: string[]) => void} needs.yielded     images that another tab holds with the older right
 * @param {(images: string[]) => void} needs.answered    images that another tab has answered
 * @param {() => void} needs.hungry                      another tab has none left, and asks for some of these
 * @param {() => void} needs.changed                     another tab holds other images than before
 * @param {(living: Set<string>) => void} needs.left     another tab was closed; gives the names of those that are open
 */
export function makeTabs({ campaign, tab, mine, yielded, answered, hungry, changed, left }) {
  /** @type {Map<string, Peer>} */
  const peers = new Map();
  /** @type {Set<string>} */ const heard = new Set(); // since the last roll call
  /** @type {Set<string>} */ const unsaved = new Set(); // images answered here: held until the server has committed the answer
  /** @type {Map<string, number>} */ const released = new Map(); // images that other tabs have held, each with the message until which it was so
  let messages = 0; // heard so far
  const channel = new BroadcastChannel(`tailwise-${campaign}`);
  /** @param {string} what @param {object} [more] */
  function say(what, more = {}) {
    const { annotator, images } = mine();
    channel.postMessage({ what, from: tab, annotator, images: [...images, ...unsaved], ...more });
  }

  const living = () => new Set([tab, ...peers.keys()]);

  /** @param {any} message */
  function hear({ what, from, annotator, images, gone }) {
    messages += 1;
    for (const image of peers.get(from)?.images ?? []) released.set(image, messages);
    if (what === 'gone') {
      peers.delete(from);
      left(living());
      return changed();
    }
    heard.add(from);
    const same = annotator === mine().annotator;
    peers.set(from, { annotator, images: new Set(images) });
    if (what === 'who') say('here');
    if (!same) return;
    if (what === 'answered') answered(gone);
    if (what === 'hungry') hungry();
    settle(from);
    changed();
  }

  /** Two tabs that took the same image at the same time: the one with the smaller name keeps it. @param {string} from */
  function settle(from) {
    const peer = peers.get(from);
    const own = mine();
    if (!peer || peer.annotator !== own.annotator || tab < from) return;
    const both = own.images.filter((image) => peer.images.has(image));
    if (both.length) yielded(both);
  }

  channel.onmessage = (event) => hear(event.data);

  return {
    /** Ask who is there; gives the names of all living tabs, this one among them. */
    async rollCall() {
      heard.clear();
      say('who');
      await new Promise((resolve) => setTimeout(resolve, ROLL_CALL));
      for (const name of peers.keys()) if (!heard.has(name)) peers.delete(name);
      return living();
    },

    /** Send the others what this tab holds now. */
    claim: () => say('here'),
    hungry: () => say('hungry'),
    leave: () => say('gone'),

    /** @param {string[]} gone images that this tab has just answered; it holds them until they are saved or refused */
    answered(gone) {
      for (const image of gone) unsaved.add(image);
      say('answered', { gone });
    },

    /** @param {string[]} images whose answers the server has committed or refused */
    concluded(images) {
      for (const image of images) unsaved.delete(image);
      say('here');
    },

    /** Messages heard so far: a moment, for `held`. */
    moment: () => messages,

    /**
     * Images that other tabs of the same person hold, and those that any tab has let go of since a moment: a reply to
     * a request of that moment may still offer them.
     * @param {number} [since] a moment @returns {Set<string>}
     */
    held(since = Infinity) {
      const { annotator } = mine();
      const same = [...peers.values()].filter((peer) => peer.annotator === annotator);
      const lately = [...released].filter(([, when]) => when > since).map(([image]) => image);
      return new Set([...same.flatMap((peer) => [...peer.images]), ...lately]);
    },
  };
}

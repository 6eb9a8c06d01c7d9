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
 */
export function makeTabs({ campaign, tab, mine, yielded, answered, hungry, changed }) {
  /** @type {Map<string, Peer>} */
  const peers = new Map();
  /** @type {Set<string>} */ const heard = new Set(); // since the last roll call
  const channel = new BroadcastChannel(`tailwise-${campaign}`);
  /** @param {string} what @param {object} [more] */
  const say = (what, more = {}) => channel.postMessage({ what, from: tab, ...mine(), ...more });

  /** @param {any} message */
  function hear({ what, from, annotator, images, gone }) {
    if (what === 'gone') {
      peers.delete(from);
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
      return new Set([tab, ...peers.keys()]);
    },

    /** Tell the others what this tab holds now. */
    claim: () => say('here'),
    hungry: () => say('hungry'),
    leave: () => say('gone'),

    /** @param {string[]} gone images that this tab has just answered */
    answered: (gone) => say('answered', { gone }),

    /** Images that other tabs of the same person hold. @returns {Set<string>} */
    held() {
      const { annotator } = mine();
      const same = [...peers.values()].filter((peer) => peer.annotator === annotator);
      return new Set(same.flatMap((peer) => [...peer.images]));
    },
  };
}

/** The tiles of the grid: one in focus, each accepted unless it is left out or given an answer of its own. */
import { h, icon } from './dom.js';

/** @typedef {{kind: string, class_id: number|null}} Mark */
/** @typedef {{key: string, url: string, sharp: string, note: string, unsure: boolean}} Tile   unsure: left out unless somebody takes it in */
/** @typedef {{state: 'in'|'out'|'own'|'unsure', mark?: Mark, text?: string}} Choice */

/** @param {{changed: () => void, enlarge: (at: number) => void}} callbacks */
export function makeTiles({ changed, enlarge }) {
  const element = h('div', { class: 'tiles', role: 'listbox', 'aria-multiselectable': 'true', 'aria-label': 'Proposed images' });
  /** @type {Map<string, Choice>} */ const made = new Map(); // by key, also of images that are not shown now
  /** @type {Tile[]} */ let tiles = [];
  /** @type {HTMLElement[]} */ let cells = [];
  let focus = 0;
  let anchor = 0; // where a range begins

  /** @param {Tile} tile @returns {Choice} */
  const choiceOf = (tile) => made.get(tile.key) ?? { state: tile.unsure ? 'unsure' : 'in' };

  /** @param {Tile} tile @param {number} at */
  function cell(tile, at) {
    const image = h('img', { src: tile.url, srcset: `${tile.url} 160w, ${tile.sharp} 512w`, sizes: '(max-width: 600px) 30vw, 12rem', alt: `Image ${at + 1}`, draggable: false });
    return h('div', { class: 'tile', role: 'option', tabIndex: at === 0 ? 0 : -1, 'data-key': tile.key,
      onclick: (/** @type {MouseEvent} */ event) => (event.shiftKey ? range(at) : click(at)),
      oncontextmenu: (/** @type {Event} */ event) => { event.preventDefault(); attend(at); enlarge(at); },
      onkeydown: (/** @type {KeyboardEvent} */ event) => press(event, at), onfocus: () => attend(at) },
    image, h('span', { class: 'tile-note' }, tile.note), h('span', { class: 'tile-mark', dir: 'auto' }, icon('close')));
  }

  /** @param {KeyboardEvent} event @param {number} at */
  function press(event, at) {
    if (event.key !== ' ') return;
    event.preventDefault();
    event.stopPropagation();
    flip(at);
  }

  /** @param {number} at */
  function click(at) {
    attend(at);
    anchor = at;
    flip(at);
  }

  /** All from the last click to this one become what that one is. @param {number} at */
  function range(at) {
    const { state } = choiceOf(tiles[anchor]);
    const to = state === 'in' ? 'in' : 'out';
    for (let one = Math.min(anchor, at); one <= Math.max(anchor, at); one += 1) {
      if (choiceOf(tiles[one]).state !== 'own') made.set(tiles[one].key, { state: to });
      paint(one);
    }
    attend(at);
    changed();
  }

  /** @param {number} at */
  function attend(at) {
    cells[focus]?.setAttribute('tabindex', '-1');
    focus = Math.max(0, Math.min(cells.length - 1, at));
    cells[focus]?.setAttribute('tabindex', '0');
  }

  /** @param {number} at */
  function flip(at) {
    if (!tiles[at]) return;
    made.set(tiles[at].key, { state: choiceOf(tiles[at]).state === 'in' ? 'out' : 'in' });
    paint(at);
    changed();
  }

  /** @param {number} at */
  function paint(at) {
    const { state, text } = choiceOf(tiles[at]);
    cells[at].setAttribute('aria-selected', String(state === 'in' || state === 'own'));
    cells[at].dataset.state = state;
    cells[at].querySelector('.tile-mark')?.replaceChildren(text ? text : icon('close'));
  }

  const columns = () => {
    const top = cells[0]?.offsetTop;
    return Math.max(1, cells.filter((one) => one.offsetTop === top).length);
  };

  return {
    element,
    /** What is to be done with each tile. @returns {Map<string, Choice>} */
    choices: () => new Map(tiles.map((tile) => [tile.key, choiceOf(tile)])),

    /** What was chosen for images that are shown again stays. @param {Tile[]} shown */
    show(shown) {
      tiles = shown;
      focus = anchor = 0;
      cells = tiles.map(cell);
      cells.forEach((_, at) => paint(at));
      element.hidden = !cells.length;
      element.replaceChildren(...cells);
    },

    /** Forget what was chosen for images that are done. @param {string[]} keys */
    forget: (keys) => keys.forEach((key) => made.delete(key)),

    /** @param {'left'|'right'|'up'|'down'} way */
    move(way) {
      const next = focus + { left: -1, right: 1, up: -columns(), down: columns() }[way];
      // The first key only brings the focus to the grid.
      if (document.activeElement === cells[focus] && next >= 0 && next < cells.length) attend(next);
      anchor = focus;
      cells[focus]?.focus();
    },

    /** @param {number} [at] */
    focus(at = focus) {
      attend(at);
      cells[focus]?.focus({ preventScroll: true });
    },

    at: () => focus,
    isFocused: () => document.activeElement === cells[focus],
    toggle: (at = focus) => flip(at),

    /** What is in goes out, and the other way round; answers of their own stay. */
    invert() {
      tiles.forEach((tile, at) => {
        const { state } = choiceOf(tile);
        if (state !== 'own') made.set(tile.key, { state: state === 'in' ? 'out' : 'in' });
        paint(at);
      });
      changed();
    },

    /** @param {Mark} mark @param {string} text @param {number} [at] */
    assign(mark, text, at = focus) {
      if (!tiles[at]) return;
      made.set(tiles[at].key, { state: 'own', mark, text });
      paint(at);
      changed();
    },
  };
}

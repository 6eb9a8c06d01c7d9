/** The tiles of the grid: one in focus, each accepted unless it is taken out (null) or given an answer of its own. */
import { h, icon } from './dom.js';

/** @typedef {{kind: string, class_id: number|null}} Mark */
/** @typedef {{key: string, url: string, sharp: string, note: string}} Tile */

/** @param {{changed: () => void}} callbacks */
export function makeTiles({ changed }) {
  const element = h('div', { class: 'tiles', role: 'listbox', 'aria-multiselectable': 'true', 'aria-label': 'Proposed images' });
  /** @type {Map<string, Mark|null>} */ let marks = new Map();
  /** @type {HTMLElement[]} */ let cells = [];
  let focus = 0;

  /** @param {Tile} tile @param {number} at */
  function cell(tile, at) {
    const image = h('img', { src: tile.url, srcset: `${tile.url} 160w, ${tile.sharp} 512w`, sizes: '(max-width: 600px) 30vw, 12rem', alt: `Image ${at + 1}`, draggable: false });
    return h('div', { class: 'tile', role: 'option', tabIndex: at === 0 ? 0 : -1, 'data-key': tile.key, 'aria-selected': 'true',
      onclick: () => { attend(at); flip(at); }, onkeydown: (/** @type {KeyboardEvent} */ event) => press(event, at), onfocus: () => attend(at) },
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
  function attend(at) {
    cells[focus]?.setAttribute('tabindex', '-1');
    focus = Math.max(0, Math.min(cells.length - 1, at));
    cells[focus]?.setAttribute('tabindex', '0');
  }

  /** @param {number} at */
  function flip(at) {
    const key = cells[at]?.dataset.key;
    if (!key) return;
    if (marks.has(key)) marks.delete(key);
    else marks.set(key, null);
    paint(at, '');
  }

  /** @param {number} at @param {string} text */
  function paint(at, text) {
    const here = cells[at];
    const key = String(here.dataset.key);
    const mark = here.querySelector('.tile-mark');
    here.setAttribute('aria-selected', String(!marks.has(key)));
    here.dataset.state = !marks.has(key) ? 'in' : marks.get(key) ? 'own' : 'out';
    mark?.replaceChildren(text ? text : icon('close'));
    changed();
  }

  const columns = () => {
    const top = cells[0]?.offsetTop;
    return Math.max(1, cells.filter((one) => one.offsetTop === top).length);
  };

  return {
    element,
    marks: () => new Map(marks),

    /** @param {Tile[]} tiles */
    show(tiles) {
      marks = new Map();
      focus = 0;
      cells = tiles.map(cell);
      element.replaceChildren(...cells);
    },

    /** @param {'left'|'right'|'up'|'down'} way */
    move(way) {
      const next = focus + { left: -1, right: 1, up: -columns(), down: columns() }[way];
      // The first key only brings the focus to the grid.
      if (document.activeElement === cells[focus] && next >= 0 && next < cells.length) attend(next);
      cells[focus]?.focus();
    },

    toggle: () => flip(focus),

    /** @param {Mark} mark @param {string} text */
    assign(mark, text) {
      const key = cells[focus]?.dataset.key;
      if (!key) return;
      marks.set(key, mark);
      paint(focus, text);
    },
  };
}

/** Tiles of very many images: only those near the screen are in the document; one is in focus, any number is selected. */
import { imageUrl } from './api.js';
import { h, icon } from './dom.js';

/** @typedef {{key: string, seal: string, width: number, height: number, state: string, class_id: number|null, guess: number|null,
 *   confidence: number|null, flagged: boolean, copies: boolean, score: number|null}} Tile */

const PAGE = 200; // tiles of one request
const GAP = 8; // pixels between tiles
const SHAPE = 3 / 4; // height by width
const AROUND = 2; // rows above and below the screen
const SETTLE = 90; // ms without scrolling until images are asked for
const TRIES = 4; // of an image that the server is too busy for
const MOST = 10_000; // images of one selection

/**
 * @param {object} acts
 * @param {(offset: number, count: number) => Promise<Tile[]>} acts.load
 * @param {(tile: Tile) => {text: string, kind: string, says: string}} acts.caption
 * @param {() => void} acts.changed        the selection is another one
 * @param {(tile: Tile) => void} acts.open
 * @param {(trouble: unknown) => void} acts.failed
 * @param {string} [acts.label]
 */
export function makeGalleryTiles({ load, caption, changed, open, failed, label = 'Images' }) {
  const space = h('div', { class: 'tile-space', role: 'presentation' });
  const element = h('div', { class: 'gallery-tiles', role: 'listbox', 'aria-multiselectable': 'true', 'aria-label': label, tabIndex: -1 }, space);
  /** @type {Map<number, Tile[]|Promise<void>>} */ let pages = new Map();
  /** @type {Map<number, HTMLElement>} */ const cells = new Map();
  /** @type {Set<string>} */ const selected = new Set();
  let total = 0;
  let wanted = 152; // pixels: the least width of a tile
  let focus = 0;
  let anchor = 0; // where a range begins
  let turn = 0; // the newest result wins
  let frame = 0;
  let settled = 0;
  let plan = { columns: 1, width: 1, height: 1 };

  /** @param {number} at @returns {Tile|undefined} */
  function tileAt(at) {
    const page = pages.get(Math.floor(at / PAGE));
    return Array.isArray(page) ? page[at % PAGE] : undefined;
  }

  /** @param {number} number */
  function fetchPage(number) {
    const known = pages.get(number);
    if (known) return known instanceof Promise ? known : Promise.resolve();
    const mine = turn;
    const request = load(number * PAGE, PAGE).then(
      (tiles) => {
        if (mine !== turn) return;
        pages.set(number, tiles);
        paint();
      },
      (trouble) => {
        if (mine !== turn) return;
        pages.delete(number);
        failed(trouble);
      },
    );
    pages.set(number, request);
    return request;
  }

  function measure() {
    const across = Math.max(1, space.clientWidth);
    const least = across < 560 ? Math.min(wanted, (across - 2 * GAP) / 3) : wanted;
    const columns = Math.max(1, Math.floor((across + GAP) / (least + GAP)));
    const width = (across - GAP * (columns - 1)) / columns;
    plan = { columns, width, height: Math.round(width * SHAPE) };
    space.style.height = `${Math.max(0, Math.ceil(total / columns) * (plan.height + GAP) - GAP)}px`;
  }

  const paint = () => void (frame ||= requestAnimationFrame(draw));

  /** Bring the document in line with what is on the screen. */
  function draw() {
    frame = 0;
    if (!element.isConnected || !element.clientHeight) return;
    measure();
    const row = plan.height + GAP;
    const first = Math.max(0, Math.floor(element.scrollTop / row) - AROUND) * plan.columns;
    const last = Math.min(total, (Math.ceil((element.scrollTop + element.clientHeight) / row) + AROUND) * plan.columns);
    for (const [at, cell] of cells) {
      if ((at < first || at >= last) && at !== focus) {
        cell.remove();
        cells.delete(at);
      }
    }
    for (let at = first; at < last; at += 1) {
      if (!tileAt(at)) void fetchPage(Math.floor(at / PAGE));
      put(at);
    }
    element.dataset.drawn = String(cells.size);
    clearTimeout(settled);
    settled = window.setTimeout(loadImages, SETTLE);
  }

  /** @param {number} at */
  function put(at) {
    const tile = tileAt(at);
    let cell = cells.get(at);
    if (!cell) {
      cell = h('div', { class: 'gtile', role: 'option', tabIndex: at === focus ? 0 : -1, 'data-at': at, 'aria-posinset': at + 1 });
      cells.set(at, cell);
      space.append(cell);
    }
    cell.style.width = `${plan.width}px`;
    cell.style.height = `${plan.height}px`;
    cell.style.transform = `translate(${(at % plan.columns) * (plan.width + GAP)}px, ${Math.floor(at / plan.columns) * (plan.height + GAP)}px)`;
    cell.setAttribute('aria-setsize', String(total));
    if (!tile) {
      cell.setAttribute('aria-label', `Image ${at + 1}`);
      cell.setAttribute('aria-selected', 'false');
      return;
    }
    const { text, kind, says } = caption(tile);
    const mark = `${tile.key} ${text} ${kind} ${tile.flagged}`;
    if (cell.dataset.mark !== mark) {
      const image = cell.dataset.key === tile.key ? cell.querySelector('img') : null;
      cell.dataset.mark = mark;
      cell.dataset.key = tile.key;
      cell.setAttribute('aria-label', `Image ${at + 1}: ${says}${tile.flagged ? ', flagged' : ''}`);
      cell.replaceChildren(
        image ?? h('img', { alt: '', draggable: false, 'data-key': tile.key }),
        h('span', { class: 'gtile-check', 'aria-hidden': 'true' }, icon('check')),
        h('span', { class: 'gtile-text', dir: 'auto', 'data-kind': kind, 'aria-hidden': 'true' }, text),
        tile.flagged ? h('span', { class: 'gtile-flag', 'aria-hidden': 'true' }, '⚑') : '');
    }
    cell.setAttribute('aria-selected', String(selected.has(tile.key)));
  }

  /** Ask for images of the tiles that are still on the screen when scrolling rests. */
  function loadImages() {
    for (const [at, cell] of cells) {
      const image = cell.querySelector('img');
      const tile = tileAt(at);
      if (!image || !tile || image.getAttribute('src')) continue;
      let tries = 0;
      const sharp = plan.width * devicePixelRatio > 170;
      const url = imageUrl(tile, sharp ? 512 : 160);
      image.addEventListener('load', () => cell.setAttribute('data-loaded', ''), { once: true });
      image.addEventListener('error', () => {
        tries += 1;
        if (tries < TRIES) setTimeout(() => image.setAttribute('src', url), 400 * tries);
      });
      image.setAttribute('src', url);
    }
  }

  /** @param {number} at @param {boolean} [move] whether the keyboard's focus goes along */
  function attend(at, move = true) {
    cells.get(focus)?.setAttribute('tabindex', '-1');
    focus = Math.max(0, Math.min(total - 1, at));
    if (!move || !total) return;
    const row = plan.height + GAP;
    const top = Math.floor(focus / plan.columns) * row;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + plan.height > element.scrollTop + element.clientHeight) element.scrollTop = top + plan.height - element.clientHeight;
    draw();
    put(focus);
    cells.get(focus)?.setAttribute('tabindex', '0');
    cells.get(focus)?.focus({ preventScroll: true });
  }

  /** @param {number} at @param {boolean} [on] */
  function choose(at, on) {
    const tile = tileAt(at);
    if (!tile) return;
    const now = on ?? !selected.has(tile.key);
    if (now && selected.size < MOST) selected.add(tile.key);
    else selected.delete(tile.key);
    if (cells.has(at)) put(at);
  }

  /** @param {number} from @param {number} to */
  async function range(from, to) {
    const [low, high] = from < to ? [from, to] : [to, from];
    const last = Math.min(high, low + MOST - 1);
    for (let page = Math.floor(low / PAGE); page <= Math.floor(last / PAGE); page += 1) await fetchPage(page);
    for (let at = low; at <= last; at += 1) choose(at, true);
    changed();
  }

  /** @param {Event} event */
  const indexOf = (event) => {
    const cell = event.target instanceof Element ? event.target.closest('.gtile') : null;
    return cell instanceof HTMLElement ? Number(cell.dataset.at) : -1;
  };

  element.addEventListener('scroll', paint, { passive: true });
  new ResizeObserver(paint).observe(element);
  element.addEventListener('click', (event) => {
    const at = indexOf(event);
    if (at < 0) return;
    attend(at);
    if (event.shiftKey) return void range(anchor, at);
    anchor = at;
    choose(at);
    changed();
  });
  element.addEventListener('dblclick', (event) => {
    const tile = tileAt(indexOf(event));
    if (tile) open(tile);
  });
  element.addEventListener('focusin', (event) => {
    const at = indexOf(event);
    if (at >= 0 && at !== focus) attend(at, false);
  });

  return {
    element,
    selected: () => [...selected],
    count: () => selected.size,
    focused: () => tileAt(focus),

    /** Show another result, from its start. @param {number} size @param {Tile[]} first its first tiles */
    show(size, first) {
      turn += 1;
      pages = new Map();
      for (let at = 0; at < first.length && first.length >= Math.min(size, PAGE); at += PAGE) pages.set(at / PAGE, first.slice(at, at + PAGE));
      total = size;
      focus = anchor = 0;
      for (const cell of cells.values()) cell.remove();
      cells.clear();
      element.scrollTop = 0;
      draw();
    },

    /** Read the tiles on the screen again: their labels have changed. */
    refresh() {
      turn += 1;
      pages = new Map();
      const row = plan.height + GAP;
      const first = Math.floor((Math.floor(element.scrollTop / row) * plan.columns) / PAGE);
      void fetchPage(first).then(() => paint());
    },

    /** @param {'left'|'right'|'up'|'down'} way */
    move(way) {
      const step = { left: -1, right: 1, up: -plan.columns, down: plan.columns }[way];
      const here = cells.get(focus) === document.activeElement; // the first key only brings the focus to the tiles
      const next = focus + (here ? step : 0);
      if (next >= 0 && next < total) attend(next);
    },

    toggle() {
      choose(focus);
      anchor = focus;
      changed();
    },

    /** @param {string[]} keys @param {boolean} [on] */
    select(keys, on = true) {
      for (const key of keys.slice(0, MOST)) (on ? selected.add(key) : selected.delete(key));
      for (const at of cells.keys()) put(at);
      changed();
    },

    clear() {
      selected.clear();
      for (const at of cells.keys()) put(at);
      changed();
    },

    /** @param {number} pixels the least width of a tile */
    resize(pixels) {
      const top = Math.floor(element.scrollTop / (plan.height + GAP)) * plan.columns;
      wanted = pixels;
      measure();
      element.scrollTop = Math.floor(top / plan.columns) * (plan.height + GAP);
      draw();
    },
  };
}
